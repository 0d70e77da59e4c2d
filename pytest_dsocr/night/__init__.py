"""A night run part by part, kept as a file, and set beside those before."""
