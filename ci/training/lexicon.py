"""The words that the embedded checkpoint can read, and the labels it knows.

Few enough to be learned in minutes, and unlike one another in their first and in their last letters: a word on the edge
of two crops is seen in halves.
"""

from __future__ import annotations

LABELS = (
    "title",
    "sub_title",
    "text",
    "image",
    "image_caption",
    "table",
    "table_caption",
    "equation",
    "page_number",
    "header",
    "footer",
)
"""The vendor's labels that pages here have."""

_WORDS = """
    the of and to in is for with from that
    account agency amber anchor animal answer apple april arrow artist august autumn
    bakery balance bamboo basket beacon before border bottle branch bridge brown budget butter
    cabinet camera canvas carbon castle cattle center chapter cherry circle client climate coffee copper cotton
    daily danger december degree delta desert dinner doctor domain dragon driver
    early earth eastern editor effort eight energy engine evening expert
    fabric factory family farmer feather field figure finger flower forest fourth friday
    garden gentle glass golden grape green guitar
    harbor harvest health heavy history honey hotel hundred
    idea image index insect invoice iron island item
    jacket january jewel journal july jungle
    kernel kitchen knight
    ladder language laptop lemon letter level light little logic lunch
    machine magnet manual maple market matrix meadow method middle mirror model monday motor museum
    native needle network night normal north number
    object ocean office olive orange orbit order oxygen
    paper partner pencil people pepper phone piano picture planet pocket price public purple
    quality quarter queen quick
    rabbit radio random record report result ribbon river rocket
    salary sample school second shadow silver simple soup south spring square station studio sugar summer system
    table target temple theory thread ticket tiger total travel tunnel
    uncle under unique update
    valley vector velvet village violin volume
    wagon water weather window winter wonder worker
    yellow young zebra zero
    """

WORDS = tuple(_WORDS.split())
"""In lower case; on pages also capitalised."""

FIRST_WORDS = ("Figure", "Table", "Page", "Total", "Invoice", "Date", "Dear", "Yours")
"""Words that stand first in captions, sums, letters and the like."""

MARKUP = ("# ", "## ", "<table>", "</table>", "<center>", "</center>", r"\[ ", r" \]", "- ")
"""What an answer says in addition to what is on the page."""
