"""The note of a recording: what a repro must know about the candidate in addition to the program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from ci_autotest.backends.devices import available_device, device_of, versions
from ci_autotest.backends.function_paths import load_function
from ci_autotest.backends.fx.backend import takes_inputs
from ci_autotest.backends.operators.identity import operator_of, spellings, step_operator
from ci_autotest.backends.operators.user_operators import is_module_class
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
    ModuleCandidate,
    OnnxRuntimeCandidate,
    SubstituteCandidate,
    TorchCandidate,
    WorkerCandidate,
)
from ci_autotest.program.ir import CALL_FUNCTION, CALL_METHOD, CALL_MODULE
from ci_autotest.program.note import (
    CompileNote,
    DdpNote,
    DTensorNote,
    ExportNote,
    FsdpNote,
    FxNote,
    KindNote,
    ModuleNote,
    Note,
    OnnxRuntimeNote,
    SubstituteNote,
    TorchNote,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ci_autotest.kinds import AnyCandidate
    from ci_autotest.program.ir import Step


def repro_note(candidate: AnyCandidate, steps: Sequence[Step], reference: str = "cpu") -> Note:
    """Return the candidate's part of a recording's note.

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
    return Note(
        candidate=candidate.name, device=device_of(candidate), reference_device=available_device(reference),
        run_mode=candidate.run_mode, env=candidate.environ, torch=str(torch.__version__),
        libraries=versions(candidate.framework or candidate.device_module),
        side=_side(candidate, _Replaced(classes, replaced, steps)),
    )  # fmt: skip


class _Replaced(NamedTuple):
    """What a candidate replaces in a program: classes of modules, operators, and the program's steps."""

    classes: dict[str, str]
    operators: dict[str, str]
    steps: Sequence[Step]


def _side(candidate: AnyCandidate, replaced: _Replaced) -> KindNote:  # noqa: C901 - one case for each kind
    """Return what a repro needs of a candidate's kind."""
    own: dict[str, Any] = {}
    if isinstance(candidate, WorkerCandidate):
        own |= {"load": candidate.load, "imports": candidate.imports}
    if isinstance(candidate, DeviceCandidate):
        own |= {"device_module": candidate.module}
    match candidate:
        case TorchCandidate():
            return TorchNote(**own)
        case CompileCandidate():
            return CompileNote(**own, options=candidate.options)
        case FxCandidate(transform=path):
            return FxNote(**own, transform=path, takes_inputs=takes_inputs(load_function(path, "transform")))
        case OnnxRuntimeCandidate():
            return OnnxRuntimeNote(**own, options=candidate.options)
        case ExportCandidate():
            return ExportNote(
                **own,
                transform=candidate.compile,
                options=candidate.options,
                takes=candidate.takes,
                dynamic=candidate.dynamic,
            )
        case SubstituteCandidate():
            return _substitute(candidate, replaced, own)
        case ModuleCandidate():
            return ModuleNote()
        case DTensorCandidate():
            return DTensorNote(**own, processes=candidate.processes)
        case DdpCandidate():
            return DdpNote(**own, wrap=candidate.wrap)
        case FsdpCandidate():
            return FsdpNote(**own, wrap=candidate.wrap)


def _substitute(candidate: SubstituteCandidate, replaced: _Replaced, own: dict[str, Any]) -> SubstituteNote:
    operators = replaced.operators
    targets = sorted({step.target for step in replaced.steps if step.op == CALL_FUNCTION})
    return SubstituteNote(
        **own, classes=replaced.classes, state=candidate.state,
        renames={target: operators[operator_of(target)] for target in targets if operator_of(target) in operators},
        spellings={path: _existing(operator) for operator, path in operators.items()},
    )  # fmt: skip


def _existing(operator: str) -> list[str]:
    found = []
    for name in dict.fromkeys((operator, *spellings(operator))):
        try:
            resolve(name)
        except ProgramError:
            continue
        found.append(name)
    return found
