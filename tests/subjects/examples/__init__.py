"""Subjects as a user would write them, each small and with a mistake of a real port in it.

Each uses the built-in engine where a user's has an implementation of its own.
"""
