"""Checks of a server's OpenAI-compatible API besides its text; collected only if the subject is a server."""
