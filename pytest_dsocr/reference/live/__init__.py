"""The vendor's code in a worker process of its own environment."""
