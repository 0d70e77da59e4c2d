"""The embedded checkpoint, and nothing else; ``ci/training`` holds what made it."""
