"""Snapshots of a subject's accepted output, for syrupy: one sealed JSON file each, found by its key.

They lie in ``<golden>/snapshots/<checkpoint>/<device-dtype-attention>/<suite>/<test file>/<test[case]>.json``. A
recording comes from the vendor's code. A snapshot comes from the subject itself, at an earlier commit.
"""

import glob
import json
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, TypedDict

import pytest
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension
from syrupy.location import PyTestLocation
from syrupy.types import SerializableData, SnapshotIndex

from pytest_dsocr.base.errors import DsocrError, MachineError
from pytest_dsocr.base.files import seal, unseal
from pytest_dsocr.base.reading import Finite, Format
from pytest_dsocr.base.words import shown
from pytest_dsocr.compare.boxes import compare_boxes, compare_spans
from pytest_dsocr.compare.tolerances import Tolerances
from pytest_dsocr.compare.verdict import Comparison, Verdict
from pytest_dsocr.contract.markup import Box
from pytest_dsocr.plugin.stash import leave_out
from pytest_dsocr.records.config import Config
from pytest_dsocr.records.provenance import RecordingKey, slug, versions
from pytest_dsocr.records.reference_result import SpanSeen
from pytest_dsocr.reference.goldens import SNAPSHOTS as FOLDER
from pytest_dsocr.reference.goldens import check_writable, part_of, shipped_folder
from pytest_dsocr.reference.nearest import WAYS, nearest

COUNTS: Mapping[str, Callable[[Tolerances, float], float]] = {
    "boxes": lambda limits, kept: limits.boxes,
    "characters": lambda limits, kept: limits.text * kept,
}
"""Allowed difference of a count, by its name."""
ACCEPTED = "the snapshot"
"""Name of the expected side in messages."""
Spans = list[tuple[str, list[tuple[Finite, Finite, Finite, Finite]]]]


class _Origin(TypedDict):
    checkpoint_sha256: str


class _Snapshot(TypedDict):
    origin: _Origin
    value: Any


SNAPSHOTS = Format(_Snapshot, "restore it from version control", parse=unseal)
SPANS = Format(Spans, "accept it anew: --snapshot-update")


class MissingSnapshotError(MachineError):
    """Error if there is no snapshot of this key."""


def spans_of(spans: Sequence[SpanSeen]) -> Spans:
    """Return labels and boxes for a snapshot, under the name ``spans``, which is compared within tolerances."""
    return [(span.label, [box[:4] for box in span.boxes]) for span in spans]


def compare_snapshot(what: str, snapshot: SnapshotAssertion, value: SerializableData) -> Comparison:
    """Compare ``value`` with its snapshot for ``dsocr_check``; without it, write ``assert snapshot == value``.

    If the subject has no accepted snapshot, the test is skipped. ``--dsocr-no-skip`` turns this into a failure.
    """
    try:
        is_accepted = snapshot == value
    except MissingSnapshotError as error:
        leave_out(snapshot.test_location.item, "snapshot", str(error))
    made = snapshot.executions[snapshot.num_executions - 1]
    if is_accepted:
        how = "written" if made.created or made.updated else "as accepted"
        return Comparison(f"snapshot.{what}", Verdict.MATCH, how)
    measured, *details = snapshot.get_assert_diff()
    extension = snapshot.extension
    if isinstance(extension, GoldenSnapshots) and (message := extension.of_another(made.recalled_data)):
        del snapshot.executions[snapshot.num_executions - 1]  # else syrupy counts it as failed
        make = "if the parity tests pass, make your own: --snapshot-update --dsocr-golden=DIR"
        leave_out(snapshot.test_location.item, "snapshot", f"{message}, which is shipped, differs: {measured}; {make}")
    return Comparison(f"snapshot.{what}", Verdict.WRONG, measured, None, tuple(details))


def snapshot_extension(config: Config, key: RecordingKey, limits: Tolerances, *, may_write: bool) -> type[Any]:
    """Return the extension of a run, for ``snapshot.use_extension``.

    ``limits`` are those of spans, boxes and texts. Only a run that may not write snapshots reads the shipped ones.
    """
    folder = config.golden / FOLDER if may_write else part_of(config.golden, FOLDER)
    is_shipped = not may_write and folder.resolve() == (shipped_folder() / FOLDER).resolve()
    options = {"subject": config.subject, **asdict(config.setup)}
    command = shlex.join(["pytest", "--snapshot-update", *(f"--dsocr-{name}={of}" for name, of in options.items())])
    made = (key, config.subject, command)
    return _extension(folder.absolute(), made, limits, "snapshot" in config.allow_missing, is_shipped)


class GoldenSnapshots(SingleFileSnapshotExtension):
    """Snapshots of one key. Each run makes a subclass.

    A snapshot is any JSON value. In an object, ``spans`` (see :func:`spans_of`), the number of ``boxes`` and the number
    of ``characters`` are compared within limits. Everything else must be equal.
    """

    file_extension = "json"
    home: ClassVar[Path]
    """Folder of the key's snapshots, in a folder of its checkpoint, in the folder of all snapshots."""
    key: ClassVar[RecordingKey]
    origin: ClassVar[Mapping[str, Any]]
    limits: ClassVar[Tolerances]
    allow_missing: ClassVar[bool]
    is_shipped: ClassVar[bool]
    """Whether the run reads the shipped snapshots and writes none."""

    def serialize(self, data: SerializableData, **_: Any) -> bytes:
        """Seal a value with its origin."""
        return seal({"origin": self.origin, "value": data})

    def matches(self, *, serialized_data: SerializableData, snapshot_data: SerializableData) -> bool:
        """Return whether a value equals the accepted one within the limits, with the same weights."""
        return not any(differences_of_files(serialized_data, snapshot_data, self.limits))

    def diff_lines(self, serialized_data: Any, snapshot_data: Any) -> Iterator[str]:
        """Yield the differences from the accepted value, and advice."""
        if snapshot_data:
            yield from differences_of_files(serialized_data, snapshot_data, self.limits)
            yield "fix it if it is a bug; if the change is intended, accept it: --snapshot-update"

    @classmethod
    def dirname(cls, *, test_location: PyTestLocation) -> str:
        """Return the folder of a test file's snapshots."""
        test_file = Path(test_location.filepath)
        return str(cls.home / test_file.parent.name / test_file.stem)

    @classmethod
    def get_location(cls, *, test_location: PyTestLocation, index: SnapshotIndex) -> str:
        """Return the file of a snapshot.

        Raises:
            DsocrError: if the run makes no snapshots and this one is missing, with the nearest keys; or if one would be
                written into an installation. If snapshots may be missing, the test is skipped instead.
        """
        location = Path(super().get_location(test_location=test_location, index=index))
        option = test_location.item.config.option
        if option.update_snapshots or option.update_new_snapshots_only:
            check_writable(location, "--dsocr-golden=DIR")
        elif not location.is_file():
            of_test = f" for {test_location.snapshot_name}" if cls.home.is_dir() else ""  # else of none, in one line
            reason = f"there is no snapshot of {cls.key.in_words}{of_test}, {_nearest(cls.home, location)}"
            if cls.allow_missing:
                leave_out(test_location.item, "snapshot", reason)
            make = "make it with --snapshot-update, or declare that it may be missing: --dsocr-allow-missing=snapshot"
            raise MissingSnapshotError(f"{reason}; {make}")
        return str(location)

    @classmethod
    def matches_test_location(cls, *, test_location: PyTestLocation, snapshot_location: str) -> bool:
        """Return whether a snapshot belongs to the test's file."""
        test_file, folder = Path(test_location.filepath), Path(snapshot_location).parent
        return (folder.parent.name, folder.name) == (test_file.parent.name, test_file.stem)

    def owns_snapshot_collection(self, *, filepath: str, test_location: PyTestLocation) -> bool:
        """Return whether a snapshot is known to be unused: its test file was run and no longer has the test.

        A snapshot of a case that was not run may still be in use.
        """
        if not super().owns_snapshot_collection(filepath=filepath, test_location=test_location):
            return False
        test_file = Path(test_location.filepath).with_name(f"{Path(filepath).parent.name}.py")
        items = (item for item in test_location.item.session.items if isinstance(item, pytest.Function))
        modules = {item.module for item in items if item.path == test_file}
        return any(not _defines(module, Path(filepath).stem) for module in modules)

    @classmethod
    def of_another(cls, kept: Any) -> str:
        """Say which other subject a shipped snapshot is from. A new port is compared with the reference only."""
        own = cls.origin["subject"]
        try:
            other = str(unseal(kept)["origin"]["subject"]) if cls.is_shipped else own
        except (ValueError, KeyError, TypeError):
            return ""  # a damaged one, which is reported
        return f"there is none of {own}; that of {other}" if other != own else ""


def differences_of_files(actual: bytes, kept: bytes, limits: Tolerances) -> Iterator[str]:
    """Yield a line for each difference of two sealed values: in the weights, and in the values beyond the limits."""
    try:
        accepted = SNAPSHOTS.decode(kept, ACCEPTED)
    except DsocrError as error:
        yield str(error)
        return
    made = json.loads(actual)
    own, weights = (one["origin"]["checkpoint_sha256"] for one in (made, accepted))
    if weights != own:
        yield f"the snapshot was made with weights of SHA-256 {weights:.12}, and those under test have {own:.12}"
    yield from differences(made["value"], accepted["value"], limits)


def differences(actual: Any, accepted: Any, limits: Tolerances) -> Iterator[str]:
    """Yield a line for each difference of two values beyond the limits."""
    if not (isinstance(actual, dict) and isinstance(accepted, dict)):
        actual, accepted = {"value": actual}, {"value": accepted}
    for name in dict.fromkeys([*accepted, *actual]):
        if name not in actual or name not in accepted:
            yield f"{name}: only in the {'snapshot' if name in accepted else 'test'}"
        elif name == "spans":
            yield from _spans_apart(actual[name], accepted[name], limits)
        elif actual[name] != accepted[name] and not _is_near(name, actual[name], accepted[name], limits):
            yield f"{name}: {shown(actual[name])}; {ACCEPTED} has {shown(accepted[name])}"


def _is_near(name: str, actual: Any, accepted: Any, limits: Tolerances) -> bool:
    is_count = name in COUNTS and isinstance(accepted, int | float)
    return is_count and abs(actual - accepted) <= COUNTS[name](limits, accepted)


def _spans_apart(actual: Spans, accepted: Spans, limits: Tolerances) -> Iterator[str]:
    try:
        SPANS.convert(accepted, ACCEPTED)
    except DsocrError as error:
        yield str(error)
        return
    found, expected = (
        [SpanSeen(label, tuple(Box(*box) for box in boxes)) for label, boxes in own] for own in (actual, accepted)
    )
    for compare in (compare_spans, compare_boxes):
        compared = compare(found, expected, limits, ACCEPTED)
        if not compared.passes:
            yield from (f"{compared.what}: {compared.measured}", *compared.details)


@cache
def _extension(
    folder: Path, made: tuple[RecordingKey, str, str], limits: Tolerances, allow_missing: bool, is_shipped: bool
) -> type[GoldenSnapshots]:
    """Make each class only once, because syrupy searches the folders of every class."""
    key, subject, command = made
    dated = {"versions": versions(), "date": datetime.now(UTC).date().isoformat()}
    origin = {"subject": subject, **asdict(key), **dated, "command": command}
    own = {"home": folder / _name_in(folder, key) / key.way, "key": key, "origin": origin, "limits": limits}
    own |= {"allow_missing": allow_missing, "is_shipped": is_shipped}
    # Under its base's name, by which syrupy finds an extension again where it gathers what the workers of a run used.
    return type(GoldenSnapshots.__name__, (GoldenSnapshots,), {**own, "__module__": __name__})


def _name_in(folder: Path, key: RecordingKey) -> str:
    """Return a checkpoint's name in the folder of snapshots. A renamed copy has the original's name.

    If no snapshot was made with these weights, it is the checkpoint's own name.
    """
    own = folder / slug(key.checkpoint)
    others = sorted(one for one in folder.glob("*") if one != own)
    return next((one.name for one in (own, *others) if _holds(one, key.checkpoint_sha256)), own.name)


def _holds(folder: Path, checkpoint_sha256: str) -> bool:
    """Return whether a checkpoint's folder has a snapshot with these weights."""
    for path in folder.rglob("*.json"):
        with suppress(DsocrError):  # reported when it is compared with
            if SNAPSHOTS.read(path)["origin"]["checkpoint_sha256"] == checkpoint_sha256:
                return True
    return False


def _nearest(home: Path, location: Path) -> str:
    """List other keys with this snapshot, the most similar first."""
    name, every = location.relative_to(home), home.parents[1]
    folders = [path.parents[len(name.parts) - 1] for path in every.glob(f"*/*/{glob.escape(str(name))}")]
    return nearest(_traits(home), {str(one.relative_to(every)): _traits(one) for one in folders})


def _traits(folder: Path) -> dict[str, str]:
    """Read a key from the folder of its snapshots. A device's name may contain a hyphen."""
    return dict(zip(("checkpoint", *WAYS), (folder.parent.name, *folder.name.rsplit("-", 2)), strict=True))


def _defines(module: object, snapshot: str) -> bool:
    """Return whether a module has the test of a snapshot's name."""
    found: object = module
    for name in filter(str.isidentifier, snapshot.partition("[")[0].split(".")):
        found = getattr(found, name, None)
    return found is not None
