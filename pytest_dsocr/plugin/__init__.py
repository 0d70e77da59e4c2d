"""What pytest sees: hooks, fixtures, options, markers, snapshots; the run as its controller sees it."""
