"""The vendor's Python files behind our seams: imported, built, watched. Runs in the vendor's own environment."""
