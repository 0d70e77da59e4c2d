"""Plugin of pytest: hooks, fixtures, options, markers, snapshots, and the result of a run."""
