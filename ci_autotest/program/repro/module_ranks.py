"""The candidate of a repro whose ranks share the batch of a module: the script starts a process for each rank itself.

The body becomes one module, which the wrapper takes. What the ranks write down is joined as the note of the program
says, and must be the same on all of them where each has all of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ci_autotest.errors import ProgramError
from ci_autotest.program.codegen import body_statements, names, output_text
from ci_autotest.program.distribution import dimension_of, local_shapes
from ci_autotest.program.ir import PARAMETER, PLACEHOLDER, Program, Ref, TensorSpec, step_refs
from ci_autotest.program.python_names import is_path
from ci_autotest.program.repro.module_template import BACKWARD as BACKWARD_PASS
from ci_autotest.program.repro.module_template import BODY, HEAD
from ci_autotest.program.repro.rank_launcher import IMPORTS
from ci_autotest.program.training_parts import BACKWARD, parts_of_body

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ci_autotest.program.ir import Recording, Step

_BACKENDS: Final = frozenset({"ddp", "fsdp"})
_JOINS: Final = frozenset({"rows", "same", "mean", "sum"})


def shares_batch(note: Mapping[str, object]) -> bool:
    """Whether the candidate's ranks share the batch of a module."""
    backend = note.get("backend")  # from outside, so it may be anything
    return isinstance(backend, str) and backend in _BACKENDS


def module_imports(note: Mapping[str, object]) -> list[str]:
    """Return what the script imports besides torch."""
    own = ["from torch.distributed.fsdp import fully_shard"] if note.get("backend") == "fsdp" else []
    return [*IMPORTS, *own] if shares_batch(note) else []


def wrap_of(note: Mapping[str, Any]) -> str:
    """Return the dotted path of the user's wrapper; empty if there is none.

    Raises:
        ProgramError: It is not the path of a function.
    """
    path = str(note.get("wrap") or "").replace(":", ".")
    if path and not is_path(path):
        message = f"the note names {path[:60]!r} as a wrapper: it is not module:function and never printed as code."
        raise ProgramError(message)
    return path


def share_lines(recording: Recording) -> list[str]:
    """Return comments that say how the ranks share the batch, and by which wrapper."""
    note, named = recording.note, names(recording.program)
    wrap = wrap_of(note) or ("fully_shard" if note["backend"] == "fsdp" else "DistributedDataParallel")
    lines: list[str] = []
    for i in _inputs(recording.program):
        spec = _spec(recording.program.steps[i])
        dimension = _dimension(spec) if spec else None
        if spec is None or spec.distribution is None or dimension is None or dimension >= len(spec.shape):
            continue
        lines = lines or [f"# on {spec.distribution.ranks} ranks, wrapped by {wrap}; the code below is the reference's"]
        rows = ", ".join(str(shape[dimension]) for shape in local_shapes(spec.shape, spec.distribution))
        lines.append(f"# {named[i]} is split along dimension {dimension}: {rows} rows")
    return lines


def module_body(recording: Recording) -> str:
    """Return the body of a program as one module, and how it is run on a rank."""
    program, named = recording.program, names(recording.program)
    lines = dict(body_statements(program))
    parts = parts_of_body(program)
    functions, steps = [], []
    states, modules = _states(program), _modules(program)
    steps += [f"{named[i]} = body_.given[{named[i]!r}]" for i in (*modules, *_inputs(program))]
    steps += [f"{named[i]} = body_.held[{named[i]!r}]" for i in states]
    for number, part in enumerate(parts):
        own = [line for index in part.indices for line in _lines(program, index, lines, recording.note)]
        if not part.is_forward:
            steps += own
            continue
        used = {ref.index for index in part.indices for ref in step_refs(program.steps[index])}
        bound = [f"{named[i]} = body_.own_{named[i]}" for i in states if i in used]
        bound += [f"{named[i]} = body_.given[{named[i]!r}]" for i in modules if i in used]
        gives = f"({''.join(f'{named[i]}, ' for i in part.gives)})"
        takes = "".join(f", {named[i]}" for i in part.takes)
        functions.append("\n    ".join([f"def part_{number}(body_{takes}):", *bound, *own, f"return {gives}"]))
        steps.append(f"{f'{gives} = ' if part.gives else ''}wrapped_(part_{number}{takes})")
    steps.append(f"return {output_text(program)}")
    return BODY.format(parts="\n\n\n".join(functions), steps="\n".join(f"    {line}" for line in steps))


def module_head(recording: Recording, observed: list[str]) -> str:
    """Return what starts the ranks and joins what they have.

    Args:
        recording: The program.
        observed: Names of what a run returns.
    """
    program, note, named = recording.program, recording.note, names(recording.program)
    plan = _plan(note)
    rows = {
        named[i]: dimension for i in _inputs(program)
        if (spec := _spec(program.steps[i])) and (dimension := _dimension(spec)) is not None
    }  # fmt: skip
    states = _states(program)
    wrap = wrap_of(note)
    own = 'fully_shard(body, mesh=dist.init_device_mesh("cpu", (RANKS,)))' if note["backend"] == "fsdp" else (
        f"torch.nn.parallel.DistributedDataParallel(body{', find_unused_parameters=True' if plan['unused'] else ''})"
    )  # fmt: skip
    values = {"outputs": "outputs", "gradients": "gradients", "raised": "None", "after": "{**expected[-1], **kept}"}
    kept = "{n: v for n, v in after.items() if n not in OF_A_PART}"
    result = ", ".join(values.get(name, "None").replace("kept", kept) for name in observed)
    shares = [each / sum(plan["rows"]) for each in plan["rows"]]
    backward = f"    SIZES = {_sizes(plan)}\n" + BACKWARD_PASS.format(shares=shares) if "gradients" in observed else ""
    return HEAD.format(
        ranks=len(plan["rows"]), rows=rows, joins=plan["joins"], wrap=f"{wrap}(body, RANKS)" if wrap else own,
        parameters=[named[i] for i, is_parameter in states.items() if is_parameter],
        buffers=[named[i] for i, is_parameter in states.items() if not is_parameter],
        of_slices={".".join(filter(None, (named[i], name))) for i, name in plan["of_slices"]} or "()",
        independent=plan["independent"], shares=shares, result=result, backward=backward,
        shares_buffers=note["backend"] != "fsdp",
    )  # fmt: skip


def _lines(program: Program, index: int, lines: Mapping[int, list[str]], note: Mapping[str, Any]) -> list[str]:
    """Return the lines of a step; a backward pass begins with the part of the loss that the rank has."""
    step = program.steps[index]
    if step.target != BACKWARD:
        return lines.get(index, [])
    weights = _plan(note)["weights"].get(index, [])
    root = names(program)[step.args[0].index] if isinstance(step.args[0], Ref) else ""
    if len(step.args) > 1 or any(key == "gradient" for key, _ in step.kwargs):
        return [line.replace(".backward(", f".mul({weights}[dist.get_rank()]).backward(") for line in lines[index]]
    start = f"torch.full_like({root}, {weights}[dist.get_rank()])"
    more = "".join(f", {key}={value!r}" for key, value in step.kwargs if isinstance(value, bool))
    return [f"{root}.backward({start}{more})"]


def _plan(note: Mapping[str, Any]) -> dict[str, Any]:
    """Return how ranks share a batch, checked because a note may come from outside.

    Raises:
        ProgramError: It is damaged.
    """
    given = note.get("plan")
    try:
        assert isinstance(given, dict)  # noqa: S101 - raised again below
        joins = {int(at): (str(kind), int(dimension)) for at, kind, dimension in given["joins"]}
        assert all(kind in _JOINS for kind, _ in joins.values())  # noqa: S101 - likewise
        rows = [int(each) for each in given["rows"]]
        assert rows  # noqa: S101 - likewise
        return {
            "joins": joins, "rows": rows, "unused": bool(given["unused"]), "independent": bool(given["independent"]),
            "weights": {int(at): [float(each) for each in own] for at, own in given["weights"]},
            "of_slices": [(int(at), str(name)) for at, name in given["of_slices"]],
            "sizes": {int(at): [int(each) for each in own] for at, own in given["sizes"]},
        }  # fmt: skip
    except (AssertionError, KeyError, TypeError, ValueError) as error:
        message = "the note of the program does not say how its ranks share the batch."
        raise ProgramError(message) from error


def _sizes(plan: Mapping[str, Any]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = plan["sizes"]
    return found


def _spec(step: Step) -> TensorSpec | None:
    spec = step.args[0] if step.op == PLACEHOLDER else None
    return spec if isinstance(spec, TensorSpec) else None


def _dimension(spec: TensorSpec) -> int | None:
    return None if spec.distribution is None else dimension_of(spec.distribution.placements[0])


def _inputs(program: Program) -> list[int]:
    """Return the inputs of a body."""
    return [i for i, step in enumerate(program.steps) if not step.in_setup and (spec := _spec(step)) and not spec.state]


def _states(program: Program) -> dict[int, bool]:
    """Return what a body holds besides its modules, and whether it is a parameter."""
    steps = enumerate(program.steps)
    return {
        i: spec.state == PARAMETER for i, step in steps if not step.in_setup and (spec := _spec(step)) and spec.state
    }


def _modules(program: Program) -> list[int]:
    """Return the values of the setup that the body takes."""
    used = {ref.index for step in program.body for ref in step_refs(step)}
    return [i for i, step in enumerate(program.setup) if i in used and step.op != PLACEHOLDER]
