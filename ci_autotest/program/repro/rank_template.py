"""The text of a repro whose tensors lie on a group of ranks; ``{name}`` marks what is filled in.

A form says what runs the ranks: PyTorch's simulation in the script's process, or a process for each of them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ci_autotest.program.repro.rank_launcher import IMPORTS

HEAD: Final = """MESH = {mesh}  # the ranks
PLACEMENTS = {{{placements}}}  # how inputs lie on them
RANKS = torch.Size(MESH).numel()
{group}EVERYWHERE = (Replicate(),) * len(MESH)


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
{parts}    found = DTensor.from_local(
        parts, DEVICE_MESH, placements, run_check=False, shape=plain.shape, stride=plain.stride()
    )
    return found.requires_grad_(tensor.requires_grad)


def given_to(function):
    \"\"\"Return the inputs of a side: those of the candidate lie on the ranks.\"\"\"
    if function is not candidate:
        return inputs()
{given}    for name, value in given.items():
        if isinstance(value, torch.nn.Module):
            for path, owner in value.named_modules(prefix=name):
                for key, each in [*owner.named_parameters(recurse=False), *owner.named_buffers(recurse=False)]:
                    lies = spread(each, PLACEMENTS.get(f"{{path}}.{{key}}", EVERYWHERE))
                    is_parameter = isinstance(each, torch.nn.Parameter)
                    owner.__dict__["_parameters" if is_parameter else "_buffers"][key] = (
                        torch.nn.Parameter(lies, requires_grad=each.requires_grad) if is_parameter else lies
                    )
        else:
            given[name] = spread(value, PLACEMENTS.get(name, EVERYWHERE))
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
    placements = [Replicate() if p.is_partial() else p for p in output.placements]
    return spread(tensor.to(output.device, output.dtype), placements)


def mapped(function, value):
    \"\"\"Return a value with a function applied to everything in it that is no tuple, list or dictionary.\"\"\"
    if isinstance(value, (tuple, list)) and not isinstance(value, torch.Size):
        found = [mapped(function, each) for each in value]
        return found if type(value) is list else tuple(found)
    if isinstance(value, dict):
        return {{name: mapped(function, each) for name, each in value.items()}}
    return function(value)


def gathered(value):
    \"\"\"Return a tensor of the ranks as a whole; all ranks of this process must hold the same.\"\"\"
    if not isinstance(value, torch.Tensor):
        return value
    wholes = value.detach()
    if isinstance(value, DTensor):
        for rank, part in by_rank(wholes.to_local()).items():
            if all(type(p) in (Shard, Replicate, Partial) for p in value.placements):
                expected = cut(torch.empty(value.shape, device="meta"), rank, value.placements).shape
                assert part.shape == expected, f"rank {{rank}} holds {{tuple(part.shape)}}, not {{tuple(expected)}}"
        wholes = wholes.full_tensor()
    wholes = by_rank(wholes)
    first = next(iter(wholes.values()))
    for rank, other in wholes.items():
        assert is_same(other, first), f"rank {{rank}} holds other bits than rank 0"
    return flagged(first.clone(), value.requires_grad, value.is_leaf)


def is_same(left, right):
    \"\"\"Whether two ranks hold the same bits.\"\"\"
    if not isinstance(left, torch.Tensor) or not isinstance(right, torch.Tensor):
        return repr(left) == repr(right)  # NaN too
    bits = [each.contiguous().reshape(-1).view(torch.uint8) for each in (left, right)]
    return left.dtype == right.dtype and left.shape == right.shape and torch.equal(*bits)


def flagged(value, requires_grad, is_leaf):
    \"\"\"Return a tensor with the flags of another one.\"\"\"
    if not requires_grad:
        return value
    value.requires_grad_()
    return value if is_leaf else value.view(value.shape)
"""
_SIMULATED: Final = """def by_rank(tensor):
    \"\"\"Return what each rank holds of a simulated tensor.\"\"\"
    return getattr(tensor, "_local_tensors", {0: tensor})


def on_ranks(run):
    \"\"\"Return a function that runs the candidate on all ranks.\"\"\"

    def ranked(function):
        if function is not candidate:
            return run(function)
        with SIMULATED:
            return mapped(gathered, run(function))

    return ranked"""
_PROCESSES: Final = """def by_rank(tensor):
    \"\"\"Return what the rank holds that is this process.\"\"\"
    return {dist.get_rank(): tensor}


def leaves_of(value):
    \"\"\"Return everything in a value that is no tuple, list or dictionary.\"\"\"
    found = []
    mapped(found.append, value)
    return found


def noted(value):
    \"\"\"Return a value as a rank writes it down: other objects than plain ones are not compared.\"\"\"
    plain = (bool, int, float, complex, str, torch.dtype, torch.Size, type(None))
    if isinstance(value, torch.Tensor):
        return value.detach().cpu()
    return value if type(value) in plain else str(type(value))


def work(rank):
    \"\"\"Return what a rank has after it has run the candidate, and the flags of its tensors.\"\"\"
    global DEVICE_MESH
    DEVICE_MESH = DeviceMesh(KIND, torch.arange(RANKS).view(MESH))
    found = run(candidate)
    flags = [getattr(each, "requires_grad", False) and (True, each.is_leaf) for each in leaves_of(found)]
    return mapped(noted, found), flags


def agreed(found):
    \"\"\"Return what all ranks have, which must be the same bits.\"\"\"
    values, flags = found[0]
    for rank, (others, own) in enumerate(found):
        if own != flags or not all(map(is_same, leaves_of(others), leaves_of(values))):
            raise RankError(f"rank {rank} holds other bits than rank 0")
    left = iter(flags)
    return mapped(lambda each: flagged(each, *(next(left) or (False, True))), values)


def on_ranks(run):
    \"\"\"Return a function that runs the candidate on all ranks, each in a process of its own.\"\"\"

    def ranked(function):
        if function is not candidate:
            return run(function)
        return mapped(gathered, run(function)) if dist.is_initialized() else agreed(of_all_ranks())

    return ranked"""


class RankForm(NamedTuple):
    """What runs the ranks: the parts of the text that depend on it.

    Attributes:
        imports: What the script imports besides torch.
        group: How the group is made.
        parts: How a tensor is cut.
        given: How the inputs are made.
        runs: How a value is read on each rank, and what runs the candidate.
    """

    imports: tuple[str, ...]
    group: str
    parts: str
    given: str
    runs: str


_PLACEMENTS: Final = "DeviceMesh, Partial, Replicate, Shard"
#: Only PyTorch's own simulation of ranks needs no process for each.
SIMULATED: Final = RankForm(
    imports=(
        "import torch.distributed as dist",
        "from torch.distributed._local_tensor import LocalTensor, LocalTensorMode",
        f"from torch.distributed.tensor import DTensor, {_PLACEMENTS}",
        "from torch.testing._internal.distributed.fake_pg import FakeStore",
    ),
    group="""dist.init_process_group("fake", rank=0, world_size=RANKS, store=FakeStore())
DEVICE_MESH = DeviceMesh("cpu", torch.arange(RANKS).view(MESH))
SIMULATED = LocalTensorMode(RANKS)  # every operator runs on all ranks
""",
    parts="""    with SIMULATED.disable():
        plain = tensor.detach().contiguous()
        parts = LocalTensor({rank: cut(plain, rank, placements) for rank in range(RANKS)})
""",
    given="""    with SIMULATED.disable():
        given = inputs()
""",
    runs=_SIMULATED,
)
_GIVEN: Final = """    given = inputs()
"""
#: Modules are constructed on the CPU.
MOVED: Final = """    given = {name: v.to(device) if isinstance(v, torch.nn.Module) else v for name, v in given.items()}
"""
_CUT: Final = """    plain = tensor.detach().contiguous()
    parts = cut(plain, dist.get_rank(), placements)
"""
#: By the kind of the ranks' devices.
PROCESSES: Final = {
    kind: RankForm(
        imports=(*IMPORTS, f"from torch.distributed.tensor import {_PLACEMENTS}"),
        group="",
        parts=_CUT,
        given=_GIVEN + (MOVED if kind == "cuda" else ""),
        runs=_PROCESSES.replace("KIND", f'"{kind}"'),
    )
    for kind in ("cpu", "cuda")
}
