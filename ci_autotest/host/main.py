"""The host: a process in the candidate's interpreter that runs programs for a worker.

It needs the framework, the standard library and numpy. ci-autotest is not installed in that interpreter; the
worker passes the folder of its own source (``BOOT``). What the framework prints goes to the worker's output.
"""

from __future__ import annotations

import faulthandler
import gc
import importlib
import io
import json
import mmap
import os
import sys
import traceback
from typing import TYPE_CHECKING, Final

from ci_autotest.host.this_process import end_with_parent, name_rank

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ci_autotest.host.frameworks.protocol import Framework

#: Run by ``python -I -c``. It makes this package importable from the worker's folder, and nothing else that lies there.
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
#: Adapters by module. Every other module is assumed to have torch's names.
ADAPTERS: Final = {
    "oneflow": ("ci_autotest.host.frameworks.oneflow", "OneFlow"),
    "paddle": ("ci_autotest.host.frameworks.paddle", "Paddle"),
    "mindspore": ("ci_autotest.host.frameworks.mindspore", "MindSpore"),
    "jax": ("ci_autotest.host.frameworks.jax", "Jax"),
}
#: Adapters of a host that is one rank of a group, by module.
RANK_ADAPTERS: Final = {"oneflow": ("ci_autotest.host.frameworks.oneflow_global", "GlobalOneFlow")}
_ISOLATED: Final = ("ci_autotest.backends.substitute.isolated_kernels", "IsolatedKernels")
#: Size of the progress beacon: the number of the current job and its step, in a file that host and worker map.
PLACE_BYTES: Final = 16
#: Exit status of a host after a bug of ci-autotest (EX_SOFTWARE), so that the candidate is not blamed.
OWN_FAULT: Final = 70


def main(argv: Sequence[str]) -> None:
    """Serve a worker until it is gone.

    Args:
        argv: Descriptors to read from, to write to, for printed output, and of the progress beacon; the module; the
            device; whether the host is one rank of a group, ``1`` or ``0``; the user's functions by operator and what
            they take, as JSON; folders of the user's own modules.
    """
    read_fd, write_fd, output, place = map(int, argv[:4])
    module, device, is_rank, kernels, *folders = argv[4:]
    # First of all, because importing a framework may already crash or outlive the worker.
    end_with_parent()
    faulthandler.enable()
    gc.disable()  # Imports leave no garbage, and looking for it takes a quarter of their time.
    from ci_autotest.host.wire import Wire, WireError  # noqa: PLC0415 - after the fault handler is on

    wire = Wire(read_fd, write_fd)
    sys.path += folders
    if is_rank == "1":
        name_rank(int(os.environ["RANK"]))
    try:
        framework = _rank_adapter(module, device) if is_rank == "1" else _adapter(module, device, *json.loads(kernels))
    except BaseException as error:  # noqa: BLE001 - foreign code at import may raise anything, SystemExit too
        wire.send(_encoded({"error": type(error).__name__, "message": str(error), "name": _missing(error)}))
        return
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os.dup2(output, 1)
    os.dup2(output, 2)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # What is printed before a crash is not lost.
    libraries = {"python": sys.version.split()[0], **framework.libraries()}
    about = {"version": framework.version, "libraries": libraries, "has_flags": framework.has_flags}
    has_backward = getattr(framework, "graph_has_backward", True)
    graph = {"has_graph": hasattr(framework, "graph"), "graph_has_backward": has_backward}
    wire.send(_encoded({**about, **graph}))
    from ci_autotest.host.loop import RequestHandler  # noqa: PLC0415 - likewise

    gc.enable()
    handler = RequestHandler(framework, wire, memoryview(mmap.mmap(place, PLACE_BYTES)).cast("q"))
    while True:
        try:
            head, buffers = wire.receive()
        except WireError:
            os._exit(0)
        try:
            handler.answer(json.loads(head), buffers)
        except Exception:  # noqa: BLE001 - errors of the framework are caught where it is called: this one is ours
            traceback.print_exc()
            os._exit(OWN_FAULT)


def _adapter(module: str, device: str, replace: Mapping[str, str], scope: Sequence[Sequence[str]]) -> Framework:
    importlib.import_module("numpy")  # first, so that a missing numpy is reported as such and not as a broken framework
    framework: Framework
    if replace:  # This host runs in the worker's own interpreter, where the rest of ci-autotest can be imported.
        framework = getattr(importlib.import_module(_ISOLATED[0]), _ISOLATED[1])(module, device, replace, scope)
        _prove(framework, device)
        return framework
    where, name = ADAPTERS.get(module, ("ci_autotest.host.frameworks.torch_like", "TorchLike"))
    framework = getattr(importlib.import_module(where), name)(module, device)
    _prove(framework, device)
    return framework


def _rank_adapter(module: str, device: str) -> Framework:
    importlib.import_module("numpy")
    where, name = RANK_ADAPTERS[module]
    framework: Framework = getattr(importlib.import_module(where), name)(module, device)
    return framework


def _prove(framework: Framework, device: str) -> None:
    """Use the device once, so that a missing device is one error at the start instead of one in each case.

    Raises:
        LackingError: The elements that came back are not those that were put there.
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
