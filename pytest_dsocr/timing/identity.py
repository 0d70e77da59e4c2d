"""Identity of a measurement, by the names that baselines, histories and tables use."""

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pytest_dsocr.subjects.loading import VENDOR

NOT_KEY = frozenset(("versions.pytest-dsocr", "name", "commit"))
"""Fields of an identity that may differ between two measurements, since the package is under test as well."""
HOST = frozenset(("machine.cpu", "machine.cores"))
"""Fields that identify the host."""
OF_TIMES = HOST | {"machine.gpus", "machine.driver", "machine.power_cap_w", "setup.threads"}
"""Fields that matter for times only: exact quantities are the same on any host with that GPU."""
IN_TITLE = ("checkpoint", "dtype", "attention", "name", "preset", "max_new_tokens")
"""Fields of a setup and a page that a title includes."""


@dataclass(frozen=True)
class PageSetting:
    """Page, prompt, preset and limit of tokens."""

    name: str
    sha256: str
    prompt: str
    preset: str
    max_new_tokens: int


def identity_of(subject: str, setup: Mapping[str, Any], page: PageSetting, **code: Any) -> dict[str, Any]:
    """Return all that two comparable measurements must have in common, as JSON values.

    The vendor's code is the same subject in any folder.

    Args:
        subject: the run's name for it.
        setup: its checkpoint, with its hash (empty for one that only the subject can read), its dtype and attention,
            and the threads; the device is part of the machine.
        page: the page, its prompt, preset and limit of tokens.
        **code: identity of the measured code: ``name``, as the user gave it, ``commit``, ``machine``, ``versions``.
    """
    known = VENDOR.rstrip(":") if subject.startswith(VENDOR) else subject
    return {**code, "subject": known, "setup": {**setup}, "page": asdict(page)}


def key(identity: Mapping[str, Any], without: Collection[str] = ()) -> dict[str, str]:
    """Return the values that must be equal, except some, each under a name such as ``machine.gpu``."""
    flat: dict[str, str] = {}
    for name, value in identity.items():
        if isinstance(value, Mapping):
            flat |= {f"{name}.{inner}": str(one) for inner, one in value.items()}
        else:
            flat[name] = str(value)
    return {name: value for name, value in flat.items() if name not in NOT_KEY and name not in without}


def file_name(identity: Mapping[str, Any]) -> str:
    """Return a baseline's path below its folder: by machine, and by what was measured there."""
    setup, page = identity["setup"], identity["page"]
    how = (setup["checkpoint"], setup["dtype"], setup["attention"], page["name"], page["preset"])
    return f"{machine_name(identity['machine'])}/{'-'.join(map(_slug, (identity['subject'], *how)))}.json"


def machine_name(machine: Mapping[str, Any]) -> str:
    """Return a machine's name for files, such as ``nvidia-h200`` or ``amd-epyc-2-cores``."""
    if "gpu" in machine:
        return _slug(machine["gpu"]) + (f"-x{machine['gpus']}" if machine.get("gpus", 1) != 1 else "")
    return f"{_slug(machine.get('cpu'))}-{machine.get('cores')}-cores"


def title_of(identity: Mapping[str, Any]) -> str:
    """Name the parts of an identity that decide which times compare."""
    parts = (identity.get(name) for name in ("machine", "setup", "page"))
    machine, setup, page = (part if isinstance(part, Mapping) else {} for part in parts)
    how = {**setup, **page}
    name = machine_name(machine) if machine else "unknown machine"
    return ", ".join((name, str(identity.get("subject")), *(str(how[part]) for part in IN_TITLE if part in how)))


def _slug(value: Any) -> str:
    return "-".join("".join(c if c.isalnum() or c in "._" else " " for c in str(value).lower()).split()) or "unnamed"
