"""Every way in which a body can be wrong, and the one message that it gets: what, where, and what to write."""

from __future__ import annotations

import copy
import math
import sys

import numpy as np
import pytest
import torch as real

from ci_autotest import nothing, oneof, random, random_bool, random_tensor, torch
from ci_autotest.errors import AuthorError
from tests.engine import record

KEPT: list[object] = []
NO_VALUE = "A generator gets its value as an argument of a recorded call. Read a size with x.shape, or use oneof."
ARGUMENTS = "Pass tensors, numbers, strings, dtypes, devices, slices, or lists and tuples of them."
CONSTANT = (
    "every side would return the same. Return what a step gives, such as x.size(0) or len(x), or a recorded tensor."
)
RETURN = "Return a recorded tensor, a tuple of them, or nothing."


def x(**how):
    return random_tensor(2, 2, 3, **how)


def linear():
    return torch.nn.Linear(3, 2)


def stale_receiver():
    KEPT.append(x())
    record(lambda: x() + 1)
    return torch.exp(KEPT[0])


def keep():
    KEPT[:] = [x()]
    return KEPT[0] + 1


def doubled():
    class Doubled(real.autograd.Function):
        @staticmethod
        def forward(ctx, value):
            return value * 2

        @staticmethod
        def backward(ctx, gradient):
            return gradient * 2

    return Doubled.apply(x())


def in_inference_mode():
    with torch.inference_mode():
        return x() + 1


def in_plain_inference_mode():
    with real.inference_mode():
        return x() + 1


def initialized_late():
    layer = linear()
    out = layer(x())
    layer.apply(print)
    return out


def looped():
    return [x() for _ in range(random(1, 4))]


def hooked_part():
    whole = torch.nn.Sequential(linear(), torch.nn.ReLU())
    whole[1].register_forward_hook(print)
    return whole(x())


def hooked_before():
    first = linear()
    first.register_forward_hook(print)
    return torch.nn.Sequential(first, torch.nn.ReLU())(x())


def hooked_pair():
    layer = torch.nn.Bilinear(3, 3, 2)
    layer.register_full_backward_hook(print)
    return layer(x(), x())


def odd_gradients():
    layer = linear()
    layer.register_full_backward_hook(lambda module, inputs, outputs: (None, inputs[0]))
    return layer(x())


def hooked_plainly():
    layer = real.nn.Linear(3, 2)
    layer.register_full_backward_hook(print)
    return layer(x())


def generator():
    yield x()


def plain():
    return x(requires_grad=False)


def written_array():
    array = plain().numpy()
    array[0] = 1
    return x() + 1


LINE = written_array.__code__.co_firstlineno + 2
READ_ONLY = (
    "The array of `.numpy()` is read-only in a test, because a write through it would not be recorded. "
    "Write x[...] = value, or change a copy: x.numpy().copy()."
)


def written_source():
    array = np.ones(3, np.float32)
    value = torch.from_numpy(array)
    array[0] = 5
    return x() + value


def attribute_of_torch():
    value = x()
    value.shape = (3, 1)
    return value + 1


WRONG = {
    # What is returned.
    "returns a number": (lambda: 3, f"the body returns int 3, which no recorded step gave: {CONSTANT}"),
    "returns a computed number": (
        lambda: float(x().sum() * 0) + 1, f"the body returns float 1.0, which no recorded step gave: {CONSTANT}",
    ),
    "returns text": (lambda: [x(), "text"], f"the body returns str 'text', which no recorded step gave: {CONSTANT}"),
    "returns a method": (lambda: x().sum, f"the body returns Method. {RETURN}"),
    "returns a set": (lambda: {x()}, f"the body returns set. {RETURN}"),
    "returns a module": (linear, f"the body returns RecordedModule. {RETURN}"),
    "returns a plain tensor": (lambda: real.ones(2), f"the body returns Tensor. {RETURN}"),
    "is a generator": (generator, f"the body returns generator. {RETURN}"),
    "calls nothing": (lambda: x(), "the body calls no operator of torch: there is nothing to compare."),
    "does nothing": (lambda: None, "the body calls no operator of torch: there is nothing to compare."),
    # generators
    "if of a generator": (
        lambda: x() if random_bool() else x() + 1,
        "random_bool() has no value until it is used in a call. Write .value() to draw it here, random_bool() as an "
        "argument, or oneof(...).",
    ),
    "range of a generator": (looped, "cannot be interpreted as an integer"),
    "comparison of a generator": (lambda: x() if random(1, 6) > 3 else x() * 2, NO_VALUE),
    "Python's function of a generator": (lambda: x() * math.sqrt(random(1, 6).to(int)), NO_VALUE),
    "untyped generator": (
        lambda: torch.relu(random(0, 1)),
        "the type of random(0, 1) is unknown. Write random(0, 1).to(int), .to(float) or .to(bool).",
    ),
    "empty range": (
        lambda: x() * random(120),
        "random(120) has an empty range: low is 120, high is 6. Write random(0, 120) or random(120, 121).",
    ),
    "no alternative": (lambda: x() * oneof(), "oneof() has no alternative. Write oneof(a, b)."),
    "nothing for what is needed": (
        lambda: torch.nn.Linear(nothing(), 3)(x()),
        "nothing() was drawn for 'in_features' of torch.nn.Linear, which has no default. Give it a value.",
    ),
    "unknown dtype": (
        lambda: random_tensor(dtype="float31") + 1,
        "random_tensor(dtype='float31'): data cannot be drawn for that dtype. Use float, int, torch.float64",
    ),
    "empty range of elements": (
        lambda: random_tensor(low=3, high=1) + 1,
        "random_tensor(low=3, high=1) has an empty range. Give low below high.",
    ),
    "size beyond the dimensions": (
        lambda: random_tensor(ndim=2, dim3=4) + 1,
        "random_tensor(ndim=2) got dim3 too. Drop it, or raise ndim to 4.",
    ),
    "negative size": (lambda: random_tensor(1, -3) + 1, "random_tensor() got a negative size: (-3,). Sizes are 0 or more."),
    # arguments
    "an array": (lambda: torch.add(x(), np.ones(2)), "a ndarray cannot be an argument of a recorded call: '[1. 1.]'. Write torch.from_numpy(array), which makes its elements an input."),
    "an object": (lambda: x() + object(), "a object cannot be an argument of a recorded call"),
    "a function": (lambda: torch.add(x(), len), f"a builtin_function_or_method cannot be an argument of a recorded call: '<built-in function len>'. {ARGUMENTS}"),
    # what leaves the recording
    "array that is written to": (written_array, f"the body raised ValueError: assignment destination is read-only (test_body_messages.py, line {LINE}). {READ_ONLY}"),
    "array that is filled": (lambda: plain().numpy().fill(0), READ_ONLY),
    "array that is made writable": (lambda: plain().numpy().setflags(write=True), "the body raised ValueError: cannot set WRITEABLE flag to True of this array"),
    "source of a tensor that is written to": (
        written_source,
        "an array was changed after torch.from_numpy made a tensor of it, and that write is not recorded. "
        "Write to the tensor, or pass a copy: torch.from_numpy(array.copy()).",
    ),
    "array of no dtype of torch": (lambda: torch.from_numpy(np.array(["a"])) + x(), "torch.from_numpy of an array with dtype <U1: can't convert np.ndarray of type numpy.str_"),
    "numpy's function": (lambda: np.sin(x()), "Write numpy.sin(x.numpy()), or torch's own operator."),
    "an array that is returned": (lambda: plain().numpy(), f"the body returns ndarray. {RETURN}"),
    "data_ptr": (lambda: x().data_ptr(), "`.data_ptr` of a recorded tensor: an address means nothing for a candidate. Compare values instead."),
    "grad_fn": (lambda: (x() * 2).grad_fn.next_functions, "`.grad_fn.next_functions` of a recorded tensor: a grad_fn depends on the implementation and can only be printed. Compare requires_grad, is_leaf and gradients."),
    "share_memory_": (lambda: x().share_memory_(), "`.share_memory_` of a recorded tensor: a test may not share memory with other processes. Leave it out."),
    "deepcopy": (lambda: copy.deepcopy(x()), "a recorded tensor cannot be copied or pickled. Write x.clone(), or x.detach().clone()."),
    "deepcopy of a module": (
        lambda: copy.deepcopy(linear()),
        "a recorded module cannot be copied or pickled. Construct another one "
        "and load the state: other.load_state_dict(module.state_dict()).",
    ),
    "value of another case": (
        lambda: torch.exp(KEPT[0]),
        "a recorded tensor was used after its test had ended. Use it inside the test's body only.",
    ),
    "value of another case as an argument": (
        lambda: x() + KEPT[0],
        "a recorded tensor was used after its test had ended. Use it inside the test's body only.",
    ),
    "method of a value of another case": (
        lambda: KEPT[0].exp(),
        "a recorded tensor was used after its test had ended. Use it inside the test's body only.",
    ),
    # what is no operator
    "autograd function of the body's": (
        doubled,
        "a torch.autograd.Function that is defined inside the body was applied to a recorded tensor, "
        "so its backward would not be compared. Define the class outside of the body.",
    ),
    "inference mode": (in_inference_mode, "torch.inference_mode is not recorded: use torch.no_grad()."),
    "plain inference mode": (in_plain_inference_mode, "torch.inference_mode is not recorded: use torch.no_grad()."),
    "compile": (
        lambda: torch.compile(print)(x()),
        "torch.compile is not recorded: it is a candidate: `--candidate torch.compile`, or @autotest(check_graph=True).",
    ),
    "vmap": (lambda: torch.func.vmap(torch.exp)(x()), "torch.func.vmap is not recorded: write the loop, or use operators that take a batch."),
    "load": (lambda: torch.load("file"), "torch.load in a test can only read from memory, and got a str. Pass an io.BytesIO()."),
    "no operator": (lambda: torch.overrides.resolve_name(1), "torch.overrides.resolve_name is not recorded: use the functions of torch"),
    "hook of a part of a module": (
        hooked_part,
        "a ReLU inside a Sequential has a hook, but calling the whole is one step. "
        "Call its parts one by one, or construct it with plain torch: import torch as plain.",
    ),
    "hook of a module that is put into another": (
        hooked_before,
        "a Linear inside a Sequential has a hook, but calling the whole is one step. "
        "Call its parts one by one, or construct it with plain torch: import torch as plain.",
    ),
    "backward hook of two inputs": (
        hooked_pair,
        "a full backward hook can be recorded if the module has one input and one output that require grad; "
        "this one has 2 and 1. Register a hook on the tensors instead.",
    ),
    "backward hook with too many gradients": (
        odd_gradients,
        "a hook of `.register_full_backward_hook()` returns 2 of 1 gradients. Return a tuple of them all, or nothing.",
    ),
    "backward hook of a plain module": (
        hooked_plainly,
        "a backward hook of a plain module is not recorded. Construct the module with ci_autotest's torch, or register",
    ),
    "option of a hook": (
        lambda: linear().register_forward_hook(print, always_call=True),
        "`.register_forward_hook(always_call=...)` is not recorded. Leave it out.",
    ),
    "module that is not called": (lambda: linear(), "the body returns RecordedModule."),
    "nothing but a module": (lambda: [linear()][:0], "the body calls no operator of torch: there is nothing to compare."),
    "hook of another kind": (
        lambda: linear().register_backward_hook(print),
        "`.register_backward_hook()` of a module is not recorded. Use .register_full_backward_hook. "
        "Use its forward, .to, .train, .eval, .state_dict, "
        ".load_state_dict, .named_parameters, or its parameters and parts by name.",
    ),
    "module initialized late": (initialized_late, "`.apply()` of a module that has run is not recorded. Call it before the first forward."),
    # the body's own errors
    "no such function": (lambda: torch.no_such(x()), "the body raised AttributeError: module 'torch' has no attribute 'no_such'"),
    "no such method": (lambda: x().no_such(), "the body raised AttributeError: torch.Tensor has no attribute 'no_such'."),
    "attribute of torch's": (
        attribute_of_torch, "`.shape = ...` of a recorded tensor is not recorded: only .grad, .data and .requires_grad are.",
    ),
    "own error": (lambda: 1 / 0, "the body raised ZeroDivisionError: division by zero"),
    "assertion": (lambda: pytest.fail("no"), "the body raised Failed: no"),
    "exit": (lambda: sys.exit(3), "the body raised SystemExit: 3"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_body__wrong__says_what_to_write_and_where(name: str):
    record(keep)  # a value of a case that has ended
    body, said = WRONG[name]
    with pytest.raises(AuthorError) as refused:
        record(body)
    assert said in str(refused.value)
    assert "(test_body_messages.py, line " in str(refused.value)


def test_body__refused_by_the_reference__is_a_rejection_and_no_error():
    attempt = record(lambda: torch.matmul(x(), x()))
    assert attempt.refused is not None


def test_body__that_catches_the_refusal__goes_on():
    def catching():
        try:
            return torch.matmul(x(), x())
        except RuntimeError:
            return x() + 1

    assert record(catching).refused is None
