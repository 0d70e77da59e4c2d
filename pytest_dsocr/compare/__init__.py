"""Pure functions that compare two observations and return verdicts. They never print, never raise, and ask no side."""
