"""The embedded checkpoint, and nothing else; its README says how it was made."""
