"""Hooks of modules: what they compute is recorded as steps around the forward, and is what plain torch gives."""

from __future__ import annotations

from typing import Any

import pytest
import torch as real

from ci_autotest import random_tensor, torch
from ci_autotest.alignment.recordings import to_recording
from ci_autotest.alignment.verdict import live_of
from ci_autotest.backends.compilers.torch_compile import CompileBackend
from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.program.codegen import body_lines, setup_lines
from ci_autotest.program.ir import PLACEHOLDER
from ci_autotest.program.serialize import decode, encode_program, encode_tensors
from tests.engine import judged, record, substitute

BACKEND = TorchBackend()


def x() -> Any:
    return random_tensor(2, 4, 3)


def before(space: Any, value: Any) -> Any:
    layer = space.nn.Linear(3, 2)
    layer.register_forward_pre_hook(lambda module, args: (args[0] * 2 + module.weight.sum(),))
    return layer, lambda: layer(value)


def before_with_keywords(space: Any, value: Any) -> Any:
    layer = space.nn.Linear(3, 2)
    layer.register_forward_pre_hook(lambda _, args, kwargs: ((args[0].sin(),), kwargs), with_kwargs=True)
    return layer, lambda: layer(value)


def after(space: Any, value: Any) -> Any:
    layer = space.nn.Linear(3, 2)
    layer.register_forward_hook(lambda _module, args, out: out * args[0].sum())
    layer.register_forward_hook(lambda _module, _args, out: out + 1, prepend=True)
    return layer, lambda: layer(value)


def taken_away(space: Any, value: Any) -> Any:
    layer = space.nn.Linear(3, 2)
    handle = layer.register_forward_hook(lambda _module, _args, out: out * 2)

    def use() -> Any:
        first = layer(value)
        handle.remove()
        return first + layer(value)

    return layer, use


def of_parts(space: Any, value: Any) -> Any:
    layers = space.nn.Sequential(space.nn.Linear(3, 4), space.nn.Tanh())
    layers[0].register_forward_hook(lambda _module, _args, out: out * 3)

    def use() -> Any:
        out = value
        for layer in layers:
            out = layer(out)
        return out

    return layers, use


def backward(space: Any, value: Any) -> Any:
    layer = space.nn.Linear(3, 2)
    layer.register_full_backward_hook(lambda _module, given, out: (given[0] * 3 + out[0].sum(),))
    return layer, lambda: layer(value)


def backward_twice(space: Any, value: Any) -> Any:
    layer = space.nn.Linear(3, 2)
    layer.register_full_backward_pre_hook(lambda _module, out: (out[0] * 2,))
    layer.register_full_backward_hook(lambda _module, given, _out: (given[0] + 1,))
    return layer, lambda: layer(value).sin()


def without_hooks(space: Any, value: Any) -> Any:
    layer = space.nn.Linear(3, 2)
    layer.register_forward_hook(lambda _module, _args, out: out * 2)
    return layer, lambda: layer.forward(value)


HOOKED = [before, before_with_keywords, after, taken_away, of_parts, backward, backward_twice, without_hooks]


def recorded(body: Any) -> Any:
    return record(lambda: body(torch, x())[1]())


@pytest.mark.parametrize("body", HOOKED)
def test_module_hook__recorded__gives_what_plain_torch_gives(body: Any):
    attempt = recorded(body)
    trace = BACKEND.run(attempt.program, attempt.sources)
    BACKEND.backward(attempt.program, trace, attempt.cotangents)
    steps = attempt.program.steps
    at = next(i for i, step in enumerate(steps) if step.op == PLACEHOLDER and not step.in_setup)
    state = [attempt.sources[step.target] for step in attempt.program.setup if step.op == PLACEHOLDER]
    value = attempt.sources[steps[at].target].clone().requires_grad_()
    module, use = body(real, value)
    names = list(module.state_dict())
    module.load_state_dict(dict(zip(names, state[-len(names) :], strict=True)))
    out = use()
    out.backward(attempt.cotangents[0])
    shown = trace.values[attempt.program.body[-1].args[0].index]
    assert real.equal(shown, out)
    assert real.allclose(trace.gradients[at], value.grad)


@pytest.mark.parametrize("body", HOOKED)
def test_module_hook__replayed__is_aligned_saved_and_printed(body: Any):
    attempt = recorded(body)
    recording = to_recording(live_of(attempt))
    assert decode(encode_program(recording), encode_tensors(recording)) == recording
    assert judged(attempt, BACKEND).verdict.outcome == "aligned"
    compile("\n".join([*setup_lines(attempt.program), *body_lines(attempt.program)]), "printed", "exec")


def test_module_hook__kernel_that_is_wrong_in_it__is_found():
    verdict = judged(recorded(before), substitute(sum=lambda value: real.Tensor.sum(value) * 1.01)).verdict
    assert (verdict.outcome, verdict.operator) == ("misaligned", "torch.sum")


def test_module_hook__kernel_that_is_wrong_in_a_backward_hook__is_found():
    verdict = judged(recorded(backward), substitute(sum=lambda value: real.Tensor.sum(value) * 1.01)).verdict
    assert (verdict.outcome, verdict.kind) == ("misaligned", "gradient")


@pytest.mark.parametrize(("body", "outcome"), [(after, "aligned"), (backward, "unsupported")])
def test_module_hook__on_a_compiled_candidate__is_compiled_where_it_keeps_nothing(body: Any, outcome: str):
    assert judged(recorded(body), CompileBackend({"backend": "aot_eager"})).verdict.outcome == outcome


def test_module_hook__of_a_plain_module__is_traced_with_it():
    def body() -> Any:
        layer = real.nn.Linear(3, 2)
        layer.register_forward_hook(lambda _module, _args, out: out * 2)
        return layer(x())

    assert body_lines(record(body).program)[-1] == "mul = linear * 2"
