"""Pages and cases: what a user names, turned into files; and the pages that are shipped, in ``files/``."""
