"""What a page costs by arithmetic: FLOPs, bytes and memory, from an architecture and the page's size; no torch."""
