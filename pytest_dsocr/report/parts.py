"""Names of the parts of a run that its time is counted by."""

STARTING, COLLECTING, COMPARING, WAITING, TESTS = "starting", "collecting", "comparing", "waiting", "tests"
