"""The implementations under test: their protocol, how they are loaded, watched and called.

Nothing here judges an answer; the rooms compare and cases do.
"""
