"""A command that reads pages, and one that stays; the page's name selects what each does on it."""

import json
import os
import sys
import time
from pathlib import Path

BYTES_OF_TOO_MUCH = 17 * 2**20


def say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def complain(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


def read(page: str, message: str) -> str:
    """Return a text that names the page and the request."""
    deed = Path(page).stem
    complain(f"loading for {deed}\n")
    if deed == "crash":
        complain("Segmentation violation at 0x0\x1b[31m\n")
        sys.exit(3)
    if deed == "killed":
        os.abort()
    if deed == "hang":
        time.sleep(6000)
    if deed == "huge":
        sys.stdout.write("x" * BYTES_OF_TOO_MUCH)
    if deed == "latin":
        sys.stdout.buffer.write("caf\xe9\n".encode("latin-1"))
        sys.stdout.buffer.flush()
    if deed == "child":
        if (left := os.fork()) == 0:
            time.sleep(6000)
        return f"child|{left}"
    return f"{deed}|{message}|<|ref|>té<|/ref|>"


def stay() -> None:
    """Answer one request a line until there are no more."""
    say("banner: ready\n")
    for line in sys.stdin:
        request = json.loads(line)
        deed = Path(request["page"]).stem
        if deed == "refuses":
            answer = {"id": request["id"], "error": "no such page"}
        else:
            number = request["id"] - (deed == "late")
            answer = {"id": number, "text": read(request["page"], f"{os.getpid()} {request['text']}")}
        say("{broken\n" if deed == "broken" else f"{json.dumps(answer)}\n")


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    if sys.argv[1:] == ["--stay"]:
        stay()
    else:
        say(os.environ.get("BANNER", ""))
        say(read(sys.argv[1], "|".join(sys.argv[2:])) + "\n")
