"""Cost of a page by arithmetic: FLOPs and bytes, from an architecture and the page's size; no torch."""
