"""The commands of ``dsocr``. Each is a thin call; what a test wants without a command line belongs elsewhere."""
