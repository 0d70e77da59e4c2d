"""Checks that the server reads the page that it receives: as a JPEG, rotated by EXIF, or from a URL."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit

from PIL import Image

from pytest_dsocr.compare.verdict import Comparison
from pytest_dsocr.contract.image import load_image

from .asked import Asked, apart, judged
from .logprobs import first_apart

ORIENTATION, TURNED, TURN_BACK, QUALITY = 0x0112, 6, Image.Transpose.ROTATE_90, 85


def jpeg(asked: Asked) -> Comparison:
    """Compare a JPEG with a PNG of its pixels."""
    return _compared(asked, "jpeg", load_image(asked.odd["641_wide"].page), "how a JPEG is decoded")


def exif(asked: Asked) -> Comparison:
    """Compare a JPEG that EXIF rotates with an upright PNG of its pixels."""
    page = load_image(asked.odd["641_wide"].page).transpose(TURN_BACK)
    page.getexif()[ORIENTATION] = TURNED
    return _compared(asked, "exif", page, "that a page is rotated by its EXIF orientation, and how a JPEG is decoded")


def _compared(asked: Asked, what: str, page: Image.Image, check: str) -> Comparison:
    files = [asked.folder / name for name in (f"{what}.jpg", f"{what}.png")]
    page.save(files[0], quality=QUALITY, exif=page.getexif())
    load_image(files[0]).save(files[1])
    actual, expected = (asked.with_logprobs(asked.odd["plain"], page=file) for file in files)
    far, faults = first_apart(actual, expected), apart("the JPEG", actual, expected)
    measured = f"log-probability of the first token differs by {far:.1e} (allowed {asked.limits.logits:.0e})"
    faults += [measured] if far > asked.limits.logits else []
    return judged(what, faults, f"the text of a PNG of the same pixels; {measured}", check)


def url(asked: Asked) -> Comparison:
    """Compare pages sent as URLs with the same pages sent as data."""
    faults: list[str] = []
    with _serving(asked.folder, asked.server.url) as address:
        for case in (asked.odd["plain"], asked.odd["641_wide"]):
            faults += apart(case.id, asked(case, page=f"{address}/{case.page.name}"), asked(case))
    return judged("url", faults, "the texts of pages sent as data", "that the server does not cache a page by its URL")


@contextmanager
def _serving(folder: Path, server: str) -> Iterator[str]:
    """Serve a folder at the address by which this machine reaches the server; yield its URL."""
    quiet = type("Quiet", (SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
    parts = urlsplit(server)
    with socket.create_connection((parts.hostname, parts.port or (443 if parts.scheme == "https" else 80))) as line:
        own = line.getsockname()[0]
    with ThreadingHTTPServer((own, 0), partial(quiet, directory=folder)) as own_server:
        Thread(target=own_server.serve_forever, daemon=True).start()
        try:
            yield f"http://{own}:{own_server.server_port}"
        finally:
            own_server.shutdown()
