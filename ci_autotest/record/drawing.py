"""Cases of a plain body, drawn from its template: what the body would draw, in its order, and nothing is called yet."""

from __future__ import annotations

from operator import is_
from typing import TYPE_CHECKING, Any

from ci_autotest.backends.columns import Side, rows_apart
from ci_autotest.backends.forming import is_same_call
from ci_autotest.backends.lockstep import Lockstep
from ci_autotest.backends.sweep import forward
from ci_autotest.backends.trace import Attempt
from ci_autotest.program.ir import CALL_METHOD, Program, Ref, Step
from ci_autotest.record.arguments import split
from ci_autotest.record.cotangents import cotangent
from ci_autotest.record.profiles import ORDINARY
from ci_autotest.record.template import Call
from ci_autotest.record.tensors import drawn_tensor
from ci_autotest.record.values import Value

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import torch

    from ci_autotest.backends.columns import Entering
    from ci_autotest.backends.sweep import Executor
    from ci_autotest.backends.trace import Trace
    from ci_autotest.program.ir import TensorSpec
    from ci_autotest.record.draws import Drawer
    from ci_autotest.record.sized import Sized
    from ci_autotest.record.template import Template


class Drawn:
    """One case as it is drawn: what stands for its recorder, and what was drawn so far, in the order of its steps.

    Attributes:
        drawer: Of the attempt.
        dtype: Of tensors whose dtype the test leaves open.
        device: Where the reference runs.
        profile_applied: Whether the profile changed anything.
        sources: Data of each input.
        specs: Of each input.
        calls: Each call that has a drawn argument.
    """

    __slots__ = ("_opened", "calls", "device", "drawer", "dtype", "profile_applied", "sources", "specs")

    def __init__(self, drawer: Drawer, dtype: torch.dtype | None, device: torch.device) -> None:
        """Begin with nothing drawn."""
        self.drawer = drawer
        self.dtype = dtype
        self.device = device
        self.profile_applied = False
        self.sources: list[torch.Tensor] = []
        self.specs: list[TensorSpec] = []
        self.calls: list[Step] = []
        self._opened = drawer.streams.opened

    @property
    def asks(self) -> tuple[bool, ...]:
        """Which inputs ask for their gradient."""
        return tuple([spec.requires_grad for spec in self.specs])

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Dtypes of the inputs."""
        return tuple([spec.dtype for spec in self.specs])

    @property
    def log(self) -> list[tuple[Any, ...]]:
        """What was drawn."""
        return self.drawer.log

    @property
    def profile(self) -> str:
        """What the case turned out to be about."""
        return self.drawer.profile if self.profile_applied else ORDINARY

    def draw(self, template: Template) -> None:
        """Draw all that a body would."""
        for index, what in template.drawn.items():
            if isinstance(what, Call):
                self.calls.append(_call(self, what, template.steps[index]))
            else:
                source, spec = drawn_tensor(self, what)
                self.sources.append(source)
                self.specs.append(spec)

    def cotangent(self, position: int, output: torch.Tensor, *, is_random: bool) -> torch.Tensor:
        """Return what is put into an output."""
        self.drawer.streams.reopen(self._opened)
        return cotangent(self, position, output, are_random=is_random)


class DrawnCases:
    """Cases of one form that were drawn from a template: their body was not run.

    Args:
        template: Says what was drawn.
        drawn: By position.
        are_random: Whether the gradients put in are random, else ones.

    Attributes:
        count: Of cases.
        steps: Of the first.
        identity: The template, where the forms of its calls do not depend on what is drawn.
        parts: Number of values in what a step gives, by its index, where it gives several.
    """

    def __init__(self, template: Template, drawn: Sequence[Drawn | Sized], *, are_random: bool) -> None:
        """Put their calls into columns."""
        self.count = len(drawn)
        self.parts = template.parts
        self._drawn = drawn
        self._are_random = are_random
        self._cotangents: dict[int, list[Any]] = {}
        calls = [index for index, what in template.drawn.items() if isinstance(what, Call)]
        self.identity: object = None if calls else template
        self._calls = {index: [one.calls[at] for one in drawn] for at, index in enumerate(calls)}
        self._inputs = [index for index in template.drawn if index not in self._calls]
        self._keys = {template.steps[index].target: at for at, index in enumerate(self._inputs)}
        self.steps = tuple(
            self._calls[index][0] if index in self._calls else step for index, step in enumerate(template.steps)
        )

    def at(self, index: int) -> Sequence[Step]:
        """Return one step of every case."""
        return self._calls.get(index) or [self.steps[index]] * self.count

    def specs(self, index: int) -> list[TensorSpec]:
        """Return what every case says of an input."""
        at = self._inputs.index(index)
        return [one.specs[at] for one in self._drawn]

    def sources(self, key: str) -> list[Any]:
        """Return the data of an input."""
        at = self._keys[key]
        return [one.sources[at] for one in self._drawn]

    def put(self, position: int, cases: Sequence[int], outputs: Sequence[torch.Tensor]) -> None:
        """Draw what is put into an output, for the cases that have one."""
        column = self._cotangents[position] = [None] * self.count
        for case, output in zip(cases, outputs, strict=True):
            column[case] = self._drawn[case].cotangent(position, output, is_random=self._are_random)

    def cotangents(self, position: int) -> list[Any]:
        """Return what is put into an output that requires grad."""
        return self._cotangents[position]

    def dtypes(self) -> list[tuple[str, ...]]:
        """Return the dtypes of each case's inputs."""
        return [one.dtypes for one in self._drawn]

    def profile(self, position: int) -> str:
        """Return what one case turned out to be about."""
        return self._drawn[position].profile

    def attempt(self, position: int, reference: Trace) -> Attempt:
        """Return one case as its body would have recorded it."""
        drawn = self._drawn[position]
        steps = list(self.steps)
        for index, spec in zip(self._inputs, drawn.specs, strict=True):
            steps[index] = steps[index]._replace(args=(spec,))
        for index, calls in self._calls.items():
            steps[index] = calls[position]
        return Attempt(
            Program((), tuple(steps)),
            reference,
            dict(zip(self._keys, drawn.sources, strict=True)),
            {output: column[position] for output, column in self._cotangents.items()},
            drawn.log,
            drawn.profile,
            None,
        )


def alike(drawn: Sequence[Drawn | Sized]) -> list[list[int]]:
    """Return the positions of cases that ask for gradients alike, and whose calls differ in numbers only."""
    groups: dict[tuple[bool, ...], list[list[int]]] = {}
    for position, one in enumerate(drawn):
        known = groups.setdefault(one.asks, [])
        for group in known:
            if not one.calls or all(map(is_same_call, drawn[group[0]].calls, one.calls)):
                group.append(position)
                break
        else:
            known.append([position])
    return [group for known in groups.values() for group in known]


def performed(
    cases: DrawnCases,
    reference: Executor,
    enter: Entering,
    watched: Collection[int],
    *,
    goes_back: bool,
) -> Lockstep | None:
    """Return drawn cases in lockstep, carried out by the reference; those that are not in it must be run by their body.

    Args:
        cases: As drawn.
        reference: Carries the steps out, on the host.
        enter: Is told each case before it is entered.
        watched: Indices of values that are copied at their step.
        goes_back: Whether a gradient is put into each output that requires grad.
    """
    side = forward(Side(range(cases.count)), cases, reference, enter, (watched, None))
    if not side.cases:
        return None
    apart = set()
    for seen in side.facts:
        apart |= rows_apart(seen, [seen[0]] * len(seen))
    for index, count in cases.parts.items():
        apart |= {row for row, value in enumerate(side.values[index]) if len(value) != count}
    for row in sorted(apart, reverse=True):
        side.leave(row, is_done=True)
    if not side.cases:
        return None
    taken: dict[int, int] = {}
    for position, ref in enumerate(cases.steps[-1].args if goes_back else ()):
        assert isinstance(ref, Ref)  # noqa: S101 - as an output is recorded
        facts = side.facts[ref.index][0]
        column: list[Any] = side.values[ref.index]
        if facts is None or not facts[0]:
            continue
        # An output that is returned twice counts once (rule 9), under whatever step.
        again = [list(map(is_, column, side.values[index])) for index in taken.values()]
        if any(any(rows) and not all(rows) for rows in again):
            return None
        if not any(map(all, again)):
            taken[position] = ref.index
            cases.put(position, side.cases, column)
    side.left.clear()
    return Lockstep.of(cases, side, taken)


def _call(drawn: Drawn, call: Call, step: Step) -> Step:
    """Return a call of the template with arguments of its own."""
    recorder: Any = drawn  # what it needs of one, it has
    nothing: Any = None

    def own(argument: Any) -> Any:  # noqa: ANN401 - as the body gave it
        """Return an argument with the values of the body's run as this case's."""
        if isinstance(argument, Value):
            return Value(nothing, argument._ref, recorder)
        if type(argument) in {tuple, list}:
            return type(argument)(map(own, argument))
        return argument

    args, kwargs = tuple(map(own, call.args)), {name: own(value) for name, value in call.kwargs.items()}
    _, step_args, _, step_kwargs = split(recorder, args, kwargs, call.callee, call.name)
    receiver = step.args[:1] if step.op == CALL_METHOD else ()
    return step._replace(args=(*receiver, *step_args), kwargs=step_kwargs)
