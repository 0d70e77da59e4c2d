"""The implementations under test: what one fulfils, how it is loaded, watched and asked.

What it answers is an observation; what that is worth is for others to say.
"""
