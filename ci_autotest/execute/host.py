"""The host: a process in a candidate's own interpreter that runs programs for a worker.

Standard library and numpy only, besides the framework itself. Nothing of ours is installed in that interpreter: the
worker gives the folder of its own source (``BOOT``). What the framework prints goes where the worker's output goes.
"""

from __future__ import annotations

import ctypes
import faulthandler
import hashlib
import importlib
import json
import mmap
import os
import signal
import sys
import traceback
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from ci_autotest.execute.frameworks.protocol import Framework
    from ci_autotest.execute.running import Run, Seen
    from ci_autotest.execute.wire import Wire
    from ci_autotest.program.ir import Program

#: Run by ``python -I -c``: it makes this package, and nothing beside it, importable from the worker's folder.
BOOT: Final = """
import sys
if sys.version_info < (3, 10):
    sys.stderr.write("it is Python %d.%d, and a host needs CPython 3.10 or newer" % sys.version_info[:2])
    sys.exit(3)
import importlib.util
folder = sys.argv[1]
spec = importlib.util.spec_from_file_location(
    "ci_autotest", folder + "/__init__.py", submodule_search_locations=[folder]
)
package = importlib.util.module_from_spec(spec)
sys.modules["ci_autotest"] = package
spec.loader.exec_module(package)
from ci_autotest.execute.host import main
main(sys.argv[2:])
"""
#: Adapters by module; every other module is taken to have torch's names.
ADAPTERS: Final = {
    "oneflow": ("ci_autotest.execute.frameworks.oneflow", "OneFlow"),
    "paddle": ("ci_autotest.execute.frameworks.paddle", "Paddle"),
    "mindspore": ("ci_autotest.execute.frameworks.mindspore", "MindSpore"),
    "jax": ("ci_autotest.execute.frameworks.jax", "Jax"),
}
#: Bytes above which a tensor is told by its digest, and sent only where that differs.
DIGEST_ABOVE: Final = 16_384
#: The step in flight, in a file that both map; this in the backward pass.
STEP_BYTES: Final = 8
IN_BACKWARD: Final = -2
NOWHERE: Final = -1
#: Exit status of a host after a fault of its own (EX_SOFTWARE): nothing is said of the candidate then.
OWN_FAULT: Final = 70
#: Source: prctl(2).
_PR_SET_PDEATHSIG: Final = 1
_MESSAGE_CHARS: Final = 4000


def main(argv: Sequence[str]) -> None:
    """Serve a worker until it is gone.

    Args:
        argv: Descriptors to read from, to write to, for what is printed, and of the file in which the step in flight is
            told; the module; the device; folders of the user's own modules.
    """
    read_fd, write_fd, output, place = map(int, argv[:4])
    module, device, *folders = argv[4:]
    _end_with_worker()
    faulthandler.enable()
    from ci_autotest.execute.wire import Wire, WireError  # noqa: PLC0415 - after the fault handler is on

    wire = Wire(read_fd, write_fd)
    sys.path += folders
    try:
        framework = _adapter(module, device)
    except BaseException as error:  # noqa: BLE001 - foreign code at import may raise anything, SystemExit too
        wire.send(_encoded({"error": type(error).__name__, "message": str(error), "name": _missing(error)}))
        return
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os.dup2(output, 1)
    os.dup2(output, 2)
    about = {"python": sys.version.split()[0], **framework.libraries()}
    told = {"version": framework.version, "libraries": about, "has_flags": framework.has_flags}
    graph = {"has_graph": hasattr(framework, "graph"), "graph_goes_back": getattr(framework, "graph_goes_back", True)}
    wire.send(_encoded({**told, **graph, "shows_steps": framework.shows_steps}))
    host = _Host(framework, wire, memoryview(mmap.mmap(place, STEP_BYTES)).cast("q"))
    while True:
        try:
            head, buffers = wire.receive()
        except WireError:
            os._exit(0)
        try:
            host.answer(json.loads(head), buffers)
        except Exception:  # noqa: BLE001 - what the framework raises is caught where it is called: this is our fault
            traceback.print_exc()
            os._exit(OWN_FAULT)


def _end_with_worker() -> None:
    """Ask the system to end this process when its worker is gone, however it went; where it can."""
    parent = os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


def _adapter(module: str, device: str) -> Framework:
    importlib.import_module("numpy")  # its absence is told as what it is
    where, name = ADAPTERS.get(module, ("ci_autotest.execute.frameworks.torch_like", "TorchLike"))
    framework: Framework = getattr(importlib.import_module(where), name)(module, device)
    _prove(framework, device)
    return framework


def _prove(framework: Framework, device: str) -> None:
    """Compute on the device: one that is named and not there must not show itself case by case.

    Raises:
        LackingError: What came back is not what was put there.
    """
    import numpy as np  # noqa: PLC0415 - after the fault handler is on

    from ci_autotest.execute.frameworks.protocol import LackingError  # noqa: PLC0415 - likewise
    from ci_autotest.program.ir import TensorSpec  # noqa: PLC0415 - likewise

    if device != "cpu":
        ones = framework.tensor(np.ones(8, np.float32), TensorSpec("float32", (8,), (1,), 0, 8))
        if not (framework.array(ones) == 1).all():
            message = f"working device {device}"
            raise LackingError(message)


def _missing(error: BaseException) -> str:
    return error.name or "" if isinstance(error, ModuleNotFoundError) else ""


def _encoded(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


class _Host:
    """Answer a worker's messages.

    Args:
        framework: Runs the programs.
        wire: Where answers go.
        place: Where the step in flight is told.
    """

    def __init__(self, framework: Framework, wire: Wire, place: memoryview) -> None:
        self._framework = framework
        self._wire = wire
        self._place = place
        self._kept: dict[int, bytes] = {}
        self._last: tuple[Program, Run] | None = None

    def answer(self, message: dict[str, Any], buffers: list[bytes]) -> None:
        """Run each job and answer it, so that the worker knows which one is in flight."""
        if "fetch" in message:
            self._wire.send(b"{}", [self._kept[number] for number in message["fetch"]])
            return
        if "has" in message:
            self._wire.send(_encoded(self._about(message["has"])))
            return
        if "backward" in message:
            self._backward(message["backward"], buffers)
            return
        self._kept.clear()
        for job in message["jobs"]:
            self._job(job, buffers)

    def _about(self, targets: list[str]) -> dict[str, Any]:
        """Return which of some targets the framework has, and its devices where its adapter says them."""
        from ci_autotest.execute.binding import has  # noqa: PLC0415 - after the fault handler is on

        devices: list[str] = getattr(self._framework, "devices", list)()
        return {"has": [has(self._framework, target) for target in targets], "devices": devices}

    def _job(self, job: dict[str, Any], buffers: list[bytes]) -> None:
        from ci_autotest.execute.binding import storage_of  # noqa: PLC0415 - likewise
        from ci_autotest.execute.graphing import as_graph  # noqa: PLC0415 - after the fault handler is on
        from ci_autotest.execute.running import forward, together  # noqa: PLC0415 - likewise
        from ci_autotest.program.plain import program_of  # noqa: PLC0415 - after the fault handler is on

        place = self._place
        program = program_of(job["program"])
        tensors = {key: storage_of(buffers[at], dtype) for key, (dtype, at) in job["tensors"].items()}
        execute = as_graph if job["graph"] else forward
        run = execute(
            program, tensors, self._framework, lambda index: place.__setitem__(0, index), snapshots=job["snapshots"]
        )
        place[0] = NOWHERE  # what is left is reading the values
        self._last = program, run
        if run.failure is None and run.lacking is None and job["cotangents"] is not None:
            self._go_back(program, run, job["cotangents"], buffers)
        answer = _Answer(self._framework, self._kept, together(run.values, self._framework))
        values: list[Any] = []
        try:
            for value in run.values:
                values.append(answer.value(value))
        except Exception as error:  # noqa: BLE001 - foreign tensors: reading them may raise anything
            run.failure = (len(values), type(error).__name__, f"its result cannot be read: {error}")
        copies = [answer.seen(copy) for copy in run.copies]
        self._send(answer, run, {"values": values, "copies": copies})

    def _backward(self, job: dict[str, Any], buffers: list[bytes]) -> None:
        """Run the backward pass of the last program."""
        assert self._last is not None  # noqa: S101 - a worker asks for what it has run
        program, run = self._last
        self._go_back(program, run, job["cotangents"], buffers)
        self._send(_Answer(self._framework, self._kept, {}), run, {"values": [], "copies": []})

    def _go_back(self, program: Program, run: Run, cotangents: dict[str, Any], buffers: list[bytes]) -> None:
        from ci_autotest.execute.binding import storage_of  # noqa: PLC0415 - after the fault handler is on
        from ci_autotest.execute.gradients import backward  # noqa: PLC0415 - likewise

        given = {
            int(position): storage_of(buffers[at], dtype).reshape(shape)
            for position, (dtype, shape, at) in cotangents.items()
        }
        self._place[0] = IN_BACKWARD
        backward(program, run, given, self._framework)

    def _send(self, answer: _Answer, run: Run, head: dict[str, Any]) -> None:
        gradients = [[key, None if seen is None else answer.seen(seen)] for key, seen in run.gradients]
        failure = run.failure and [run.failure[0], run.failure[1], run.failure[2][:_MESSAGE_CHARS]]
        backward_failure = run.backward_failure and run.backward_failure[:_MESSAGE_CHARS]
        written = [[position, answer.seen(weight)] for position, weight in run.written]
        told = {"gradients": gradients, "written": written, "failure": failure, "backward_failure": backward_failure}
        self._wire.send(_encoded({**head, **told, "lacking": run.lacking}), answer.buffers)


class _Answer:
    """Collect the values of one answer and the buffers that it sends.

    A tensor is ``["tensor", dtype, shape, requires_grad, is_leaf, where]``: ``where`` is a buffer, or a digest with the
    number under which the elements are kept.
    """

    def __init__(self, framework: Framework, kept: dict[int, bytes], arrays: Mapping[int, np.ndarray]) -> None:
        self._framework = framework
        self._kept = kept
        self._arrays = arrays
        self.buffers: list[bytes] = []

    def value(self, value: Any) -> Any:  # noqa: ANN401 - a framework's value
        """Return a value at the end of the run as plain values."""
        from ci_autotest.execute.running import Seen  # noqa: PLC0415 - after the fault handler is on

        if self._framework.is_tensor(value):
            array = self._arrays.get(id(value))
            array = self._framework.array(value) if array is None else array
            return self.seen(Seen(self._framework.facts(value), array))
        if hasattr(value, "state_dict"):
            state = value.state_dict().items()
            return ["module", {name: self.value(each) for name, each in state}]
        return self.seen(Seen(None, value))

    def seen(self, seen: Seen) -> Any:  # noqa: ANN401 - plain values
        """Return a value as plain values."""
        import numpy as np  # noqa: PLC0415 - after the fault handler is on

        if seen.facts is None and isinstance(seen.array, np.ndarray):
            return ["array", seen.array.dtype.name, list(seen.array.shape), self._where(seen.array)]
        if seen.facts is None:
            return _plain(seen.array)
        dtype, shape, requires_grad, is_leaf = seen.facts
        return ["tensor", dtype, list(shape), requires_grad, is_leaf, self._where(seen.array)]

    def _where(self, array: np.ndarray) -> int | list[Any]:
        data = array.tobytes()
        if len(data) <= DIGEST_ABOVE:
            self.buffers.append(data)
            return len(self.buffers) - 1
        number = len(self._kept)
        self._kept[number] = data
        return [hashlib.blake2b(data, digest_size=16).hexdigest(), number]


def _plain(value: Any) -> Any:  # noqa: ANN401 - whatever a step gave
    """Return what a step gave as plain values: of a tuple its length, because its tensors are steps of their own."""
    from ci_autotest.program.plain import plain_argument  # noqa: PLC0415 - after the fault handler is on

    if isinstance(value, tuple | list) and not all(isinstance(item, int) for item in value):
        return ["items", len(value)]
    try:
        return ["plain", plain_argument(tuple(value) if isinstance(value, list) else value)]
    except TypeError:
        return ["other", type(value).__name__]
