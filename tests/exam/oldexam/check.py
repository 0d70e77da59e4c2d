"""Plant each mistake once, and name the first probe whose result it changes: ``python -m oldexam.check [IDS]``.

DSOCR_FAULTS_ON=cuda:bfloat16 as in the tests. OLDEXAM_STACKED=1 lays out the experts as on a GPU, and OLDEXAM_PROBES=1
tries the first probe of each stage alone.
"""

import os
import random
import sys
import time
import traceback
from functools import cache
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from oldexam import SETS, exam
from pytest_dsocr.contract.image import resampling
from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.explain.mistake import Changes
from pytest_dsocr.models.deepseek_ocr import FAMILY
from pytest_dsocr.pages.page_list import PAGES as SHIPPED
from pytest_dsocr.records.config import Setup
from pytest_dsocr.subjects.engine import engine_subject
from suites.contract import pages as P

DEVICE, DTYPE = os.environ.get("DSOCR_FAULTS_ON", "cpu:float32").split(":")
D = Path(os.environ.get("TMPDIR", "/tmp")) / "oldexam-pages"
D.mkdir(exist_ok=True)
subject = engine_subject(Setup("mini", DEVICE, DTYPE))
engine = subject.engine
if "OLDEXAM_STACKED" in os.environ:
    engine.model.stack_experts()  # as on a GPU
special = engine.tokenizer.special
EXAM = {name: one for part in SETS for name, one in exam(part).items()}
REAL = {name: SHIPPED / f"generated/{name}.png" for name in ("invoice_016", "figures_201", "slide_1011")}


def save(name, image, **how):
    path = D / name
    if not path.exists():
        image.save(path, **how)
    return path


def exif(image, orientation):
    data = image.getexif()
    data[0x0112] = orientation
    return {"exif": data}


@cache
def page(name):
    if name in REAL:
        return REAL[name]
    made = {
        "jpeg_large": lambda: save("large.jpg", P.rgb(2600, 3000)),
        "png_large": lambda: save("large.png", P.rgb(2600, 3000), compress_level=1),
        "wide_4": lambda: save("wide4.png", P.rgb(4200, 2100), compress_level=1),
        "mirrored": lambda: save("mirrored.jpg", P.rgb(900, 700, 6), **exif(P.rgb(900, 700, 6), 2)),
        "turned_6": lambda: save("turned6.jpg", P.rgb(1400, 700, 6), **exif(P.rgb(1400, 700, 6), 6)),
        "cmyk_jpg": lambda: save("cmyk.jpg", P.cmyk()),
        "frames": lambda: save("frames.gif", P.rgb(700, 700, 6).convert("P"), save_all=True,
                               append_images=[P.rgb(700, 700, 9).convert("P")]),
        "long_small": lambda: save("long.png", P.rgb(700, 500, 3)),
        "blank": lambda: save("blank.png", Image.new("RGB", (700, 500), (250, 250, 250))),
        "odd_bar": lambda: save("oddbar.png", P.rgb(801, 1000, 3)),
        "odd_bar2": lambda: save("oddbar2.png", P.rgb(803, 1000, 3)),
        "ratio": lambda: save("ratio.png", P.rgb(416, 1000, 3)),
        "tie": lambda: save("tie.png", P.rgb(1500, 600, 3)),
        "margin_a": lambda: save("margin_a.png", margin(0)),
        "margin_b": lambda: save("margin_b.png", margin(1)),
    }
    return made[name]() if name in made else P.write_page(name, D)


def margin(kind):
    levels = np.full((900, 700, 3), 255, np.uint8)
    levels[500:, 100:600] = P.canvas(500, 400, 3 + kind)
    return Image.fromarray(levels)


GUNDAM = FAMILY.preset("gundam")
MARKDOWN = FAMILY.prompts["markdown"]


def inputs(name, prompt=MARKDOWN, preset=GUNDAM):
    if isinstance(name, tuple):
        return engine.prepare([page(one) for one in name], prompt=prompt, preset=preset).tensors
    return subject.inputs(page(name), prompt=prompt, preset=preset)


@cache
def right_inputs(name, prompt=MARKDOWN, preset=GUNDAM):
    return dict(inputs(name, prompt, preset))


@cache
def right_vision(name, prompt=MARKDOWN):
    return dict(subject.vision(dict(right_inputs(name, prompt))))


def vision(*names, prompt=MARKDOWN):
    found = [subject.vision(dict(right_inputs(name, prompt))) for name in names]
    return {f"{k}.{key}": value for k, one in enumerate(found) for key, value in one.items()}


def prefill(*names):
    out = {}
    for k, name in enumerate(names):
        state = subject.prefill(dict(right_inputs(name)), right_vision(name).get("vision_fusion"))
        out[f"{k}"] = state.logits.clone()
    return out


def steps(name, count=12):
    fusion = right_vision(name).get("vision_fusion")
    state = subject.prefill(dict(right_inputs(name)), fusion)
    source, out = random.Random(0), []
    for _ in range(count):
        out.append(subject.step(state, source.randrange(300)).clone())
    return {"steps": torch.stack(out)}


def read(name, most=60, prompt=MARKDOWN, preset=GUNDAM):
    made = engine.run(page(name), prompt=prompt, preset=preset, max_new_tokens=most)
    return {"text": made.text, "tokens": made.token_ids, "reason": made.finish_reason}


def batch(*names, most=25):
    results = engine.run_batch([page(one) for one in names], max_new_tokens=most)
    return {"texts": [one.text for one in results], "ids": [one.token_ids for one in results]}


class Forced:
    """The loop over logits that are made up."""

    def __init__(self, favourites, most, size=20):
        self.favourites, self.most, self.size = favourites, most, size

    def __call__(self):
        from pytest_dsocr.engine import engine as module
        from pytest_dsocr.engine.pipeline import DecodeState

        like = next(engine.model.parameters())
        rows = len(self.favourites[0]) if isinstance(self.favourites[0][0], list) else 1

        def logits(k):
            made = torch.zeros(rows, engine.model.arch.decoder.vocab_size, device=like.device)
            for row in range(rows):
                first = self.favourites[k % len(self.favourites)]
                for rank, token in enumerate(first[row] if rows > 1 else first):
                    made[row, token] = 30.0 - 1.0 * rank
            return made

        class Made:
            at = 0

            def decode_step(self, state, tokens):
                self.at += 1
                state.logits = logits(self.at)
                return state.logits

        state = DecodeState(None, logits(0), None, [])
        from dataclasses import replace

        policy = replace(engine.policy, max_new_tokens=self.most, no_repeat_ngram_size=self.size)
        prompts = [[5, 6, 7] * 3] * rows
        return {"said": list(module.generate(Made(), state, prompts, policy, special.pad))}


def ties():
    from pytest_dsocr.engine import pipeline

    logits = torch.zeros(1, 50, device=engine.model.device)
    logits[0, 20], logits[0, 10] = 20.001, 20.0
    return {"picked": pipeline.pick(logits, [[]])}


def write(text, name="invoice_016"):
    import shutil

    folder = D / "out"
    shutil.rmtree(folder, ignore_errors=True)
    subject.write(text, page(name), folder)
    return {one.relative_to(folder).as_posix(): one.read_bytes() for one in sorted(folder.rglob("*")) if one.is_file()}


def decoded(text):
    return {"text": subject.text_of(engine.tokenizer.encode(text))}


def finished():
    """What the engine makes of tokens that begin with blanks."""
    ids = [*engine.tokenizer.encode("  \n A text &amp; more ."), special.eos]
    made = engine._result_of(ids, engine.family.prepare(page("invoice_016"), "markdown", "gundam", engine.tokenizer),
                             [], 1, engine.policy)
    return {"text": made.text}


def span(label, boxes):
    return f"<|ref|>{label}<|/ref|><|det|>{boxes}<|/det|>\n"


TEXT = (
    span("title", "[[10, 20, 333, 77]]") + "# A title\n\n" + span("image", "[[101, 203, 533, 577]]") + "\n"
    + span("image_caption", "[[101, 583, 533, 597]]") + "caption\n" + span("image", "[[101, 203, 533, 577]]")
    + span("image", "[[-5, 700, 1030, 900.5], [3, 4, 50, 60]]") + span("text", "[[1, 2, 3, 4]]") + "x , y &lt; z ."
    + span("text", "[[1, 2, 3, 4]]") + "more"
)
SMALL, OWN = FAMILY.preset("small"), Preset("own", 1024, 512, True, FAMILY.tiling, FAMILY.layout)
TWO = "<image>\nFirst.<image>\nSecond."
LOCATE = "<image>\nLocate <|ref|>the total<|/ref|> in the image."
TALL = [("figures_201",), ("invoice_016",), ("slide_1011",)]
PAGES = [*TALL, *((name,) for name in (
    "exif", "16_bit", "cmyk", "cmyk_jpg", "frames", "mirrored", "turned_6", "a4", "screen", "641_wide", "641_high",
    "odd_bar", "odd_bar2", "tie", "ratio", "long_small", "square", "panorama", "1500_square", "jpeg_large", "png_large", "wide_4",
    "column", "landscape",
))]
INPUTS = [(inputs, *one) for one in PAGES] + [
    (inputs, "figures_201", "  <image>\nFree OCR.  \n"), (inputs, "figures_201", "<image>\nFree    OCR."),
    (inputs, "figures_201", LOCATE), (inputs, "figures_201", "Text in front <image>\nFree OCR."),
    (inputs, "odd_bar", MARKDOWN, SMALL), (inputs, "odd_bar", MARKDOWN, OWN), (inputs, ("figures_201", "odd_bar"), TWO),
]
VISION = [
    *[(vision, name) for name in ("invoice_016", "figures_201", "slide_1011", "1500_square", "square_halves", "blank")],
    (vision, "margin_a", "margin_b"),
    lambda: vision(("figures_201", "odd_bar"), prompt=TWO), lambda: vision(("odd_bar", "figures_201"), prompt=TWO),
    lambda: vision(("square", "a4"), prompt=TWO),
]
PREFILL = [(prefill, "invoice_016"), (prefill, "figures_201"), (prefill, "margin_a", "margin_b"), (prefill, "1500_square")]
STEPS = [(steps, "invoice_016"), (steps, "figures_201"), (steps, "1500_square", 90), (batch, "invoice_016", "figures_201"), (steps, "figures_201", 235)]
LOOP = [
    Forced([[40], [41], [42]], 60, size=5), Forced([[40, 41], [40, 42], [43]], 80, 4),
    Forced([[special.pad], [special.pad]], 5), Forced([[special.eos, 9]], 30), Forced([[40, 50], [41], [42]], 30, 3),
    Forced([[k] for k in range(40, 48)], 34),
    Forced([[[special.eos], [40]], [[3], [41]], [[3], [42]], [[3], [special.eos]]], 8), ties,
]
READ = [
    *LOOP, (read, "invoice_016", 5), (read, "invoice_016", 40), (read, "figures_201", 40),
    lambda: [read("figures_201", 8), read("invoice_016", 8)],
    (batch, "invoice_016", "figures_201"),
]
AFTER = [(write, TEXT), (write, TEXT, "exif"), (decoded, TEXT), finished]
OF = {"tokenizer": INPUTS, "sam": VISION, "clip": VISION, "projector": VISION, "vision_fusion": VISION,
      "prefill": PREFILL, "decode": STEPS, "read": READ, "postprocess": AFTER}


def call(probe):
    try:
        with torch.no_grad():
            return probe[0](*probe[1:]) if isinstance(probe, tuple) else probe()
    except Exception as error:
        return error


def name_of(probe):
    if isinstance(probe, tuple):
        return f"{probe[0].__name__}({', '.join(str(one)[:30] for one in probe[1:])})"
    if isinstance(probe, Forced):
        return f"loop {LOOP.index(probe)}"
    return getattr(probe, "__name__", "") + f" #{next((k for of in OF.values() for k, one in enumerate(of) if one is probe), '')}"


def same(a, b):
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and a.shape == b.shape and bool(torch.equal(a, b))
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(same(x, y) for x, y in zip(a, b))
    if isinstance(a, Exception):
        return isinstance(b, Exception) and str(a) == str(b)
    return a == b


def far(a, b):
    """Return the largest relative difference of tensors, or the keys that differ."""
    if isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys():
        keys = [k for k in a if not same(a[k], b[k])]
        first = a[keys[0]], b[keys[0]]
        if all(isinstance(x, torch.Tensor) for x in first) and first[0].shape == first[1].shape:
            x, y = (one.double() for one in first)
            return f"{keys[0]} {float((x - y).norm() / (x.norm() + 1e-30)):.1e}"
        return f"{keys[0]} {str(first[0])[-40:]!r} -> {str(first[1])[-40:]!r}" if not isinstance(first[0], torch.Tensor) else f"{keys[0]} {tuple(first[0].shape)} -> {tuple(first[1].shape)}"
    return f"-> {b!r}"[:150]


RIGHT = {}


def right(probe):
    key = id(probe)
    if key not in RIGHT:
        RIGHT[key] = call(probe)
        again = call(probe) if not isinstance(probe, tuple) else RIGHT[key]
        if not same(RIGHT[key], again):
            print("not the same twice:", name_of(probe))
        if isinstance(RIGHT[key], Exception):
            print("raises without a mistake:", name_of(probe), repr(RIGHT[key])[:200], flush=True)
    return RIGHT[key]


def main(asked):
    resampling()
    unchanged, loud, started = [], [], time.time()
    for name in asked or EXAM:
        one, at = EXAM[name], time.time()
        for probe in OF[one.stage][: int(os.environ.get("OLDEXAM_PROBES", "99"))]:
            expected = right(probe)
            try:
                with Changes() as changes:
                    one.put(subject, changes)
                    found = call(probe)
            except Exception:
                print(name, "CANNOT BE PLANTED", traceback.format_exc()[-400:], flush=True)
                break
            if not same(expected, found):
                error = isinstance(found, Exception)
                print(f"{name} {one.stage}: {name_of(probe)}{' RAISES' if error else ''} {far(expected, found)} {time.time() - at:.1f}s", flush=True)
                if error:
                    loud.append(name)
                    if type(found).__name__ not in ("DsocrError", "MachineError"):
                        print("".join(traceback.format_exception(found))[-600:], flush=True)
                break
        else:
            unchanged.append(name)
            print(f"{name} {one.stage}: NOTHING CHANGES ({one.page}; {one.unseen}) {time.time() - at:.1f}s", flush=True)
    left = [name_of(of[0]) for of in (INPUTS, VISION, PREFILL, STEPS, AFTER) if not same(right(of[0]), call(of[0]))]
    if left:
        print("SOMETHING IS LEFT BEHIND:", left)
    print(len(asked or EXAM), "planted; nothing changes:", unchanged, "raise:", loud, f"{time.time() - started:.0f}s")


if __name__ == "__main__":
    main(sys.argv[1:])
