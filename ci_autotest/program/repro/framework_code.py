"""How a repro makes, reads and differentiates tensors in each framework.

``%(module)s`` is the framework's module, for frameworks with torch's names; the rest is code as it is printed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkCode:
    """The code of one framework.

    Attributes:
        tensor: Function that makes a leaf of an array; bfloat16 comes as the float32 of the same values.
        tensor_of_view: The same if the array is a view whose layout matters; empty if ``tensor`` keeps it.
        tensor_class: The class of tensors.
        elements: Lines that return a tensor's elements and the name of its dtype.
        flags: Function that returns what is compared of a tensor besides its elements.
        run: Function that returns the candidate's outputs and gradients.
        graph: Functions for a body that runs as one graph; empty if no repro makes one.
        has_graph_gradients: Whether such a graph has gradients.
        first: Lines that configure the framework.
    """

    tensor: str
    tensor_class: str
    elements: str
    flags: str
    run: str
    tensor_of_view: str = ""
    graph: str = ""
    has_graph_gradients: bool = False
    first: str = ""


_PADDLE: Final = FrameworkCode(
    tensor="""def tensor(array, dtype, requires_grad=False):
    return paddle.to_tensor(np.array(array), dtype=dtype, stop_gradient=not requires_grad)""",
    # `to_tensor` makes every array contiguous, so that a view is laid over its flat storage.
    tensor_of_view='''def tensor(array, dtype, requires_grad=False):
    """Return a leaf in the array's layout."""
    if array.flags.c_contiguous or not array.size:
        return paddle.to_tensor(np.array(array), dtype=dtype, stop_gradient=not requires_grad)
    steps = [stride // array.itemsize for stride in array.strides]
    length = 1 + sum((size - 1) * step for size, step in zip(array.shape, steps))
    flat = np.array(np.lib.stride_tricks.as_strided(array, (length,), (array.itemsize,)))
    made = paddle.as_strided(paddle.to_tensor(flat, dtype=dtype), list(array.shape), steps).detach()
    made.stop_gradient = not requires_grad
    return made''',
    tensor_class="paddle.Tensor",
    elements="""    dtype = str(value.dtype).rpartition(".")[2]
    return np.array((value.astype("float32") if dtype == "bfloat16" else value).numpy()), dtype""",
    flags='''def flags(value):
    """Return what is compared of a tensor besides its elements; integers are leaves, whatever Paddle says."""
    if not isinstance(value, paddle.Tensor):
        return {}
    if not (value.is_floating_point() or value.is_complex()):
        return {"requires_grad": False, "is_leaf": True}
    return {"requires_grad": not value.stop_gradient, "is_leaf": value.is_leaf}''',
    run='''def run(given, weights, function=None):
    """Return the candidate's outputs and gradients, or those of the same as a graph."""
    outputs = (function or candidate)(**{name: given[name] for name in TAKES})
    wanted = {name: v for name, v in given.items() if isinstance(v, paddle.Tensor) and not v.stop_gradient}
    roots = [(o, weights[i]) for i, o in enumerate(outputs) if i in weights and not o.stop_gradient]
    if not roots or not wanted:
        return outputs, {}
    paddle.autograd.backward([o for o, _ in roots], [w for _, w in roots])
    return outputs, {name: value.grad for name, value in wanted.items()}''',
    graph='''eagerly = run


def as_graph(**given):
    """Run the candidate as one whole graph: the steps as they are written, nothing eagerly."""
    steps = paddle.jit.not_to_static(lambda tensors: list(candidate(**dict(zip(TAKES, tensors)))))

    def whole(tensors):
        return steps(tensors)

    return paddle.jit.to_static(whole, full_graph=True)([given[name] for name in TAKES])


def run(given, weights):
    """Return the graph's outputs and gradients; what fails eagerly is not tried as a graph."""
    eagerly(inputs(), weights)
    return eagerly(given, weights, as_graph)


def graphed():
    """Compare the body as one graph with the same body run eagerly."""
    print(f"found before: {__doc__.strip().splitlines()[0]}")
    weights = {i: tensor(*pair) for i, pair in COTANGENTS.items()}
    (expected, wanted), bad = eagerly(inputs(), weights), False
    try:
        outputs, gradients = run(inputs(), weights)
    except Exception as error:
        print(f"misaligned: as a graph the candidate raises {type(error).__name__}: {error}")
        return 1
    for name, left, right in zip(NAMES, outputs, expected):
        bad |= differs(f"value of {name}, as a graph", elements(left), elements(right))
    for name in wanted:
        bad |= differs(f"gradient of {name}, as a graph", elements(gradients.get(name)), elements(wanted[name]))
    return 1 if bad else 0''',
    has_graph_gradients=True,
)
_JAX: Final = FrameworkCode(
    # By default JAX turns 64-bit numbers into 32-bit ones.
    first="""jax.config.update("jax_enable_x64", True)
jax.config.update("jax_default_matmul_precision", "highest")""",
    tensor="""def tensor(array, dtype, requires_grad=False):
    return jax.numpy.asarray(array, dtype=dtype)""",
    tensor_class="jax.Array",
    elements="""    dtype = str(value.dtype)
    return np.array(value.astype("float32") if dtype == "bfloat16" else value), dtype""",
    flags="""def flags(value):
    return {}  # arrays have none""",
    run='''def run(given, weights):
    """Return the candidate's outputs and gradients; a complex gradient is the conjugate of JAX's."""
    wanted = {name: given[name] for name in GRADIENTS}

    def function(leaves):
        return candidate(**{name: {**given, **leaves}[name] for name in TAKES})

    outputs = function({})
    places = [i for i in weights if i < len(outputs)]
    if not wanted or not places:
        return outputs, {}
    _, pull = jax.vjp(lambda leaves: [function(leaves)[i] for i in places], wanted)
    (gradients,) = pull([weights[i].conj().astype(outputs[i].dtype) for i in places])
    return outputs, {name: gradient.conj() for name, gradient in gradients.items()}''',
)
_MINDSPORE: Final = FrameworkCode(
    first="mindspore.runtime.launch_blocking()  # an error is raised where it is made",
    tensor="""def tensor(array, dtype, requires_grad=False):
    return mindspore.Tensor(np.array(array)).astype(getattr(mindspore, "bool_" if dtype == "bool" else dtype))""",
    tensor_class="mindspore.Tensor",
    elements="""    dtype = str(value.dtype).lower()
    return np.array((value.astype(mindspore.float32) if dtype == "bfloat16" else value).asnumpy()), dtype""",
    flags="""def flags(value):
    return {}  # tensors have none""",
    run='''def run(given, weights):
    """Return the candidate's outputs and gradients."""
    outputs = candidate(**{name: given[name] for name in TAKES})
    places = [i for i in weights if i < len(outputs)]
    if not GRADIENTS or not places:
        return outputs, {}

    def function(*leaves):
        now = {**given, **dict(zip(GRADIENTS, leaves))}
        found = candidate(**{name: now[name] for name in TAKES})
        return found[places[0]] if len(places) == 1 else tuple(found[i] for i in places)

    put_in = tuple(weights[i].astype(outputs[i].dtype) for i in places)
    pull = mindspore.ops.GradOperation(get_all=True, sens_param=True)(function)
    found = pull(*(given[name] for name in GRADIENTS), put_in[0] if len(put_in) == 1 else put_in)
    return outputs, dict(zip(GRADIENTS, found))''',
)
#: A module with torch's names. Its graphs are those of ``nn.Graph``, without gradients.
_LIKE_TORCH: Final = FrameworkCode(
    tensor="""def tensor(array, dtype, requires_grad=False):
    made = %(module)s.from_numpy(np.array(array)) if array.size else %(module)s.zeros(array.shape)
    made = made.to(getattr(%(module)s, dtype)).to(device)
    return made.requires_grad_() if requires_grad else made""",
    tensor_class="%(module)s.Tensor",
    elements="""    dtype = str(value.dtype).rpartition(".")[2]
    value = value.detach().cpu()
    return np.array((value.to(%(module)s.float32) if dtype == "bfloat16" else value).numpy()), dtype""",
    flags='''def flags(value):
    """Return what is compared of a tensor besides its elements."""
    is_tensor = isinstance(value, %(module)s.Tensor)
    return {"requires_grad": value.requires_grad, "is_leaf": value.is_leaf} if is_tensor else {}''',
    run='''def run(given, weights):
    """Return the candidate's outputs and gradients."""
    outputs = candidate(**{name: given[name] for name in TAKES})
    wanted = {n: value for n, value in given.items() if isinstance(value, %(module)s.Tensor) and value.requires_grad}
    for name, module in given.items():
        if hasattr(module, "named_parameters"):
            wanted.update({f"{name}.{n}": p for n, p in module.named_parameters() if p.requires_grad})
    roots = [(o, weights[i]) for i, o in enumerate(outputs) if i in weights and o.requires_grad]
    if roots and wanted:
        %(module)s.autograd.backward([o for o, _ in roots], [w for _, w in roots])
    return outputs, {name: value.grad for name, value in wanted.items()}''',
    graph='''class Body(%(module)s.nn.Graph):
    """The candidate as one graph."""

    def __init__(self, given):
        super().__init__()
        for name in TAKES:
            if not isinstance(given[name], %(module)s.Tensor):
                setattr(self, f"part_{name}", given[name])

    def build(self, *tensors):
        left = iter(tensors)
        return list(candidate(**{n: getattr(self, f"part_{n}", None) or next(left) for n in TAKES}))


def as_graph(given):
    return Body(given)(*[given[name] for name in TAKES if isinstance(given[name], %(module)s.Tensor)])


def run(given, weights):
    """Return the candidate's outputs."""
    return as_graph(given), {}


def graphed():
    """Compare the body as one graph with the same body run eagerly."""
    print(f"found before: {__doc__.strip().splitlines()[0]}")
    given, again, bad = inputs(), inputs(), False
    eager = candidate(**{name: given[name] for name in TAKES})
    for name, found, expected in zip(NAMES, as_graph(again), eager):
        bad |= differs(f"value of {name}, as a graph", elements(found), elements(expected))
    for name in TAKES:
        if hasattr(given[name], "state_dict"):
            state = again[name].state_dict()
            for key, expected in given[name].state_dict().items():
                bad |= differs(f"{name}.{key} after the run, as a graph", elements(state[key]), elements(expected))
    return 1 if bad else 0''',
)
_OWN_CODE: Final = {"paddle": _PADDLE, "jax": _JAX, "mindspore": _MINDSPORE}
#: Frameworks that differentiate functions, and not values.
OF_FUNCTIONS: Final = frozenset({"jax", "mindspore"})


def code_of(module: str) -> FrameworkCode:
    """Return the code of a framework by its module's name."""
    return _OWN_CODE.get(module, _LIKE_TORCH)
