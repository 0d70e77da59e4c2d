"""A night run part by part, kept as a file, merged from machines, and set beside those before; the first bad commit."""
