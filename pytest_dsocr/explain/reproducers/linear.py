"""A linear layer."""

from typing import Any


def rule(data: dict[str, Any]) -> Any:
    """Return the output of a linear layer for each row of the input."""
    return data["input"] @ data["weight"].T + data["bias"]
