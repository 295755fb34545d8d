"""Single step: one step as a program of its own, with the inputs that the reference had just before it."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch.nn.utils.rnn import PackedSequence

from ci_autotest.backends.input_copies import source_of
from ci_autotest.errors import ProgramError
from ci_autotest.program.backward_passes import GRAD, PASSES
from ci_autotest.program.edit import keeping, mapped_step, replaced, until
from ci_autotest.program.ir import (
    CALL_FUNCTION,
    CALL_METHOD,
    CALL_MODULE,
    NO_GRAD,
    OUTPUT,
    PACKED,
    PLACEHOLDER,
    UNHOOKED,
    UNPACK,
    Program,
    Ref,
    Step,
    is_unpacking,
    step_refs,
    usual_name,
)
from ci_autotest.program.written_values import may_share_input, written_values

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ci_autotest.backends.protocol import Backend
    from ci_autotest.backends.trace import Trace
    from ci_autotest.program.distribution import Distribution
    from ci_autotest.program.ir import Argument


#: Name of the copy that an isolated step writes to.
COPY: Final = "copy"
#: Names of the inputs of an isolated step.


class Live(NamedTuple):
    """A program with its data as tensors of this process.

    Attributes:
        program: The program to run.
        sources: Data of each placeholder by key; each run gets its own copies.
        cotangents: Gradients of the outputs, by position of the output's tensors.
    """

    program: Program
    sources: Mapping[str, Any]
    cotangents: Mapping[int, Any]


class _Builder:
    """Collect the steps of an isolated program."""

    def __init__(self) -> None:
        self.setup: list[Step] = []
        self.body: list[Step] = []
        self.sources: dict[str, Any] = {}
        self.indices: dict[int, Argument] = {}

    def placeholder(
        self,
        tensor: torch.Tensor,
        name: str,
        *,
        requires_grad: bool,
        distribution: Distribution | None = None,
        state: str = "",
    ) -> None:
        # The setup keeps its keys, and in a sequence of calls these need not be the first ones.
        key = next(key for key in (f"t{number}" for number in count()) if key not in self.sources)
        self.sources[key], spec = source_of(tensor, requires_grad=requires_grad)
        if distribution is not None or state:
            spec = replace(spec, distribution=distribution, state=state)
        self.body.append(Step(PLACEHOLDER, key, (spec,), (), name))

    def next(self) -> Ref:
        return Ref(len(self.setup) + len(self.body))


def isolate(
    live: Live,
    index: int,
    reference: Backend,
    weights: Mapping[int, Any] | None = None,
    distributions: Mapping[int, Distribution] | None = None,
) -> Live:
    """Return the program of step ``index`` alone.

    Args:
        live: The whole program.
        index: A call of the body.
        reference: Runs the earlier steps again, so that the inputs are as they were just before the
            step.
        weights: Gradients of the step's outputs on the reference, by step; they become the
            cotangents.
        distributions: How the step's inputs lay on the ranks of a candidate that is a group, by step; an input of the
            program that is not among them lies as the program says.
    """
    program = live.program
    before = reference.run(until(program, index), live.sources)
    builder = _Builder()
    _copy_setup(builder, program, live.sources)
    step = program.steps[index]
    for ref in step_refs(step):
        if ref.index < program.start and isinstance(before.values[ref.index], torch.nn.Module):
            _as_it_was(builder, program, ref.index, before.values[ref.index])
    for ref in step_refs(step):
        if ref.index not in builder.indices and ref.index >= program.start:
            taken = program.steps[ref.index].spec
            state, lies = ("", None) if taken is None else (taken.state, taken.distribution)
            lies = (distributions or {}).get(ref.index, lies)
            _take(builder, before, ref.index, lies, state, _author_name(program.steps[ref.index]))
    if step.modes != NO_GRAD:
        _protect(builder, written_values(step, program.steps))
    moved = mapped_step(step, lambda part: builder.indices[part.index] if isinstance(part, Ref) else part)
    at = builder.next()
    builder.body.append(moved)
    outputs, cotangents = _outputs(builder, program, index, at, weights or {})
    builder.body.append(Step(OUTPUT, "output", outputs, (), "output"))
    return Live(Program(tuple(builder.setup), tuple(builder.body)), builder.sources, cotangents)


def _copy_setup(builder: _Builder, program: Program, sources: Mapping[str, Any]) -> None:
    """Copy the whole setup; ``pruned`` drops unused modules later."""
    for i, step in enumerate(program.setup):
        builder.setup.append(step)
        builder.indices[i] = Ref(i)
        if step.op == PLACEHOLDER:
            builder.sources[step.target] = sources[step.target]


def _as_it_was(builder: _Builder, program: Program, index: int, module: torch.nn.Module) -> None:
    """Give a module the state and the mode that it had just before the step."""
    state = module.state_dict()
    for step in program.setup:
        loaded = step.loaded_state
        for name, place in loaded[1].items() if loaded is not None and loaded[0] == index else ():
            if name in state:
                builder.sources[program.setup[place].target] = state[name].detach().clone()
    if any(step.op == CALL_METHOD and step.receiver == index for step in program.body):
        mode = Step(CALL_METHOD, "train", (Ref(index), module.training), (), "train", in_setup=True)
        before = [step for step in builder.setup if step.sets_training is not None and step.receiver == index]
        if before[-1:] != [mode]:  # The step may have been isolated before.
            builder.setup.append(mode)


def _author_name(step: Step) -> str:
    """Return the name that a test gave its input; empty for what a call has made, and for what no test has named."""
    if step.op != PLACEHOLDER or step.name in {"parameter", "captured"}:
        return ""
    number = step.target.removeprefix("t")
    return "" if number.isdecimal() and step.name == usual_name(int(number)) else step.name


def _take(
    builder: _Builder, before: Trace, index: int, distribution: Distribution | None, state: str, name: str
) -> None:
    """Turn the value of an earlier step into an input: a placeholder for a tensor, a constant for anything else."""
    value = before.values[index]
    if isinstance(value, PackedSequence):
        fields = tuple(None if part is None else _placed(builder, part) for part in value)
        builder.indices[index] = builder.next()
        builder.body.append(Step(CALL_FUNCTION, PACKED, fields, (), "packed"))
        return
    builder.indices[index] = (
        _placed(builder, value, distribution, state, name) if isinstance(value, torch.Tensor) else _constant(value)
    )


def _placed(
    builder: _Builder, value: torch.Tensor, distribution: Distribution | None = None, state: str = "", name: str = ""
) -> Ref:
    found = builder.next()
    taken = sum(step.op == PLACEHOLDER for step in builder.body)
    name = name or usual_name(taken)
    builder.placeholder(value, name, requires_grad=value.requires_grad, distribution=distribution, state=state)
    return found


def _constant(value: object) -> Any:
    # A program has plain tuples, which a file can hold.
    return tuple(value) if isinstance(value, torch.Size) else value


def _protect(builder: _Builder, written: Sequence[Ref]) -> None:
    """Let a step write to copies: outside of ``no_grad`` a leaf that requires grad refuses it (rule 6)."""
    for value in written:
        if isinstance(taken := builder.indices.get(value.index), Ref):
            builder.indices[value.index] = builder.next()
            builder.body.append(Step(CALL_METHOD, "clone", (taken,), (), COPY))


def _outputs(
    builder: _Builder, program: Program, index: int, at: Ref, weights: Mapping[int, Any]
) -> tuple[tuple[Ref, ...], dict[int, Any]]:
    """Unpack a tuple, including nested ones, as the whole program did; return the outputs with their cotangents."""
    places = {index: at}
    inner = {step.args[0].index for step in program.steps if is_unpacking(step) and isinstance(step.args[0], Ref)}
    if index not in inner:
        if program.steps[index].target == "operator.setitem":
            receiver = builder.body[-1].args[0]
            return ((receiver,) if isinstance(receiver, Ref) else ()), {}
        return (at,), ({0: weights[index]} if index in weights else {})
    outputs: list[Ref] = []
    cotangents: dict[int, Any] = {}
    for i, step in enumerate(program.steps):
        taken = step_refs(step)[0].index if is_unpacking(step) else -1
        if taken in places:
            place = builder.next()
            builder.body.append(Step(CALL_FUNCTION, UNPACK, (places[taken], step.args[1]), (), step.name))
            places[i] = place
            if i not in inner:
                cotangents.update({len(outputs): weights[i]} if i in weights else {})
                outputs.append(place)
    return tuple(outputs), cotangents


def pruned(live: Live) -> Live:
    """Return the program without the steps and data that no output needs.

    A write is kept if it may reach a needed value. Values with the same first receiver are assumed to share memory.
    Every use of a needed module is kept, too, because a forward call may change running statistics.
    """
    steps = live.program.steps
    shared = _shared_memory(steps)
    reached = [
        frozenset[int]().union(*(shared[value.index] for value in _changed(step, live.program))) for step in steps
    ]
    needed = {len(steps) - 1, *(index for index, step in enumerate(steps) if _has_backward(step))}
    needed.update(ref.index for index in tuple(needed) for ref in step_refs(steps[index]))
    grew = True
    # A write that is kept may need values to which other steps write.
    while grew:
        before = len(needed)
        groups = frozenset[int]().union(*(shared[index] for index in needed))
        for index in reversed(range(len(steps))):
            if index in needed or not groups.isdisjoint(reached[index]):
                needed.add(index)
                needed.update(ref.index for ref in step_refs(steps[index]))
        grew = len(needed) > before
    program = replace(keeping(live.program, needed)[0], cotangents=())
    return Live(program, {key: live.sources[key] for key in program.specs}, live.cotangents)


def _shared_memory(steps: tuple[Step, ...]) -> list[frozenset[int]]:
    """Return, for each step, the steps whose memory its value may share: the ends of its chains of receivers."""
    found: list[frozenset[int]] = []
    for index, step in enumerate(steps):
        values = list(step.args[:1]) if step.is_call else []
        values += written_values(step, steps)
        if step.op == CALL_MODULE and may_share_input(step):
            values += step.args[1:2]
        ends = [found[value.index] for value in values if isinstance(value, Ref)]
        found.append(frozenset[int]().union(*ends) if ends else frozenset({index}))
    return found


#: Calls that change the result of a later backward pass.
_EFFECTS: Final = frozenset({"register_hook", UNHOOKED, "retain_grad", "builtins.setattr", "requires_grad_"})


def _has_backward(step: Step) -> bool:
    """Whether a step runs a backward pass. No reference shows that a later step depends on its ``.grad``."""
    return step.target in PASSES and step.target != GRAD


def _changed(step: Step, program: Program) -> list[Ref]:
    """Return the values that a step changes: those it writes to, a called module, and the receiver of an effect."""
    found = list(written_values(step, program.steps))
    receiver = step.args[0] if step.args else None
    if isinstance(receiver, Ref):
        on_module = step.op == CALL_METHOD and receiver.index < program.start
        if step.op == CALL_MODULE or step.target in _EFFECTS or on_module:
            found.append(receiver)
    return found


# Replace a step by an input that holds the reference's value, so that the steps before it can be removed.


_KEY: Final = "inlined"


def inlined(live: Live, index: int, reference: Backend) -> Live:
    """Return the program with one step replaced by an input, and without the steps that nothing uses any more.

    Args:
        live: The program.
        index: A call of the body that gives a tensor.
        reference: Computes the value, as it was at the step.

    Raises:
        ProgramError: The step returns no tensor.
    """
    program = live.program
    step = program.steps[index] if program.start <= index < len(program.steps) else None
    if step is None or step.op not in {CALL_FUNCTION, CALL_METHOD}:
        message = f"step {index} is no call of the body and cannot be replaced by an input."
        raise ProgramError(message)
    before = reference.run(until(program, index + 1), live.sources)
    value = before.values[index] if before.failure is None and len(before.values) > index else None
    if not isinstance(value, torch.Tensor):
        message = f"step {index}, {step.target}, returns no tensor and cannot be replaced by an input."
        raise ProgramError(message)
    key = f"{_KEY}{sum(name.startswith(_KEY) for name in live.sources)}"
    source, spec = source_of(value, requires_grad=value.requires_grad)
    placed = step._replace(op=PLACEHOLDER, target=key, args=(spec,), kwargs=(), modes=(), seed=None)
    return pruned(Live(replaced(program, {index: placed}), {**live.sources, key: source}, live.cotangents))
