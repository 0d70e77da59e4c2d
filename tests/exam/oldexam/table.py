"""Print the outcomes of a run of test_oldexam.py: ``python -m oldexam.table oldexam.xml``, or a ``.jsonl``."""

import json
import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree


def rows(path):
    """Yield the properties of each mistake."""
    if path.endswith(".jsonl"):
        yield from ({k: str(v) for k, v in json.loads(line).items()} for line in Path(path).read_text().splitlines())
        return
    for case in ElementTree.parse(path).iter("testcase"):
        of = {one.get("name"): one.get("value") for one in case.iter("property")}
        if "outcome" not in of:
            skipped = next(case.iter("skipped"), None) is not None
            of = {"id": case.get("name").partition("[")[2][:-1], "outcome": "known" if skipped else "not tried"}
        yield of


every = sorted(rows(sys.argv[1]), key=lambda of: (of["outcome"], of["id"]))
for of in every:
    unseen = " (expected)" if of.get("unseen") and of["outcome"] == "survives" else ""
    where = " | ".join(filter(None, (of.get("by"), of.get("first"), of.get("explained") or of.get("hint"))))
    proven = " | PROVEN" if of.get("proven") == "True" else ""
    print(f"{of['id']}  {of['outcome']}{unseen}  [{of.get('stage')}] {of.get('title')}{proven}: {where[:300]}")
print(dict(Counter(of["outcome"] for of in every)), "proven", sum(of.get("proven") == "True" for of in every))
