"""The values that a repro carries, as text: inputs, cotangents, and what the reference gave."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ci_autotest.program.codegen import literal, names
from ci_autotest.program.ir import Mapping_, TensorSpec, cotangent_key, output_refs
from ci_autotest.program.literals import INLINE_ELEMENTS, tensor_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ci_autotest.program.ir import Program
    from ci_autotest.program.recording import Recording


def leaves(program: Program) -> list[str]:
    """Return the names of a body's inputs."""
    named = names(program)
    return [named[i] for i in program.inputs]


def returned(given: Sequence[str]) -> str:
    """Return the last line of a script's ``inputs``, which returns values by name."""
    return f"return {{{', '.join(f'{name!r}: {name}' for name in given)}}}"


def tensor_texts(recording: Recording) -> dict[str, str]:
    """Return every tensor of a recording as an expression, by key; large ones are read from the tensor file."""
    return {**_placeholders(recording), **_expected(recording), **_cotangents(recording)}


def mapping_text(items: Mapping[Any, str]) -> str:
    """Return a dictionary of expressions, one entry a line."""
    return "{" + "".join(f"\n    {key!r}: {text}," for key, text in items.items()) + ("\n}" if items else "}")


def _placeholders(recording: Recording) -> dict[str, str]:
    return {
        step.target: _literal(recording, step.target, spec, in_shape=spec.is_contiguous)
        for step in recording.program.steps
        if (spec := step.spec) is not None
    }


def _expected(recording: Recording) -> dict[str, str]:
    return {key: _literal(recording, key, spec, in_shape=True) for key, spec in recording.expected.items()}


def _cotangents(recording: Recording) -> dict[str, str]:
    specs = {cotangent_key(i): spec for i, spec in recording.program.cotangent_specs.items()}
    return {
        key: f"{_literal(recording, key, spec, in_shape=spec.is_contiguous)}{layout_text(spec)}"
        for key, spec in specs.items()
    }


def layout_text(spec: TensorSpec) -> str:
    """Return the call that gives a flat storage the layout of a spec; empty if the layout is contiguous."""
    return "" if spec.is_contiguous else f".as_strided({spec.shape}, {spec.strides}, {spec.offset})"


def _literal(recording: Recording, key: str, spec: TensorSpec, *, in_shape: bool) -> str:
    # The storage of a view is carried flat, and `layout_text` lays the view over it.
    shape = spec.shape if in_shape else (spec.storage_size,)
    if spec.storage_size <= INLINE_ELEMENTS:
        return tensor_text(recording.tensors[key], spec.dtype, shape)
    return f"stored({key!r}, torch.{spec.dtype}).reshape({shape})"


def output_texts(recording: Recording, literals: Mapping[str, str]) -> dict[int, str]:
    """Return the expression of each output that the reference gave, a tensor or a plain value, by position."""
    found = {}
    for i, _ in enumerate(output_refs(recording.program)):
        key = f"output_{i}"
        if key in recording.expected:
            found[i] = literals[key]
        # A mapping has the flags of a tensor, and the tensor itself is among the expected ones.
        elif key in recording.facts and not isinstance(recording.facts[key], Mapping_):
            found[i] = literal(recording.facts[key], ())
    return found


def texts_by_name(
    recording: Recording, prefix: str, literals: Mapping[str, str], named: Sequence[str]
) -> dict[str, str]:
    """Return the tensors under a prefix by their name in the script; ``None`` for a missing one."""
    found = {}
    for key in [*recording.expected, *(key for key, fact in recording.facts.items() if fact is None)]:
        if key.startswith(prefix):
            # `gradient_3.weight` belongs to the parameter `weight` of the module that step 3 made.
            index, _, parameter = key.removeprefix(prefix).partition(".")
            name = named[int(index)]
            found[f"{name}.{parameter}" if parameter else name] = literals.get(key, "None")
    return found
