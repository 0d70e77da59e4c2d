"""``result.mmd``: the model's output as Markdown, byte for byte as the vendor writes it."""

from __future__ import annotations

from pytest_dsocr.contract.markup import IMAGE_LABEL, REF, REF_END, find_spans
from pytest_dsocr.contract.prompt import EOS

IMAGE_REF = f"{REF}{IMAGE_LABEL}{REF_END}"


def clean_output(text: str) -> str:
    """Drop one end-of-sentence token from the end of a decoded output, then the blanks around it."""
    return text.removesuffix(EOS).strip()


def to_mmd(text: str) -> str:
    """Turn a decoded output into the text of ``result.mmd``.

    Spans that hold the image label become links, numbered by span and not by box; then all others go, one after the
    other. Each replaces every text equal to it, so equal spans share the first one's link, and what a replacement
    brings together can be found by a later span. Two LaTeX symbols are rewritten whenever a span is removed, so an
    output without such a span keeps them. A span known to be gone costs nothing: equal spans cost one replacement.
    """
    output = clean_output(text)
    spans = [output[start:end] for start, _, _, end in find_spans(output)]
    links = [span for span in spans if IMAGE_REF in span]
    steps = [(span, f"![](images/{index}.jpg)\n") for index, span in enumerate(links)]
    steps += [(span, "") for span in spans if IMAGE_REF not in span]
    gone: set[str] = set()
    for span, replacement in steps:
        if span in gone:
            continue
        changed = output.replace(span, replacement)
        if not replacement:
            changed = _with_plain_symbols(changed)
        if changed == output:
            gone.add(span)
        else:
            gone.clear()
        output = changed
    return output


def _with_plain_symbols(text: str) -> str:
    return text.replace("\\coloneqq", ":=").replace("\\eqqcolon", "=:")
