"""The subject's process as the run sees it, and the messages between the two: JSON, then the bytes of tensors.

Only plain values and tensors travel, so that no class of the subject's is ever created here: anything else becomes an
empty object whose type has the same name.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeAlias

from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.foundation.errors import DsocrError, MachineError
from pytest_dsocr.foundation.words import fit
from pytest_dsocr.observation.fault import SubjectFaultError

if TYPE_CHECKING:
    from torch import Tensor

REFUSAL = "refusal"
"""The kind of a message that says what the subject raised; a request ends in one, or in an ``answer``."""
JsonValue: TypeAlias = Any
"""A value as JSON can hold it."""


class Channel:
    """One end of the pipe between the two. One thread may send while another receives."""

    def __init__(self, connection: Connection[Any, Any]) -> None:
        self.connection = connection

    def send(self, kind: str, value: object = None) -> None:
        """Send a message; raise ``OSError`` where nobody is there."""
        tensors: list[Tensor] = []
        packed = _pack(value, tensors)
        header = {"kind": kind, "value": packed, "buffers": [tensor.nbytes for tensor in tensors]}
        self.connection.send_bytes(json.dumps(header).encode())
        for tensor in tensors:
            if tensor.nbytes:
                self.connection.send_bytes(_bytes_of(tensor))

    def receive(self) -> tuple[str, Any]:
        """Wait for a message; raise ``EOFError`` or ``OSError`` where none will come."""
        header = json.loads(self.connection.recv_bytes())
        buffers = [bytearray(size) for size in header["buffers"]]
        for buffer in buffers:
            if buffer:
                self.connection.recv_bytes_into(buffer)
        return header["kind"], _unpack(header["value"], buffers)


def has_values(tensor: Tensor) -> bool:
    """Say whether a tensor is dense, with values in it."""
    import torch

    return not tensor.is_meta and tensor.layout is torch.strided and not tensor.is_quantized


def _pack(value: object, tensors: list[Tensor]) -> JsonValue:
    import torch

    if value is None or isinstance(value, bool | int | float | str):  # of a subclass JSON takes the value alone
        return value
    if isinstance(value, torch.Tensor):
        return _pack_tensor(value, tensors)
    if isinstance(value, Mapping):
        return {"map": [[_pack(key, tensors), _pack(item, tensors)] for key, item in value.items()]}
    if isinstance(value, Preset):
        return {"preset": asdict(value)}
    if isinstance(value, Path):
        return {"path": str(value.absolute())}
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return {"tuple" if isinstance(value, tuple) else "list": [_pack(item, tensors) for item in value]}
    return {"other": type(value).__name__}


def _pack_tensor(tensor: Tensor, tensors: list[Tensor]) -> JsonValue:
    about = {"dtype": str(tensor.dtype).removeprefix("torch."), "shape": [*tensor.shape]}
    if not has_values(tensor):
        return {"empty": about, "layout": "meta" if tensor.is_meta else str(tensor.layout)}
    tensors.append(tensor.detach().resolve_conj().resolve_neg().cpu().contiguous())
    return {"tensor": len(tensors) - 1, **about}


def _bytes_of(tensor: Tensor) -> memoryview:
    import torch

    return tensor.reshape(-1).view(torch.uint8).numpy().data


def _unpack(packed: JsonValue, buffers: Sequence[bytearray]) -> Any:
    if not isinstance(packed, dict):
        return packed
    if "tensor" in packed:
        return _unpack_tensor(packed, buffers[packed["tensor"]])
    if "empty" in packed:
        return _unpack_empty(packed["empty"], packed["layout"])
    if "map" in packed:
        return {_unpack(key, buffers): _unpack(item, buffers) for key, item in packed["map"]}
    if "preset" in packed:
        return Preset(**packed["preset"])
    if "path" in packed:
        return Path(packed["path"])
    if "other" in packed:
        return type(packed["other"], (), {})()
    kind, items = next(iter(packed.items()))
    unpacked = (_unpack(item, buffers) for item in items)
    return tuple(unpacked) if kind == "tuple" else [*unpacked]


def _unpack_tensor(about: Mapping[str, Any], buffer: bytearray) -> Tensor:
    import torch

    dtype = getattr(torch, about["dtype"])
    flat = torch.frombuffer(buffer, dtype=dtype) if buffer else torch.empty(0, dtype=dtype)
    return flat.reshape(about["shape"])


def _unpack_empty(about: Mapping[str, Any], layout: str) -> Tensor:
    import torch

    dtype = getattr(torch, about["dtype"])
    if layout == "torch.sparse_coo":
        return torch.empty(about["shape"], dtype=dtype).to_sparse()
    return torch.empty(about["shape"], dtype=dtype, device="meta")


BOOT = """import json, sys
sys.path[:], *arguments = json.loads(sys.argv[1])
from pytest_dsocr.subjects.isolation.child import main
main(*arguments)"""
CLOSING_S, POLL_S = 5.0, 0.2
MAX_GRACE_S = 10.0
TRACE_LINES, TRACE_BYTES, COLUMNS = 40, 16_384, 200
SHOWN_BYTES = 65_536


class ProcessLostError(Exception):
    """The process no longer exists.

    Args:
        how: it ended, such as ``was killed by SIGSEGV``.
        trace: the end of its stderr.
        is_hung: whether it ended for its time was up.
    """

    def __init__(self, how: str, trace: str, *, is_hung: bool) -> None:
        super().__init__(how)
        self.how, self.trace, self.is_hung = how, trace, is_hung


class SubjectProcess:
    """One process, in a session of its own, that ends with this one at the latest."""

    def __init__(self) -> None:
        self._output: IO[bytes] = tempfile.TemporaryFile("a+b", buffering=0)  # noqa: SIM115 - closed as it ends
        ours, theirs = Pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-c", BOOT, json.dumps([sys.path, theirs.fileno()])],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
        theirs.close()
        self._channel = Channel(ours)
        self.dropped: list[int] = []
        """Numbers of the states there that are no longer in use."""
        self.close = weakref.finalize(self, _end, self._process, ours, self._output)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def ask(self, request: Mapping[str, Any], limit_s: float, on_event: Callable[[Any], None]) -> tuple[str, Any]:
        """Send a request and give what it ends in, a kind and a value.

        Args:
            request: what :class:`~pytest_dsocr.subjects.isolation.child.SubjectServer` takes.
            limit_s: seconds until it writes where it stands and ends, or, where it does not, is killed.
            on_event: takes what comes in between.

        Raises:
            ProcessLostError: where the process ends over it.
        """
        began = time.monotonic()
        try:
            with self._killed_after(limit_s + min(MAX_GRACE_S, limit_s)):
                self._channel.send("request", {**request, "limit_s": limit_s})
                while (message := self._receive())[0] == "event":
                    on_event(message[1])
        except (EOFError, OSError, ValueError, LookupError) as error:  # what is no message ends it as well
            raise self._lost(is_hung=time.monotonic() - began >= limit_s) from error
        return message

    def kill(self) -> None:
        """End it at once, with all that it has started."""
        _signal_group(self._process)
        self.close()

    def take_output(self) -> str:
        """Give the end of what was printed since this was last asked."""
        said = self._tail(SHOWN_BYTES)
        self._output.truncate(0)  # it appends, and so goes on from there
        return said.decode(errors="replace")

    def _receive(self) -> tuple[str, Any]:
        while not self._channel.connection.poll(POLL_S):
            if self._process.poll() is not None and not self._channel.connection.poll(0):
                raise EOFError  # a process that it has started may hold its end of the pipe open
        return self._channel.receive()

    @contextmanager
    def _killed_after(self, limit_s: float) -> Iterator[None]:
        timer = threading.Timer(limit_s, _signal_group, [self._process])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _lost(self, *, is_hung: bool) -> ProcessLostError:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(POLL_S)
        status = self._process.returncode
        names = {-number: f"was killed by {number.name}" for number in signal.Signals}
        how = "closed its pipe and was killed" if status is None else names.get(status, f"ended with status {status}")
        trace = self._trace()
        self.kill()
        return ProcessLostError(how, trace, is_hung=is_hung)

    def _trace(self) -> str:
        lines = [line.rstrip() for line in self._tail(TRACE_BYTES).decode(errors="replace").splitlines()]
        return "\n".join(fit(line, COLUMNS) for line in [line for line in lines if line][-TRACE_LINES:])

    def _tail(self, size: int) -> bytes:
        end = os.fstat(self._output.fileno()).st_size
        return os.pread(self._output.fileno(), size, max(0, end - size))


def _end(process: subprocess.Popen[bytes], connection: Any, output: IO[bytes]) -> None:
    """Close its pipe, at which it ends of itself; where it does not, make it."""
    connection.close()
    with suppress(subprocess.TimeoutExpired):
        process.wait(CLOSING_S)
    _signal_group(process)
    process.wait()
    output.close()


def _signal_group(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):  # macOS refuses to signal a group of zombies
        os.killpg(process.pid, signal.SIGKILL)


class InItsProcess(Exception):  # noqa: N818 - stands for what was raised there
    """What happened in the subject's process, as it was told there."""


class NotImplementedThere(InItsProcess, NotImplementedError):  # noqa: N818
    """The subject does not do that."""


class MachineErrorThere(InItsProcess, MachineError):  # noqa: N818
    """What happened there is the machine's fault."""


class LostError(Exception):
    """A process that was lost, and what is known of it."""

    def __init__(self, lost: ProcessLostError, limit_s: float) -> None:
        super().__init__(lost.how)
        self.how, self.is_hung = lost.how, lost.is_hung
        self.told = f"it took more than {limit_s:g} s" if lost.is_hung else f"it {lost.how}"
        self.cause = InItsProcess(f"the end of what it said:\n{lost.trace}") if lost.trace else None


def raised(refusal: Mapping[str, Any]) -> DsocrError:
    """Rebuild the error that was raised in the process, with its cause."""
    stage, message = refusal["stage"], refusal["message"]
    is_of_machine = refusal["is_of_machine"]
    if stage:
        error: DsocrError = SubjectFaultError(stage, message)
    else:
        error = MachineError(message) if is_of_machine else DsocrError(message)
    if refusal["trace"]:
        kind = NotImplementedThere if refusal["is_not_implemented"] else InItsProcess
        error.__cause__ = (MachineErrorThere if is_of_machine else kind)(refusal["trace"])
    return error
