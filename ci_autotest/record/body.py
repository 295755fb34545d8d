"""Running a body with its recorder; an exception of the body's own is reported with file and line.

The body's return value, flattened, becomes the output of the program.
"""

from __future__ import annotations

import bdb
import sys
import traceback
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Final

import torch

from ci_autotest.backends.user_errors import pass_interrupt
from ci_autotest.errors import ArgumentError, AuthorError, Unsupported, UnsupportedReason, error_text, is_own
from ci_autotest.program.ir import CALL_FUNCTION, EXPECT, OUTPUT, PLACEHOLDER, Ref, Step, step_refs
from ci_autotest.program.targets import SIDE_ATTRIBUTES
from ci_autotest.record.arrays import refuse_written
from ci_autotest.record.call_forms import SECOND_DERIVATIVES, calling, with_second_derivatives
from ci_autotest.record.context import CURRENT
from ci_autotest.record.expected_refusals import check_demand, is_caused_by, is_met
from ci_autotest.record.gradient_calls import unread
from ci_autotest.record.module_calls import ModuleCalls
from ci_autotest.record.optimizers import restore_optimizer
from ci_autotest.record.plain_tensors import stop_watching
from ci_autotest.record.skips import FalseAssumption, UnsupportedTest, skip_exceptions, skip_reason
from ci_autotest.record.unsupported_uses import meaning, refuse_transform
from ci_autotest.record.values import GradFn, RecordedTensor
from ci_autotest.record.write_guard import refuse_unrecorded_writes

if TYPE_CHECKING:
    from collections.abc import Callable

    from ci_autotest.record.autograd_functions import FunctionTracer
    from ci_autotest.record.declaration import Declaration
    from ci_autotest.record.recorder import Recorder

_STANDARD_LIBRARY: Final = str(Path(traceback.__file__).parent)
_SHOWN_AT_MOST: Final = 80
#: Results of steps and attributes besides tensors.
_PLAIN: Final = (bool, int, float, complex, str, torch.Size, torch.dtype, torch.device, torch.layout)


def run_body(
    recorder: Recorder, declaration: Declaration, call: Callable[[], object], tracer: FunctionTracer, form: str
) -> int | None:
    """Run a body in a form and record its outputs; return the index of the refused step that ended it, if any.

    Raises:
        AuthorError: The body raised an exception of its own, returned something that is not recorded, wrote to memory
            without a step, calls no operator, or did not raise the error of its declaration.
    """
    token = CURRENT.set(recorder)
    try:
        with calling(form, recorder.device):
            ended_at, returned = _called(recorder, declaration, call, tracer)
        recorder.notes.is_widened = False  # the checks below are about the recording, so no input is an excuse
        if ended_at is None:
            if recorder.notes.has_given_up:
                return None
            wants_second = form == SECOND_DERIVATIVES and declaration.auto_backward
            record_output(recorder, with_second_derivatives(recorder, returned) if wants_second else returned)
            _refuse_empty(recorder)
            if recorder.outside.shared:
                refuse_written(recorder)
            if recorder.outside.captured:
                refuse_unrecorded_writes(recorder)
    except AuthorError as error:
        message = f"{error}{_body_line(error, declaration)}"
        # Another harness draws again if torch raises a TypeError, for example for an argument that torch does not have.
        if recorder.notes.is_widened or (declaration.is_foreign and isinstance(error, ArgumentError)):
            recorder.notes.assumption = message
            return None
        raise AuthorError(message) from error
    except BaseException as error:  # SystemExit too: a body that calls sys.exit() must not end the worker.
        pass_interrupt(error)
        line, hint = _body_line(error, declaration), meaning(error_text(error))
        if isinstance(error, bdb.BdbQuit):
            hint = ". A worker has no terminal: debug with `ci-autotest run --workers 0`"
        if recorder.notes.is_widened and isinstance(error, Exception):
            recorder.notes.assumption = (
                f"the body does not take inputs that its harness never draws: {error_text(error)}{line}"
            )
            return None
        message = f"the body raised {type(error).__name__}: {error_text(error)}{line}{hint}"
        raise AuthorError(message) from error
    finally:
        CURRENT.reset(token)
        stop_watching(recorder)
        recorder.refusal = None  # Its traceback keeps the body's frames alive.
        _restore(recorder)
        recorder.is_ended = True
        # Modules and generators refer back to the recorder. Without this, the cycle would keep the tensors in memory
        # until the garbage collector runs.
        recorder.modules.clear()
        recorder.module_steps = None
        recorder.drawer.cache.clear()
    return ended_at


def _called(
    recorder: Recorder, declaration: Declaration, call: Callable[[], object], tracer: FunctionTracer
) -> tuple[int | None, object]:
    """Call a body; return the index of the refused step that ended it, if there is one, and its result."""
    try:
        with ModuleCalls(recorder) if recorder.marks_modules else nullcontext(), _uncompiled():
            returned = tracer.call(call)
    except AuthorError:
        raise
    except skip_exceptions() as error:
        recorder.notes.skipped = skip_reason(error)
        return None, None
    except UnsupportedTest as error:
        recorder.notes.untested = error.why
        return None, None
    except FalseAssumption as error:
        recorder.notes.assumption = f"assume(){_body_line(error, declaration)} was false"
        return None, None
    except Exception as error:
        is_refused = recorder.refusal is not None and is_caused_by(error, recorder.refusal[1])
        if not is_refused:
            refuse_transform(error)
        if declaration.is_foreign and isinstance(error, AttributeError) and isinstance(error.obj, RecordedTensor):
            recorder.notes.untested = Unsupported(UnsupportedReason.OTHER_API, error_text(error))
            return None, None
        if recorder.refusal is None or not is_refused:
            raise
        return _ended_at(recorder, declaration, *recorder.refusal), None
    if declaration.raises:
        check_demand(declaration, None)
    return None, returned


def _uncompiled() -> AbstractContextManager[object]:
    """Return a context that runs the user's compiled functions as written, because graphs take no recorded values."""
    if "torch._dynamo" not in sys.modules or not hasattr(torch.compiler, "set_stance"):  # torch 2.6 has it
        return nullcontext()
    eager: AbstractContextManager[object] = torch.compiler.set_stance("force_eager")
    return eager


def _ended_at(recorder: Recorder, declaration: Declaration, index: int, refusal: Exception) -> int:
    """Return the index of the refused step that ended a body; mark it as expected if the declaration says so.

    A profile may cause a refusal of its own, for example an in-place write to expanded memory. Such an attempt is
    rejected; it is no error of the author.
    """
    has_profile = recorder.notes.profile_applied or recorder.drawer.plan.is_applied
    if declaration.raises and (is_met(declaration, refusal) or not has_profile):
        check_demand(declaration, refusal)
        recorder.demand(refusal)
    return index


def _refuse_empty(recorder: Recorder) -> None:
    """Refuse a body that calls no operator: comparing its inputs with themselves would always pass."""
    others = 1 + len(recorder.sources) + sum(step.target == EXPECT for step in recorder.steps)
    if len(recorder.steps) == others or (recorder.has_setup and not _calls_anything(recorder)):
        if any(step.spec is not None and step.spec.placements for step in recorder.steps):
            detail = "the body says how its inputs lie on ranks, and calls no operator"
            recorder.notes.untested = Unsupported(UnsupportedReason.RANKS, detail)
            return
        message = "the body calls no operator of torch: there is nothing to compare."
        raise AuthorError(message)


def _calls_anything(recorder: Recorder) -> bool:
    return any(not step.in_setup and step.is_call and step.target != EXPECT for step in recorder.steps)


def _restore(recorder: Recorder) -> None:
    """Restore the user's parameters, gradients and optimizers, because they may outlive the case."""
    for held in recorder.outside.optimizers.values():
        restore_optimizer(held)
    recorder.outside.optimizers.clear()
    for tensor, data in recorder.outside.given_data.values():
        tensor.data.copy_(data)
    recorder.outside.given_data.clear()
    recorder.outside.given.clear()
    for tensor, before in recorder.outside.given_gradients.values():
        tensor.grad = before
    recorder.outside.given_gradients.clear()


def _body_line(error: BaseException, declaration: Declaration) -> str:
    """Return `` (file, line n)`` of the innermost frame of user code, or of the body if there is none."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not is_own(frame.filename)]
    frames = [frame for frame in frames if not _is_library(frame.filename)] or frames
    if frames:
        return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})"
    # The body as written: what is called may be a function of this package that binds its arguments.
    code = getattr(declaration.body, "__code__", None)
    return f" ({Path(code.co_filename).name}, line {code.co_firstlineno})" if code is not None else ""


def _is_library(file: str) -> bool:
    return "/site-packages/" in file or file.startswith(_STANDARD_LIBRARY)


def record_output(recorder: Recorder, returned: object) -> None:
    """Record the outputs of a body. If it returned no tensor, every tensor that no step computes with is an output too.

    Raises:
        AuthorError: The body returned something that no step gave.
    """
    found = tuple(_returned(returned, recorder))
    # A compiled graph shows only its outputs. If the body returns only a size, its tensor has to be an output too.
    if not any(recorder.trace.facts[ref.index] is not None for ref in found):
        found += _unused(recorder)
    if not recorder.keeps_graph:
        found += tuple(gradient._ref for leaf in unread(recorder) if isinstance(gradient := leaf.grad, RecordedTensor))
    # Last, so that a program without its expectations has the same other outputs.
    found += tuple(Ref(i) for i, step in enumerate(recorder.steps) if step.target == EXPECT)
    recorder.outputs = found
    recorder.silent(Step(OUTPUT, "output", found, (), "output"))


def _returned(value: object, recorder: Recorder) -> list[Ref]:
    if isinstance(value, RecordedTensor):
        return [value._ref]
    held = recorder.outside.captured.get(id(value))
    if held is not None:  # a plain tensor with a recorded value, for example the gradient of a plain parameter
        return [held[1]._ref]
    if value is None or isinstance(value, GradFn):  # `requires_grad` is compared, and tells whether there is one
        return []
    if isinstance(value, _PLAIN):
        return _given(value, recorder)
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, tuple | list):
        return [ref for item in value for ref in _returned(item, recorder)]
    message = f"the body returns {_kind(value)}. Return a recorded tensor, a tuple of them, or nothing."
    raise AuthorError(message)


def _given(value: object, recorder: Recorder) -> list[Ref]:
    """Return all steps that gave a plain value, for example a number; which of them the body used is unknown.

    An attribute that is equal to it becomes a step here.

    Raises:
        AuthorError: No step gave it. Comparing a constant would always pass.
    """
    values = recorder.trace.values
    read = [key for key, found in recorder.reads.items() if _gave(found, value)]
    for ref, name in read:
        tensor = values[ref.index]
        if name not in SIDE_ATTRIBUTES and _gave(getattr(tensor, name), value):
            step = Step(CALL_FUNCTION, "builtins.getattr", (ref, name), (), name)
            recorder.run(step, getattr, [tensor, name], {})
    given = [Ref(i) for i, found in enumerate(values) if _gave(found, value) and not recorder.steps[i].in_setup]
    if given or any(name in SIDE_ATTRIBUTES for _, name in read):
        return given
    message = (
        f"the body returns {_kind(value)}, which no recorded step gave: every side would return the same. Return what "
        "a step gives, such as x.size(0) or len(x), or a recorded tensor."
    )
    raise AuthorError(message)


def _gave(found: object, value: object) -> bool:
    """Return true if ``found``, of a step or an attribute, equals a plain value or is a shape with that size."""
    if isinstance(found, torch.Size) and type(value) is int:
        return value in found
    return type(found) is type(value) and (found is value or bool(found == value))


def _unused(recorder: Recorder) -> tuple[Ref, ...]:
    """Return the tensors from which steps read only plain values, such as a size, or nothing."""
    steps, trace = recorder.steps, recorder.trace
    used = {
        ref.index
        for i, step in enumerate(steps)
        if step.target != EXPECT and type(trace.values[i]) not in _PLAIN
        for ref in step_refs(step)
    }
    return tuple(
        Ref(i)
        for i, step in enumerate(steps)
        if i not in used
        and not step.in_setup
        and step.op != PLACEHOLDER
        and step.target != EXPECT
        and trace.facts[i] is not None
    )


def _kind(value: object) -> str:
    is_short = isinstance(value, int | float | str) and len(str(value)) < _SHOWN_AT_MOST
    return f"{type(value).__name__}{f' {value!r}' if is_short else ''}"
