"""The text of a repro whose ranks share the batch of a module; ``{name}`` marks what is filled in."""

from __future__ import annotations

from typing import Final

BODY: Final = """class Body(torch.nn.Module):
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
        paths = {{id(module): path for path, module in self.named_modules(remove_duplicate=False)}}
        parts = {{name: dict(value.named_modules()) for name, value in modules.items()}}
        places = {{name: {{path: paths[id(part)] for path, part in own.items()}} for name, own in parts.items()}}
        self.__dict__.update(parts=parts, places=places)

    def hold(self):
        \"\"\"Take parameters and buffers as an optimizer has them.\"\"\"
        present = list(self.modules())
        for name, own in self.parts.items():  # A wrapper may put other modules in their place, or around them.
            self.given[name] = self.now_at(own[""], self.places[name][""])
            for path, part in own.items():
                own[path] = part if part in present else self.now_at(part, self.places[name][path])
        self.held.update((name, getattr(self, f"own_{{name}}")) for name in (*PARAMETERS, *BUFFERS))
        self.held.update(self.named(torch.nn.Module.named_parameters))

    def now_at(self, part, place):
        try:
            return self.get_submodule(place)
        except AttributeError:
            return part

    def named(self, kind):
        \"\"\"Return parameters or buffers by the names that modules have in the program.\"\"\"
        return {{
            ".".join(filter(None, (name, path, each))): value
            for name, own in self.parts.items()
            for path, part in own.items()
            for each, value in kind(part, recurse=False)
        }}

    def forward(self, part=None, *given):
        if part is not None:
            return part(self, *given)
        # Wrappers make buffers equal where a forward pass begins.
        self.seen.update((name, each.clone()) for name, each in self.named(torch.nn.Module.named_buffers).items())
        self.seen.update((name, getattr(self, f"own_{{name}}").clone()) for name in BUFFERS)
        return ()


{parts}


def steps(body_, wrapped_):
    \"\"\"Run the body on this rank: its forward passes through the wrapper.\"\"\"
{steps}


candidate = Body"""
HEAD: Final = """RANKS = {ranks}
ROWS = {rows}  # inputs of which each rank has a part, with the dimension of the batch
PARAMETERS, BUFFERS = {parameters}, {buffers}  # what the body holds besides its modules
JOINS = {joins}  # how outputs are joined
OF_A_PART = {of_slices}  # what belongs to the rows of a rank by its definition, and is not compared
INDEPENDENT = {independent}  # whether values are compared; if not, only whether the ranks agree
PER_SLICE = {slices}  # whether rows depend on one another, so that each rank is held against one process on its rows


def wrapped(body):
    return {wrap}


def noted(value):
    \"\"\"Return a tensor as a rank writes it down.\"\"\"
    whole = value.full_tensor() if hasattr(value, "full_tensor") else value
    return whole.detach().to("cpu", copy=True), value.requires_grad, value.is_leaf


def work(rank):
    \"\"\"Return what a rank has after it has run the body.\"\"\"
    given = given_to(rank)
    body = Body(given)
    own = wrapped(body)
    body.hold()
    outputs = steps(body, own)
{backward}    if next(body.buffers(), None) is not None:
        with torch.no_grad():
            own()
    leaves = {{**{{n: v for n, v in given.items() if isinstance(v, torch.Tensor)}}, **body.held}}
    return all_noted(outputs, leaves, body.seen)


def given_to(rank):
    \"\"\"Return the inputs of a rank.\"\"\"
    torch.manual_seed(0)
    given = inputs()
{moved}    for name, value in given.items():
        if isinstance(value, torch.Tensor) and name not in (*PARAMETERS, *BUFFERS):
            if name in ROWS:
                part = value.detach().chunk(RANKS, ROWS[name])[rank].contiguous().clone()
                given[name] = part.requires_grad_(value.requires_grad)
            if value.requires_grad:  # the loss of a rank counts once for each rank
                given[name].register_hook(lambda gradient: gradient / RANKS)
    return given


def all_noted(outputs, leaves, buffers):
    \"\"\"Return what a rank writes down.\"\"\"
    gradients = {{name: leaf.grad for name, leaf in leaves.items() if leaf.requires_grad}}
    return {{
        "outputs": [noted(output) if isinstance(output, torch.Tensor) else output for output in outputs],
        "gradients": {{name: None if each is None else noted(each) for name, each in gradients.items()}},
        "after": {{name: noted(value) for name, value in {{**leaves, **buffers}}.items()}},
    }}


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
    if kind == "each":
        return flagged(torch.stack(tensors), parts[0])
    if kind == "rows":
        return flagged(torch.cat(tensors, dimension), parts[0])
    shares = [1.0] * RANKS if kind == "sum" else {shares}
    dtype = tensors[0].dtype
    wide = torch.complex128 if dtype.is_complex else torch.float64 if dtype.is_floating_point else dtype
    first, *others = [tensor.to(wide) * (share if share != 1.0 else 1) for tensor, share in zip(tensors, shares)]
    return flagged(sum(others, first).to(dtype), parts[0])


def of_input(name, parts):
    if any(part is None for part in parts):
        return None
    return joined(parts, "rows", ROWS[name]) if name in ROWS else joined(parts, "sum")


{per_slice}def on_ranks(run):
    \"\"\"Return a function that runs the candidate on all ranks, each in a process of its own.\"\"\"

    def ranked(function):
        if function is not candidate and not PER_SLICE:
            return run(function)
        found = of_all_ranks() if function is candidate else of_slices()
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
            if not SHARES_BUFFERS and (name in OF_A_PART if not PER_SLICE else is_buffer(name)):
                if PER_SLICE:
                    after[name] = joined(parts, "each")
                continue
            is_part = name in given and name in ROWS
            after[name] = joined(parts, "rows", ROWS[name]) if is_part else agreed(name, parts)
        expected = run(reference)
        if not INDEPENDENT:
            return expected
        return {result}

    return ranked


def is_buffer(name):
    owner, _, path = name.partition(".")
    return name in BUFFERS or (path and path in dict(inputs()[owner].named_buffers()))


SHARES_BUFFERS = {shares_buffers}  # FSDP leaves buffers alone"""
PER_SLICE: Final = """def on_slice(rank_, given_):
    \"\"\"Run the reference on the rows of one rank; it waits where ranks share buffers and gradients.\"\"\"
{steps}


def share_gradients(everyone):
    \"\"\"Give all slices the mean of their gradients.\"\"\"
    owned = [state_of(given, torch.nn.Module.named_parameters, PARAMETERS) for given in everyone]
    for name in owned[0]:
        gradients = [own[name].grad for own in owned if own[name].grad is not None]
        for own in owned if gradients else ():
            own[name].grad = (sum(each.double() for each in gradients) / RANKS).to(own[name].dtype)


def share_buffers(everyone):
    \"\"\"Give all slices the buffers of the first one.\"\"\"
    buffers = [state_of(given, torch.nn.Module.named_buffers, BUFFERS) for given in everyone if SHARES_BUFFERS]
    with torch.no_grad():
        for own in buffers[1:]:
            for name, buffer in own.items():
                buffer.copy_(buffers[0][name])


def state_of(given, named, names):
    \"\"\"Return parameters or buffers by name.\"\"\"
    modules = {{name: value for name, value in given.items() if isinstance(value, torch.nn.Module)}}
    found = {{f"{{m}}.{{path}}": each for m, module in modules.items() for path, each in named(module)}}
    return {{**found, **{{name: given[name] for name in names}}}}


def of_slices():
    \"\"\"Return what one process has slice by slice.\"\"\"
{on_reference}    everyone = [given_to(rank) for rank in range(RANKS)]
    runs = [on_slice(rank, given) for rank, given in enumerate(everyone)]
    ended = {{}}
    while not ended:
        for rank, run in enumerate(runs):
            try:
                share = next(run)
            except StopIteration as end:
                ended[rank] = end.value
        if not ended:
            share(everyone)
{backward}    share_buffers(everyone)
    return [
        all_noted(
            ended[rank],
            {{
                **{{n: v for n, v in given.items() if isinstance(v, torch.Tensor)}},
                **state_of(given, torch.nn.Module.named_parameters, PARAMETERS),
            }},
            state_of(given, torch.nn.Module.named_buffers, BUFFERS),
        )
        for rank, given in enumerate(everyone)
    ]


"""
BACKWARD: Final = """    pairs = []
    for i, weight in COTANGENTS.items():
        kind, dimension = (*JOINS.get(i, ("same",)), 0)[:2]
        if kind == "rows":
            weight = weight.split(SIZES[i], dimension)[rank]
        share = {shares}[rank] if kind in ("mean", "same") else 1.0
        if isinstance(outputs[i], torch.Tensor) and outputs[i].requires_grad:
            # The wrapper takes the mean over ranks, so that each one begins with that many times its part.
            pairs.append((outputs[i], (weight * share * RANKS).to(outputs[i].device)))
    if pairs:
        torch.autograd.backward([output for output, _ in pairs], [weight for _, weight in pairs])
"""
