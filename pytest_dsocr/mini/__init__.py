"""The embedded checkpoint, the pages it was trained on and judged by, and the training that made it."""
