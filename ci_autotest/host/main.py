"""The host: a process in the candidate's interpreter that runs programs for a worker.

Standard library and numpy only, besides the framework itself. Nothing of ours is installed in that interpreter: the
worker gives the folder of its own source (``BOOT``). What the framework prints goes where the worker's output goes.
"""

from __future__ import annotations

import ctypes
import faulthandler
import importlib
import json
import mmap
import os
import signal
import sys
import traceback
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ci_autotest.host.frameworks.protocol import Framework

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
from ci_autotest.host.main import main
main(sys.argv[2:])
"""
#: Adapters by module; every other module is taken to have torch's names.
ADAPTERS: Final = {
    "oneflow": ("ci_autotest.host.frameworks.oneflow", "OneFlow"),
    "paddle": ("ci_autotest.host.frameworks.paddle", "Paddle"),
    "mindspore": ("ci_autotest.host.frameworks.mindspore", "MindSpore"),
    "jax": ("ci_autotest.host.frameworks.jax", "Jax"),
}
_ISOLATED: Final = ("ci_autotest.backends.isolated_kernels", "IsolatedKernels")
#: The number of the job in flight and its step, in a file that both map.
PLACE_BYTES: Final = 16
#: Exit status of a host after a fault of its own (EX_SOFTWARE): nothing is said of the candidate then.
OWN_FAULT: Final = 70
#: Source: prctl(2).
_PR_SET_PDEATHSIG: Final = 1


def main(argv: Sequence[str]) -> None:
    """Serve a worker until it is gone.

    Args:
        argv: Descriptors to read from, to write to, for what is printed, and of the file that holds the job and the
            step in flight; the module; the device; functions of the user's by operator, as JSON; folders of the
            user's own modules.
    """
    read_fd, write_fd, output, place = map(int, argv[:4])
    module, device, replace, *folders = argv[4:]
    _end_with_worker()
    faulthandler.enable()
    from ci_autotest.host.wire import Wire, WireError  # noqa: PLC0415 - after the fault handler is on

    wire = Wire(read_fd, write_fd)
    sys.path += folders
    try:
        framework = _adapter(module, device, json.loads(replace))
    except BaseException as error:  # noqa: BLE001 - foreign code at import may raise anything, SystemExit too
        wire.send(_encoded({"error": type(error).__name__, "message": str(error), "name": _missing(error)}))
        return
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os.dup2(output, 1)
    os.dup2(output, 2)
    about = {"python": sys.version.split()[0], **framework.libraries()}
    told = {"version": framework.version, "libraries": about, "has_flags": framework.has_flags}
    has_backward = getattr(framework, "graph_has_backward", True)
    graph = {"has_graph": hasattr(framework, "graph"), "graph_has_backward": has_backward}
    wire.send(_encoded({**told, **graph, "shows_steps": framework.shows_steps}))
    from ci_autotest.host.loop import Work  # noqa: PLC0415 - likewise

    work = Work(framework, wire, memoryview(mmap.mmap(place, PLACE_BYTES)).cast("q"))
    while True:
        try:
            head, buffers = wire.receive()
        except WireError:
            os._exit(0)
        try:
            work.answer(json.loads(head), buffers)
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


def _adapter(module: str, device: str, replace: Mapping[str, str]) -> Framework:
    importlib.import_module("numpy")  # its absence is told as what it is
    framework: Framework
    if replace:  # In the worker's own interpreter, where everything is installed.
        framework = getattr(importlib.import_module(_ISOLATED[0]), _ISOLATED[1])(module, device, replace)
        _prove(framework, device)
        return framework
    where, name = ADAPTERS.get(module, ("ci_autotest.host.frameworks.torch_like", "TorchLike"))
    framework = getattr(importlib.import_module(where), name)(module, device)
    _prove(framework, device)
    return framework


def _prove(framework: Framework, device: str) -> None:
    """Compute on the device: one that is named and not there must not show itself case by case.

    Raises:
        LackingError: What came back is not what was put there.
    """
    import numpy as np  # noqa: PLC0415 - after the fault handler is on

    from ci_autotest.host.frameworks.protocol import LackingError  # noqa: PLC0415 - likewise
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
