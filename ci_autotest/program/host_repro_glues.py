"""How a repro makes and reads tensors, and differentiates, in the frameworks that have not torch's names."""

from typing import Final

PADDLE: Final = '''
def tensor(array, dtype, requires_grad=False):
    """Return a leaf in the array's layout; bfloat16 comes as float32 of the same values."""
    if array.flags.c_contiguous or not array.size:
        return paddle.to_tensor(np.array(array), dtype=dtype, stop_gradient=not requires_grad)
    steps = [stride // array.itemsize for stride in array.strides]
    length = 1 + sum((size - 1) * step for size, step in zip(array.shape, steps))
    flat = np.array(np.lib.stride_tricks.as_strided(array, (length,), (array.itemsize,)))
    made = paddle.as_strided(paddle.to_tensor(flat, dtype=dtype), list(array.shape), steps).detach()
    made.stop_gradient = not requires_grad
    return made


def elements(value):
    """Return a tensor's elements and the name of its dtype, ``None`` of what is no tensor."""
    if not isinstance(value, paddle.Tensor):
        return None
    dtype = str(value.dtype).rpartition(".")[2]
    return np.array((value.astype("float32") if dtype == "bfloat16" else value).numpy()), dtype


def run(function=None):
    """Return the candidate's outputs and gradients, or those of the same as a graph."""
    given = inputs()
    outputs = (function or candidate)(**{name: given[name] for name in TAKES})
    wanted = {name: v for name, v in given.items() if isinstance(v, paddle.Tensor) and not v.stop_gradient}
    roots = [(o, tensor(*COTANGENTS[i])) for i, o in enumerate(outputs) if i in COTANGENTS and not o.stop_gradient]
    if not roots or not wanted:
        return [elements(output) for output in outputs], {}
    paddle.autograd.backward([o for o, _ in roots], [w for _, w in roots])
    found = {name: None if value.grad is None else elements(value.grad) for name, value in wanted.items()}
    return [elements(output) for output in outputs], found

'''
#: In place of ``run`` above, where each body is one graph, which has gradients.
PADDLE_GRAPHED: Final = '''
eagerly = run


def as_graph(**given):
    """Run the candidate as one whole graph: the steps as they are written, nothing eagerly."""
    steps = paddle.jit.not_to_static(lambda tensors: list(candidate(**dict(zip(TAKES, tensors)))))

    def whole(tensors):
        return steps(tensors)

    return paddle.jit.to_static(whole, full_graph=True)([given[name] for name in TAKES])


def run():
    """Return the graph's outputs and gradients; what is refused eagerly is not asked of the graph."""
    eagerly()
    return eagerly(as_graph)


def graphed():
    """Say whether the body as one graph departs from the same body run eagerly."""
    print(__doc__.strip())
    (expected, wanted), bad = eagerly(), False
    try:
        outputs, gradients = run()
    except Exception as error:
        print(f"misaligned: as a graph the candidate raises {type(error).__name__}: {error}")
        return 1
    for name, left, right in zip(NAMES, outputs, expected):
        bad |= differs(f"value of {name}, as a graph", left, right)
    for name in wanted:
        bad |= differs(f"gradient of {name}, as a graph", gradients.get(name), wanted[name])
    return 1 if bad else 0

'''
JAX: Final = '''
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_default_matmul_precision", "highest")


def tensor(array, dtype, requires_grad=False):
    """Return an array; bfloat16 comes as float32 of the same values."""
    return jax.numpy.asarray(array, dtype=dtype)


def elements(value):
    """Return an array's elements and the name of its dtype, ``None`` of what is no array."""
    if not isinstance(value, jax.Array):
        return None
    dtype = str(value.dtype)
    return np.array(value.astype("float32") if dtype == "bfloat16" else value), dtype


def run():
    """Return the candidate's outputs and gradients; a complex gradient is the conjugate of JAX's."""
    given = inputs()
    wanted = {name: given[name] for name in GRADIENTS}

    def function(leaves):
        return candidate(**{name: {**given, **leaves}[name] for name in TAKES})

    outputs = function({})
    places = [i for i in COTANGENTS if i < len(outputs)]
    if not wanted or not places:
        return [elements(output) for output in outputs], {}
    _, pull = jax.vjp(lambda leaves: [function(leaves)[i] for i in places], wanted)
    (gradients,) = pull([tensor(*COTANGENTS[i]).conj().astype(outputs[i].dtype) for i in places])
    return [elements(output) for output in outputs], {name: elements(g.conj()) for name, g in gradients.items()}

'''
MINDSPORE: Final = '''
mindspore.runtime.launch_blocking()  # an error is raised where it is made


def tensor(array, dtype, requires_grad=False):
    """Return a tensor; bfloat16 comes as float32 of the same values."""
    return mindspore.Tensor(np.array(array)).astype(getattr(mindspore, "bool_" if dtype == "bool" else dtype))


def elements(value):
    """Return a tensor's elements and the name of its dtype, ``None`` of what is no tensor."""
    if not isinstance(value, mindspore.Tensor):
        return None
    dtype = str(value.dtype).lower()
    return np.array((value.astype(mindspore.float32) if dtype == "bfloat16" else value).asnumpy()), dtype


def run():
    """Return the candidate's outputs and gradients."""
    given = inputs()
    outputs = candidate(**{name: given[name] for name in TAKES})
    places = [i for i in COTANGENTS if i < len(outputs)]
    if not GRADIENTS or not places:
        return [elements(output) for output in outputs], {}

    def function(*leaves):
        now = {**given, **dict(zip(GRADIENTS, leaves))}
        found = candidate(**{name: now[name] for name in TAKES})
        return found[places[0]] if len(places) == 1 else tuple(found[i] for i in places)

    weights = tuple(tensor(*COTANGENTS[i]).astype(outputs[i].dtype) for i in places)
    pull = mindspore.ops.GradOperation(get_all=True, sens_param=True)(function)
    found = pull(*(given[name] for name in GRADIENTS), weights[0] if len(weights) == 1 else weights)
    return [elements(output) for output in outputs], {name: elements(g) for name, g in zip(GRADIENTS, found)}

'''
