"""The snippet for a framework in its own interpreter: its calls on the same inputs, compared with the reference.

It needs numpy and the framework, because it carries the results of the reference.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ci_autotest.program.check import FRAMEWORKS, check_host_program
from ci_autotest.program.codegen import body_lines, literal, names, setup_lines
from ci_autotest.program.edit import until
from ci_autotest.program.function_source import FunctionLibrary
from ci_autotest.program.ir import (
    PLACEHOLDER,
    Mapping_,
    Program,
    TensorSpec,
    cotangent_key,
    output_refs,
)
from ci_autotest.program.refusal import refused_outputs
from ci_autotest.program.repro.candidates import environment_lines
from ci_autotest.program.repro.host_script import (
    NAMESPACES,
    adapters_text,
    without_clashes,
)
from ci_autotest.program.repro.host_values import HostProgram, array_expression, host_of
from ci_autotest.program.repro.script import of_library
from ci_autotest.values.dtypes import BITS, COMPLEX, DIFFERENTIABLE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ci_autotest.program.recording import Recording
    from ci_autotest.program.repro.snippet_checks import Facts

#: A program with more lines of adapters than this is not shown; the repro has it.
_ADAPTER_LINES: Final = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class _Words:
    """How a framework creates and reads tensors; ``{0}`` is an array or the name of a tensor.

    Attributes:
        made: Creates a tensor of an array, in the dtype ``{1}``, with ``leaf`` as ``{2}``.
        leaf: Argument for a tensor that requires its gradient.
        read: Returns a tensor's array.
        widened: Converts a tensor to float32, because numpy has no bfloat16.
        first: Lines below the imports.
    """

    made: str
    leaf: str
    read: str
    widened: str
    first: tuple[str, ...] = ()


_WORDS: Final = {
    "paddle": _Words(
        made="paddle.to_tensor({0}, dtype='{1}'{2})", leaf=", stop_gradient=False", read="{0}.numpy()",
        widened="{0}.astype('float32')",
    ),
    "jax": _Words(
        made="jax.numpy.asarray({0}, dtype='{1}')", leaf="", read="np.asarray({0})", widened="{0}.astype('float32')",
        first=(
            'jax.config.update("jax_enable_x64", True)',
            'jax.config.update("jax_default_matmul_precision", "highest")',
        ),
    ),
    "mindspore": _Words(
        made="mindspore.Tensor({0}).astype(mindspore.{1})", leaf="", read="{0}.asnumpy()",
        widened="{0}.astype(mindspore.float32)", first=("mindspore.runtime.launch_blocking()",),
    ),
}  # fmt: skip


def host_snippet(recording: Recording, facts: Facts, places: Sequence[int]) -> str:
    """Return the program in the framework's words; empty if it takes more than a few lines, or is not permitted.

    Args:
        recording: The smallest program, with the results of the reference and the host's note.
        facts: What the finding is about.
        places: Positions of the compared outputs.

    Raises:
        ProgramError: The note is damaged, or has a name that is never printed as code.
    """
    host = host_of(recording)
    module = host.module
    if facts.permissions is not None and module not in {*FRAMEWORKS, *facts.permissions.names}:
        return ""
    if facts.permissions is not None:
        check_host_program(host.program, module, facts.permissions.calls(module))
    # A paste in one process has one rank.
    if host.graph or facts.is_strict or host.ranks:
        return ""
    adapters = adapters_text(module, host.program)
    program = without_clashes(host.program, adapters, module)
    # A reader of the comment wants the framework's call, and not pages of definitions.
    if adapters.count("\n") > _ADAPTER_LINES:
        return ""
    words = _words(module)
    calls = _calls(recording, facts, host._replace(program=program), places)
    if not calls:
        return ""
    lines = [*_made(recording, program, words), *calls]
    is_stored = any("stored(" in line for line in lines)
    environment = environment_lines(recording.note)
    pythons = [*(["import json"] if is_stored else ()), *(["import os"] if environment else ())]
    pythons += ["from pathlib import Path"] if is_stored else []
    return "\n".join([
        *(["from __future__ import annotations", ""] if adapters else ()),
        *pythons,
        *([""] if pythons else ()),
        *(environment and [*environment, ""]),
        "import numpy as np",
        f"import {module}",
        "",
        *([*words.first, ""] if words.first else ()),
        *(_reader(facts.file) if is_stored else ()),
        *(["", adapters, "", ""] if adapters else ()),
        *lines,
    ])  # fmt: skip


def _words(module: str) -> _Words:
    """Return the words of a framework; those of torch for a module with torch's names."""
    return _WORDS.get(module) or _Words(
        made=f"{module}.tensor({{0}}, dtype={module}.{{1}}{{2}})",
        leaf=", requires_grad=True",
        read="{0}.detach().cpu().numpy()",
        widened=f"{{0}}.to({module}.float32)",
    )


def _reader(file: str) -> list[str]:
    # A pasted program has no `__file__`.
    (reader,) = FunctionLibrary(of_library("arrays")).used_by("stored")
    return [
        *reader.replace('Path(__file__).resolve().with_name("tensors.safetensors")', f"Path({file!r})").splitlines(),
        "",
        "",
    ]


def _made(recording: Recording, program: Program, words: _Words) -> list[str]:
    lines, named = [], names(program)
    for index, step in enumerate(program.steps):
        spec = step.spec
        if spec is not None:
            leaf = words.leaf if spec.requires_grad else ""
            array = array_expression(recording, step.target, spec)
            lines.append(f"{named[index]} = {words.made.format(array, _dtype(spec.dtype, words), leaf)}")
    return lines


def _dtype(name: str, words: _Words) -> str:
    # MindSpore's dtype of booleans is called `bool_`.
    return "bool_" if name == "bool" and words.made.startswith("mindspore") else name


def _body(program: Program, module: str) -> list[str]:
    namespace = NAMESPACES.get(module, module)
    return [*setup_lines(program, namespace), *body_lines(program, namespace=namespace)]


# --- The calls, and the assertions


def _calls(recording: Recording, facts: Facts, host: HostProgram, places: Sequence[int]) -> list[str]:
    """Return the lines that call the framework and fail; nothing if a few lines cannot."""
    program = host.program
    shown, body = [names(program)[ref.index] for ref in output_refs(program)], _body(program, host.module)
    refused = [shown[i] for i in refused_outputs(program)]
    if facts.kind == "leniency" and not refused and refused_outputs(recording.program):
        # The translation's last step is not marked, so nothing of it catches the exception.
        message = '"the candidate accepts what torch rejects"'
        last = program.calls[-1][0]
        earlier = _body(until(program, last), host.module)
        # What raises in an earlier step is no refusal of the last one.
        earlier = earlier if body[: len(earlier)] == earlier else []
        return [
            *earlier,
            "try:",
            *(f"    {line}" for line in body[len(earlier) :]),
            "except Exception:",
            '    print("aligned: the candidate rejects it, too")',
            "else:",
            f"    raise AssertionError({message})  # {facts.mark}",
        ]
    if facts.kind in {"leniency", "error"} and refused:
        return [
            *body,
            *(f'assert {name}, "the candidate accepts what torch rejects"  # {facts.mark}' for name in refused),
        ]
    if facts.kind == "gradient":
        return _differentiated(recording, facts, host, body)
    if facts.kind == "error" and not facts.has_backward:
        message = 'f"the candidate raises {error!r}, and the reference returns"'
        return [
            "try:",
            *(f"    {line}" for line in body),
            "except (Exception, SystemExit) as error:",
            f"    raise AssertionError({message}) from error  # {facts.mark}",
        ]
    if (
        facts.has_backward
        or facts.kind not in {"value", "shape", "dtype", "stateful"}
        or facts.aspect not in {"value", "call"}
    ):
        return []
    outputs = [(shown[i], f"output_{i}") for i in places]
    checks = [line for output in outputs for line in _value_checks(recording, facts, host.module, output)]
    return [*body, *checks] if checks else []


def _value_checks(recording: Recording, facts: Facts, module: str, output: tuple[str, str]) -> list[str]:
    """Return the lines that compare an output with the reference's."""
    name, key = output
    spec = recording.expected.get(key)
    torch = recording.note.torch[:40]
    comment = f"  # of torch {torch}" if torch.replace(".", "").replace("+", "").isalnum() else ""
    if spec is None:
        fact = recording.facts.get(key)
        if key not in recording.facts or isinstance(fact, Mapping_ | None):
            return []
        if isinstance(fact, float | complex):
            return [
                f"np.testing.assert_allclose({name}, {literal(fact, ())}, {facts.rtol}, {facts.atol})  # {facts.mark}"
            ]
        found = f"tuple({name})" if isinstance(fact, tuple) else name
        return [f"assert {found} == {literal(fact, ())}, {name}  # {facts.mark}"]
    if facts.kind == "dtype":
        dtype = f'str({name}.dtype).rpartition(".")[2].lower()'
        return [f"assert {dtype} == {spec.dtype!r}, {name}.dtype  # {facts.mark}"]
    return [
        f"expected = {array_expression(recording, key, spec)}{comment}",
        f"found = {_read(name, spec, _words(module))}",
        *_alike(facts, spec),
    ]


def _read(name: str, spec: TensorSpec, words: _Words) -> str:
    return words.read.format(words.widened.format(name) if spec.dtype in BITS else name)


def _alike(facts: Facts, spec: TensorSpec) -> list[str]:
    shape = f"assert found.shape == expected.shape, (found.shape, expected.shape)  # {facts.mark}"
    if facts.kind == "shape":
        return [shape]
    if spec.dtype not in DIFFERENTIABLE:
        return [f"np.testing.assert_array_equal(found, expected)  # {facts.mark}"]
    return [f"np.testing.assert_allclose(found, expected, rtol={facts.rtol}, atol={facts.atol})  # {facts.mark}"]


def _differentiated(recording: Recording, facts: Facts, host: HostProgram, body: list[str]) -> list[str]:
    """Return the lines of the backward pass, and those that compare a leaf's gradient with the reference's."""
    program, module, named = host.program, host.module, names(host.program)
    steps = enumerate(zip(recording.program.steps, names(recording.program), strict=True))
    keys = {
        f"gradient_{i}": host.moved[i] for i, (step, name) in steps if step.op == PLACEHOLDER and name == facts.name
    }
    wanted = [(key, named[place]) for key, place in keys.items() if place >= 0 and key in recording.expected]
    words = _words(module)
    weights = {
        i: words.made.format(array_expression(recording, cotangent_key(i), spec), _dtype(spec.dtype, words), "")
        for i, spec in recording.program.cotangent_specs.items()
    }
    if len(wanted) != 1 or not weights or facts.parameter:
        return []
    ((key, leaf),) = wanted
    spec = recording.expected[key]
    outputs = [named[output_refs(program)[i].index] for i in weights]
    function = [f"def candidate({leaf}):", *(f"    {line}" for line in [*body, f"return {_one(outputs)}"]), "", ""]
    if module == "jax":
        # For complex numbers JAX's gradient is the conjugate of torch's.
        conjugate = ".conj()" if spec.dtype in COMPLEX else ""
        put_in = _one([f"{weight}{conjugate}" for weight in weights.values()])
        lines = [*function, f"_, pull = jax.vjp(candidate, {leaf})", f"gradient = pull({put_in})[0]{conjugate}"]
    elif module == "mindspore":
        pull = "mindspore.ops.GradOperation(get_all=True, sens_param=True)(candidate)"
        lines = [*function, f"gradient = {pull}({leaf}, {_one(list(weights.values()))})[0]"]
    else:
        put_in = f"[{', '.join(outputs)}], [{', '.join(weights.values())}]"
        lines = [*body, f"{module}.autograd.backward({put_in})", f"gradient = {leaf}.grad"]
    return [
        *lines,
        f"expected = {array_expression(recording, key, spec)}",
        f"found = {_read('gradient', spec, words)}",
        *_alike(facts, spec),
    ]


def _one(items: Sequence[str]) -> str:
    return items[0] if len(items) == 1 else f"({', '.join(items)})"
