"""Pure functions that compare two observations and return verdicts. They never print and never raise.

They get all that they compare as arguments, and ask neither side for more.
"""
