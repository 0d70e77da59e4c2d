"""Relations between two texts: a change of all characters of one kind, a script of few edits, a cut, a repetition."""

from __future__ import annotations

import html
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from rapidfuzz.distance import Levenshtein

from pytest_dsocr.base.words import are, count, quoted
from pytest_dsocr.describe.description import ENOUGH, LEFT, Description
from pytest_dsocr.describe.edits import Edit, common, described_by, edit_script, explained, moved
from pytest_dsocr.describe.measured import measured

MOST_EDITS, WIDTH, BEFORE = 3, 30, 24
"""Largest number of edits that are a description; widths of a quoted edit, and of what is quoted before it."""
LONGEST_TEXT = 50_000
"""Number of characters up to which changes of a whole text are tried."""
LEAST_REPEATED = 8
"""Least number of characters that a repeated end has."""

CHANGES: Mapping[str, tuple[str, Callable[[str], str]]] = {
    "lower": ("every letter is lower case", str.lower),
    "upper": ("every letter is upper case", str.upper),
    "no-line-breaks": ("every line break is missing", lambda text: text.replace("\n", "")),
    "line-breaks-as-blanks": ("every line break is a blank", lambda text: text.replace("\n", " ")),
    "line-breaks-doubled": ("every line break is doubled", lambda text: text.replace("\n", "\n\n")),
    "line-breaks-once": ("empty lines are missing", lambda text: re.sub(r"\n{2,}", "\n", text)),
    "carriage-returns": ("every line ends with a carriage return too", lambda text: text.replace("\n", "\r\n")),
    "no-blanks": ("every blank is missing", lambda text: text.replace(" ", "")),
    "blanks-once": ("blanks in a row are one", lambda text: re.sub(" {2,}", " ", text)),
    "ends-stripped": ("blanks at the ends of lines are missing", lambda text: re.sub(r"[ \t]+(?=\n|\Z)", "", text)),
    "lines-stripped": (
        "blanks at both ends of lines are missing",
        lambda text: re.sub(r"(?m)^[ \t]+|[ \t]+$", "", text),
    ),
    "stripped": ("white space around the text is missing", str.strip),
    "escaped-html": ("every &, < and > is escaped as in HTML", lambda text: html.escape(text, quote=False)),
    "escaped-html-quotes": ("every &, <, > and quote is escaped as in HTML", html.escape),
    "unescaped-html": ("HTML entities are replaced by their characters", html.unescape),
    "escaped-json": (
        "line breaks and quotes are escaped as in JSON",
        lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    ),
    "escaped-unicode": ("characters beyond ASCII are escaped as in JSON", lambda text: json.dumps(text)[1:-1]),
    "line-breaks-escaped": ("every line break is a backslash and an n", lambda text: text.replace("\n", "\\n")),
    "backslashes-doubled": ("every backslash is doubled", lambda text: text.replace("\\", "\\\\")),
    "no-backslashes": ("every backslash is missing", lambda text: text.replace("\\", "")),
    "nfkc": ("characters are normalised (NFKC)", lambda text: unicodedata.normalize("NFKC", text)),
    "nfd": ("characters are taken apart (NFD)", lambda text: unicodedata.normalize("NFD", text)),
    "ascii": ("every character beyond ASCII is missing", lambda text: text.encode("ascii", "ignore").decode()),
    "latin": ("UTF-8 is read as Latin-1", lambda text: text.encode(errors="surrogatepass").decode("latin-1")),
    "no-digits": ("every digit is missing", lambda text: re.sub("[0-9]", "", text)),
    "no-boxes": ("every box is missing", lambda text: re.sub(r"<\|det\|>.*?<\|/det\|>", "", text, flags=re.S)),
    "no-marks": ("every special token is missing", lambda text: re.sub(r"<\|/?\w+\|>", "", text)),
    "no-spans": (
        "every span with its label and boxes is missing",
        lambda text: re.sub(r"<\|ref\|>.*?<\|/det\|>", "", text, flags=re.S),
    ),
    "no-links": ("every link to a figure is missing", lambda text: re.sub(r"!\[[^\]]*\]\([^)]*\)", "", text)),
    "lines-reversed": ("the lines are in the opposite order", lambda text: "\n".join(text.split("\n")[::-1])),
    "reversed": ("the characters are in the opposite order", lambda text: text[::-1]),
}
"""Changes of a whole text without a parameter, the simplest first."""
CHOSEN = "no-end", "early-end", "cut-off", "never-chosen", "ngrams", "tied", "penalised", "passed-over", "fed"
"""Kinds of descriptions of a text by the choice of its tokens."""
RULES = frozenset((*CHANGES, *CHOSEN, "as-one", "state", "other-page", "told", "on-each-page"))
"""Kinds of descriptions of a text that say by which rule it was made; others may come from any stage."""
KINDS = {"digit": "0-9", "capital": "A-Z", "small letter": "a-z", "line break": "\n", "blank": " "}
"""Kinds of characters that may all become one."""


def of_texts(actual: str, expected: str) -> Iterator[Description]:
    """Yield relations between two texts, the simplest first, and an anatomy last."""
    if actual == expected:
        return
    yield from measured(_cut, actual, expected)
    apart = _distance(actual, expected)
    for kind, (words, change) in CHANGES.items():
        if (made := change(expected)) != expected and (share := _share(actual, made, apart)) >= ENOUGH:
            text = f"{words}, at {count(_places(made, expected), 'place')}{_rest(actual, made)}"
            yield Description(kind, text, share, len(expected))
    yield from measured(_as_one, actual, expected)
    yield from measured(_moved, actual, expected)
    edits = edit_script(actual, expected)
    if few := described_by(edits, MOST_EDITS, WIDTH):
        text = "; ".join(_said(one, expected) for one in few)
        yield Description("edited", text, explained(edits, len(few)), sum(len(one.places) for one in few))
    yield from measured(_reordered, actual, expected)
    yield from measured(_repeating, actual, expected)
    yield Description("anatomy", _anatomy(actual, expected), 0.0, len(expected))


def _rest(actual: str, made: str) -> str:
    """Return what a change leaves of the difference; empty if it is nothing."""
    if actual == made:
        return ""
    few = described_by(edit_script(actual, made), MOST_EDITS, WIDTH)
    return f"; {LEFT}: {'; '.join(_said(one, made) for one in few) if few else _anatomy(actual, made)}"


def is_partial(found: Description | None) -> bool:
    """Return whether a description is of a whole text's change that leaves a part of the difference."""
    return found is not None and found.kind in CHANGES and LEFT in found.text


def _places(actual: str, expected: str) -> int:
    return sum(len(one.places) for one in edit_script(actual, expected))


def _distance(actual: str, expected: str, most: int | None = None) -> int:
    """Return the edit distance of the first :data:`LONGEST_TEXT` characters; ``most`` + 1 if it is larger."""
    return Levenshtein.distance(actual[:LONGEST_TEXT], expected[:LONGEST_TEXT], score_cutoff=most)


def _share(actual: str, made: str, apart: int) -> float:
    """Return the share of an edit distance that a change explains, 0 if that is too little."""
    left = _distance(actual, made, int(apart * (1 - ENOUGH)) + 1)
    return max(0.0, 1 - left / apart) if apart and len(actual) <= LONGEST_TEXT else 0.0


def _cut(actual: str, expected: str) -> Iterator[Description]:
    """Yield that a text ends early, goes on, or begins late."""
    own, of = len(actual), len(expected)
    if not actual.strip():
        yield Description("empty", f"nothing is read of {of:,} characters", 1.0, of)
    elif own < of and expected.startswith(actual):
        inside = actual[-1].isalnum() and expected[own].isalnum()
        where = f"in the middle of {quoted(_word(expected, own), WIDTH)}" if inside else f"after {_quoted(actual, own)}"
        yield Description("ends", f"it ends after {own:,} of {of:,} characters, {where}", 1.0, own)
    elif own > of and actual.startswith(expected):
        more = actual[of:]
        size = f"{len(more):,} character{are(len(more), 's', '')}"
        text = f"it goes on after the reference's end, for {size}: {quoted(more, WIDTH)}"
        yield Description("goes-on", text, 1.0, of)
    elif own < of and expected.endswith(actual):
        lost = of - own
        text = f"the first {lost:,} of {of:,} characters {are(lost)} missing: {quoted(expected[:lost], WIDTH)}"
        yield Description("begins-late", text, 1.0, own)
    elif own > of and actual.endswith(expected):
        many = own - of
        size = f"{many:,} character{are(many, 's', '')} {are(many, 'stand', 'stands')}"
        text = f"{size} in front: {quoted(actual[:many], WIDTH)}"
        yield Description("prefixed", text, 1.0, of)


def _word(text: str, at: int) -> str:
    """Return the word around a position."""
    start = next((k for k in range(at, 0, -1) if not text[k - 1].isalnum()), 0)
    return text[start : next((k for k in range(at, len(text)) if not text[k].isalnum()), len(text))]


def _quoted(text: str, at: int) -> str:
    """Return the text before a position, quoted."""
    return quoted(text[max(0, at - BEFORE) : at], WIDTH + 4)


def _as_one(actual: str, expected: str) -> Iterator[Description]:
    """Yield that all characters of a kind are one character."""
    for words, kind in KINDS.items():
        found = [*re.finditer(f"[{kind}]", expected)]
        if len(found) < 2 or (at := common(actual, expected)) >= min(len(actual), len(expected)):
            continue
        new = actual[at]
        made = re.sub(f"[{kind}]", new.replace("\\", r"\\"), expected)
        share = _share(actual, made, _distance(actual, expected))
        if made != expected and share >= ENOUGH and expected[at] in {one[0] for one in found}:
            yield Description("as-one", f"all {len(found)} {words}s are {quoted(new, WIDTH)}", share, len(found) - 1)


def _said(edit: Edit, expected: str) -> str:
    """Return an edit in words, with its places."""
    before, after = ("".join(map(str, one)) for one in (edit.old, edit.new))
    old, new = (quoted(one, WIDTH) for one in (before, after))
    what = f"{new} in place of {old}" if before and after else f"{new} inserted" if after else f"{old} left out"
    if len(edit.places) == 1:
        [at] = edit.places
        return f"{what} at character {at:,}, after {_quoted(expected, at)}" if at else f"{what} at the start"
    of = f" of {expected.count(before, edit.places[0])}" if before else ""
    return f"{what} at {len(edit.places)}{of} places, from character {edit.places[0]:,} on"


def _moved(actual: str, expected: str) -> Iterator[Description]:
    """Yield that a part of the text stands elsewhere."""
    if (move := moved(actual, expected)) is not None:
        what = quoted(expected[move.old : move.old + move.size], WIDTH)
        text = f"{count(move.size, 'character')} from {move.old:,} on moved to {move.new:,}: {what}"
        yield Description("moved", text, 1.0, len(expected))


def _reordered(actual: str, expected: str) -> Iterator[Description]:
    """Yield that lines or characters are in another order."""
    if sorted(actual.split("\n")) == sorted(expected.split("\n")):
        yield Description("reordered", "the same lines in another order", 1.0, expected.count("\n") + 1)
    elif Counter(actual) == Counter(expected):
        yield Description("reordered", "the same characters in another order", 1.0, len(expected))


def _repeating(actual: str, expected: str) -> Iterator[Description]:
    """Yield that the text repeats itself up to its end."""
    length, period = max(
        ((_repeated(actual, one), -one) for one in range(1, min(256, len(actual)) + 1)), default=(0, 0)
    )
    period, first = -period, common(actual, expected)
    if length < max(2 * period, LEAST_REPEATED):
        return
    start = len(actual) - length - period
    share = min(1.0, (len(actual) - max(start, first)) / max(1, len(actual) - first))
    once = actual[start : start + period]
    times = (length + period) // period
    text = f"it repeats {quoted(once, WIDTH)} {times} times, from character {start:,} of {len(actual):,} on"
    yield Description("repeats", text, share, times)


def _repeated(text: str, period: int) -> int:
    """Return the number of characters at the end that equal those a period before."""
    length = 0
    while length < len(text) - period and text[-1 - length] == text[-1 - length - period]:
        length += 1
    return length


def _anatomy(actual: str, expected: str) -> str:
    at, of = common(actual, expected), len(expected)
    differ = f"{min(1.0, _distance(actual, expected) / (max(len(actual), of) - at)):.0%} differ"
    if not at:
        return f"{differ}, from the first character on"
    return f"the first {at:,} of {of:,} characters are right, up to {_quoted(expected, at)}; of the rest {differ}"
