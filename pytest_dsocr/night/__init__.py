"""What many nights say together: a file for each, a page over all, what flips, and the first bad commit."""
