"""What is called in the place of ``python``: asks the server for a process, and is to its caller what that process is.

A script of its own, without the site's packages, so that it starts at once.
"""

import json
import os
import signal
import socket
import sys

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
UNANSWERED = 70


def main(address: str) -> None:
    """Ask for a process, send on what signals come, and end as it ends."""
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(address)
        files = inherited()
        asked = {
            "arguments": sys.argv[1:],
            "environment": dict(os.environ),
            "folder": os.getcwd(),  # noqa: PTH109 - pathlib takes as long to import as all the rest
            "files": files,
            "is_leader": os.getsid(0) == os.getpid(),
        }
        content = json.dumps(asked).encode()
        socket.send_fds(server, [len(content).to_bytes(4, "big")], files)
        server.sendall(content)
        process = int.from_bytes(server.recv(4), "big")
        for number in FORWARDED:
            signal.signal(number, lambda number, _: os.kill(process, number))
        answer = server.recv(4)
    status = int.from_bytes(answer, "big", signed=True) if answer else UNANSWERED
    if status < 0:
        if -status not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


def inherited() -> list[int]:
    """Return the open files that the caller has handed over; those of Python's own are not inheritable."""
    found = []
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        try:
            if os.get_inheritable(int(name)):
                found.append(int(name))
        except OSError:  # it was what read the folder
            continue
    return found
