"""The results of all nights: each kept as a file of a few kilobytes, and a page over all of them."""
