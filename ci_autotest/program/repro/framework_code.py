"""How a repro makes, reads and differentiates tensors in frameworks without torch's names."""

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
    """Return a tensor's elements and the name of its dtype, any other value as it is compared."""
    if not isinstance(value, paddle.Tensor):
        return plain(value)
    dtype = str(value.dtype).rpartition(".")[2]
    return np.array((value.astype("float32") if dtype == "bfloat16" else value).numpy()), dtype


def flags(value):
    """Return what is compared of a tensor besides its elements; integers are leaves, whatever they hand on."""
    if not isinstance(value, paddle.Tensor):
        return {}
    if not (value.is_floating_point() or value.is_complex()):
        return {"requires_grad": False, "is_leaf": True}
    return {"requires_grad": not value.stop_gradient, "is_leaf": value.is_leaf}


def run(given, weights, function=None):
    """Return the candidate's outputs and gradients, or those of the same as a graph."""
    outputs = (function or candidate)(**{name: given[name] for name in TAKES})
    wanted = {name: v for name, v in given.items() if isinstance(v, paddle.Tensor) and not v.stop_gradient}
    roots = [(o, weights[i]) for i, o in enumerate(outputs) if i in weights and not o.stop_gradient]
    if not roots or not wanted:
        return outputs, {}
    paddle.autograd.backward([o for o, _ in roots], [w for _, w in roots])
    return outputs, {name: value.grad for name, value in wanted.items()}

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


def run(given, weights):
    """Return the graph's outputs and gradients; what is refused eagerly is not asked of the graph."""
    eagerly(inputs(), weights)
    return eagerly(given, weights, as_graph)


def graphed():
    """Say whether the body as one graph departs from the same body run eagerly."""
    print(f"found before: {__doc__.strip().splitlines()[0]}")
    weights = {i: tensor(*told) for i, told in COTANGENTS.items()}
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
    return 1 if bad else 0

'''
JAX: Final = '''
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_default_matmul_precision", "highest")


def tensor(array, dtype, requires_grad=False):
    """Return an array; bfloat16 comes as float32 of the same values."""
    return jax.numpy.asarray(array, dtype=dtype)


def elements(value):
    """Return an array's elements and the name of its dtype, any other value as it is compared."""
    if not isinstance(value, jax.Array):
        return plain(value)
    dtype = str(value.dtype)
    return np.array(value.astype("float32") if dtype == "bfloat16" else value), dtype


def flags(value):
    """Return nothing: arrays have no flags."""
    return {}


def run(given, weights):
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
    return outputs, {name: gradient.conj() for name, gradient in gradients.items()}

'''
MINDSPORE: Final = '''
mindspore.runtime.launch_blocking()  # an error is raised where it is made


def tensor(array, dtype, requires_grad=False):
    """Return a tensor; bfloat16 comes as float32 of the same values."""
    return mindspore.Tensor(np.array(array)).astype(getattr(mindspore, "bool_" if dtype == "bool" else dtype))


def elements(value):
    """Return a tensor's elements and the name of its dtype, any other value as it is compared."""
    if not isinstance(value, mindspore.Tensor):
        return plain(value)
    dtype = str(value.dtype).lower()
    return np.array((value.astype(mindspore.float32) if dtype == "bfloat16" else value).asnumpy()), dtype


def flags(value):
    """Return nothing: tensors have no flags."""
    return {}


def run(given, weights):
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
    return outputs, dict(zip(GRADIENTS, found))

'''
