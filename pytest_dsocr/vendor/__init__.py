"""The reference: the vendor's own code, where the user has it."""
