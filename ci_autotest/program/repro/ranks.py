"""The candidate of a repro that is a group of ranks: all of them are simulated in the script's process.

The script needs torch alone. Each input is cut into the parts that its ranks hold, the body runs on DTensors, and what
it gives is gathered on every rank and must be the same on all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ci_autotest.program.codegen import body_lines, names, output_text
from ci_autotest.program.distribution import Distribution, is_mesh, is_placement, local_shapes
from ci_autotest.program.ir import CALL_FUNCTION, LOADS_STATE, PLACEHOLDER, Mapping_, Ref, TensorSpec, step_refs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ci_autotest.program.ir import Program, Recording

#: What the script imports besides torch. Only PyTorch's own simulation of ranks needs no process for each.
IMPORTS: Final = (
    "import torch.distributed as dist",
    "from torch.distributed._local_tensor import LocalTensor, LocalTensorMode",
    "from torch.distributed.tensor import DTensor, DeviceMesh, Partial, Replicate, Shard",
    "from torch.testing._internal.distributed.fake_pg import FakeStore",
)
HEAD: Final = """MESH = {mesh}  # the ranks
PLACEMENTS = {{{placements}}}  # how inputs lie on them
RANKS = torch.Size(MESH).numel()
dist.init_process_group("fake", rank=0, world_size=RANKS, store=FakeStore())
DEVICE_MESH = DeviceMesh("cpu", torch.arange(RANKS).view(MESH))
SIMULATED = LocalTensorMode(RANKS)  # every operator runs on all ranks
EVERYWHERE = (Replicate(),) * len(MESH)


def cut(tensor, rank, placements):
    \"\"\"Return the part that a rank holds.\"\"\"
    at = (torch.arange(RANKS).view(MESH) == rank).nonzero()[0].tolist()
    for number, count, placement in zip(at, MESH, placements):
        if placement.is_shard():
            chunks = tensor.chunk(count, placement.dim)
            tensor = chunks[number] if number < len(chunks) else tensor.narrow(placement.dim, 0, 0)
        elif placement.is_partial() and count > 1:  # 2x and -x, whose sum is x
            double = tensor + tensor
            splits = torch.isfinite(double) & (tensor != 0)
            nothing = torch.zeros_like(tensor).neg()
            summands = torch.where(splits, double, tensor), torch.where(splits, -tensor, nothing), nothing
            tensor = summands[min(number, 2)]
    return tensor.contiguous().clone()


def spread(tensor, placements):
    \"\"\"Return a tensor as one that lies on the ranks.\"\"\"
    with SIMULATED.disable():
        plain = tensor.detach().contiguous()
        parts = LocalTensor({{rank: cut(plain, rank, placements) for rank in range(RANKS)}})
    found = DTensor.from_local(
        parts, DEVICE_MESH, placements, run_check=False, shape=plain.shape, stride=plain.stride()
    )
    return found.requires_grad_(tensor.requires_grad)


def given_to(function):
    \"\"\"Return the inputs of a side: those of the candidate lie on the ranks.\"\"\"
    if function is not candidate:
        return {inputs}
    with SIMULATED.disable():
        given = {inputs}
    for name, value in given.items():
        if isinstance(value, torch.nn.Module):
            for path, owner in value.named_modules(prefix=name):
                for key, each in [*owner.named_parameters(recurse=False), *owner.named_buffers(recurse=False)]:
                    lies = spread(each, PLACEMENTS.get(f"{{path}}.{{key}}", EVERYWHERE))
                    is_parameter = isinstance(each, torch.nn.Parameter)
                    owner.__dict__["_parameters" if is_parameter else "_buffers"][key] = (
                        torch.nn.Parameter(lies, requires_grad=each.requires_grad) if is_parameter else lies
                    )
        else:
            given[name] = spread(value, PLACEMENTS[name])
    return given


def replicated(function):
    \"\"\"Return a function whose tensors are the same on every rank, if it makes them from no other tensor.\"\"\"

    def called(*args, **kwargs):
        found = function(*args, **kwargs)
        is_plain = isinstance(found, torch.Tensor) and not isinstance(found, DTensor)
        return DTensor.from_local(found, DEVICE_MESH, EVERYWHERE, run_check=False) if is_plain else found

    return called


def weight(tensor, output):
    \"\"\"Return what goes into the backward pass of an output.\"\"\"
    if not isinstance(output, DTensor):
        return tensor.to(output.device, output.dtype).clone()
    return spread(tensor.to(output.dtype), [Replicate() if p.is_partial() else p for p in output.placements])


def whole(value):
    \"\"\"Return what the ranks hold as whole tensors; all ranks must hold the same.\"\"\"
    if isinstance(value, (tuple, list)) and not isinstance(value, torch.Size):
        return type(value)(map(whole, value)) if type(value) in (tuple, list) else tuple(map(whole, value))
    if isinstance(value, dict):
        return {{name: whole(each) for name, each in value.items()}}
    if not isinstance(value, torch.Tensor):
        return value
    parts = value.detach().to_local() if isinstance(value, DTensor) else value.detach()
    wholes = value.detach().full_tensor() if isinstance(value, DTensor) else parts
    wholes = list(getattr(wholes, "_local_tensors", {{0: wholes}}).values())
    for rank, part in getattr(parts, "_local_tensors", {{}}).items() if isinstance(value, DTensor) else ():
        if all(type(p) in (Shard, Replicate, Partial) for p in value.placements):
            expected = cut(torch.empty(wholes[0].shape, device="meta"), rank, [p for p in value.placements]).shape
            assert part.shape == expected, f"rank {{rank}} holds {{tuple(part.shape)}}, not {{tuple(expected)}}"
    for rank, other in enumerate(wholes):
        left, right = (each.contiguous().reshape(-1).view(torch.uint8) for each in (other, wholes[0]))
        assert torch.equal(left, right), f"rank {{rank}} holds other bits than rank 0"
    found = wholes[0].clone()
    if value.requires_grad:
        found.requires_grad_()
        return found if value.is_leaf else found.view(found.shape)
    return found


def on_ranks(run):
    \"\"\"Return a function that runs the candidate on all ranks.\"\"\"

    def ranked(function):
        if function is not candidate:
            return run(function)
        with SIMULATED:
            return whole(run(function))

    return ranked"""


def is_of_ranks(note: Mapping[str, object]) -> bool:
    """Whether the candidate is a group of ranks."""
    return note.get("backend") == "dtensor"


def distributions(program: Program) -> dict[str, Distribution]:
    """Return how each input lies on the ranks, by its printed name; a parameter's begins with that of its module."""
    lie = {name: spec.distribution for name, spec in _specs(program).items() if spec.distribution is not None}
    # From outside: nothing else of it is printed as code. Comments show the name, so it must not end its line.
    return {
        name: on
        for name, on in lie.items()
        if name.isprintable() and is_mesh(on.mesh) and all(map(is_placement, on.placements))
    }


def rank_lines(recording: Recording) -> list[str]:
    """Return comments that say how each input lies on the ranks, with the shape of each part."""
    lie = distributions(recording.program)
    shapes = {name: spec.shape for name, spec in _specs(recording.program).items()}
    lines = []
    for name, on in lie.items():
        parts = local_shapes(shapes[name], on)
        held = f"{list(parts[0])} each" if len(set(parts)) == 1 else ", ".join(map(str, map(list, parts)))
        lines.append(f"# {name} lies as {on}: {held}")
    mesh = next((on.mesh for on in lie.values()), None)
    return (
        [f"# on a mesh of {' x '.join(map(str, mesh))} ranks; the code below is the reference's", *lines]
        if mesh
        else []
    )


def _specs(program: Program) -> dict[str, TensorSpec]:
    """Return the spec of each input and parameter, by the names of ``distributions``."""
    named = names(program)
    found = {
        named[index]: step.args[0]
        for index, step in enumerate(program.steps)
        if step.op == PLACEHOLDER and not step.in_setup
    }
    for step in program.setup:
        if step.target == LOADS_STATE and isinstance(step.args[0], Ref) and isinstance(step.args[1], Mapping_):
            found |= {
                f"{named[step.args[0].index]}.{name}": program.steps[ref.index].args[0]
                for name, ref in step.args[1].items
                if isinstance(ref, Ref)
            }
    return {name: spec for name, spec in found.items() if isinstance(spec, TensorSpec)}


def rank_head(recording: Recording, inputs: str) -> str:
    """Return the ranks of a script, and how tensors are spread over them and gathered.

    Args:
        recording: The program.
        inputs: The call that makes the inputs.
    """
    lie = distributions(recording.program)
    mesh = next((on.mesh for on in lie.values()), (2,))
    placements = ", ".join(f"{name!r}: {_placements(on)}" for name, on in lie.items())
    return HEAD.format(mesh=mesh, placements=placements, inputs=inputs)


def rank_candidate(program: Program, takes: Sequence[str]) -> str:
    """Return the candidate: the body, in which tensors that are made from no other one are the same on every rank."""
    alone = {step.target for _, step in program.calls if step.op == CALL_FUNCTION and not list(step_refs(step))}
    alone = {target for target in alone if target.startswith("torch.")}
    lines = body_lines(program, rename=lambda target: f"replicated({target})" if target in alone else target)
    text = "\n".join(f"    {line}" for each in [*lines, f"return {output_text(program)}"] for line in each.split("\n"))
    return f"def candidate({', '.join(takes)}):\n{text}"


def _placements(on: Distribution) -> str:
    texts = [each if "(" in each else f"{each}()" for each in on.placements]
    return f"({', '.join(texts)},)"
