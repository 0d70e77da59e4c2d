"""Commands of ``dsocr``. Each is a thin call. Code that a test uses without a command line belongs elsewhere."""
