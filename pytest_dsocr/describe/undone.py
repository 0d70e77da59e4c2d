"""A change of a whole text undone, although the text differs in other ways too."""

from collections.abc import Callable, Mapping

from rapidfuzz.distance import Levenshtein


def undone(actual: str, expected: str, change: Callable[[str], str]) -> str | None:
    """Return the text that a change makes ``actual`` of; None if none is found near ``expected``."""
    made, pieces, at = change(expected), list[str](), 0
    home = _places(expected, made)
    for edit in Levenshtein.opcodes(made, actual):
        if edit.tag == "equal":
            continue
        if edit.src_start not in home or edit.src_end not in home:
            return None
        pieces += [expected[at : home[edit.src_start]], actual[edit.dest_start : edit.dest_end]]
        at = home[edit.src_end]
    text = "".join((*pieces, expected[at:]))
    return text if change(text) == actual else None


def _places(expected: str, made: str) -> Mapping[int, int]:
    """Return the place in the expected text of each place in a changed one, outside of what the change made."""
    home = {0: 0, len(made): len(expected)}
    for edit in Levenshtein.opcodes(expected, made):
        home |= {edit.dest_start: edit.src_start, edit.dest_end: edit.src_end}
        if edit.tag == "equal":
            pairs = zip(range(edit.dest_start, edit.dest_end), range(edit.src_start, edit.src_end), strict=True)
            home |= dict(pairs)
    return home
