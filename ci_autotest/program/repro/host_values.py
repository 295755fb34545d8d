"""The values that a framework's repro carries, as text: numpy arrays and the names of their dtypes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from ci_autotest.errors import ProgramError
from ci_autotest.program.codegen import literal
from ci_autotest.program.ir import CALL_FUNCTION, Mapping_, TensorSpec, output_refs
from ci_autotest.program.json_values import program_of
from ci_autotest.program.literals import INLINE_ELEMENTS, array_of, nested
from ci_autotest.program.python_names import is_module, is_pythons
from ci_autotest.program.refusal import refused_as
from ci_autotest.program.targets import is_function
from ci_autotest.values.dtypes import BITS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ci_autotest.program.ir import Program
    from ci_autotest.program.recording import Recording

#: Frameworks that differentiate functions, and not values.
OF_FUNCTIONS: Final = frozenset({"jax", "mindspore"})
#: numpy has no bfloat16: such tensors are printed as float32 of the same values.
_WIDENED: Final = "float32"


def array_pair(recording: Recording, key: str, spec: TensorSpec) -> str:
    """Return the expression of an array in the shape of ``spec``, with the name of its dtype."""
    return f"({array_expression(recording, key, spec)}, {spec.dtype!r})"


def array_expression(recording: Recording, key: str, spec: TensorSpec) -> str:
    """Return the expression of an array in the shape of ``spec``; bfloat16 becomes float32 of the same values."""
    dtype = _numpy(spec)
    if _is_stored(spec):
        # The file has the bits of a bfloat16; shifted by 16 they are those of a float32.
        kind = "<u2" if spec.dtype in BITS else dtype
        flat = f"stored({key!r}, {kind!r})"
        flat = f"({flat}.astype('<u4') << 16).view('<f4')" if spec.dtype in BITS else flat
    elif spec.is_contiguous:
        array = array_of(recording.tensors[key], spec.dtype, spec.shape)
        # An empty list does not say the sizes behind the 0.
        again = "" if array.size else f".reshape({spec.shape})"
        return f"np.array({nested(array)}, {dtype!r}){again}"
    else:
        flat = f"np.array({nested(array_of(recording.tensors[key], spec.dtype, (spec.storage_size,)))}, {dtype!r})"
    if spec.is_contiguous:
        return f"{flat}.reshape({spec.shape})"
    strides = tuple(stride * np.dtype(dtype).itemsize for stride in spec.strides)
    return f"np.lib.stride_tricks.as_strided({flat}[{spec.offset}:], {spec.shape}, {strides})"


def _numpy(spec: TensorSpec) -> str:
    """Return the dtype with which numpy holds the elements of a spec."""
    return _WIDENED if spec.dtype in BITS else spec.dtype


def _is_stored(spec: TensorSpec) -> bool:
    return spec.storage_size > INLINE_ELEMENTS


class HostProgram(NamedTuple):
    """What a host ran, with every name in it checked; the fields are those of ``HostNote``."""

    module: str
    program: Program
    moved: list[int]
    parameters: list[tuple[int, str, int]]
    version: str
    python: str
    graph: bool
    ranks: int


def host_of(recording: Recording) -> HostProgram:
    """Return what the host of a recording ran.

    Raises:
        ProgramError: The note is damaged, or has a name that is never printed as code.
    """
    host = recording.note.host
    if host is None or not is_module(host.module):
        message = "the note names no module of a host: there is nothing to print as code."
        raise ProgramError(message)
    module, root = host.module, host.module.partition(".")[0]
    if is_pythons(root):
        message = (
            f"the note names {module!r} as a framework: modules of Python's standard library are never printed as code."
        )
        raise ProgramError(message)
    try:
        program = program_of(host.program)
        # The note may come from outside, and these places are used as indices while the script is printed.
        if len(host.moved) != len(recording.program.steps) or max(host.moved, default=-1) >= len(program.steps):
            raise IndexError("moved")  # noqa: EM101, TRY301 - raised below, with the others
    except (KeyError, IndexError, TypeError, ValueError) as error:
        message = f"the note's program for {module} is damaged ({type(error).__name__}: {error})."
        raise ProgramError(message) from error
    for step in program.steps:
        owner = step.target.partition(".")[0]
        # Python's own operators are on torch's allow list as well.
        is_own = owner in {root, "adapters"} or is_function(step.target)
        if step.op == CALL_FUNCTION and not is_own:
            message = f"target {step.target[:60]!r} does not belong to {module} and is never printed as code."
            raise ProgramError(message)
    return HostProgram(
        module=module, program=program, moved=host.moved, parameters=host.parameters, version=host.version,
        python=host.python, graph=host.graph, ranks=host.ranks,
    )  # fmt: skip


def host_output_texts(recording: Recording) -> dict[int, str]:
    """Return each output of the reference: a tensor, a plain value, or the class with which it refused a step."""
    found = {}
    for i, ref in enumerate(output_refs(recording.program)):
        key, kind = f"output_{i}", refused_as(recording.program.steps[ref.index])
        if kind is not None:
            found[i] = repr(kind)
        elif key in recording.expected:
            found[i] = array_pair(recording, key, recording.expected[key])
        elif key in recording.facts and not isinstance(recording.facts[key], Mapping_):
            found[i] = f"plain({literal(recording.facts[key], ())})"
    return found


def carried_by_name(recording: Recording, prefix: str, host: HostProgram, named: Sequence[str]) -> dict[str, str]:
    """Return the tensors under a prefix by their name in the script; zeros for a missing gradient, else ``None``.

    A framework that differentiates functions returns zeros where no output depends on an input, so none is missing.
    """
    parameters = {(index, name): place for index, name, place in host.parameters}
    missing = [] if host.module in OF_FUNCTIONS else [key for key, fact in recording.facts.items() if fact is None]
    found = {}
    for key in [*recording.expected, *missing]:
        if key.startswith(prefix):
            text, _, parameter = key.removeprefix(prefix).partition(".")
            index = int(text)
            place = parameters.get((index, parameter), host.moved[index])
            if place >= 0:
                is_inside = parameter and (index, parameter) not in parameters
                spec = recording.expected.get(key)
                name = f"{named[place]}.{parameter}" if is_inside else named[place]
                leaf = recording.program.steps[index].spec if prefix == "gradient_" and not parameter else None
                zeros = "None" if leaf is None else f"(np.zeros({leaf.shape}, {_numpy(leaf)!r}), {leaf.dtype!r})"
                found[name] = zeros if spec is None else array_pair(recording, key, spec)
    return found
