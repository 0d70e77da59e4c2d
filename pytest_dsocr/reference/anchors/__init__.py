"""What the vendor's files hold, where, and whether they have drifted."""
