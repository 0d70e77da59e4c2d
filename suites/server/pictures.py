"""Whether the server sees the page that it is sent, as a JPEG, turned by EXIF, or behind a URL."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from threading import Thread
from urllib.parse import urlsplit

from PIL import Image, ImageChops

from pytest_dsocr.compare.verdict import Comparison
from pytest_dsocr.contract.image import load_image

from .asked import Asked, apart, judged
from .logprobs import first_apart

ORIENTATION, TURNED, TURN_BACK = 0x0112, 6, Image.Transpose.ROTATE_90
QUALITY = 85
AS_A_LEVEL = 4.0
"""How many times more than one level in every other pixel another decoder of JPEG may change a logarithm."""


def jpeg(asked: Asked) -> Comparison:
    """Compare a JPEG with a PNG of its pixels."""
    return _compared(asked, "jpeg", load_image(asked.odd["641_wide"].page), "how a JPEG is decoded")


def exif(asked: Asked) -> Comparison:
    """Compare a JPEG that EXIF turns upright with a PNG that is upright."""
    page = load_image(asked.odd["641_wide"].page).transpose(TURN_BACK)
    page.getexif()[ORIENTATION] = TURNED
    return _compared(asked, "exif", page, "that a page is turned as its EXIF says, and how a JPEG is decoded")


def _compared(asked: Asked, what: str, page: Image.Image, check: str) -> Comparison:
    files = [asked.folder / name for name in (f"{what}.jpg", f"{what}.png", f"{what}-noise.png")]
    page.save(files[0], quality=QUALITY, exif=page.getexif())
    upright = load_image(files[0])
    upright.save(files[1])
    levels = bytes(one & 1 for one in Random(0).randbytes(upright.width * upright.height))
    ImageChops.subtract(upright, Image.frombytes("L", upright.size, levels).convert("RGB")).save(files[2])
    actual, expected, noisy = (asked.with_logprobs(asked.odd["plain"], page=file) for file in files)
    faults = apart("the JPEG", actual, expected)
    far, allowed = first_apart(actual, expected), max(asked.limits.logits, AS_A_LEVEL * first_apart(noisy, expected))
    if not faults and far > allowed:
        faults = [f"the first token's logarithm is {far:.1e} apart (allowed {allowed:.1e})"]
    right = f"the text of the same pixels as PNG, the first token {far:.1e} apart (allowed {allowed:.1e})"
    return judged(what, faults, right, check)


def url(asked: Asked) -> Comparison:
    """Compare pages behind URLs with the same pages sent along."""
    faults: list[str] = []
    with _serving(asked.folder, asked.server.url) as address:
        for case in (asked.odd["plain"], asked.odd["641_wide"]):
            faults += apart(case.id, asked(case, page=f"{address}/{case.page.name}"), asked(case))
    return judged("url", faults, "as pages that are sent along", "what is kept of a page, and by which name")


@contextmanager
def _serving(folder: Path, server: str) -> Iterator[str]:
    """Serve a folder at the address by which this machine reaches the server; yield its URL."""
    quiet = type("Quiet", (SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
    parts = urlsplit(server)
    with socket.create_connection((parts.hostname, parts.port or (443 if parts.scheme == "https" else 80))) as line:
        own = line.getsockname()[0]
    with ThreadingHTTPServer((own, 0), partial(quiet, directory=folder)) as own_server:
        Thread(target=own_server.serve_forever, daemon=True).start()
        yield f"http://{own}:{own_server.server_port}"
        own_server.shutdown()
