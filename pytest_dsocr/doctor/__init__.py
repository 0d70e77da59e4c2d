"""What a machine has and lacks for a run: one finding for each thing, with what to do about it.

Each check looks at the real thing as a run would, and none changes anything.
"""
