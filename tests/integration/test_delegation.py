"""What a compiler ran itself, and what PyTorch ran in its place: compilers of several kinds, each on one body.

Each row names the steps that the compiler runs, so that a compiler which leaves an operator to PyTorch is seen to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch as real
from torch._decomp import get_decompositions
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupport

from ci_autotest import random_tensor, torch
from ci_autotest.alignment.cases import Contender, try_case
from ci_autotest.alignment.tolerance_rules import Rules
from ci_autotest.backends.compilers.torch_compile import CompileBackend
from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.backends.operator_usage import computing
from ci_autotest.errors import UnsupportedReason
from tests.engine import record

if TYPE_CHECKING:
    from collections.abc import Callable


def graph_as_it_is(graph: real.fx.GraphModule, _: Any) -> Callable[..., Any]:
    return graph.forward


def graph_module(graph: real.fx.GraphModule, _: Any) -> Callable[..., Any]:
    return graph


def interpreter(graph: real.fx.GraphModule, _: Any) -> Callable[..., Any]:
    return real.fx.Interpreter(graph).run


def traced_by_torchscript(graph: real.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
    return real.jit.trace(graph, tuple(inputs))


KERNELS: dict[Any, Callable[..., Any]] = {
    real.add: lambda a, b: a + b, real.mul: lambda a, b: a * b, real.exp: np.exp,
}  # fmt: skip


def own_kernels(graph: real.fx.GraphModule, _: Any = None) -> Callable[..., Any]:
    """Run every node by a kernel of NumPy."""
    nodes = list(graph.graph.nodes)

    def run(*args: Any) -> Any:
        inputs = [node for node in nodes if node.op == "placeholder"]
        held = {node: value.detach().numpy() for node, value in zip(inputs, args, strict=True)}
        for node in nodes:
            if node.op == "call_function":
                held[node] = KERNELS[node.target](*(held.get(each, each) for each in node.args))
        (returned,) = nodes[-1].args
        if isinstance(returned, real.fx.Node):
            return real.from_numpy(held[returned])
        return tuple(real.from_numpy(held[each]) for each in returned)

    return run


def own_interpreter(graph: real.fx.GraphModule, _: Any) -> Callable[..., Any]:
    """Run exp by PyTorch, for lack of a kernel, and the others by NumPy."""

    class Mine(real.fx.Interpreter):
        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            if target is real.exp:
                return super().call_function(target, args, kwargs)
            arrays = (each.detach().numpy() if isinstance(each, real.Tensor) else each for each in args)
            return real.from_numpy(KERNELS[target](*arrays))

    return Mine(graph).run


def own_loop(graph: real.fx.GraphModule, _: Any) -> Callable[..., Any]:
    """Run every node by PyTorch in a loop of its own."""
    nodes = list(graph.graph.nodes)

    def run(*args: Any) -> Any:
        held = dict(zip([node for node in nodes if node.op == "placeholder"], args, strict=True))
        for node in nodes:
            if node.op == "call_function":
                held[node] = node.target(*(held.get(each, each) for each in node.args))
        return tuple(held[each] for each in nodes[-1].args[0])

    return run


def loop_in_place(graph: real.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
    """Run every node by PyTorch's operator of the same name that writes to its first argument."""
    nodes = list(graph.graph.nodes)

    def run(*args: Any) -> Any:
        held = dict(zip([node for node in nodes if node.op == "placeholder"], args, strict=True))
        for node in nodes:
            if node.op == "call_function":
                first, *rest = (held.get(each, each) for each in node.args)
                held[node] = getattr(first.clone(), f"{node.target.__name__}_")(*rest)
        return tuple(held[each] for each in nodes[-1].args[0])

    return run


def kernels_of_other_operators(graph: real.fx.GraphModule, _: Any) -> Callable[..., Any]:
    """Run every node by a kernel that is written with other operators of PyTorch."""

    def run(x: Any) -> Any:
        return (real.pow(real.full_like(x, np.e), real.sub(x, -1.0) / 0.5),)

    return run


class Taken(OperatorSupport):
    """Takes add and mul."""

    def is_node_supported(self, _: Any, node: real.fx.Node) -> bool:
        return node.op == "call_function" and node.target in {real.add, real.mul}


class Part(real.nn.Module):
    """A part of a graph: it runs by kernels of its own, or gives up as it runs."""

    def __init__(self, graph: real.fx.GraphModule, *, fails: bool) -> None:
        super().__init__()
        self.graph_module, self.fails = graph, fails

    def forward(self, *args: Any) -> Any:
        return self.graph_module(*args) if self.fails else own_kernels(self.graph_module)(*args)


def partitioned(*, fails: bool = False, is_single: bool = True) -> Callable[..., Any]:
    """Return a compiler that takes add and mul."""

    def compiler(graph: real.fx.GraphModule, _: Any) -> Callable[..., Any]:
        partitioner = CapabilityBasedPartitioner(graph, Taken(), allows_single_node_partition=is_single)
        fused = partitioner.fuse_partitions(partitioner.propose_partitions())
        for name, part in list(fused.named_children()):
            setattr(fused, name, Part(part, fails=fails))
        return fused.forward

    return compiler


def body() -> Any:
    x = random_tensor(ndim=1, dim0=3, requires_grad=False)
    return torch.exp(torch.mul(torch.add(x, 1.0), 2.0))


def ran(
    compiler: Any, function: Callable[[], Any] = body, hook: Callable[..., Any] | None = None
) -> tuple[Any, list[str], list[str]]:
    attempt = record(function)
    backend = CompileBackend({"backend": compiler}, delegated=hook)
    trace = backend.run(attempt.program, attempt.sources)
    assert trace.failure is None, trace.failure
    names = {index: step.name for index, step in attempt.program.calls}
    seen = trace.delegation
    return seen, sorted(names[at] for at in seen.own), sorted(names[at] for at in seen.left)


ALL = ["add", "exp", "mul"]
ROWS = {
    "the graph's own function": (graph_as_it_is, [], ALL),
    "the graph": (graph_module, [], ALL),
    "an interpreter of graphs": (interpreter, [], ALL),
    "TorchScript": (traced_by_torchscript, [], ALL),
    "kernels of its own": (own_kernels, ALL, []),
    "an interpreter of its own that lacks a kernel": (own_interpreter, ["add", "mul"], ["exp"]),
    "a loop of its own over PyTorch's operators": (own_loop, [], ALL),
    "a loop of its own over operators that write": (loop_in_place, [], ALL),
    "kernels written with other operators": (kernels_of_other_operators, ALL, []),
    "a partition of two operators": (partitioned(is_single=False), ["add", "mul"], ["exp"]),
    "partitions of single operators": (partitioned(), ["add", "mul"], ["exp"]),
    "a partition that falls back": (partitioned(fails=True), [], ALL),
    "torch's own that runs eagerly": ("aot_eager", ALL, []),
    "torch's own": ("inductor", ALL, []),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(("compiler", "own", "left"), ROWS.values(), ids=ROWS)
def test_run__compiler__is_seen_to_run_what_it_runs(compiler: Any, own: list[str], left: list[str]):
    seen, found, others = ran(compiler)
    assert (found, others, seen.is_known) == (own, left, True)
    part = "nothing" if not own else "in_part" if left else "wholly"
    assert seen.part == part
    assert bool(seen.notes) == (compiler is ROWS["a partition that falls back"][0])


def fails(_: Any) -> Any:
    raise NotImplementedError


TOLD = {
    "names of the dispatcher": (lambda _: ["aten::add.Tensor", "mul"], ["add", "mul"], ["exp"], True),
    "names of torch": (lambda _: {"torch.exp"}, ["exp"], ["add", "mul"], True),
    "names of a library's operators": (lambda _: ["mylib.exp.default", "mylib::add"], ["add", "exp"], ["mul"], True),
    "the number of all": (lambda _: 3, ALL, [], True),
    "a smaller number": (lambda _: 1, ALL, ALL, True),
    "none": (lambda _: 0, [], ALL, True),
    "an error": (fails, [], [], False),
    "no names": (lambda _: None, [], [], False),
    "one text": (lambda _: "aten::add", [], [], False),
    "a number among names": (lambda _: [1, "add"], [], [], False),
}


@pytest.mark.parametrize(("hook", "own", "left", "is_known"), TOLD.values(), ids=TOLD)
def test_run__hook__says_what_the_compiler_runs(hook: Any, own: list[str], left: list[str], is_known: bool):
    seen, *found = ran(graph_as_it_is, hook=hook)
    assert (*found, seen.is_known, bool(seen.notes)) == (own, left, is_known, not is_known)


def positive() -> Any:
    return random_tensor(ndim=1, dim0=3, low=1.0, high=2.0, requires_grad=False)


def decomposed(graph: real.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
    """Run a graph of other operators, without a trail to the calls."""
    other = make_fx(graph, decomposition_table=get_decompositions([real.ops.aten._softmax]))(*inputs)
    for node in other.graph.nodes:
        node.meta.pop("stack_trace", None)
    return other.forward


def test_run__operators_that_no_call_makes__are_unknown():
    seen, *_ = ran(decomposed, lambda: torch.softmax(positive(), 0))
    assert (seen.is_known, seen.part) == (False, "unknown")


def passes_on() -> Any:
    x = positive().requires_grad_()
    return torch.exp(torch.nn.Sequential(torch.nn.Identity())(torch.nn.Identity()(x)))


def test_run__modules_and_calls_that_compute_nothing__do_not_count():
    assert ran("aot_eager", passes_on)[1:] == (["exp"], [])


def fails_once(graph: real.fx.GraphModule, _: Any) -> Callable[..., Any]:
    inner, calls = own_kernels(graph), []

    def run(*args: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            message = "no workspace yet"
            raise RuntimeError(message)
        return inner(*args)

    return run


def test_run__function_that_fails_in_its_first_call__is_an_error():
    attempt = record(body)
    trace = CompileBackend({"backend": fails_once}).run(attempt.program, attempt.sources)
    assert trace.failure is not None
    assert "no workspace yet" in trace.failure.message


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_run__torchscript_that_no_mode_bears__is_run_without_one():
    def traced(graph: real.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        return real.jit.trace(graph, [real.zeros(each.shape) for each in inputs], check_trace=False)

    seen, *_ = ran(traced, lambda: torch.add(torch.add(positive(), 1.0), 1.0))
    assert seen.part in {"unknown", "nothing"}


@pytest.mark.parametrize("how", ["inference", "forward_only"])
def test_run__operators_made_of_others_without_gradients__are_seen_to_be_pytorchs(how: Any):
    def layers() -> Any:
        x = random_tensor(2, 3, 4, requires_grad=False)
        return torch.softmax(torch.nn.Linear(4, 5)(x), 1), torch.nn.functional.layer_norm(x, (4,))

    def runtime(graph: real.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        inner = own_loop(graph, inputs)
        return inner if how == "inference" else real.inference_mode()(inner)

    attempt = record(layers)
    trace = CompileBackend({"backend": runtime}, how=how).run(attempt.program, attempt.sources)
    assert trace.failure is None
    assert trace.delegation.part == "nothing"


def test_run__more_results_than_the_graph_has__are_an_error():
    def more(graph: real.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        return lambda *args: (*own_kernels(graph, inputs)(*args), real.zeros(1))

    attempt = record(body)
    trace = CompileBackend({"backend": more}).run(attempt.program, attempt.sources)
    assert trace.failure is not None
    assert "returns 2 results, and its graph has 1" in trace.failure.message


def test_run__break_of_the_graph__is_left_to_torch():
    def breaks() -> Any:
        x = random_tensor(ndim=1, dim0=3, requires_grad=False)
        return torch.unique(torch.exp(x)) + 1

    seen, own, left = ran("aot_eager", breaks)
    assert (seen.part, "exp" in own, "add" in own, left) == ("in_part", True, True, ["unique"])


def test_run__calls_that_no_output_needs__do_not_count():
    def unused() -> Any:
        x = random_tensor(ndim=1, dim0=3, requires_grad=False)
        torch.exp(x)
        assert x.size(0) == x.dim() * 3
        return torch.add(x, 1.0)

    assert ran(own_kernels, unused)[1:] == (["add"], [])


def test_computing__writes__count_though_no_output_refers_to_them():
    def writes() -> Any:
        x = random_tensor(ndim=1, dim0=3, requires_grad=False)
        y = x.clone()
        y.add_(torch.exp(x))
        return y

    program = record(writes).program
    assert sorted(program.steps[at].name for at in computing(program)) == ["add", "clone", "exp"]


@pytest.mark.parametrize(
    ("compiler", "outcome"),
    [(graph_as_it_is, "unsupported"), (own_kernels, "aligned"), (partitioned(), "aligned")],
)
def test_try_case__nothing_delegated__is_not_aligned(compiler: Any, outcome: str):
    attempt = record(body)
    judged = try_case(attempt, Contender(CompileBackend({"backend": compiler}), Rules()), TorchBackend())
    assert judged.verdict.outcome == outcome
    assert (judged.verdict.reason is UnsupportedReason.NOT_DELEGATED) == (outcome == "unsupported")


def test_try_case__nothing_delegated_and_wrong__stays_misaligned():
    def wrong(graph: real.fx.GraphModule, _: Any) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            held = [real.from_numpy(each.detach().numpy() * 2) for each in graph(*args)]
            return tuple(held)

        return run

    judged = try_case(record(body), Contender(CompileBackend({"backend": wrong}), Rules()), TorchBackend())
    assert (judged.verdict.outcome, judged.verdict.blame) == ("misaligned", "candidate")


def faulty(operator: Any) -> Callable[..., Any]:
    """Return the compiler of runs of add and mul with a kernel that is wrong."""
    right = KERNELS[operator]

    def compiler(graph: real.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        inner = partitioned(is_single=False)(graph, inputs)

        def run(*args: Any) -> Any:
            KERNELS[operator] = lambda a, b: right(a, b) * np.float32(1.01)
            try:
                return inner(*args)
            finally:
                KERNELS[operator] = right

        return run

    return compiler


def add_then_two_products() -> Any:
    return torch.exp(torch.mul(torch.mul(torch.add(positive(), 1.0), 3.0), 2.0))


def two_products_then_add() -> Any:
    return torch.exp(torch.add(torch.mul(torch.mul(positive(), 3.0), 2.0), 1.0))


SEPARATED = [
    (real.add, add_then_two_products, "torch.add"), (real.mul, add_then_two_products, "torch.mul"),
    (real.add, two_products_then_add, "torch.add"), (real.mul, two_products_then_add, "torch.mul"),
]  # fmt: skip


@pytest.mark.parametrize(("operator", "function", "named"), SEPARATED)
def test_judge__operator_that_is_taken_with_others_only__is_named(
    operator: Any, function: Callable[[], Any], named: str
):
    sides = Contender(CompileBackend({"backend": faulty(operator)}), Rules())
    verdict = try_case(record(function), sides, TorchBackend()).verdict
    assert (verdict.outcome, verdict.operator, verdict.accumulated) == ("misaligned", named, False)


def test_judge__operators_that_nothing_separates__are_told():
    sides = Contender(CompileBackend({"backend": faulty(real.add)}), Rules())
    verdict = try_case(record(body), sides, TorchBackend()).verdict
    assert (verdict.operator, verdict.accumulated) == ("torch.mul", False)
    detail = "the compiler takes torch.add, torch.mul only together; any of them may be at fault"
    assert verdict.misalignment.detail == detail


def test_judge__calls_that_are_right_alone_and_wrong_together__are_told():
    def fused(graph: real.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        targets = {node.target for node in graph.graph.nodes if node.op == "call_function"}
        inner = own_kernels(graph, inputs)
        if not {real.add, real.mul} <= targets:
            return inner
        return lambda *args: tuple(real.from_numpy(each.numpy() * np.float32(1.5)) for each in inner(*args))

    sides = Contender(CompileBackend({"backend": fused}), Rules())
    verdict = try_case(
        record(lambda: torch.exp(torch.add(torch.mul(positive(), 2.0), 1.0))), sides, TorchBackend()
    ).verdict
    assert (verdict.operator, verdict.accumulated) == ("torch.add", False)
    assert verdict.misalignment.detail == (
        "the compiler is right about each call alone, and wrong about torch.add, torch.mul together"
    )
