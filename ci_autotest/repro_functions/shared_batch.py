"""A candidate whose ranks share the batch of a module: what they write down is joined, and the body is one module.

The program's own steps are two functions of the script: ``candidate`` runs the body on a rank through its wrapper, and
``on_slice`` runs it on the rows of one rank without.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ci_autotest.repro_functions.rank_processes import is_same, of_all_ranks
from ci_autotest.repro_functions.sides import moved
from ci_autotest.repro_functions.tensors import plain

if TYPE_CHECKING:
    from collections.abc import Callable

RANKS: int
#: Inputs of which each rank has a part, with the dimension of the batch.
ROWS: dict[str, int]
#: What the body holds besides its modules.
PARAMETERS: list[str]
BUFFERS: list[str]
#: Names of outputs, and how each is joined by its position, if it is not the same on every rank.
NAMES: list[str]
JOINS: dict[int, tuple[str, int]]
#: The part of the batch that each rank has, and the numbers of rows of outputs.
SHARES: list[float]
SIZES: dict[int, list[int]]
#: What belongs to the rows of a rank by its definition, and is not compared.
OF_A_PART: set[str]
#: Whether values are compared; if not, only whether the ranks agree.
INDEPENDENT: bool
#: Whether rows depend on one another, so that each rank is held against one process on its rows.
PER_SLICE: bool
#: FSDP leaves buffers alone.
SHARES_BUFFERS: bool
COTANGENTS: dict[int, torch.Tensor]
inputs: Callable[[], dict[str, Any]]
reference: Callable[..., Any]
candidate: Callable[..., Any]
on_slice: Callable[..., Any]
wrapped: Callable[[torch.nn.Module], Any]
#: Device of the side that runs.
device: torch.device


class SharedBody(torch.nn.Module):
    """The body as one module, which the wrapper takes."""

    # What it is given, what it holds, its buffers before a pass, its modules by name and path, and their places.
    given: Any = None
    held: Any = None
    seen: Any = None
    parts: Any = None
    places: Any = None

    def __init__(self, given: dict[str, Any]) -> None:
        super().__init__()
        modules = {name: value for name, value in given.items() if isinstance(value, torch.nn.Module)}
        self.__dict__.update(given=given, seen={}, held={})
        for name, value in modules.items():
            if not any(value in list(other.modules())[1:] for other in modules.values()):
                self.add_module(f"own_{name}", value)
        for name in PARAMETERS:
            own = torch.nn.Parameter(given[name].detach(), requires_grad=given[name].requires_grad)
            self.register_parameter(f"own_{name}", own)
        for name in BUFFERS:
            self.register_buffer(f"own_{name}", given[name])
        paths = {id(module): path for path, module in self.named_modules(remove_duplicate=False)}
        parts = {name: dict(value.named_modules()) for name, value in modules.items()}
        places = {name: {path: paths[id(part)] for path, part in own.items()} for name, own in parts.items()}
        self.__dict__.update(parts=parts, places=places)

    def hold(self) -> None:
        """Take parameters and buffers as an optimizer has them."""
        present = list(self.modules())
        for name, own in self.parts.items():  # A wrapper may put other modules in their place, or around them.
            self.given[name] = self.now_at(own[""], self.places[name][""])
            for path, part in own.items():
                own[path] = part if part in present else self.now_at(part, self.places[name][path])
        self.held.update((name, getattr(self, f"own_{name}")) for name in (*PARAMETERS, *BUFFERS))
        self.held.update(self.named(torch.nn.Module.named_parameters))

    def now_at(self, part: torch.nn.Module, place: str) -> torch.nn.Module:
        """Return the module that is in a part's place."""
        try:
            return self.get_submodule(place)
        except AttributeError:
            return part

    def named(self, kind: Callable[..., Any]) -> dict[str, torch.Tensor]:
        """Return parameters or buffers by the names that modules have in the program."""
        return {
            ".".join(filter(None, (name, path, each))): value
            for name, own in self.parts.items()
            for path, part in own.items()
            for each, value in kind(part, recurse=False)
        }

    def forward(self, part: Callable[..., Any] | None = None, *given: Any) -> Any:
        """Run a part of the body."""
        if part is not None:
            return part(self, *given)
        # Wrappers make buffers equal where a forward pass begins.
        self.seen.update((name, each.clone()) for name, each in self.named(torch.nn.Module.named_buffers).items())
        self.seen.update((name, getattr(self, f"own_{name}").clone()) for name in BUFFERS)
        return ()


def work(rank: int) -> dict[str, Any]:
    """Return what a rank has after it has run the body."""
    given = given_to(rank)
    body = SharedBody(given)
    module = wrapped(body)
    body.hold()
    outputs = candidate(body, module)
    start_backward(outputs, rank)
    if next(body.buffers(), None) is not None:
        with torch.no_grad():
            module()
    leaves = {**{n: v for n, v in given.items() if isinstance(v, torch.Tensor)}, **body.held}
    return all_noted(outputs, leaves, body.seen)


def given_to(rank: int) -> dict[str, Any]:
    """Return the inputs of a rank."""
    torch.manual_seed(0)
    given = moved(inputs(), device)
    for name, value in given.items():
        if isinstance(value, torch.Tensor) and name not in (*PARAMETERS, *BUFFERS):
            if name in ROWS:
                part = value.detach().chunk(RANKS, ROWS[name])[rank].contiguous().clone()
                given[name] = part.requires_grad_(value.requires_grad)
            if value.requires_grad:  # the loss of a rank counts once for each rank
                given[name].register_hook(lambda gradient: gradient / RANKS)
    return given


def start_backward(outputs: Any, rank: int) -> None:
    """Run the backward pass of a rank with its part of what goes into the outputs."""
    pairs = []
    for i, weight in COTANGENTS.items():
        kind, dimension = JOINS.get(i, ("same", 0))
        own = torch.split(weight, SIZES[i], dimension)[rank] if kind == "rows" else weight
        share = SHARES[rank] if kind in ("mean", "same") else 1.0
        if isinstance(outputs[i], torch.Tensor) and outputs[i].requires_grad:
            # The wrapper takes the mean over ranks, so that each one begins with that many times its part.
            pairs.append((outputs[i], (own * share * RANKS).to(outputs[i].device)))
    if pairs:
        torch.autograd.backward([output for output, _ in pairs], [weight for _, weight in pairs])


def noted(value: torch.Tensor) -> tuple[torch.Tensor, bool, bool]:
    """Return a tensor as a rank writes it down, with its flags."""
    whole = value.full_tensor() if hasattr(value, "full_tensor") else value
    return whole.detach().to("cpu", copy=True), value.requires_grad, value.is_leaf


def all_noted(outputs: Any, leaves: dict[str, Any], buffers: dict[str, Any]) -> dict[str, Any]:
    """Return what a rank writes down; no gradient, and one of zeros, are the same."""
    gradients = {name: leaf.grad for name, leaf in leaves.items() if leaf.requires_grad}
    values = [plain(output) for output in outputs]
    return {
        "outputs": [noted(value) if isinstance(value, torch.Tensor) else value for value in values],
        "gradients": {name: noted(torch.zeros_like(leaves[name]) if g is None else g) for name, g in gradients.items()},
        "after": {name: noted(value) for name, value in {**leaves, **buffers}.items()},
    }


def agreed(what: str, parts: list[Any]) -> Any:
    """Return what all ranks have, which must be the same bits."""
    first = parts[0][0] if isinstance(parts[0], tuple) else parts[0]
    for rank, part in enumerate(parts):
        own = part[0] if isinstance(part, tuple) else part
        assert is_same(own, first), f"{what}: rank {rank} holds other bits than rank 0"
    return first


def joined(parts: list[Any], kind: str, dimension: int = 0) -> torch.Tensor:
    """Return what parts of the batch make together: a mean or a sum in 64 bits until the end."""
    tensors = [part[0] for part in parts]
    if kind == "each":
        return torch.stack(tensors)
    if kind == "rows":
        return torch.cat(tensors, dimension)
    shares = [1.0] * RANKS if kind == "sum" else SHARES
    dtype = tensors[0].dtype
    wide = torch.complex128 if dtype.is_complex else torch.float64 if dtype.is_floating_point else dtype
    first, *others = [tensor.to(wide) * (share if share != 1.0 else 1) for tensor, share in zip(tensors, shares)]
    total: torch.Tensor = sum(others, first)
    return total.to(dtype)


def of_input(name: str, parts: list[Any]) -> torch.Tensor:
    """Return the gradient of an input, of which each rank has its part."""
    return joined(parts, "rows", ROWS[name]) if name in ROWS else joined(parts, "sum")


def flags_in(name: str, part: Any) -> dict[str, Any]:
    """Return the flags of a tensor by name, as a rank has written them down."""
    return {f"requires_grad of {name}": part[1], f"is_leaf of {name}": part[2]} if isinstance(part, tuple) else {}


def on_ranks(run: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """Return a function that runs the candidate on all ranks, each in a process of its own."""

    def ranked(function: Callable[..., Any]) -> dict[str, Any]:
        if function is not candidate and not PER_SLICE:
            return run(function)
        whole = run(reference)
        found = all_joined(of_all_ranks() if function is candidate else of_slices())
        return {name: found.get(name, value) for name, value in whole.items()} if INDEPENDENT else whole

    return ranked


def all_joined(ranks: list[dict[str, Any]]) -> dict[str, Any]:
    """Return by name what the ranks have together."""
    found: dict[str, Any] = {}
    given = {name for name, value in inputs().items() if isinstance(value, torch.Tensor)} - {*PARAMETERS, *BUFFERS}
    for number, name in enumerate(NAMES):
        parts = [each["outputs"][number] for each in ranks]
        kind, dimension = JOINS.get(number, ("same", 0))
        is_same_on_all = kind == "same" or not isinstance(parts[0], tuple)
        found[f"value of {name}"] = agreed(name, parts) if is_same_on_all else joined(parts, kind, dimension)
        found.update(flags_in(name, parts[0]))
    for name in ranks[0]["gradients"]:
        parts = [each["gradients"][name] for each in ranks]
        found[f"gradient of {name}"] = of_input(name, parts) if name in given else agreed(f"gradient of {name}", parts)
    for name in ranks[0]["after"]:
        parts = [each["after"][name] for each in ranks]
        key = f"{name} after the run"
        if not SHARES_BUFFERS and (is_buffer(name) if PER_SLICE else name in OF_A_PART):
            found.update({key: joined(parts, "each")} if PER_SLICE else {})
            continue
        found[key] = joined(parts, "rows", ROWS[name]) if name in given and name in ROWS else agreed(name, parts)
        found.update(flags_in(key, parts[0]))
    return found


def is_buffer(name: str) -> bool:
    """Whether a state is a buffer."""
    owner, _, path = name.partition(".")
    return name in BUFFERS or bool(path and path in dict(inputs()[owner].named_buffers()))


def share_gradients(everyone: list[dict[str, Any]]) -> None:
    """Give all slices the mean of their gradients."""
    owned = [state_of(given, torch.nn.Module.named_parameters, PARAMETERS) for given in everyone]
    for name in owned[0]:
        gradients = [own[name].grad for own in owned if own[name].grad is not None]
        for own in owned if gradients else ():
            own[name].grad = (sum(each.double() for each in gradients) / RANKS).to(own[name].dtype)


def share_buffers(everyone: list[dict[str, Any]]) -> None:
    """Give all slices the buffers of the first one."""
    buffers = [state_of(given, torch.nn.Module.named_buffers, BUFFERS) for given in everyone if SHARES_BUFFERS]
    with torch.no_grad():
        for own in buffers[1:]:
            for name, buffer in own.items():
                buffer.copy_(buffers[0][name])


def state_of(given: dict[str, Any], named: Callable[..., Any], names: list[str]) -> dict[str, Any]:
    """Return parameters or buffers by name."""
    modules = {name: value for name, value in given.items() if isinstance(value, torch.nn.Module)}
    found = {f"{m}.{path}": each for m, module in modules.items() for path, each in named(module)}
    return {**found, **{name: given[name] for name in names}}


def of_slices() -> list[dict[str, Any]]:
    """Return what one process has slice by slice."""
    everyone = [given_to(rank) for rank in range(RANKS)]
    runs = [on_slice(rank, given) for rank, given in enumerate(everyone)]
    ended: dict[int, Any] = {}
    while not ended:
        shares = []
        for rank, run in enumerate(runs):
            try:
                shares.append(next(run))
            except StopIteration as end:
                ended[rank] = end.value
        if not ended:
            shares[0](everyone)
    for rank, outputs in ended.items():
        start_backward(outputs, rank)
    if COTANGENTS:
        share_gradients(everyone)
    share_buffers(everyone)
    parameters, buffers = torch.nn.Module.named_parameters, torch.nn.Module.named_buffers
    return [
        all_noted(
            ended[rank],
            {
                **{n: v for n, v in given.items() if isinstance(v, torch.Tensor)},
                **state_of(given, parameters, PARAMETERS),
            },
            state_of(given, buffers, BUFFERS),
        )
        for rank, given in enumerate(everyone)
    ]
