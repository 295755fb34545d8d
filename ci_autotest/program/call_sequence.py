"""Several calls of one or more bodies in one program, which shows kernels that remember earlier calls.

A body's automatic backward pass becomes a ``torch.autograd.grad`` step after each of its calls, so that the next call
follows it, as it does from case to case. Data are only passed on by key, never read, so that a worker's tensors and the
bytes of a saved program are joined by the same code.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ci_autotest.program.backward_passes import GRAD, PASSES
from ci_autotest.program.edit import arranged, keeping, mapped, renumbered_step, used_by
from ci_autotest.program.ir import (
    CALL_FUNCTION,
    CALL_METHOD,
    GET_ATTR,
    HOOK,
    NO_GRAD,
    OUTPUT,
    PLACEHOLDER,
    REGISTERS,
    UNPACK,
    Copy,
    Program,
    Ref,
    Step,
    TensorSpec,
    is_unpacking,
    output_refs,
    ref_to,
    step_refs,
)
from ci_autotest.program.random_calls import seeds_of
from ci_autotest.program.refusal import refusals
from ci_autotest.program.targets import is_own, last_name, makes_module

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from ci_autotest.program.ir import Argument

#: Calls whose effects a second call of the body would find, or that run a backward pass themselves.
_ONCE: Final = frozenset({
    *PASSES, "retain_grad", "register_hook", "requires_grad_", "builtins.setattr", "detach_", "set_",
})  # fmt: skip

#: Keywords of a backward pass through a graph that another backward pass needs.
KEEPS_GRAPH: Final = (("retain_graph", True),)
_ALLOW_UNUSED: Final = (("allow_unused", True),)

_SIMPLE: Final = frozenset({Ref, int, float, bool, str, type(None)})


class SequencePart(NamedTuple):
    """A body with its data.

    Attributes:
        program: Setup and body.
        data: Of its placeholders, by key.
        cotangents: Spec and data of the gradients from which the backward pass starts, by position of the output.
        leaves: Indices of the placeholders that have a gradient.
        parameters: Parameters of modules that have a gradient: the index of the module, and the name.
        tensors: Indices of the steps whose values are known to be tensors.
        writable: Indices of computed values that may be overwritten, because no other value shares their memory.
    """

    program: Program
    data: Mapping[str, Any]
    cotangents: Mapping[int, tuple[TensorSpec, Any]]
    leaves: Collection[int]
    parameters: Collection[tuple[int, str]] = ()
    tensors: Collection[int] = ()
    writable: Collection[int] = ()


def is_repeatable(program: Program) -> bool:
    """Whether a body may be called again on the same inputs.

    It registers no hook, runs no backward pass, has no refused step and draws no random numbers. Random results
    are judged by the inputs of their call, which a probe has overwritten since.
    """
    return not (refusals(program.steps) or seeds_of(program)) and not any(
        step.target in _ONCE or HOOK[0] in step.modes or REGISTERS[0] in step.modes for step in program.steps
    )


class How(NamedTuple):
    """How the steps of a call run.

    Attributes:
        is_evaluation: Whether gradients are off, as in the evaluation of a model.
        is_on_copies: Whether tensors are passed as copies that live for one call, so that their memory and identities
            are reused.
    """

    is_evaluation: bool = False
    is_on_copies: bool = False


PLAIN: Final = How()
EVALUATION: Final = How(is_evaluation=True)
ON_COPIES: Final = How(is_evaluation=True, is_on_copies=True)


class CallSequence:
    """A program that grows by calls.

    Attributes:
        data: Of all placeholders, by key.
    """

    def __init__(self) -> None:
        self._steps: list[Step] = []
        self._outputs: list[Ref] = []
        self.data: dict[str, Any] = {}

    def program(self) -> Program:
        """Return the calls so far as one program."""
        steps = [*self._steps, Step(OUTPUT, "output", tuple(self._outputs), (), "output")]
        count = sum(step.in_setup for step in steps)
        # Each body brings its own setup, so that with several bodies the setup is not all in front.
        if any(step.in_setup for step in steps[count:]):
            return arranged(steps)
        return Program(tuple(steps[:count]), tuple(steps[count:]))

    def order(self) -> list[int]:
        """Return the indices of the steps so far in the order of the program, which has all setup in front."""
        return sorted(range(len(self._steps)), key=lambda index: not self._steps[index].in_setup)

    def add(self, step: Step) -> Ref:
        """Append a step whose references are indices of this sequence; return the reference to it."""
        self._steps.append(step)
        return ref_to(len(self._steps) - 1)

    def placeholder(self, spec: TensorSpec, data: Any, name: str, *, in_setup: bool = False) -> Ref:
        """Append an input; return the reference to it."""
        # New keys, because the placeholders of two bodies may have the same ones.
        key = f"t{len(self.data)}"
        self.data[key] = data
        return self.add(Step(PLACEHOLDER, key, (spec,), (), name, in_setup=in_setup))

    def setup(self, part: SequencePart) -> dict[int, int]:
        """Append the setup of a body; return the new index of each of its steps."""
        return self._copied(part, range(part.program.start), {})

    def inputs(self, part: SequencePart, *, requires_grad: bool = True) -> dict[int, int]:
        """Append new inputs for a body, at addresses of their own; return the new index of each."""
        found = {}
        for index, spec in part.program.inputs.items():
            step = part.program.steps[index]
            own = spec if requires_grad else replace(spec, requires_grad=False)
            found[index] = self.placeholder(own, part.data[step.target], step.name).index
        return found

    def call(self, part: SequencePart, given: Mapping[int, int], *, with_gradients: bool = True) -> None:
        """Append a call of a body and its backward pass.

        Args:
            part: The body.
            given: Indices of its setup and its inputs.
            with_gradients: Whether the backward pass follows.
        """
        at = self.forward(part, given)
        if with_gradients:
            self.gradients(part, at)

    def forward(
        self, part: SequencePart, given: Mapping[int, int], how: How = PLAIN, over: Mapping[int, int] | None = None
    ) -> dict[int, int]:
        """Append a call of a body; return the new index of each of its steps.

        Args:
            part: The body.
            given: Indices of its setup and its inputs.
            how: How its steps run.
            over: Indices of the steps of an earlier call, whose writable values are overwritten with those of this one.
        """
        program = part.program
        indices = range(program.start, len(program.steps) - 1)
        at = self._copied(part, [i for i in indices if i not in given], dict(given), how, over)
        # A body may return one value several times; comparing it once is enough.
        self._outputs += list(map(ref_to, dict.fromkeys(at[ref.index] for ref in output_refs(program))))
        return at

    def gradients(self, part: SequencePart, at: Mapping[int, int], *, times: int = 1) -> None:
        """Append the backward pass of a call, if it has one, ``times`` times through the same graph."""
        if part.cotangents and (part.leaves or part.parameters):
            weights = [self.placeholder(spec, data, "cotangent") for spec, data in part.cotangents.values()]
            parameters = {
                self.add(Step(GET_ATTR, name, (ref_to(at[module]),), (), name)): name
                for module, name in part.parameters
            }
            # Only the last pass may free the graph.
            for left in range(times - 1, -1, -1):
                self.gradients_of(part, [at], weights, parameters, keeps_graph=left > 0)

    def gradients_of(
        self,
        part: SequencePart,
        calls: Sequence[Mapping[int, int]],
        weights: Sequence[Ref],
        parameters: Mapping[Ref, str] = MappingProxyType({}),
        *,
        keeps_graph: bool = False,
    ) -> int:
        """Append one backward pass through some calls of a body; return its index.

        Args:
            part: The body.
            calls: Indices of the steps of each call.
            weights: The gradients from which the pass starts, in the order of the part's cotangents.
            parameters: Name of each parameter that gets a gradient too.
            keeps_graph: Whether another backward pass goes through the same calls.
        """
        refs = output_refs(part.program)
        roots = tuple(ref_to(at[refs[position].index]) for at in calls for position in part.cotangents)
        leaves = tuple(ref_to(at[index]) for at in calls for index in part.leaves)
        every = tuple(weights) * len(calls)
        # An input that no output depends on is no error: its gradient is `None` on both sides.
        how = (*KEEPS_GRAPH, *_ALLOW_UNUSED) if keeps_graph else _ALLOW_UNUSED
        made = self.add(Step(CALL_FUNCTION, GRAD, (roots, (*leaves, *parameters), every), how, "gradients"))
        names = [part.program.steps[leaf].name for leaf in part.leaves] * len(calls)
        for position, name in enumerate([*names, *parameters.values()]):
            self._outputs.append(self.add(Step(CALL_FUNCTION, UNPACK, (made, position), (), f"gradient_{name}")))
        return made.index

    def __len__(self) -> int:
        """Return the number of steps so far."""
        return len(self._steps)

    def write(self, receiver: int, new: Ref) -> None:
        """Append a step that overwrites an earlier value, without a gradient."""
        # torch refuses to write in place to a leaf that requires a gradient, unless gradients are off.
        self.add(Step(CALL_METHOD, "copy_", (ref_to(receiver), new), (), "written", NO_GRAD))

    def _copied(
        self,
        part: SequencePart,
        indices: Collection[int],
        at: dict[int, int],
        how: How = PLAIN,
        over: Mapping[int, int] | None = None,
    ) -> dict[int, int]:
        steps = part.program.steps
        for index in indices:
            step = steps[index]
            if step.op == PLACEHOLDER:
                spec = step.spec
                assert spec is not None  # noqa: S101 - checked when the program was made
                found = self.placeholder(spec, part.data[step.target], step.name, in_setup=step.in_setup)
            else:
                found = self.add(_called(step, at, part.tensors, how))
                if over is not None and index in part.writable:
                    self.write(over[index], found)
                    # Later steps read the overwritten tensor, as they do when a caller reuses its buffers.
                    found = ref_to(over[index])
            at[index] = found.index
        return at


def _called(step: Step, at: Mapping[int, int], tensors: Collection[int], how: How) -> Step:
    """Return a step with its references renumbered; for references and numbers alone on a fast path."""
    op, target, args, kwargs, name, modes, seed, in_setup, _ = step
    if how.is_on_copies and not is_unpacking(step):
        args, kwargs = tuple([_copies(arg, tensors) for arg in args]), _copies_of(kwargs, tensors)
    if how.is_evaluation and NO_GRAD[0] not in modes and not is_unpacking(step):
        modes = (*modes, *NO_GRAD)
    if kwargs or not all(type(arg) in _SIMPLE for arg in args):
        return renumbered_step(Step(op, target, args, kwargs, name, modes, seed, in_setup), at)
    moved = tuple([ref_to(at[arg.index]) if type(arg) is Ref else arg for arg in args])
    return Step(op, target, moved, kwargs, name, modes, seed, in_setup)


def _copies_of(kwargs: tuple[tuple[str, Argument], ...], tensors: Collection[int]) -> tuple[tuple[str, Argument], ...]:
    return tuple((key, _copies(value, tensors)) for key, value in kwargs)


def _copies(argument: Argument, tensors: Collection[int]) -> Argument:
    """Return an argument with each tensor replaced by a copy."""
    return mapped(argument, lambda part: Copy(part) if isinstance(part, Ref) and part.index in tensors else part)


def without_gradients(program: Program) -> Program:
    """Return a sequence of calls without their backward passes, for kernels that have none."""
    steps = program.steps
    dropped: set[int] = set()
    for index, step in enumerate(steps):
        if step.target == GRAD or (is_unpacking(step) and step_refs(step)[0].index in dropped):
            dropped.add(index)
    outputs = tuple(ref for ref in output_refs(program) if ref.index not in dropped)
    last = program.body[-1]._replace(args=outputs)
    # The gradients from which the passes started.
    dropped |= set(program.inputs) - used_by(step for i, step in enumerate((*steps[:-1], last)) if i not in dropped)
    return keeping(program.with_body((*program.body[:-1], last)), set(range(len(steps))) - dropped)[0]


def plain(spec: TensorSpec) -> TensorSpec:
    """Return the spec of a contiguous tensor of the same shape without a gradient."""
    return TensorSpec.plain(spec.dtype, spec.shape)


def change_parameters(found: CallSequence, part: SequencePart, setup: Mapping[int, int], factor: float = 0.5) -> bool:
    """Append steps that scale the weights of each module in place; return whether there is one."""
    weights = weights_of(part)
    for index, name in weights:
        # By a power of two, because that changes every weight and rounds no ordinary number.
        weight = found.add(Step(GET_ATTR, name, (Ref(setup[index]),), (), name))
        found.add(Step(CALL_METHOD, "mul_", (weight, factor), (), name, NO_GRAD))
    return bool(weights)


def weights_of(part: SequencePart) -> list[tuple[int, str]]:
    """Return the weights of a body's modules: the index of the module, and the name.

    Of torch's modules that is ``weight``, of the user's every parameter with a gradient.
    """
    steps = part.program.setup
    weights = [
        (index, "weight")
        for index, step in enumerate(steps)
        if makes_module(step) and last_name(step.target) in _WITH_WEIGHT
    ]
    return weights + [(index, name) for index, name in part.parameters if is_own(steps[index].target)]


#: Modules of torch that have a parameter ``weight``, unless their arguments disable it.
_WITH_WEIGHT: Final = frozenset({
    "Linear", "Bilinear", "Embedding", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d",
    "ConvTranspose3d", "PReLU", "LayerNorm", "RMSNorm", "GroupNorm", "BatchNorm1d", "BatchNorm2d", "BatchNorm3d",
})  # fmt: skip
