"""``python -m pytest_dsocr`` is ``dsocr``."""

from pytest_dsocr.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
