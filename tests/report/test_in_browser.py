"""The pages of a failing run and of all nights in a real browser: on a telephone, and in the dark."""

import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs
from PIL import Image

from pytest_dsocr.describe.description import Description, ErrorPanel
from pytest_dsocr.history.page import html
from pytest_dsocr.report import views
from pytest_dsocr.timing.run import PerfRun
from tests.history.test_history import plan
from tests.report.made import MATCH, WRONG, case_payload, payload, result, run_payload
from tests.timing.made import measured

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), "")
LIMIT_S = 60
LONG = replace(WRONG, what="clip.crops/3", measured=f"{'unbroken' * 40}; relative error 7.1e-01")
PLACES = Description("anatomy", "the columns are exchanged", 0.95, places=(ErrorPanel("the page", ("0k" * 8,) * 16),))
MEASURE = """<script>
onload = () => {
  const root = document.documentElement, body = getComputedStyle(document.body)
  const light = colour => Math.max(...colour.match(/[0-9]+/g).slice(0, 3).map(Number))
  const name = location.pathname.split("/").pop()
  const sizes = [innerWidth, root.scrollWidth, light(body.color), light(body.backgroundColor)]
  parent.postMessage([name, ...sizes, document.querySelector("h1").innerText].join("|"), "*")
}
</script>"""
WIDTHS_PX, HEIGHT_PX = (400, 900, 1600), 1800
OPTIONS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    " --disable-component-update --disable-sync --virtual-time-budget=5000 --dump-dom"
)
FRAME = "<iframe src='{}' style='width: {}px; height: {}px; border: 0'></iframe>"
"""No window of the browser's is as narrow as a telephone's."""
LISTEN = """<p>measured:</p><script>
onmessage = message => document.querySelector("p").textContent += message.data + "|"
</script>"""


pytestmark = pytest.mark.skipif(not BROWSER, reason="needs a browser: apt-get install chromium")


def shown_in(folder: Path, pages: Mapping[str, str], *options: str) -> dict[tuple[str, int], list[str]]:
    """Show pages in windows of these widths, and keep the picture; return what each measured of itself."""
    policy = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
    for name, page in pages.items():
        (folder / name).write_text(policy.sub("", page) + MEASURE, "utf-8")  # the page itself runs no script
    windows = [(name, width_px) for name in pages for width_px in WIDTHS_PX]
    frame, picture, size = folder / "frame.html", folder / "shown.png", (sum(WIDTHS_PX) + 40, 2 * HEIGHT_PX + 80)
    frame.write_text(LISTEN + "".join(FRAME.format(*window, HEIGHT_PX) for window in windows), "utf-8")
    own = [f"--user-data-dir={folder / 'profile'}", f"--screenshot={picture}", f"--window-size={size[0]},{size[1]}"]
    command = [BROWSER, *OPTIONS.split(), *options, *own, frame.as_uri()]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=True).stdout
    reported = shown.partition("measured:")[2].partition("|</p>")[0].split("|")
    with Image.open(picture) as drawn:
        assert drawn.size == size
        assert len(drawn.convert("P", palette=Image.Palette.ADAPTIVE).getcolors() or ()) > 20, "it is not blank"
    found = {(reported[k], int(reported[k + 1])): reported[k + 2 : k + 6] for k in range(0, len(reported), 6)}
    assert sorted(found) == sorted(windows)
    return found


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_as_wide_as_the_window_and_its_headline_is_what_broke(tmp_path: Path, scheme: str) -> None:
    why = {"explained": "with the quick GELU, the engine reproduces the subject's clip.page", "proven": True}
    broken = {"verdict": "WRONG", "passes": False, "first_wrong": "clip.page", "described": PLACES, **why}
    cases = [case_payload(f"{'p' * 60}{k}", MATCH, WRONG, LONG, place=k, page=f"{k}.png", **broken) for k in range(20)]
    tests = [("failed", payload(WRONG, LONG, case=case, run=run_payload())) for case in cases]
    times = PerfRun(measured({"tokenizer": [5.0] * 3, "sam": [12.0] * 3, "page": [100.0] * 3})).to_json()
    of_run = views.html(structs.replace(result(*tests).document, perf=times))
    pages = {"run.html": of_run, "nights.html": html(plan("..XX-" * 5), [])}
    dark = ["--blink-settings=preferredColorScheme=0"] * (scheme == "dark")
    for (name, width_px), (scrolled, ink, ground, headline) in shown_in(tmp_path, pages, *dark).items():
        assert int(scrolled) <= width_px
        assert (int(ink) > 200 > 60 > int(ground)) is (scheme == "dark")
        assert name == "nights.html" or headline == "first broke clip.page in 20 of 20 pages"
