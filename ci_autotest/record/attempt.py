"""One attempt at a case: seed the generators, run the body once on the reference, and return the program.

The rule of this module (SEMANTICS, rule 1): an attempt is rejected only if a reference step raises an exception that
ends the body. Any other exception of the body is the author's error and ends the test.
"""

from __future__ import annotations

import random as python_random
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.backends.input_copies import CPU
from ci_autotest.backends.trace import Attempt
from ci_autotest.errors import AuthorError, Unsupported, UnsupportedReason
from ci_autotest.program.edit import arranged, follows_from
from ci_autotest.program.expectations import expected_inputs, has_expectation
from ci_autotest.program.ir import OUTPUT, PLACEHOLDER, Program, Ref, Step
from ci_autotest.program.refusal import is_demanded
from ci_autotest.record.autograd_functions import FunctionTracer
from ci_autotest.record.batch_dimensions import batch_of
from ci_autotest.record.body import run_body
from ci_autotest.record.call_forms import form_of, recorder_of
from ci_autotest.record.draw.cotangents import cotangent
from ci_autotest.record.draw.draws import Drawer
from ci_autotest.record.draw.profiles import LARGE_SHAPES, ORDINARY, PROFILES, REJECTED, profile_of, turn_of
from ci_autotest.record.draw.size_plan import BOUNDARY, SizePlan
from ci_autotest.record.draw.streams import Streams
from ci_autotest.record.expected_refusals import record_expected_errors
from ci_autotest.record.grids import check_grid, refuse_too_many
from ci_autotest.record.hooks import HookGradients
from ci_autotest.record.module_hooks import refuse_lost_hooks
from ci_autotest.record.notes import notice_loaders
from ci_autotest.record.optimizers import record_optimizers
from ci_autotest.record.options import check_example, dtype_of, turns_of
from ci_autotest.record.plain_tensors import watch
from ci_autotest.values.case import draws_of, key_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from ci_autotest.record.declaration import Declaration
    from ci_autotest.record.recorder import Recorder
    from ci_autotest.values.case import DrawnValue
    from ci_autotest.values.result import NoProfile
    from ci_autotest.values.size_classes import SizeStanding

_OUTSIDE: Final = Unsupported(
    UnsupportedReason.OUTSIDE,
    "its outputs depend only on values that may have been computed outside of the recorded steps, by numpy or another "
    "library: both sides get the same values, so there is nothing to compare",
)
#: Number of recordings after which the gradients of hooks are accepted, because hooks may keep changing each other's.
_RECORDINGS_FOR_HOOKS: Final = 8
_seed_torch: Final = torch.default_generator.manual_seed


class Attempts:
    """Source of attempts at the cases of tests. All draw from one bit generator, which gets a new key for each attempt.

    Args:
        device: Device of the reference.
        shapes: Number of sets of sizes and choices that the cases of a test share (``case.pattern_of``).

    Attributes:
        marks_modules: True if steps are marked with the modules that they are recorded in, which takes time.
    """

    def __init__(self, device: str = "cpu", shapes: int = 0) -> None:
        """Take over the global random generators of this process; each attempt seeds them."""
        refuse_lost_hooks()
        record_optimizers()
        notice_loaders()
        self._streams = Streams(shapes)
        self._shapes = shapes
        self._tracers: dict[int, FunctionTracer] = {}
        self._intercepted: set[int] = set()
        self._hook_gradients = HookGradients()
        self.marks_modules = True
        self._device = CPU if device == "cpu" else torch.device(device)
        self._numpy_bits = np.random.Philox(0)
        # User code may draw from numpy's global generator, so it has to be seeded too.
        np.random.set_bit_generator(self._numpy_bits)  # type: ignore[attr-defined]
        self._numpy_state: Any = self._numpy_bits.state

    def prefetch(self, key: int, cases: Sequence[int]) -> None:
        """Draw the random words of the first attempts at several cases at once; this only saves time.

        Args:
            key: Key of the test (``case.test_key``).
            cases: Numbers of the cases, ascending.
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
        """Run a body once and return its attempt.

        Args:
            declaration: The test's declaration.
            call: The body with its arguments bound.
            name: ``(test key, test id, case, attempt)``.
            edits: Values by site or name that replace draws; ``None`` if the draws need no names, which take time.
            profile: The profile; by default it depends on the case's number.
            watched: Indices of values to copy right after their step; only for a body without setup.

        Raises:
            AuthorError: The body raised an exception of its own, or returned something that is not recorded.
        """
        how = declaration, call, name, edits, profile, watched
        try:
            return self._with_hooks(*how)
        except AuthorError as error:
            # Plain torch may have refused a call with a tensor that a recorded step has used, so record such calls too.
            if name[0] in self._intercepted or not isinstance(error.__cause__, RuntimeError):
                raise
            self._intercepted.add(name[0])
            return self._with_hooks(*how)

    def _with_hooks(self, *how: Any) -> Attempt:
        """Record a body, and again until each hook that reads its gradient was recorded with the one that it gets.

        Raises:
            AuthorError: As for ``attempt``.
        """
        gradients = self._hook_gradients = HookGradients()
        for _ in range(_RECORDINGS_FOR_HOOKS):
            try:
                found = self._recorded(*how)
            except AuthorError:
                # The body may have failed because a hook read ones in place of its gradient.
                if not (gradients.are_read and gradients.has_news()):
                    raise
                continue
            if not gradients.are_read:
                return found
            if found.cotangents:
                TorchBackend(str(self._device)).backward(found.program, found.trace, found.cotangents)
            if not gradients.has_news():
                break
        return self._recorded(*how)

    def _recorded(
        self,
        declaration: Declaration,
        call: Callable[[], object],
        name: tuple[int, str, int, int],
        edits: Mapping[str, DrawnValue] | None,
        profile: str | None,
        watched: Collection[int],
    ) -> Attempt:
        key, test, case, number = name
        refuse_too_many(declaration)
        example = declaration.examples[case] if case < len(declaration.examples) and profile != LARGE_SHAPES else {}
        allowed = () if example else _profiles(declaration)
        is_planned = case % 2 == 0 and (BOUNDARY in allowed if profile is None else profile == BOUNDARY)
        if is_planned:
            profile = ORDINARY  # it becomes `boundary` as soon as a dimension has its turn
        wanted = profile_of(test, case, 0, allowed) if profile is None else profile
        chosen = profile_of(test, case, number, allowed) if profile is None else profile
        # If the reference refuses one layout, the next attempt has another.
        turn = turn_of(test, case) + number
        point = max(0, case - len(declaration.examples))
        own_draws = None if edits is None and not example else {**example, **(edits or {})}
        drawer = Drawer(self._streams, key_of(key, case, number), own_draws, chosen, turn=turn, point=point)
        drawer.plan = SizePlan(
            *self._streams.place(), self._shapes,
            has_turn=is_planned, otherwise=_why_not_large(declaration, self._shapes),
        )  # fmt: skip
        self._seed(drawer.seed)
        if declaration.dtypes is not None:
            drawer.plan_beside(turns_of(declaration.dtypes))
        form = form_of(drawer, declaration.forms, number)
        recorder = recorder_of(form, drawer, self._device)
        recorder.dtype = dtype_of(case, declaration.dtypes)
        recorder.watched = watched
        record_expected_errors()  # pytest may have been imported after the previous attempt
        tracer = self._tracers.get(key)
        if tracer is None:
            tracer = self._tracers[key] = FunctionTracer()
        self._prepare(recorder, key)
        ended_at = run_body(recorder, declaration, call, tracer, form)
        recorder.notes.profile_applied = recorder.notes.profile_applied or drawer.plan.is_applied
        if recorder.notes.has_given_up:
            return _given_up(recorder)
        if ended_at is not None:
            # An expected refusal ends the case, so an example can only name draws before it.
            if example and not edits and is_demanded(recorder.steps[ended_at]):
                check_example(case, example, draws_of(drawer.log))
            return _ended(recorder, ended_at, wanted, key_of(key, case, number))
        if example and not edits:
            check_example(case, example, draws_of(drawer.log))
        if not edits:
            check_grid(declaration, drawer.points)
        are_random = declaration.check_grad_use_random_data
        has_backward = declaration.auto_backward and recorder.keeps_graph
        cotangents = _cotangents(recorder, are_random=are_random) if has_backward else {}
        program = _program(recorder)
        found = _attempt(recorder, program, wanted, key_of(key, case, number), cotangents)
        if declaration.batch is not None or recorder.notes.added:
            is_usual = not edits and not recorder.notes.profile_applied
            found = found._replace(batch=batch_of(program, declaration.batch, recorder.notes.added, is_usual=is_usual))
        is_outside = recorder.outside.keys and _rests_on(program, recorder.outside.keys)
        return found._replace(untested=_OUTSIDE) if is_outside else found

    def _prepare(self, recorder: Recorder, key: int) -> None:
        recorder.marks_modules = self.marks_modules
        recorder.hook_gradients = self._hook_gradients
        if key in self._intercepted:
            watch(recorder)

    def _seed(self, seed: int) -> None:
        _seed_torch(seed)
        python_random.seed(seed)
        self._numpy_state["state"]["key"][0] = seed
        self._numpy_bits.state = self._numpy_state
        # User code may have replaced numpy's global generator.
        if np.random.get_bit_generator() is not self._numpy_bits:  # type: ignore[attr-defined]
            np.random.set_bit_generator(self._numpy_bits)  # type: ignore[attr-defined]


def _profiles(declaration: Declaration) -> tuple[str, ...]:
    """Return the profiles of a test's cases; cases of a grid have none, unless the test asks for some."""
    if declaration.profiles is not None:
        return declaration.profiles
    return () if declaration.grid else PROFILES


def _why_not_large(declaration: Declaration, shapes: int) -> SizeStanding:
    """Return the reason to report if free dimensions do not reach a class of sizes, and no other rule forbids it."""
    if BOUNDARY not in _profiles(declaration):
        return "grid" if declaration.profiles is None else "profiles"
    return "shapes" if shapes else "few_cases"


def _unfit(recorder: Recorder, wanted: str) -> tuple[str, NoProfile] | None:
    """Return the profile that a case should have had and why it was not applied; ``None`` if it was."""
    if recorder.notes.profile_applied or wanted == ORDINARY:
        return None
    return wanted, recorder.notes.profile_obstacle if recorder.drawer.profile == wanted else REJECTED


def _cotangents(recorder: Recorder, *, are_random: bool) -> dict[int, torch.Tensor]:
    """Draw the gradient that the backward pass starts from, by position of each output tensor that requires grad.

    An output that is returned twice counts once (rule 9). This is decided here for both sides, because a candidate may
    return one tensor for two outputs of the reference, or two for one.
    """
    found = {}
    taken: list[torch.Tensor] = []
    for position, ref in enumerate(recorder.outputs):
        value = recorder.trace.values[ref.index]
        if not isinstance(value, torch.Tensor) or not value.requires_grad:
            continue
        if taken and any(value is other for other in taken):
            continue
        taken.append(value)
        found[position] = cotangent(
            recorder.drawer, position, value, are_random=are_random, has_layout=recorder.notes.profile_applied
        )
    return found


def _rests_on(program: Program, keys: Collection[str]) -> bool:
    """Return true if all inputs that a program's outputs depend on are among ``keys``."""
    steps = program.steps
    if program.setup:
        return False  # Parameters of a module are inputs too.
    needed = follows_from(steps, len(steps) - 1)
    return all(steps[index].target in keys for index in needed if steps[index].op == PLACEHOLDER)


def _given_up(recorder: Recorder) -> Attempt:
    """Return an attempt that the body has ended, as in ``CaseNotes.has_given_up``. Its program is empty."""
    applied = recorder.drawer.profile if recorder.notes.profile_applied else ORDINARY
    empty = Program((), (Step(OUTPUT, "output", (), (), "output"),))
    return Attempt(
        empty, recorder.trace, {}, {}, recorder.drawer.log, applied, None,
        assumption=recorder.notes.assumption, skipped=recorder.notes.skipped, unsupported=recorder.notes.untested,
        grid=recorder.drawer.points,
    )  # fmt: skip


def _ended(recorder: Recorder, at: int, wanted: str, key: tuple[int, int]) -> Attempt:
    """Return an attempt that ends with a step that the reference refused; unless the author expects it, it is rejected.

    The steps after a refusal are dropped, because they are undefined: for example, the gradients of an aborted backward
    pass.
    """
    steps, trace = recorder.steps, recorder.trace
    step = steps[at]
    del steps[at + 1 :], trace.values[at + 1 :], trace.facts[at + 1 :]
    recorder.silent(Step(OUTPUT, "output", (Ref(at),), (), "output"))
    refused = None if is_demanded(step) else step
    return _attempt(recorder, _program(recorder), wanted, key, {}, refused)


def _attempt(
    recorder: Recorder,
    program: Program,
    wanted: str,
    key: tuple[int, int],
    cotangents: dict[int, torch.Tensor],
    refused: Step | None = None,
) -> Attempt:
    """Return an attempt with the facts that its recorder has collected."""
    drawer = recorder.drawer
    return Attempt(
        program,
        recorder.trace,
        recorder.sources,
        cotangents,
        drawer.log,
        # A rejected attempt counts for the profile that it was drawn for.
        drawer.profile if recorder.notes.profile_applied or refused is not None else ORDINARY,
        refused,
        has_outside=bool(recorder.outside.keys),
        remarks=frozenset(recorder.notes.remarks),
        unfit=_unfit(recorder, wanted),
        notes=tuple(recorder.notes.lines),
        key=key,
        grid=drawer.points,
        point=tuple(drawer.point),
        background=recorder.notes.background,
        dimensions=drawer.plan.dimensions,
    )


def _program(recorder: Recorder) -> Program:
    """Return the program with its setup moved to the front; reorder the trace of the reference in the same way.

    Expected values are moved before the first call of the body, where the other inputs usually are, so that the calls
    can be repeated.
    """
    steps, trace = recorder.steps, recorder.trace
    if not recorder.has_setup and not has_expectation(steps):
        return Program((), tuple(steps))
    trace.copies = {}  # their keys are the indices before the move
    expected = expected_inputs(steps)
    first = next((i for i, step in enumerate(steps) if not step.in_setup and step.op != PLACEHOLDER), 0)
    order = sorted(
        range(len(steps)), key=lambda i: (not steps[i].in_setup, min(i, first - 0.5) if i in expected else i)
    )
    places = {old: new for new, old in enumerate(order)}
    trace.moved = [places[old] for old in range(len(order))]
    trace.values = [trace.values[i] for i in order]
    trace.facts = [trace.facts[i] for i in order]
    return arranged(steps, order=order)
