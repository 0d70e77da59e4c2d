"""The environment that the vendor's code needs."""
