"""The subject in a process of its own, which it may lose without the run's being lost with it."""
