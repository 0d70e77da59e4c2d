"""What would explain a failure: a stage of the session computed again under one mistake after the other.

Where one of them reproduces the subject's tensor, that is the subject's mistake, and no guess.
"""
