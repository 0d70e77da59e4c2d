"""The check of a receipt: whatever can be computed again here, and a line for each thing that cannot."""

from collections import Counter
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

import pytest_dsocr
from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.base.files import parse_json, sha256
from pytest_dsocr.base.own_files import own_sha256
from pytest_dsocr.base.reading import Format
from pytest_dsocr.base.words import HASH_CHARACTERS, count, listed
from pytest_dsocr.compare.tolerances import usual_limits
from pytest_dsocr.compare.verdict import Verdict
from pytest_dsocr.engine.places import family_named
from pytest_dsocr.history.record import stage_of
from pytest_dsocr.models.spec import DECODE, PREPROCESS, TOKENIZER
from pytest_dsocr.receipt.receipt import KNOWN, RECEIPTS, Receipt, receipt_of
from pytest_dsocr.receipt.rerun import run_again
from pytest_dsocr.records.config import Level
from pytest_dsocr.reference.drift import read_json
from pytest_dsocr.reference.environment import family_with
from pytest_dsocr.reference.goldens import MANIFEST, RECORDINGS, anchors_of, shipped_folder
from pytest_dsocr.reference.recording import Recording
from pytest_dsocr.report.comparison_result import LimitsUsed
from pytest_dsocr.report.file import JSON_NAME, Ending
from pytest_dsocr.report.strip import OUTPUT

UNSEALED = Format(Receipt, RECEIPTS.advice, parse=parse_json)
"""Format of a receipt with any digest, to check the rest of one that was edited."""


class CheckMark(StrEnum):
    """Result of one check."""

    OK = "ok"
    NO = "NO"
    """Contradiction within the receipt or with this installation, or less than the usual comparison."""
    NOTE = "note"
    """Restriction that the receipt states itself."""
    OPEN = "open"
    """Not checked, because this machine cannot."""


OK, NO, NOTE, OPEN = CheckMark
ReceiptFinding = tuple[CheckMark, str, str]
"""Result of one check: its mark, its name, and the reason."""


def verify(path: Path, *, rerun: bool = False) -> Iterator[ReceiptFinding]:
    """Yield the findings about a receipt.

    Args:
        rerun: also run its command, which runs the subject's code.

    Raises:
        DsocrError: if there is no such file, or it is no receipt.
    """
    data = RECEIPTS.read_bytes(path)
    try:
        receipt = RECEIPTS.decode(data, path)
        yield OK, "digest", receipt.sha256
    except DsocrError as error:
        yield NO, "digest", str(error)
        receipt = UNSEALED.decode(data, path)
    yield _result(receipt, path.parent)
    yield from _verdict(receipt)
    yield from _stages(receipt)
    yield from _limits(receipt)
    yield from _tool(receipt)
    yield from _vendor(receipt)
    yield _recording(receipt)
    yield _checkpoint(receipt)
    yield from _reproducers(receipt, path.parent)
    unseen = "whether the subject gives this, and whether anything changed the tool while it ran: --rerun shows it"
    found = run_again(receipt) if rerun else [(OPEN, unseen)]
    yield from ((CheckMark(mark), "rerun", why) for mark, why in found)


def _result(receipt: Receipt, folder: Path) -> ReceiptFinding:
    """Compare the receipt with the result that it was made of, if that lies next to it."""
    place = folder / JSON_NAME
    if not place.is_file():
        return OPEN, "result", f"there is no {JSON_NAME} next to the receipt"
    if sha256(place.read_bytes()) != receipt.result_sha256:
        return NO, "result", f"{place} is of another run, or was changed"
    made = receipt_of(folder)
    names = [name for name in made.__struct_fields__ if getattr(made, name) != getattr(receipt, name)]
    other = [name for name in names if name not in ("sha256", "tool")]
    if other:
        return NO, "result", f"{', '.join(other)} differ from what {place} gives"
    return OK, "result", f"equal to what {place} gives"


def _verdict(receipt: Receipt) -> Iterator[ReceiptFinding]:
    """Check that verdict, counts, cases and causes agree."""
    of_stages = sum(map(Counter, receipt.stages.values()), Counter[str]())
    if of_stages != Counter(receipt.counts):
        yield NO, "counts", f"those of the stages give {dict(of_stages)}, the total is {receipt.counts}"
    wrong = receipt.counts.get(Verdict.WRONG, 0)
    failed = [case.id for case in receipt.cases if not case.passes]
    may_fail = any(KNOWN in one for one in receipt.not_possible)
    against = [
        *([f"ended as {receipt.ended_as}"] if receipt.ended_as is not Ending.PASSES else []),
        *([f"{wrong} WRONG"] if wrong and not may_fail else []),
        *([f"{count(len(failed), 'case')} failed"] if failed else []),
        *([f"{count(len(receipt.causes), 'cause')}"] if receipt.causes else []),
        *([] if any(of_stages.get(one) for one in RIGHT) else ["nothing was compared"]),
    ]
    if receipt.passes and against:
        yield NO, "verdict", f"it says {receipt.verdict!r}, but: {', '.join(against)}"
    else:
        yield OK, "verdict", f"{receipt.verdict}; counts, cases and causes agree with it"


RIGHT = (Verdict.MATCH, Verdict.DRIFT, Verdict.TIE_FLIP)


def _stages(receipt: Receipt) -> Iterator[ReceiptFinding]:
    """Name the stages that the subject's level includes and that have no comparison."""
    offered = Level(int(receipt.sides.level[1:])) if receipt.sides.level else Level.TEXT
    expected = [OUTPUT, *([PREPROCESS, TOKENIZER] if offered >= Level.INPUTS else [])]
    if offered >= Level.STAGES:
        family = family_named(receipt.sides.checkpoint)
        expected += dict.fromkeys([*map(stage_of, family.vision_seams), "prefill", DECODE])
    made = {stage for stage, found in receipt.stages.items() if {*found} - {Verdict.NOT_COMPARED}}
    refused = {stage_of(what) for names in receipt.not_offered.values() for what in names}
    missing = [stage for stage in expected if stage not in made]
    if gone := [stage for stage in missing if stage not in refused]:
        yield NO, "stages", f"no comparison of {', '.join(gone)}, which {offered} includes"
    elif missing:
        yield NOTE, "stages", f"the subject does not offer {', '.join(missing)}, which {offered} includes"
    else:
        yield OK, "stages", f"every stage of {offered} has comparisons"
    yield from ((NO, "left out", one) for one in receipt.left_out)
    yield from ((NOTE, "skipped", one) for one in receipt.not_possible)
    if allowed := sorted(receipt.sides.settings.get("allow_missing", ())):
        yield NOTE, "allowed", f"to miss: {', '.join(allowed)}"


def _limits(receipt: Receipt) -> Iterator[ReceiptFinding]:
    """Compare the limits with the usual ones of this version."""
    found = [one for used in receipt.limits for one in _unusual(used, receipt)]
    found += [one.in_words(name) for name, one in receipt.looser.items()]
    found += [receipt.budget] if receipt.budget else []
    if found:
        yield NO, "limits", f"looser than this version's usual ones: {', '.join(dict.fromkeys(found))}"
    elif not receipt.limits:
        yield NO, "limits", "no case was judged by any"
    else:
        yield OK, "limits", "the usual ones of this version"


def _unusual(used: LimitsUsed, receipt: Receipt) -> Iterator[str]:
    """Yield the limits that allow more than the usual ones, and doubts about the conditions that they are for."""
    subject, made = receipt.sides, receipt.sides.provenance
    usual = usual_limits(used.dtype, same_key=used.same_key, on_cpu=used.on_cpu).by_name
    yield from (
        f"{name}={used.allowed.get(name, 0):g} ({limit:g})"
        for name, limit in usual.items()
        if used.allowed.get(name, 0) > limit and name not in receipt.looser
    )
    if used.dtype not in (subject.dtype, made.dtype):
        yield f"limits of {used.dtype} between {subject.dtype} and {made.dtype}"
    if used.on_cpu != (made.device == "cpu"):
        yield f"limits of another device than the reference's {made.device}"
    ways = (subject.device, subject.dtype, subject.attention), (made.device, made.dtype, made.attention)
    if not used.same_key and ways[0] == ways[1]:
        yield "limits between two keys, though both sides have one"


def _tool(receipt: Receipt) -> Iterator[ReceiptFinding]:
    """Compare the tool's files with those of this installation."""
    tool = receipt.tool
    if tool.changed:
        yield NO, "tool", f"its files differ from its wheel or commit: {listed(tool.changed)}"
    shown = tool.files_sha256[:HASH_CHARACTERS]
    if tool.version != pytest_dsocr.__version__:
        other = f"it is of version {tool.version}, and this is {pytest_dsocr.__version__}; install that version"
        yield OPEN, "tool", other
    elif tool.files_sha256 != own_sha256():
        other = f"it is not this installation of the same version ({shown} and {own_sha256()[:HASH_CHARACTERS]})"
        yield NO, "tool", f"{other}: it was patched, or is of another commit"
    else:
        yield OK, "tool", f"its files are those of this installation, {shown}"


def _vendor(receipt: Receipt) -> Iterator[ReceiptFinding]:
    """Compare the vendor's files with those that this version knows."""
    files = receipt.sides.provenance.vendor_sha256
    if by_engine := sum(case.by_engine for case in receipt.cases):
        yield NOTE, "reference", f"the engine answered for {count(by_engine, 'case')} instead of the vendor's code"
    if not files:
        return
    try:
        known = read_json(anchors_of(shipped_folder() / RECORDINGS, family_with(files))).files
    except DsocrError as error:
        yield NO, "vendor", str(error)
        return
    other = [name for name, value in files.items() if name not in known or known[name].sha256 != value]
    if other:
        yield NO, "vendor", f"{', '.join(other)} are not the vendor's files that this version knows"
    else:
        yield OK, "vendor", f"{count(len(files), 'file')}, as this version knows them"


def _recording(receipt: Receipt) -> ReceiptFinding:
    """Find the recording among the shipped ones, and check the hash of each of its files."""
    stated = receipt.sides.recording_sha256
    if not stated:
        return OPEN, "goldens", f"the reference is {receipt.sides.reference}, which keeps no recording"
    shipped = [*(shipped_folder() / RECORDINGS).rglob(MANIFEST)]
    found = next((one.parent for one in shipped if sha256(one.read_bytes()) == stated), None)
    if found is None:
        same = receipt.tool.version == pytest_dsocr.__version__
        is_shipped = any(one.parent.as_posix().endswith(receipt.sides.key) for one in shipped)
        mark = CheckMark.NO if same and is_shipped else CheckMark.OPEN
        return mark, "goldens", f"{receipt.sides.key} is not as it is shipped with this version"
    try:
        cases = Recording.open(found).cases
    except DsocrError as error:
        return NO, "goldens", str(error)
    return OK, "goldens", f"{receipt.sides.key} as shipped, {count(len(cases), 'case')} by their hashes"


def _checkpoint(receipt: Receipt) -> ReceiptFinding:
    """Hash the checkpoint, if this machine has it."""
    from pytest_dsocr.engine.checkpoint import resolve

    name, stated = receipt.sides.checkpoint, receipt.sides.provenance.checkpoint_sha256
    try:
        found = resolve(name).sha256
    except DsocrError as error:
        return OPEN, "checkpoint", str(error)
    if found != stated:
        return NO, "checkpoint", f"{name} has {found[:HASH_CHARACTERS]}, not {stated[:HASH_CHARACTERS]}"
    return OK, "checkpoint", f"{name}, {found[:HASH_CHARACTERS]}"


def _reproducers(receipt: Receipt, folder: Path) -> Iterator[ReceiptFinding]:
    """Compare the reproducers that lie next to the receipt with their hashes."""
    for one in receipt.causes:
        for name, stated in one.reproducer_sha256.items():
            path = folder / name
            if not path.is_file():
                yield OPEN, "reproducer", f"{path} is not here"
            elif sha256(path.read_bytes()) != stated:
                yield NO, "reproducer", f"{path} was changed"
            else:
                yield OK, "reproducer", str(path)
