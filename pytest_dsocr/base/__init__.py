"""Helpers for every room: errors, wording, exact types, threads, files written whole. They import no other room."""
