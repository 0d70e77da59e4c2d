"""Whether the server sees the page that it is sent, as a JPEG, turned by EXIF, or behind a URL."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

from PIL import Image

from pytest_dsocr.compare.verdict import Comparison
from pytest_dsocr.contract.image import load_image

from .asked import MANY, Asked, apart, judged, not_offered
from .logprobs import first_apart, with_logprobs

ORIENTATION, TURNED, TURN_BACK = 0x0112, 6, Image.Transpose.ROTATE_90
QUALITY = 85
AS_A_LEVEL = 8.0
"""How many times more than noise of one level in each pixel another decoder of JPEG may change a logarithm."""


def jpeg(asked: Asked) -> Comparison:
    """Compare a JPEG with a PNG of its pixels."""
    return _compared(asked, "jpeg", load_image(asked.odd["641_wide"].page))


def exif(asked: Asked) -> Comparison:
    """Compare a JPEG that EXIF turns upright with a PNG that is upright."""
    page = load_image(asked.odd["641_wide"].page).transpose(TURN_BACK)
    page.getexif()[ORIENTATION] = TURNED
    return _compared(asked, "exif", page)


def _compared(asked: Asked, what: str, page: Image.Image) -> Comparison:
    """Compare what is read of a page as a JPEG with what is read of its pixels as a PNG, beside the PNG with noise."""
    files = [asked.folder / name for name in (f"{what}.jpg", f"{what}.png", f"{what}-noise.png")]
    page.save(files[0], quality=QUALITY, exif=page.getexif())
    upright = load_image(files[0])
    upright.save(files[1])
    noise = Image.effect_noise(upright.size, 1.0).convert("RGB")
    Image.blend(upright, noise, 1 / 128).save(files[2])
    ask = partial(with_logprobs, asked, asked.odd["641_wide"])
    actual, expected, noisy = (ask(page=file) for file in files)
    faults = apart("the JPEG", actual, expected)
    far, allowed = first_apart(actual, expected), AS_A_LEVEL * first_apart(noisy, expected)
    if not faults and far > allowed:
        faults = [f"the first token's logarithm is {far:.1e} apart; noise of a level explains {allowed:.1e}"]
    right = f"the text of the same pixels as PNG, the first token {far:.1e} apart"
    return judged(what, faults, right, f"how a JPEG is decoded{', and turned by its EXIF' * (what == 'exif')}")


def url(asked: Asked) -> Comparison:
    """Compare pages behind URLs with the same pages sent along; one file name stands for two of them in turn."""
    from pytest_dsocr.adapters.chat import RefusedError

    faults: list[str] = []
    cases = [asked.odd["plain"], asked.odd["641_wide"]]
    with _serving(asked.folder, asked.server.url) as address:
        for case in cases:
            try:
                actual = asked(case, page=f"{address}/{case.page.name}")
            except RefusedError as refused:
                return not_offered("url", f"a page behind a URL ({refused.status})")
            faults += apart(case.id, actual, asked(case, MANY))
    return judged(
        "url", faults, f"{len(cases)} pages as they are sent along", "what is kept of a page, and under which name"
    )


@contextmanager
def _serving(folder: Path, host: str) -> Iterator[str]:
    """Serve a folder at the address by which this machine reaches ``host``; yield its URL."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    parts = urlsplit(host)
    with socket.create_connection((parts.hostname, parts.port or (443 if parts.scheme == "https" else 80))) as line:
        own = line.getsockname()[0]
    with ThreadingHTTPServer((own, 0), partial(Quiet, directory=folder)) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://{own}:{server.server_port}"
        server.shutdown()
