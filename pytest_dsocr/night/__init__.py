"""A night: its parts run one by one, its result kept as a file, and compared with the nights before."""
