"""How fast the fast session is beside the readable one: its steps, its stages and its batches, taken in turn."""
