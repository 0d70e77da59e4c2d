"""What every suite of this repository shares."""

pytest_plugins = ["pytester"]
