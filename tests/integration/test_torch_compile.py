"""The compiled body: outputs and gradients are compared, and a run in which nothing was compiled is no pass."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
import torch as real

from ci_autotest import random_tensor, torch
from ci_autotest.backends.body_function import begun, prepared
from ci_autotest.backends.compilers.torch_compile import CompileBackend
from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.backends.registry import build
from ci_autotest.errors import ConfigError, UnsupportedReason
from ci_autotest.kinds import CompileCandidate
from tests.engine import differences, judged, record, substitute, tried

EAGER = CompileBackend({"backend": "eager"})


def x(**how):
    return random_tensor(ndim=2, dim0=2, dim1=3, **how)


def batch_norm():
    return torch.nn.BatchNorm1d(3)(x())


def there_and_back():
    value = x()
    return value * torch.from_numpy(np.cumsum(value.detach().numpy(), 1))


BODIES = {
    "function": lambda: torch.exp(x()),
    "chain": lambda: torch.exp(torch.sin(x()) * 2).sum(),
    "tuple": lambda: torch.max(x(), dim=1),
    "module with state": batch_norm,
    "Python's functions": lambda: abs(x()) * len(x()),
    "array of numpy": there_and_back,
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_run__compiled_eagerly__is_aligned(body):
    verdict = tried(body, EAGER)
    assert (verdict.outcome, verdict.misalignment) == ("aligned", None)


def training_step(make_optimizer):
    def body():
        module = real.nn.Linear(3, 2)
        optimizer = make_optimizer(module.parameters())
        loss = real.tanh(module(x())).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss

    return body


@pytest.mark.filterwarnings("ignore")  # the compiler's own
@pytest.mark.parametrize(
    "make_optimizer",
    [lambda held: real.optim.SGD(held, lr=0.1), lambda held: real.optim.Adam(held, lr=0.1)],
    ids=["SGD", "Adam"],
)
def test_run__training_step__is_aligned_and_a_fault_in_it_is_found(make_optimizer):
    body, backend = training_step(make_optimizer), CompileBackend({"backend": "aot_eager"})
    assert tried(body, backend).outcome == "aligned"
    backend.functions = {"torch.tanh": lambda value: value.tanh() * 1.01}
    verdict = judged(record(body), backend).verdict
    assert (verdict.outcome, verdict.operator) == ("misaligned", "torch.tanh")


@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_run__passes_through_parts_of_one_graph__are_aligned():
    def body():
        shared = real.nn.Linear(3, 3)
        made = shared(x())
        first, second = real.nn.Linear(3, 1), real.nn.Linear(3, 1)
        first(made.detach()).sum().backward()
        second(made).sum().backward()

    assert tried(body, CompileBackend({"backend": "aot_eager"})).outcome == "aligned"


@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_run__pass_through_a_graph_that_was_written_to__is_unsupported():
    def body():
        made = real.nn.Linear(3, 3)(x())
        first, second = real.nn.Linear(3, 3), real.nn.Linear(3, 1)
        second(first(made.detach())).sum().backward()
        with real.no_grad():
            second.weight.add_(1)
        second(first(made)).sum().backward()

    backend = CompileBackend({"backend": "aot_eager"})
    found = tried(body, backend)
    assert (found.outcome, found.reason) == ("unsupported", UnsupportedReason.NO_GRAPH)

    def refusing(*_):
        message = "no such kernel"
        raise RuntimeError(message)

    backend.functions = {"torch.nn.functional.linear": refusing}
    assert judged(record(body), backend).verdict.outcome == "misaligned"


@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_adapted__second_pass_is_refused__keeps_no_graph():
    def body():
        loss = torch.exp(x()).sum()
        loss.backward()
        with pytest.raises(RuntimeError):
            loss.backward()
        return loss

    attempt = record(body)
    assert CompileBackend({"backend": "aot_eager"}).adapted(attempt) is attempt


def wrong_compiler(graph, _):
    """Return a function that is off by one in each output."""
    return lambda *inputs: [out + 1 if isinstance(out, real.Tensor) else out for out in graph(*inputs)]


def test_run__compiler_is_wrong__is_misaligned():
    found = judged(record(BODIES["chain"]), CompileBackend({"backend": wrong_compiler}))
    assert (found.verdict.outcome, found.verdict.kind, found.verdict.blame) == ("misaligned", "value", "candidate")


def drawing_compiler(graph, _):
    """Return a function that draws other numbers than torch does after the same seed, as Inductor's code."""

    def run(*inputs):
        real.rand(3)
        return graph(*inputs)

    return run


def _all(_):
    """Say that the compiler runs every call itself, although PyTorch does."""
    return 1000


def small_encoder(**how):
    layer = torch.nn.TransformerEncoderLayer(4, 2, 8, **how)
    return layer(random_tensor(3, 3, 2, 4))


def attention(**how):
    value = random_tensor(3, 3, 2, 4)
    return torch.nn.MultiheadAttention(4, 2, **how)(value, value, value)[0]


def in_evaluation():
    layer = torch.nn.TransformerEncoderLayer(4, 2, 8).eval()
    return layer(random_tensor(3, 3, 2, 4))


@pytest.mark.heavy  # compiled for each of its calls
@pytest.mark.parametrize(
    "body",
    [
        pytest.param(small_encoder, id="encoder"),
        pytest.param(lambda: attention(dropout=0.5), id="attention"),
    ],
)
def test_run__module_that_draws_inside__other_numbers_are_no_misalignment(body):
    assert {
        tried(body, CompileBackend({"backend": drawing_compiler}, delegated=_all), case=case).outcome
        for case in range(2)
    } == {"aligned"}


def trained_then_evaluated():
    layer, value = torch.nn.MultiheadAttention(4, 2, dropout=0.5), random_tensor(3, 3, 2, 4)
    first = layer(value, value, value)[0]
    layer.eval()
    return first


@pytest.mark.heavy
def test_run__module_that_draws_inside__is_asked_for_its_mode_at_the_call():
    assert (
        tried(trained_then_evaluated, CompileBackend({"backend": drawing_compiler}, delegated=_all)).outcome
        == "aligned"
    )


def evaluated_then_trained():
    layer = torch.nn.TransformerEncoderLayer(4, 2, 8).eval()
    first = layer(random_tensor(3, 3, 2, 4))
    layer.train()
    return first


def of_another_shape(graph, _):
    return lambda *inputs: [out[:1] if isinstance(out, real.Tensor) else out for out in graph(*inputs)]


@pytest.mark.heavy  # compiled for each of its calls
@pytest.mark.parametrize(
    ("body", "compiler", "kind"),
    [
        (small_encoder, of_another_shape, "shape"),
        (lambda: small_encoder(dropout=0.0), wrong_compiler, "value"),
        (attention, wrong_compiler, "value"),
        (in_evaluation, wrong_compiler, "value"),
        (evaluated_then_trained, wrong_compiler, "value"),
        (lambda: attention(dropout=1.0), wrong_compiler, "value"),
    ],
    ids=["shape", "no dropout", "attention without", "evaluation", "evaluation first", "all is dropped"],
)
def test_run__module_that_draws_inside__what_is_defined_is_held_against_it(body, compiler, kind):
    verdict = tried(body, CompileBackend({"backend": compiler}))
    assert (verdict.outcome, verdict.kind) == ("misaligned", kind)


def test_run__module_that_draws_inside__eager_kernels_have_the_same_numbers():
    verdict = tried(small_encoder, substitute(relu=lambda value: value + 0.5))
    assert (verdict.outcome, verdict.operator) == ("misaligned", "torch.nn.TransformerEncoderLayer")


def test_run__compiler_raises__is_an_error():
    def broken(graph, _):
        message = "cannot lower this"
        raise RuntimeError(message)

    verdict = tried(BODIES["function"], CompileBackend({"backend": broken}))
    assert (verdict.outcome, verdict.kind) == ("misaligned", "error")
    assert "cannot lower this" in verdict.misalignment.detail


def test_run__nothing_compiled__is_untested():
    # A body without an operator gives the compiler nothing: it is run eagerly.
    attempt = record(lambda: x().detach() if False else torch.exp(x()))
    with real.compiler.set_stance("force_eager"):
        trace = EAGER.run(attempt.program, attempt.sources)
    assert trace.untested == (
        UnsupportedReason.NOT_COMPILED,
        "nothing was compiled: torch.compile ran the body eagerly",
    )


def test_run__of_a_compiler__shows_inputs_and_outputs_only():
    attempt = record(BODIES["chain"])
    trace = EAGER.run(attempt.program, attempt.sources, snapshots=True)
    assert trace.shown == {0, len(attempt.program.steps) - 2}
    assert {i for i, seen in enumerate(trace.observations) if seen is not None} == trace.shown


def test_body_calls__of_a_compiler__gives_what_the_steps_give():
    attempt = record(lambda: torch.nn.Linear(3, 4)(x()).relu())
    trace = begun(attempt.program, snapshots=False)
    assert prepared(TorchBackend().steps, attempt.program, attempt.sources, trace)
    found = CompileBackend({"backend": "aot_eager"}).body_calls(attempt.program, trace.values)
    linear = next(value for value in trace.values if isinstance(value, real.nn.Module))
    given = [value for value in trace.values if isinstance(value, real.Tensor)][-1]
    real.testing.assert_close(found.own()[0], linear(given).relu())


@pytest.mark.parametrize(
    ("compiler", "said"),
    [
        ("inducto", "Did you mean 'inductor'? Allowed here: aot_eager, "),
        ("nope", "Allowed here: aot_eager, "),
        ("eagr", "Did you mean 'eager'? Allowed here: aot_eager, "),
    ],
)
def test_backend__no_such_compiler__names_the_nearest_and_all_that_work_here(compiler: str, said: str):
    row = CompileCandidate(name="ours", options={"backend": compiler})
    with pytest.raises(ConfigError) as caught:
        build(row, "cpu")
    message = str(caught.value)
    assert message.startswith(f"candidate 'ours': torch.compile has no backend {compiler!r}. {said}")
    assert "inductor" in message
    assert ("openxla" in message) == (find_spec("torch_xla") is not None)
    assert "TESTING_ONLY" not in message


def curved():
    value = x()
    (gradient,) = torch.autograd.grad(torch.exp(value).sum(), value, create_graph=True)
    return gradient


@pytest.mark.filterwarnings("ignore")  # of dynamo, once in a process
@pytest.mark.parametrize(("compiler", "outcome"), [("eager", "aligned"), ("aot_eager", "unsupported")])
def test_run__second_derivative__is_unsupported_where_the_graph_is_differentiated_ahead_of_time(compiler, outcome):
    assert tried(curved, CompileBackend({"backend": compiler})).outcome == outcome


def test_differences__view_of_a_value_that_the_graph_does_not_return__is_none():
    def body():
        y = random_tensor(dims=(2, 3), requires_grad=False)
        return (random_tensor(dims=(2, 3), requires_grad=False) * 2).view_as(y)

    assert differences(record(body, profiles=()), CompileBackend({"backend": "aot_eager"})) == []


def test_record__refusal_inside_a_checkpoint__is_the_reference_s():
    attempt = record(lambda: real.utils.checkpoint.checkpoint(lambda v: real.mm(v, v), x(), use_reentrant=False))
    assert attempt.refused.target == "torch.mm"


def test_record__function_that_the_author_compiled__is_recorded_as_written():
    compiled = real.compile(lambda value: real.sin(value) + 1, backend="eager")
    program = record(lambda: compiled(x())).program
    assert [step.target for step in program.steps[:-1]] == ["t0", "torch.sin", "operator.add"]


@pytest.mark.filterwarnings("ignore")  # the compiler's own
@pytest.mark.parametrize(
    "options",
    [{"mode": "reduce-overhead"}, {"options": {"max_autotune_pointwise": True}}, {"mode": "default"}],
    ids=str,
)
def test_judge__mode_or_options_of_inductor__are_taken_as_torch_takes_them(options: dict[str, Any]):
    assert tried(lambda: torch.exp(random_tensor(2)) * 2, CompileBackend(options)).outcome == "aligned"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"mode": "fast"}, "Unrecognized mode=fast"),
        ({"options": {"nosuch": 1}}, "Unexpected optimization option nosuch"),
    ],
)
def test_compile_backend__mode_or_option_that_inductor_has_not__is_refused(options: dict[str, Any], said: str):
    with pytest.raises(ConfigError, match=f"torch.compile refuses the options: {said}"):
        CompileBackend(options)
