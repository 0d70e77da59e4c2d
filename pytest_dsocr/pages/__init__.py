"""From what a user names to pages and cases; and the pages that are shipped, in ``files/``."""
