"""The implementations under test: their protocol, how they are loaded, watched and called."""
