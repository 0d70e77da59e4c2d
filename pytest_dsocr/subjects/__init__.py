"""The implementations under test, made to answer the same questions as the reference."""
