"""The note of a recording: what a repro must know about the candidate in addition to the program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

from ci_autotest.backends.devices import available_device, device_of, versions
from ci_autotest.backends.fx import takes_inputs
from ci_autotest.backends.operators.identity import operator_of, spellings, step_operator
from ci_autotest.backends.operators.user_operators import is_module_class
from ci_autotest.backends.substitute import load_function
from ci_autotest.backends.torch_steps import resolve
from ci_autotest.errors import ProgramError
from ci_autotest.kinds import (
    CompileCandidate,
    DdpCandidate,
    DeviceCandidate,
    DTensorCandidate,
    ExportCandidate,
    FsdpCandidate,
    FxCandidate,
    OnnxRuntimeCandidate,
    SubstituteCandidate,
    WorkerCandidate,
)
from ci_autotest.program.ir import CALL_FUNCTION, CALL_METHOD, CALL_MODULE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ci_autotest.kinds import AnyCandidate
    from ci_autotest.program.ir import Step


def repro_note(candidate: AnyCandidate, steps: Sequence[Step], reference: str = "cpu") -> dict[str, Any]:
    """Return the candidate's part of a recording's note, as JSON values.

    ``renames`` has the replacement of each function target of the program. ``spellings`` has the torch functions that a
    replacement stands for wherever they are called, also inside modules.

    Args:
        candidate: The candidate that ran the program.
        steps: Steps of the program.
        reference: The reference's device.
    """
    used = {step_operator(step, steps) for step in steps if step.op in {CALL_FUNCTION, CALL_METHOD, CALL_MODULE}}
    classes = {target: path for target, path in candidate.replaced.items() if is_module_class(target)}
    replaced = {operator_of(name): path for name, path in candidate.replaced.items() if name not in classes}
    # If no replaced operator is used by name, a module calls it inside, and any replacement may be the one.
    named = {operator: path for operator, path in replaced.items() if operator in used}
    replaced = named if named or not used.isdisjoint(classes) else replaced
    targets = {step.target for step in steps if step.op == CALL_FUNCTION}
    return {
        "backend": candidate.backend,
        "candidate": candidate.name,
        "device": device_of(candidate),
        "reference_device": available_device(reference),
        "libraries": versions(candidate.framework or candidate.device_module),
        "run_mode": candidate.run_mode,
        "renames": {
            target: replaced[operator_of(target)] for target in sorted(targets) if operator_of(target) in replaced
        },
        "classes": classes,
        "torch": str(torch.__version__),
        "env": candidate.environ,
        **_of_kind(candidate),
        "spellings": {path: _existing(operator) for operator, path in replaced.items()},
    }


#: What a repro reads of every kind; each adds its own.
_NOTHING: Final[Mapping[str, object]] = {
    "processes": False, "options": {}, "transform": "", "takes": "program", "dynamic": False, "takes_inputs": False,
    "wrap": "", "state": {}, "load": [], "import": [], "device_module": "",
}  # fmt: skip


def _of_kind(candidate: AnyCandidate) -> dict[str, object]:
    """Return what a repro must know of a kind's own keys."""
    found = {**_NOTHING}
    if isinstance(candidate, WorkerCandidate):
        found |= {"load": list(candidate.load), "import": list(candidate.imports)}
    if isinstance(candidate, DeviceCandidate):
        found |= {"device_module": candidate.module}
    match candidate:
        case CompileCandidate() | OnnxRuntimeCandidate():
            found |= {"options": candidate.options}
        case FxCandidate(transform=path):
            found |= {"transform": path, "takes_inputs": takes_inputs(load_function(path, "transform"))}
        case ExportCandidate():
            found |= {"transform": candidate.compile, "takes": candidate.takes, "dynamic": candidate.dynamic}
        case SubstituteCandidate():
            found |= {"state": candidate.state}
        case DTensorCandidate():
            found |= {"processes": candidate.processes}
        case DdpCandidate() | FsdpCandidate():
            found |= {"wrap": candidate.wrap}
        case _:
            pass
    return found


def _existing(operator: str) -> list[str]:
    found = []
    for name in dict.fromkeys((operator, *spellings(operator))):
        try:
            resolve(name)
        except ProgramError:
            continue
        found.append(name)
    return found
