"""Subjects as a user would write them, each small and with a mistake of a real port in it.

Each has a session inside where a user's own has an engine of its own.
"""
