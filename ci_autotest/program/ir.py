"""The program: a frozen, straight-line list of steps in torch.fx's vocabulary.

Owns the types that describe everything a test body did. It uses the standard library only, because a host reads these
values in any framework's interpreter. ``program/check.py`` checks the invariants:

* A step is named by its index over setup and body together; a ``Ref`` points to an earlier step.
* ``setup`` constructs modules and loads their state. Every backend runs it eagerly; it is never compiled.
* ``body`` is compared, compiled, localized and shrunk. Its last step is the only ``output``.
* A program contains no tensor data: a ``placeholder`` names a tensor, and ``Recording.tensors`` holds its storage.

``Step`` is a ``NamedTuple`` and not a dataclass because one is made for every call of every case,
and a frozen dataclass of this size takes three times as long to make
(``docs/decisions/step-is-a-namedtuple.md``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import EllipsisType
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from ci_autotest.values.dtypes import HALF

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ci_autotest.program.distribution import Distribution

Opcode = Literal["placeholder", "call_function", "call_method", "call_module", "get_attr", "output"]

#: What a tensor is that a body took from a plain module or from outside (``TensorSpec.state``).
PARAMETER: Final = "parameter"
BUFFER: Final = "buffer"

PLACEHOLDER: Final = "placeholder"
CALL_FUNCTION: Final = "call_function"
CALL_METHOD: Final = "call_method"
CALL_MODULE: Final = "call_module"
GET_ATTR: Final = "get_attr"
OUTPUT: Final = "output"
OPCODES: Final = (PLACEHOLDER, CALL_FUNCTION, CALL_METHOD, CALL_MODULE, GET_ATTR, OUTPUT)

_INPUTS: Final = ("x", "y", "z", "w")

#: Mode of a step that ran with gradients off. Each step stores its own modes, so that shrinking cannot leave a block
#: unbalanced.
NO_GRAD: Final = ("no_grad",)
#: Mode of a step inside a hook, which runs when autograd calls the hook, and of the step that registers the hook.
HOOK: Final = ("hook",)
REGISTERS: Final = ("registers",)
#: Modes of a call with guard bands around what its kernel allocates, which hold NaN or large integers, or zeros. They
#: are a candidate's alone.
RESULT_BANDS: Final = ("result_bands:nan", "result_bands:zeros")
#: Modes of a call in which ``torch.library.opcheck`` checks the operators of libraries that a candidate calls.
OPERATOR_CHECKS: Final = (
    "opcheck:test_schema", "opcheck:test_autograd_registration", "opcheck:test_faketensor",
    "opcheck:test_aot_dispatch_dynamic",
)  # fmt: skip
#: Modes that the reference does not have.
CANDIDATE_MODES: Final = frozenset({*RESULT_BANDS, *OPERATOR_CHECKS})
#: Target of the step whose value is the gradient that a hook on value ``args[0]`` receives.
HOOKED: Final = "builtins.hooked"
#: Target of the step that removes the hook of ``register_hook`` step ``args[0]``; its mode is ``registers`` too.
UNHOOKED: Final = "builtins.unhooked"
#: Target of the step that holds value ``args[0]`` against what the test expects, the data of placeholder ``args[1]``.
#: Its value is a copy of the first on a candidate and of the second on the reference. ``rtol`` and ``atol`` follow, or
#: ``None`` for the usual ones.
EXPECT: Final = "builtins.expect"
#: The method that returns a numpy array. No other step may use its value.
ARRAY: Final = "numpy"
#: Target of the step that saves the tensors of list ``args[0]`` to memory; its value is the bytes. ``torch.save`` and
#: ``torch.load`` themselves are never targets, because they write and read files and unpickle what they read.
SAVE: Final = "builtins.saved"
#: Target of the step that returns the list of tensors that step ``args[0]`` has saved.
LOAD: Final = "builtins.loaded"
#: The class of packed sequences, the only class besides modules that steps construct.
PACKED: Final = "torch.nn.utils.rnn.PackedSequence"
_AUTOCAST: Final = "autocast:"

#: The device that a backend was asked to use; ``cpu`` is the host itself.
OWN_DEVICE: Final = "device"
HOST_DEVICE: Final = "cpu"
#: The method with which the setup loads the state of the reference's module. ci-autotest adds this step itself.
LOADS_STATE: Final = "load_state_dict"
#: The methods with which a program reads what lies in a module, by its path. Not every framework's modules have them.
READS_OF_MODULES: Final = frozenset({"get_parameter", "get_buffer", "get_submodule"})


def usual_name(number: int) -> str:
    """Return what an input is called that its test does not name, by its number, from 0."""
    return _INPUTS[number] if number < len(_INPUTS) else "tensor"


@dataclass(frozen=True, slots=True)
class Ref:
    """The value of an earlier step."""

    index: int


_REFS: Final = tuple(Ref(i) for i in range(512))


def ref_to(index: int) -> Ref:
    """Return the reference to a step. References of short programs are created once, because every step needs some."""
    return _REFS[index] if index < len(_REFS) else Ref(index)


@dataclass(frozen=True, slots=True)
class DType:
    """A dtype by its name without framework, ``float32``."""

    name: str


@dataclass(frozen=True, slots=True)
class Device:
    """A device by its symbol, which the backend resolves."""

    symbol: str


@dataclass(frozen=True, slots=True)
class FrameworkConstant:
    """A constant of the framework by its path, ``torch.channels_last``."""

    target: str


@dataclass(frozen=True, slots=True)
class List:
    """A list; a tuple is a plain tuple."""

    items: tuple[Argument, ...]


@dataclass(frozen=True, slots=True)
class Mapping_:  # noqa: N801 - `Mapping` is the standard library's, and is needed beside it
    """A dictionary with strings as keys."""

    items: tuple[tuple[str, Argument], ...]


@dataclass(frozen=True, slots=True)
class Slice:
    """A slice."""

    start: Argument
    stop: Argument
    step: Argument


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of a value that lives for one call: afterwards its memory and its identity can be reused."""

    ref: Ref


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor's view of its storage.

    Args:
        dtype: Name without framework.
        shape: Sizes in elements.
        strides: In elements, as long as ``shape``.
        offset: First element, in elements from the storage's start.
        storage_size: Length of the storage in elements.
        requires_grad: Of a leaf.
        device: Symbol of its device.
        distribution: How it lies on the ranks of a candidate that is a group; ``None`` until such a candidate takes it.
        state: ``parameter`` or ``buffer`` if the body took it from a plain module or from outside; empty for an input.
        placements: How the test wants it to lie on ranks, for each dimension of the mesh; empty if it does not say.
    """

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0
    storage_size: int = 0
    requires_grad: bool = False
    device: str = OWN_DEVICE
    distribution: Distribution | None = None
    state: str = ""
    placements: tuple[str, ...] = ()

    is_contiguous: bool = field(init=False, compare=False, repr=False)

    @classmethod
    def plain(cls, dtype: str, shape: tuple[int, ...], *, requires_grad: bool = False) -> TensorSpec:
        """Return the spec of a contiguous tensor that has its whole storage."""
        return cls(dtype, shape, contiguous_strides(shape), 0, math.prod(shape), requires_grad)

    def contiguous(self, **changes: Any) -> TensorSpec:
        """Return the spec with changes, of a contiguous tensor that has its whole storage."""
        spec = replace(self, **changes)
        return replace(spec, strides=contiguous_strides(spec.shape), offset=0, storage_size=math.prod(spec.shape))

    def spread(self) -> TensorSpec:
        """Return the spec of the tensor as every second element of a longer storage, from an offset."""
        strides = tuple(2 * stride for stride in contiguous_strides(self.shape))
        return replace(self, strides=strides, offset=3, storage_size=3 + 2 * math.prod(self.shape))

    @property
    def label(self) -> str:
        """Its dtype and sizes, ``float32[2, 3]``."""
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"

    def __post_init__(self) -> None:
        """Compute once whether the storage holds exactly the elements in order, because every copy reads it."""
        is_plain = self.offset == 0 and self.storage_size == math.prod(self.shape)
        object.__setattr__(self, "is_contiguous", is_plain and self.strides == contiguous_strides(self.shape))


Scalar: TypeAlias = bool | int | float | complex | str | EllipsisType | None
Argument: TypeAlias = (
    "Scalar | Ref | Copy | DType | Device | FrameworkConstant | List | Mapping_ | Slice | TensorSpec | "
    "tuple[Argument, ...]"
)


class ModuleCall(NamedTuple):
    """The call of a module of the user's that a step was recorded in.

    A place is where a value stands in the arguments or the result of the forward: ``0`` for the first one, ``1.0`` for
    the first of the tuple that is the second one, ``mask`` for one by keyword; empty for the whole result.

    Attributes:
        path: The module: its outermost module's number among those that the body calls, then its dotted name in that.
        target: Dotted name of a class of torch's whose whole forward begins with the step; empty if none does.
        kwargs: What the class is constructed with.
        training: Whether the module was in training mode.
        states: For each reference of the step the path of the parameter or buffer that it is; empty for another value.
        constants: Text of the step's other arguments, because an edit of these makes it another call.
        call: Number of the call of such a class that the step is a part of, from 1; 0 if it is part of none.
        parts: Number of the steps of the call that begins with the step.
        given: Place and value of each other argument of the forward.
        sources: For each reference of the step its places in the arguments, with spaces between; ``#2`` for the value
            of the call's third step; empty for a state.
        result: The step's place in the result; ``None`` if the value stays inside of the module.
    """

    path: str
    target: str = ""
    kwargs: tuple[tuple[str, Argument], ...] = ()
    training: bool = False
    states: tuple[str, ...] = ()
    constants: str = ""
    call: int = 0
    parts: int = 0
    given: tuple[tuple[str, Argument], ...] = ()
    sources: tuple[str, ...] = ()
    result: str | None = None


class Step(NamedTuple):
    """One step of a program.

    Attributes:
        op: The opcode.
        target: The dotted path as the test spelled it (``torch.nn.functional.softmax``), the
            method's or attribute's name, the module's class for ``call_module``, the tensor's key
            for a placeholder.
        args: Positional arguments; the receiver first for ``call_method``, ``call_module`` and
            ``get_attr``; the ``TensorSpec`` for a placeholder.
        kwargs: Keyword arguments in the order written.
        name: Suggested name of the value in printed code; not unique.
        modes: Modes in force, empty for the default.
        seed: Seed of the framework's generator for a random step, else ``None``.
        in_setup: Whether the step belongs to the setup.
        module: The call of a module of the user's that it was recorded in. It changes nothing that the step does, but
            a pass over graphs gets the module.
    """

    op: Opcode
    target: str
    args: tuple[Argument, ...]
    kwargs: tuple[tuple[str, Argument], ...] = ()
    name: str = "value"
    modes: tuple[str, ...] = ()
    seed: int | None = None
    in_setup: bool = False
    module: ModuleCall | None = None

    @property
    def spec(self) -> TensorSpec | None:
        """How an input lies in its storage; ``None`` for any other step."""
        spec = self.args[0] if self.op == PLACEHOLDER and self.args else None
        return spec if isinstance(spec, TensorSpec) else None

    @property
    def is_call(self) -> bool:
        """Whether the step computes something: it is neither an input nor the output."""
        return self.op not in {PLACEHOLDER, OUTPUT}

    @property
    def receiver(self) -> int | None:
        """The index of the value that is its first argument; ``None`` if that is none."""
        first = self.args[0] if self.args else None
        return first.index if isinstance(first, Ref) else None

    @property
    def loaded_state(self) -> tuple[int, dict[str, int]] | None:
        """The module into which the setup loads a state, and the input of each name; ``None`` for any other step."""
        if not self.in_setup or self.target != LOADS_STATE or self.receiver is None or len(self.args) == 1:
            return None
        state = self.args[1].items if isinstance(self.args[1], Mapping_) else ()
        return self.receiver, {name: ref.index for name, ref in state if isinstance(ref, Ref)}

    @property
    def sets_training(self) -> bool | None:
        """Whether a call of ``train()`` or ``eval()`` sets training mode; ``None`` for any other step."""
        if self.op != CALL_METHOD or self.target not in {"train", "eval"}:
            return None
        # `train()` without an argument is `train(True)`.
        return self.target == "train" and bool((*self.args[1:], *dict(self.kwargs).values(), True)[0])

    def with_spec(self, **changes: Any) -> Step:
        """Return the input with a changed spec; any other step as it is."""
        spec = self.spec
        return self if spec is None else self._replace(args=(replace(spec, **changes),))


@dataclass(frozen=True, slots=True)
class Program:
    """What a test body did.

    Args:
        setup: Steps that build and load modules.
        body: Steps that are compared; the last is the output.
        cotangents: For each tensor of the output, in order, the spec of the gradient that the backward pass starts
            from, or ``None`` if there is none (integers, values without a gradient, no backward pass). The data have
            the key ``cotangent_<i>``.
    """

    setup: tuple[Step, ...]
    body: tuple[Step, ...]
    cotangents: tuple[TensorSpec | None, ...] = ()

    @classmethod
    def of(cls, steps: Iterable[Step], cotangents: tuple[TensorSpec | None, ...] = ()) -> Program:
        """Return the program of steps of which those of the setup come first."""
        every = tuple(steps)
        count = sum(step.in_setup for step in every)
        return cls(every[:count], every[count:], cotangents)

    def with_steps(self, steps: Iterable[Step]) -> Program:
        """Return the program with other steps, those of the setup first."""
        return Program.of(steps, self.cotangents)

    def with_body(self, body: Iterable[Step]) -> Program:
        """Return the program with another body."""
        return Program(self.setup, tuple(body), self.cotangents)

    @property
    def start(self) -> int:
        """The index of the first step of the body."""
        return len(self.setup)

    @property
    def numbered(self) -> Iterable[tuple[int, Step]]:
        """The index and step of each step of the body, the output among them."""
        return enumerate(self.body, len(self.setup))

    @property
    def specs(self) -> dict[str, TensorSpec]:
        """The spec of each input, state and cotangent, by the key of its data."""
        found = {step.target: spec for step in self.steps if (spec := step.spec) is not None}
        return found | {cotangent_key(i): spec for i, spec in self.cotangent_specs.items()}

    @property
    def cotangent_specs(self) -> dict[int, TensorSpec]:
        """The spec of each cotangent by its position."""
        return {i: spec for i, spec in enumerate(self.cotangents) if spec is not None}

    @property
    def inputs(self) -> dict[int, TensorSpec]:
        """The spec of each input of the body by its index, those that are states among them."""
        return {index: spec for index, step in self.numbered if (spec := step.spec) is not None}

    @property
    def mesh(self) -> tuple[int, ...] | None:
        """Sizes of the mesh on which its inputs lie; ``None`` if they lie on none."""
        lies = (spec.distribution for step in self.steps if (spec := step.spec) is not None)
        return next((each.mesh for each in lies if each is not None), None)

    @property
    def steps(self) -> tuple[Step, ...]:
        """All steps, in the order in which a ``Ref`` counts them."""
        return self.setup + self.body if self.setup else self.body

    @property
    def calls(self) -> tuple[tuple[int, Step], ...]:
        """The index and step of each computation in the body: no inputs, unpackings, expectations or steps of hooks."""
        return tuple(
            (index, step)
            for index, step in self.numbered
            if step.is_call and not is_unpacking(step) and step.target != EXPECT and HOOK[0] not in step.modes
        )


@lru_cache(maxsize=4096)
def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides, in elements, of a contiguous tensor of ``shape``."""
    strides = []
    stride = 1
    for size in reversed(shape):
        strides.append(stride)
        # torch counts a size of 0 as 1 here.
        stride *= max(size, 1)
    return tuple(reversed(strides))


def autocast_mode(dtype: str) -> str:
    """Return the mode of a step under autocast to a dtype."""
    return f"{_AUTOCAST}{dtype}"


def autocast_dtype(mode: str) -> str | None:
    """Return the dtype of an autocast mode, which is a half precision; ``None`` for any other mode."""
    dtype = mode.removeprefix(_AUTOCAST)
    return dtype if mode.startswith(_AUTOCAST) and dtype in HALF else None


def is_without_grad(program: Program) -> bool:
    """Whether all calls of a body ran without gradients. Then a graph runs so as a whole."""
    return bool(program.calls) and all(NO_GRAD[0] in step.modes for _, step in program.calls)


def is_mode(mode: str) -> bool:
    """Whether a mode is known. Refusals, which are modes too, are not included."""
    return mode in {*NO_GRAD, *HOOK, *REGISTERS, *CANDIDATE_MODES} or autocast_dtype(mode) is not None


def result_bands_of(step: Step) -> str:
    """Return the mode that puts guard bands around what a step's kernel allocates; empty without one."""
    return next((mode for mode in step.modes if mode in RESULT_BANDS), "")


def operator_check_of(step: Step) -> str:
    """Return the check of operators that a step's call has, by its name in torch; empty without one."""
    return next((mode.partition(":")[2] for mode in step.modes if mode in OPERATOR_CHECKS), "")


def cotangent_key(position: int) -> str:
    """Return the key of the gradient that the backward pass gives output tensor ``position``."""
    return f"cotangent_{position}"


def is_unpacking(step: Step) -> bool:
    """Whether the step only takes one element out of another step's tuple."""
    return step.op == CALL_FUNCTION and step.target == UNPACK


#: Target of the step that takes element ``args[1]`` of the tuple that step ``args[0]`` returned.
UNPACK: Final = "builtins.tuple.__getitem__"


#: Types of arguments that are the same in Python and in a program.
PLAIN_TYPES: Final = frozenset({int, float, bool, str, type(None), complex, type(...)})
#: Arguments that hold others.
WITH_PARTS: Final = frozenset({tuple, List, Mapping_, Slice, Copy})


def parts(*arguments: Argument) -> Iterator[Argument]:
    """Yield arguments and everything inside them, in order."""
    for argument in arguments:
        yield argument
        match argument:
            case tuple():
                yield from parts(*argument)
            case List(items):
                yield from parts(*items)
            case Mapping_(items):
                yield from parts(*(value for _, value in items))
            case Slice(start, stop, step):
                yield from parts(start, stop, step)
            case Copy(ref):
                yield ref
            case _:
                pass


def refs(argument: Argument) -> Iterator[Ref]:
    """Yield the references inside an argument, in order."""
    if type(argument) is Ref:  # First, because most arguments are one or hold none.
        yield argument
    elif type(argument) in WITH_PARTS:
        yield from (part for part in parts(argument) if isinstance(part, Ref))


def step_refs(step: Step) -> tuple[Ref, ...]:
    """Return the references in a step's arguments, in order; a value used twice is there twice."""
    return tuple(ref for argument in (*step.args, *(value for _, value in step.kwargs)) for ref in refs(argument))


def output_refs(program: Program) -> tuple[Ref, ...]:
    """Return the references of the output, flattened, in order."""
    args = program.body[-1].args
    # Almost every output is flat, and its references are then returned as they are.
    for arg in args:
        if type(arg) is not Ref:
            return step_refs(program.body[-1])
    return args  # type: ignore[return-value]
