"""One attempt: seeds set, the body run once on the reference, and what came of it as a value.

The rule kept here (SEMANTICS, rule 1): only an exception from a reference step rejects an attempt.
Any other exception of a body is the author's error and ends the test.
"""

from __future__ import annotations

import random as python_random
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

from ci_autotest.backends.foreign import pass_interrupt
from ci_autotest.backends.placing import CPU
from ci_autotest.backends.trace import Attempt
from ci_autotest.case import key_of
from ci_autotest.errors import AuthorError, is_own, said
from ci_autotest.program.ir import COMPLEX, FLOATING, OUTPUT, PLACEHOLDER, Program, arranged
from ci_autotest.record.arrays import refuse_written
from ci_autotest.record.autograd_functions import Tracer
from ci_autotest.record.current import CURRENT
from ci_autotest.record.data import elements
from ci_autotest.record.draws import Drawer, Streams
from ci_autotest.record.module_hooks import hear_lost_hooks
from ci_autotest.record.options import dtype_of
from ci_autotest.record.outputs import record_output
from ci_autotest.record.profiles import NON_CONTIGUOUS, ORDINARY, PROFILES, profile_of
from ci_autotest.record.recorder import Ended, Recorder
from ci_autotest.record.refusals import meaning

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from ci_autotest.case import DrawnValue
    from ci_autotest.record.declare import Declaration

_GRAD: Final = FLOATING | COMPLEX
#: Dtypes whose elements hold more than a float32 does.
_WIDE: Final = frozenset({torch.float64, torch.complex64, torch.complex128})
_STANDARD_LIBRARY: Final = str(Path(traceback.__file__).parent)
_seed_torch: Final = torch.default_generator.manual_seed
_DTYPE_NAMES: Final = {getattr(torch, name): name for name in _GRAD}


class Attempts:
    """Make attempts at the cases of tests, all from one re-keyed bit generator.

    Args:
        device: Where the reference runs.
        shapes: Sets of sizes and choices that the cases of a test share (``case.pattern_of``).

    Attributes:
        seeds_python: Whether Python's and numpy's global generators are set as well, which costs four microseconds;
            no only for bodies that are known not to reach them.
    """

    def __init__(self, device: str = "cpu", shapes: int = 0) -> None:
        """Take over the global generators of this process: they are set before each attempt."""
        hear_lost_hooks()
        self.seeds_python = True
        self._streams = Streams(shapes)
        self._tracers: dict[int, Tracer] = {}
        self._device = CPU if device == "cpu" else torch.device(device)
        self._numpy_bits = np.random.Philox(0)
        # User code may draw from numpy's global generator.
        np.random.set_bit_generator(self._numpy_bits)  # type: ignore[attr-defined]
        self._numpy_state: Any = self._numpy_bits.state

    def prefetch(self, key: int, cases: Sequence[int]) -> None:
        """Draw the words of the first attempts at a batch of cases together: they are the same, for less.

        Args:
            key: The test's (``case.test_key``).
            cases: Numbers, ascending.
        """
        self._streams.prefetch(key, cases)

    def attempt(
        self,
        declaration: Declaration,
        call: Callable[[], object],
        name: tuple[int, str, int, int],
        edits: Mapping[str, DrawnValue] | None = None,
        profile: str | None = None,
        watched: Collection[int] = (),
    ) -> Attempt:
        """Run a body once and return what it did.

        Args:
            declaration: The test's.
            call: The body with its arguments bound.
            name: ``(test key, test id, case, attempt)``.
            edits: Values by site that replace draws.
            profile: What the attempt is about; from the case's number unless given.
            watched: Indices of values to copy at their step; of a body without setup.

        Raises:
            AuthorError: The body raised something of its own, or returned what is not recorded.
        """
        key, test, case, number = name
        allowed = declaration.profiles if declaration.profiles is not None else PROFILES
        chosen = profile_of(test, case, number, allowed) if profile is None else profile
        drawer = Drawer(self._streams, key_of(key, case, number), edits or {}, chosen)
        self._seed(drawer.seed)
        recorder = Recorder(drawer, self._device)
        recorder.dtype = dtype_of(case, declaration.dtypes)
        recorder.watched = watched
        tracer = self._tracers.get(key)
        if tracer is None:
            tracer = self._tracers[key] = Tracer()
        _run_body(recorder, call, tracer)
        if recorder.rejection is not None:
            return _rejected(recorder)
        cotangents = self._cotangents(recorder) if declaration.auto_backward and recorder.keeps_graph else {}
        if not declaration.check_grad_use_random_data:
            cotangents = {position: torch.ones_like(source) for position, source in cotangents.items()}
        applied = chosen if chosen == ORDINARY or recorder.profile_applied else ORDINARY
        return Attempt(
            _program(recorder),
            recorder.trace,
            recorder.sources,
            cotangents,
            drawer.log,
            applied,
            None,
        )

    def _seed(self, seed: int) -> None:
        _seed_torch(seed)
        if self.seeds_python:
            python_random.seed(seed)
            self._numpy_state["state"]["key"][0] = seed
            self._numpy_bits.state = self._numpy_state
            if np.random.get_bit_generator() is not self._numpy_bits:  # type: ignore[attr-defined]
                np.random.set_bit_generator(self._numpy_bits)  # type: ignore[attr-defined]

    def _cotangents(self, recorder: Recorder) -> dict[int, torch.Tensor]:
        """Draw the gradient that is put into each output tensor that requires grad: random and signed.

        An output that is returned twice counts once (rule 9). That is decided here for both sides: a candidate may give
        one tensor for two outputs of the reference, or two for one.
        """
        found = {}
        taken: list[torch.Tensor] = []
        is_strided = recorder.profile_applied and recorder.drawer.profile == NON_CONTIGUOUS
        for position, ref in enumerate(recorder.outputs):
            value = recorder.trace.values[ref.index]
            if not isinstance(value, torch.Tensor) or not value.requires_grad:
                continue
            if taken and any(value is other for other in taken):
                continue
            taken.append(value)
            shape, count = value.shape, value.numel()
            if value.dtype in _WIDE:
                array = elements(
                    self._streams, f"cotangent{position}", _DTYPE_NAMES[value.dtype], (count,), (-1.0, 1.0)
                )
            else:
                array = self._streams.cotangent(position, count, recorder.drawer.seed)
            source = torch.from_numpy(array.reshape(shape))
            source = source if source.dtype is value.dtype else source.to(value.dtype)
            found[position] = source if not is_strided else _strided(source)
        return found


def _run_body(recorder: Recorder, call: Callable[[], object], tracer: Tracer) -> None:
    token = CURRENT.set(recorder)
    try:
        returned = tracer.call(call)
        if recorder.rejection is None:
            record_output(recorder, returned)
            _refuse_empty(recorder)
            if recorder.shared:
                refuse_written(recorder)
    except AuthorError as error:
        message = f"{error}{_body_line(error, call)}"
        raise AuthorError(message) from error
    except BaseException as error:
        pass_interrupt(error)
        if recorder.rejection is None:
            line = _body_line(error, call)
            message = f"the body raised {type(error).__name__}: {said(error)}{line}{meaning(said(error))}"
            raise AuthorError(message) from error
    finally:
        CURRENT.reset(token)
        recorder.__class__ = Ended


def _strided(source: torch.Tensor) -> torch.Tensor:
    """Return a gradient with its last two dimensions the other way round in memory, as a transposition leaves it."""
    return source.mT.contiguous().mT if source.dim() > 1 else source


def _refuse_empty(recorder: Recorder) -> None:
    """Refuse a body that calls nothing: its inputs held against themselves are no test."""
    inputs = 1 + len(recorder.sources)
    if len(recorder.steps) == inputs or (recorder.has_setup and not _calls_anything(recorder)):
        message = "the body calls no operator of torch: there is nothing to compare."
        raise AuthorError(message)


def _calls_anything(recorder: Recorder) -> bool:
    return any(not step.in_setup and step.op not in {PLACEHOLDER, OUTPUT} for step in recorder.steps)


def _body_line(error: BaseException, call: Callable[[], object]) -> str:
    """Return `` (file, line n)`` of the innermost frame that is the user's, else of the body."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not is_own(frame.filename)]
    frames = [frame for frame in frames if not _is_library(frame.filename)] or frames
    if frames:
        return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})"
    code = getattr(call, "__code__", None)
    return f" ({Path(code.co_filename).name}, line {code.co_firstlineno})" if code is not None else ""


def _is_library(file: str) -> bool:
    return "/site-packages/" in file or file.startswith(_STANDARD_LIBRARY)


def _rejected(recorder: Recorder) -> Attempt:
    assert recorder.rejection is not None  # noqa: S101 - the caller looked
    step, failure = recorder.rejection
    recorder.trace.failure = failure
    # Steps of a body that swallowed the refusal and went on are dropped: the program ends where the
    # reference did.
    del (
        recorder.steps[failure.step :],
        recorder.trace.values[failure.step :],
        recorder.trace.facts[failure.step :],
    )
    recorder.steps.append(step)
    recorder.trace.values.append(None)
    recorder.trace.facts.append(None)
    log, profile = recorder.drawer.log, recorder.drawer.profile
    return Attempt(_program(recorder), recorder.trace, recorder.sources, {}, log, profile, step)


def _program(recorder: Recorder) -> Program:
    """Return the program, the setup moved to the front; what the reference saw is moved with it."""
    steps, trace = recorder.steps, recorder.trace
    if not recorder.has_setup:
        return Program((), tuple(steps))
    trace.copies = {}  # they were taken by the indices as recorded
    order = sorted(range(len(steps)), key=lambda i: not steps[i].in_setup)
    places = {old: new for new, old in enumerate(order)}
    trace.moved = [places[old] for old in range(len(order))]
    trace.values = [trace.values[i] for i in order]
    trace.facts = [trace.facts[i] for i in order]
    return arranged(steps)
