"""What an OpenAI-compatible API shows of a server beside its text; collected of such a subject alone."""
