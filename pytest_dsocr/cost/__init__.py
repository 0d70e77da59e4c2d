"""What a page costs by arithmetic: FLOPs, bytes and memory, from an architecture and the page's size alone.

Pure Python: it imports no torch, and knows nothing of a page's content.
"""
