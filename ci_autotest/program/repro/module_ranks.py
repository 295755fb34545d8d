"""The candidate of a repro whose ranks share the batch of a module: the script starts a process for each rank itself.

The body becomes one module, which the wrapper takes. What the ranks write down is joined as the note of the program
says, and must be the same on all of them where each has all of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ci_autotest.errors import ProgramError
from ci_autotest.program.codegen import body_statements, names, output_text
from ci_autotest.program.distribution import dimension_of
from ci_autotest.program.ir import PARAMETER, PLACEHOLDER, Program, Ref, TensorSpec, step_refs
from ci_autotest.program.python_names import is_path
from ci_autotest.program.training_parts import BACKWARD, parts_of_body

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ci_autotest.program.ir import Recording, Step

BACKENDS: Final = frozenset({"ddp", "fsdp"})
#: What the script imports besides torch.
IMPORTS: Final = ("import torch.distributed as dist",)
_JOINS: Final = frozenset({"rows", "same", "mean", "sum"})
_BODY: Final = """class Body(torch.nn.Module):
    \"\"\"The body as one module, which the wrapper takes.\"\"\"

    def __init__(self, given):
        super().__init__()
        modules = {{name: value for name, value in given.items() if isinstance(value, torch.nn.Module)}}
        self.__dict__.update(given=given, seen={{}}, held={{}})
        for name, value in modules.items():
            if not any(value in list(other.modules())[1:] for other in modules.values()):
                self.add_module(f"own_{{name}}", value)
        for name in PARAMETERS:
            own = torch.nn.Parameter(given[name].detach(), requires_grad=given[name].requires_grad)
            self.register_parameter(f"own_{{name}}", own)
        for name in BUFFERS:
            self.register_buffer(f"own_{{name}}", given[name])

    def hold(self):
        \"\"\"Take parameters and buffers as an optimizer has them.\"\"\"
        self.held.update((name, getattr(self, f"own_{{name}}")) for name in (*PARAMETERS, *BUFFERS))
        for name, value in self.given.items():
            if isinstance(value, torch.nn.Module):
                self.held.update((f"{{name}}.{{path}}", each) for path, each in value.named_parameters())

    def forward(self, part=None, *given):
        if part is not None:
            return part(self, *given)
        # Wrappers make buffers equal where a forward pass begins.
        for name, value in self.given.items():
            if isinstance(value, torch.nn.Module):
                self.seen.update((f"{{name}}.{{path}}", each.clone()) for path, each in value.named_buffers())
        self.seen.update((name, getattr(self, f"own_{{name}}").clone()) for name in BUFFERS)
        return ()


{parts}


def steps(body_, wrapped_):
    \"\"\"Run the body on this rank: its forward passes through the wrapper.\"\"\"
{steps}


candidate = Body"""
_HEAD: Final = """RANKS = {ranks}
ROWS = {rows}  # inputs of which each rank has a part, with the dimension of the batch
PARAMETERS, BUFFERS = {parameters}, {buffers}  # what the body holds besides its modules
JOINS = {joins}  # how outputs are joined
OF_A_PART = {of_slices}  # what belongs to the rows of a rank by its definition, and is not compared
INDEPENDENT = {independent}  # whether rows are; if not, only whether the ranks agree is compared
LONGEST_S, AFTER_FIRST_S = 300, 20  # a rank that takes longer, or longer than another one, waits for ever


def wrapped(body):
    return {wrap}


def noted(value):
    \"\"\"Return a tensor as a rank writes it down.\"\"\"
    whole = value.full_tensor() if hasattr(value, "full_tensor") else value
    return whole.detach().clone(), value.requires_grad, value.is_leaf


def be_rank(rank, folder):
    \"\"\"Be one rank: a process of its own.\"\"\"
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    store = dist.FileStore(os.path.join(folder, "store"), RANKS)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=RANKS)
    torch.manual_seed(0)
    given = inputs()
    for name, value in given.items():
        if isinstance(value, torch.Tensor) and name not in (*PARAMETERS, *BUFFERS):
            if name in ROWS:
                part = value.detach().chunk(RANKS, ROWS[name])[rank].contiguous().clone()
                given[name] = part.requires_grad_(value.requires_grad)
            if value.requires_grad:  # the loss of a rank counts once for each rank
                given[name].register_hook(lambda gradient: gradient / RANKS)
    body = Body(given)
    own = wrapped(body)
    body.hold()
    outputs = steps(body, own)
{backward}    if next(body.buffers(), None) is not None:
        with torch.no_grad():
            own()
    leaves = {{**{{n: v for n, v in given.items() if isinstance(v, torch.Tensor)}}, **body.held}}
    gradients = {{name: leaf.grad for name, leaf in leaves.items() if leaf.requires_grad}}
    found = {{
        "outputs": [noted(output) if isinstance(output, torch.Tensor) else output for output in outputs],
        "gradients": {{name: None if each is None else noted(each) for name, each in gradients.items()}},
        "after": {{name: noted(value) for name, value in {{**leaves, **body.seen}}.items()}},
    }}
    torch.save(found, os.path.join(folder, f"{{rank}}.pt"))


def of_all_ranks():
    \"\"\"Start the ranks, and return what each of them has written down.\"\"\"
    with tempfile.TemporaryDirectory() as folder:
        context = multiprocessing.get_context("forkserver")  # imports torch once
        ranks = [context.Process(target=be_rank, args=(rank, folder), daemon=True) for rank in range(RANKS)]
        for rank in ranks:
            rank.start()
        until = time.monotonic() + LONGEST_S
        while any(rank.is_alive() for rank in ranks) and time.monotonic() < until:
            multiprocessing.connection.wait([rank.sentinel for rank in ranks if rank.is_alive()], 1)
            if not all(rank.is_alive() for rank in ranks):
                until = min(until, time.monotonic() + AFTER_FIRST_S)
        waiting = [number for number, rank in enumerate(ranks) if rank.is_alive()]
        raised = [number for number, rank in enumerate(ranks) if rank.exitcode]
        for rank in ranks:
            rank.kill()
            rank.join()
        if waiting or raised:
            raise RuntimeError(f"ranks that raised or ended: {{raised}}, ranks that wait for ever: {{waiting}}")
        return [torch.load(os.path.join(folder, f"{{rank}}.pt"), weights_only=True) for rank in range(RANKS)]


def agreed(what, parts):
    \"\"\"Return what all ranks have, which must be the same bits.\"\"\"
    for rank, part in enumerate(parts):
        same = (part is None) == (parts[0] is None) and (part is None or (
            part[0].shape == parts[0][0].shape and part[0].dtype == parts[0][0].dtype
            and torch.equal(*(each[0].contiguous().reshape(-1).view(torch.uint8) for each in (part, parts[0])))
        ))
        assert same, f"{{what}}: rank {{rank}} holds other bits than rank 0"
    return None if parts[0] is None else flagged(parts[0][0], parts[0])


def flagged(value, part):
    \"\"\"Return a value with the flags of a part.\"\"\"
    if not part[1]:
        return value
    value.requires_grad_()
    return value if part[2] else value.view(value.shape)


def joined(parts, kind, dimension=0):
    \"\"\"Return what parts of the batch make together.\"\"\"
    tensors = [part[0] for part in parts]
    if kind == "rows":
        return flagged(torch.cat(tensors, dimension), parts[0])
    shares = [1.0] * RANKS if kind == "sum" else {shares}
    total = sum(tensor.double() * share for tensor, share in zip(tensors, shares))
    return flagged(total.to(tensors[0].dtype), parts[0])


def of_input(name, parts):
    if any(part is None for part in parts):
        return None
    return joined(parts, "rows", ROWS[name]) if name in ROWS else joined(parts, "sum")


def on_ranks(run):
    \"\"\"Return a function that runs the candidate on all ranks, each in a process of its own.\"\"\"

    def ranked(function):
        if function is not candidate:
            return run(function)
        found = of_all_ranks()
        given = {{name for name, value in inputs().items() if isinstance(value, torch.Tensor)}}
        given -= {{*PARAMETERS, *BUFFERS}}
        outputs, gradients, after = [], {{}}, {{}}
        for number in range(len(found[0]["outputs"])):
            parts = [each["outputs"][number] for each in found]
            kind = JOINS.get(number, ("same",))
            is_same = kind[0] == "same" or not isinstance(parts[0], tuple)
            outputs.append(agreed(f"output {{number}}", parts) if is_same else joined(parts, *kind))
        for name in found[0]["gradients"]:
            parts = [each["gradients"][name] for each in found]
            gradients[name] = of_input(name, parts) if name in given else agreed(f"gradient of {{name}}", parts)
        for name in found[0]["after"]:
            parts = [each["after"][name] for each in found]
            if name in OF_A_PART and not SHARES_BUFFERS:
                continue
            is_part = name in given and name in ROWS
            after[name] = joined(parts, "rows", ROWS[name]) if is_part else agreed(name, parts)
        expected = run(reference)
        if not INDEPENDENT:
            return expected
        return {result}

    return ranked


SHARES_BUFFERS = {shares_buffers}  # FSDP leaves buffers alone"""
_BACKWARD: Final = """    pairs = []
    for i, weight in COTANGENTS.items():
        kind, dimension = (*JOINS.get(i, ("same",)), 0)[:2]
        if kind == "rows":
            weight = weight.split(SIZES[i], dimension)[rank]
        share = {shares}[rank] if kind in ("mean", "same") else 1.0
        if isinstance(outputs[i], torch.Tensor) and outputs[i].requires_grad:
            # The wrapper takes the mean over ranks, so that each one begins with that many times its part.
            pairs.append((outputs[i], weight * share * RANKS))
    if pairs:
        torch.autograd.backward([output for output, _ in pairs], [weight for _, weight in pairs])
"""


def shares_batch(note: Mapping[str, object]) -> bool:
    """Whether the candidate's ranks share the batch of a module."""
    return note.get("backend") in BACKENDS


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
    rows = _plan(note)["rows"]
    lines = [f"# on {len(rows)} ranks, wrapped by {wrap}; the code below is the reference's"]
    for i in _inputs(recording.program):
        spec = _spec(recording.program.steps[i])
        dimension = _dimension(spec) if spec else None
        if dimension is not None and named[i].isprintable():
            lines.append(f"# {named[i]} is split along dimension {dimension}: {', '.join(map(str, rows))} rows")
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
    return _BODY.format(parts="\n\n\n".join(functions), steps="\n".join(f"    {line}" for line in steps))


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
    own = "torch.distributed.fsdp.fully_shard(body)" if note["backend"] == "fsdp" else (
        f"torch.nn.parallel.DistributedDataParallel(body{', find_unused_parameters=True' if plan['unused'] else ''})"
    )  # fmt: skip
    values = {"outputs": "outputs", "gradients": "gradients", "raised": "None", "after": "{**expected[-1], **kept}"}
    kept = "{n: v for n, v in after.items() if n not in OF_A_PART}"
    result = ", ".join(values.get(name, "None").replace("kept", kept) for name in observed)
    shares = [each / sum(plan["rows"]) for each in plan["rows"]]
    backward = f"    SIZES = {_sizes(plan)}\n" + _BACKWARD.format(shares=shares) if "gradients" in observed else ""
    return _HEAD.format(
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
