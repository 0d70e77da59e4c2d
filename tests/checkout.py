"""Where the repository is checked out, which is where these tests come from, whatever package they test."""

from pathlib import Path

CHECKOUT = Path(__file__).parents[1]
