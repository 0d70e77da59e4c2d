"""Pure functions that hold two observations side by side and return verdicts; they never print and never raise.

They ask nobody: what they compare is handed to them.
"""
