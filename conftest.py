"""Plugins of every suite of this repository."""

pytest_plugins = ["pytester"]
