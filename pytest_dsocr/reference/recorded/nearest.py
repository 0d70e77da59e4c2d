"""Which recordings are nearest to a key or a case that none is of, and how a run is held against one of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pytest_dsocr.observation.provenance import SHOWN_OF_CHECKPOINT, Key

SHOWN = 3
"""How many of those that there are a message names."""


def key_traits(key: Key) -> dict[str, str]:
    """Give what a key is made of, in words."""
    weights = key.checkpoint_sha256[:SHOWN_OF_CHECKPOINT]
    return {"checkpoint": weights, **ways(key)}


def ways(key: Key) -> dict[str, str]:
    """Give how a key's weights are run, each by the word in an option's name."""
    return {"device": key.device, "dtype": key.dtype, "attention": key.attention}


def nearest(wanted: Mapping[str, str], known: Mapping[str, Mapping[str, str]]) -> str:
    """Name what there is that differs least, and in what."""
    if not known:
        return "nor any other"
    differing = {
        name: [f"{field} {fields[field]:.40}" for field in wanted if fields[field] != wanted[field]]
        for name, fields in known.items()
    }
    closest = sorted(differing, key=lambda name: (len(differing[name]), name))[:SHOWN]
    return "but " + "; ".join(f"{name} ({', '.join(differing[name])})" for name in closest)


def options_for_another(wanted: Key, known: Iterable[Key]) -> str:
    """Give the options by which a run is held against a recording of the same weights run otherwise; else nothing.

    Of those that differ in as few respects, one in float32 is preferred, for it is nearest to what the weights mean.
    """
    same = [key for key in known if key.checkpoint_sha256 == wanted.checkpoint_sha256 and key != wanted]
    if not same:
        return ""
    ours = ways(wanted)
    others = [{field: way for field, way in ways(key).items() if way != ours[field]} for key in same]
    fewest = min(others, key=lambda other: (len(other), other.get("dtype") != "float32", sorted(other.items())))
    return " ".join(f"--dsocr-reference-{field}={way}" for field, way in fewest.items())
