"""Decoded outputs, ordinary and odd, on which the vendor's post-processing is recorded."""

from __future__ import annotations

from pytest_dsocr.contract.prompt import EOS

PAGE_SIZE = (1000, 1400)


def span(label: str, coordinates: str) -> str:
    return f"<|ref|>{label}<|/ref|><|det|>{coordinates}<|/det|>"


TITLE = span("title", "[[94, 60, 905, 101]]")
TEXT = span("text", "[[94, 120, 905, 300]]")
IMAGE = span("image", "[[100, 320, 500, 600]]")
CHART = span("image", "[[520, 320, 900, 600]]")
TABLE = span("table", "[[94, 640, 905, 820]]")

PAGE = f"""{TITLE}
# Rare earths

{TEXT}
Neodymium costs more than lead, and weighs less.

{IMAGE}
{span("image_caption", "[[100, 610, 500, 630]]")}
<center>Figure 1. A mine.</center>

{TABLE}
<table><tr><td>Nd</td><td>60</td></tr><tr><td>Pb</td><td></td></tr></table>
"""

GEOMETRY = str(
    {
        "Line": {
            "line": ["(-8.0, -5.0) -- (8.0, -5.0)", "(8.0, -5.0) -- (0.0, 9)", "(0, 9.0) -- (-8.0, -5.0)"],
            "line_type": ["-", "--", "-"],
            "line_endpoint": ["A: (-8.0, -5.0)", "B: (8.0, -5.0)", "C: (0.0, 9.0)"],
        },
        "Circle": {"circle_center": [], "radius": []},
    }
)

OUTPUTS: dict[str, str] = {
    "a page": PAGE + EOS,
    "no spans": "Just text.\n\nAnd more." + EOS,
    "nothing": "",
    "only the end token": EOS,
    "only blanks": " \n\t ",
    "image spans only": f"{IMAGE}\n{CHART}\n",
    "one image between texts": f"Above\n{IMAGE}\nbelow",
    "equal text spans": f"{TEXT}\nfirst\n{TEXT}\nsecond",
    "equal image spans": f"{IMAGE}\n{IMAGE}\n{CHART}\n",
    "several boxes in one span": span("text", "[[1, 2, 300, 40], [5, 60, 700, 80], [9, 100, 800, 200]]") + "\ntext",
    "image span of two boxes, then another": span("image", "[[0, 0, 99, 99], [200, 0, 299, 199]]") + "\n" + CHART,
    "nested ref": "<|ref|>open " + TEXT + " and text",
    "nested ref, inner span first": f"{TEXT} a <|ref|>open {TEXT} b",
    "span inside coordinates": f"{TEXT} a {span('list', TEXT[:-9])} b",
    "image inside a label": span("see <|ref|>image", "[[1, 2, 30, 40]]") + " text",
    "unclosed ref": f"{TITLE}\n# Title\n<|ref|>text",
    "unclosed det": f"{TITLE}\n# Title\n<|ref|>text<|/ref|><|det|>[[94, 1",
    "unclosed det, then a span": f"<|ref|>text<|/ref|><|det|>[[94, 1\n{TEXT} text",
    "ref apart from det": f"<|ref|>a<|/ref|> <|det|>[[1, 2, 3, 4]]<|/det|>{TITLE}",
    "line breaks in label and coordinates": span("two\nlines", "[[1,\n 2,\r\n 30, 40]\n]") + "\ntext",
    "line break around coordinates": span("text", "\n[[1, 2, 30, 40]]\n"),
    "indented line of coordinates": span("text", "\n [[1, 2, 30, 40]]"),
    "malformed coordinates": f"{span('text', '[[1, 2, 3')}lost{TITLE}kept",
    "names": span("text", "[[a, b, c, d]]") + span("image", "[[x1, 2, 3, 4]]") + CHART,
    "nan": span("text", "[[nan, 2, 3, 4]]") + span("text", "[[1, 2, 3, float]]"),
    "single-level list": span("text", "[1, 2, 300, 400]") + span("image", "[1, 2, 300, 400]") + CHART,
    "bad box after a good one": span("image", "[[1, 2, 300, 400], [5, 6, 7], [8, 9, 100, 200]]") + CHART,
    "string among the boxes": span("text", "[[1, 2, 300, 400], 'abcd', [8, 9, 100, 200]]"),
    "none among the numbers": span("text", "[[1, 2, 300, 400], [8, None, 100, 200]]"),
    "too deep": span("text", "[[[1, 2, 300, 400]]]"),
    "tuples": span("text", "((1, 2, 300, 400), [5, 6, 70, 80])") + span("text", "[1, 2, 3, 4], [5, 6, 7, 8]"),
    "a tuple of one": span("text", "[1, 2, 300, 400],") + span("text", "([1, 2, 300, 400])"),
    "number notations": span("text", "[[0x10, 0b11, 0o77, 1_0_0], [.5, 1., 1e2, 2.5E+2], [+1, - 2, 007., 00]]"),
    "figures of tuples": span("image", "((100, 320, 500, 600), [520, 320, 900, 600])")
    + span("image", "(1, 2, 30, 40),"),
    "figures with commas behind": span("image", "[[100, 320, 500, 600],]") + span("image", "[[5, 5, 400, 90,],]"),
    "figures in number notations": span("image", "[[0x64, 3_20, 5e2, +600]]") + span("image", "[[.5, 1., 1e2, 0o144]]"),
    "leading zero": span("text", "[[01, 2, 3, 4]]"),
    "booleans": span("text", "[[False, True, 300, 400]]"),
    "floats": span("text", "[[0.5, 1.99, 333.3, 998.999]]") + span("image", "[[100.7, 100.2, 200.9, 300.1]]"),
    "negative": span("text", "[[-5, -0.5, 100, 100]]") + span("image", "[[-50, -20, 100, 100]]"),
    "beyond the page": span("text", "[[900, 900, 1100, 1200]]") + span("image", "[[900, 900, 1100, 1200]]"),
    "inverted": span("text", "[[300, 300, 100, 100]]") + span("image", "[[300, 100, 100, 300]]") + CHART,
    "no area": span("image", "[[100, 100, 100, 300]]") + span("image", "[[5, 5, 5, 5]]") + CHART,
    "less than a pixel": span("image", "[[100, 100, 100.5, 300]]") + CHART,
    "infinite": span("image", "[[1e400, 2, 3, 4], [1, 2, 30, 40]]") + CHART,
    "very large": span("image", "[[0, 0, 99999999, 99999999]]") + CHART,
    "an integer of 400 digits": span("text", f"[[1, 2, 30, 40], [1, 2, 3, {'9' * 400}]]"),
    "an integer of 5000 digits": span("text", f"[[1, 2, 30, 40], [1, 2, 3, {'9' * 5000}]]"),
    "empty coordinates": span("text", "") + span("text", "[]") + span("image", "[[]]") + CHART,
    "empty label": span("", "[[1, 2, 30, 40]]") + "text",
    "image label with blanks": span(" image ", "[[100, 320, 500, 600]]") + CHART,
    "image label in capitals": span("Image", "[[100, 320, 500, 600]]") + CHART,
    "end token twice": TEXT + "text" + EOS + EOS,
    "end token in the middle": f"{TEXT}one{EOS}two",
    "end token, then a blank": f"{TEXT}one{EOS}\n",
    "blanks before the end token": f"  \n{TEXT}one \n\n{EOS}",
    "blanks of other kinds": f"\u3000{TEXT}one\u00a0\x1c{EOS}",
    "symbols without a span": "$a \\coloneqq b$, $c \\eqqcolon d$",
    "symbols with a text span": f"{TEXT}\n$a \\coloneqq b$, $c \\eqqcolon d$, \\\\coloneqq",
    "symbols with an image span only": f"{IMAGE}\n$a \\coloneqq b$",
    "symbols in a label": f"{TEXT}a{span(chr(92) + 'coloneqq', '[[1, 2, 30, 40]]')}b",
    "symbols in the first label": f"{span(chr(92) + 'coloneqq', '[[1, 2, 30, 40]]')}a{TEXT}b",
    "a symbol joined by a removal": f"\\colon{TEXT}eqq and \\eqq{TITLE}colon",
    "a span joined by a removal": f"<|re{TITLE}f|>text<|/ref|><|det|>[[94, 120, 905, 300]]<|/det|> {TEXT}",
    "an equal span joined by a removal": f"<|re{TEXT}{TEXT[4:]} and {TEXT}",
    "a span already gone, joined by a removal": f"{TEXT}{TEXT}<|re{TITLE}{TEXT[4:]} and {TEXT}",
    "chinese": f"{span('标题', '[[94, 60, 905, 101]]')}\n# 稀土价格\n\n{TEXT}\n钕比铅贵，也更轻。" + EOS,
    "tables": f"{TABLE}\n<table><tr><td>a</td><td></td></tr></table>\n{TABLE}\n<table></table>",
    "a link in the text": f"![](images/7.jpg) and ![]({IMAGE})",
    "page of 60 spans": "\n".join(span("text", f"[[{n}, {n}, {n + 99}, {n + 9}]]") + f"line {n}" for n in range(60)),
    "carriage returns": f"{TEXT}\r\none\rtwo",
    "nulls": f"a\0b{span('te' + chr(0) + 'xt', '[[1, 2, 30, 40]]')}c",
    "geometry": GEOMETRY + EOS,
    "geometry, bad line": GEOMETRY.replace("(8.0, -5.0) -- (0.0, 9)", "from B to C"),
    "geometry, a type too few": GEOMETRY.replace("'-', '--', '-'", "'-', '--'"),
    "geometry, bad endpoint": GEOMETRY.replace("C: (0.0, 9.0)", "C at the top"),
    "geometry, no endpoints": GEOMETRY.replace("line_endpoint", "endpoints"),
    "geometry, no lines": str({"Line": {"line": [], "line_type": [], "line_endpoint": []}}),
    "geometry, cut off": GEOMETRY[:-20],
    "geometry in prose": f"{TEXT}\nThe field line_type says how a line is drawn.",
}
