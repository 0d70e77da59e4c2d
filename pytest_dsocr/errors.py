"""The one exception that this project raises on bad input."""


class DsocrError(Exception):
    """Bad input, or a machine that lacks what was asked for.

    The message is one sentence: what was wrong, then what to do about it.
    """
