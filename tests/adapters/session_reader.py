"""The session as a command that stays, right or with a word read wrong."""

from __future__ import annotations

import json
import sys

from pytest_dsocr.engine.session import Session
from pytest_dsocr.families import DEFAULT


def main(checkpoint: str, wrong: str = "") -> None:
    session = Session.from_checkpoint(checkpoint)
    for line in sys.stdin:
        asked = json.loads(line)
        preset, ceiling = DEFAULT.preset(asked["preset"]), asked["max_new_tokens"]
        text = session.run(asked["page"], prompt=asked["prompt"], preset=preset, max_new_tokens=ceiling).text
        sys.stdout.write(json.dumps({"id": asked["id"], "text": text + wrong}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
