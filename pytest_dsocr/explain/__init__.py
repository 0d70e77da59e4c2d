"""What would explain a failure: a stage of the session computed again under one mistake after the other.

Where one of them gives what the subject gave, that is the subject's mistake, and no guess.
"""
