"""What a compiler made of a body is called again: planted compilers whose callables remember, and right ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch as real

from ci_autotest import random_tensor, torch
from ci_autotest.alignment.cases import Contender, differentiate
from ci_autotest.alignment.recalls import recalled
from ci_autotest.alignment.tolerance_rules import Rules
from ci_autotest.backends.compilers.export import ExportBackend
from ci_autotest.backends.compilers.torch_compile import CompileBackend
from ci_autotest.backends.compilers.user_exporter import UserExporter
from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.backends.protocol import run_backward, run_forward
from ci_autotest.program.ir import output_refs
from ci_autotest.values.verdict import Verdict
from tests.engine import record

if TYPE_CHECKING:
    from collections.abc import Callable

    from ci_autotest.backends.protocol import Backend
    from ci_autotest.backends.trace import Trace
    from ci_autotest.values.probes import NoProbe


def right(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


def keeps_first_values(function: Callable[..., Any]) -> Callable[..., Any]:
    held: list[Any] = []

    def run(*args: Any) -> Any:
        held.append(function(*args))
        return held[0]

    return run


def reuses_its_buffer(function: Callable[..., Any]) -> Callable[..., Any]:
    held: list[Any] = []

    def run(*args: Any) -> Any:
        with real.no_grad():
            (found,) = function(*args)
        if not held:
            held.append(real.empty_like(found))
        return (held[0].copy_(found),)

    return run


def counts_its_calls(function: Callable[..., Any]) -> Callable[..., Any]:
    calls: list[int] = []

    def run(*args: Any) -> Any:
        calls.append(1)
        return tuple(each * len(calls) for each in function(*args))

    return run


def always_wrong_at_other_values(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: tuple(each.clamp(min=0.6) for each in function(*args))


WRAPPERS: dict[str, tuple[Callable[..., Any], str]] = {
    "right": (right, ""),
    "keeps the first values": (keeps_first_values, "in a later call with other values"),
    "reuses its buffer": (reuses_its_buffer, "overwritten by a later call"),
    "counts its calls": (counts_its_calls, "with the same values again"),
}
BACKENDS: dict[str, Callable[[Callable[..., Any]], Backend]] = {
    "torch.compile": lambda wrap: CompileBackend(
        {"backend": lambda graph, _: wrap(graph.forward)}, how="forward_only", delegated=lambda _: 1000
    ),
    "export": lambda wrap: ExportBackend(
        UserExporter(lambda program: wrap(program.module()), "made"), delegated=lambda _: 1000
    ),
}


def body() -> object:
    return torch.exp(torch.sin(random_tensor(dims=(2, 3))))


def seen(made: Callable[[], object], backend: Backend) -> Verdict | NoProbe | None:
    attempt, reference = record(made, profile="ordinary"), TorchBackend()
    differentiate(attempt, reference)
    trace = run_forward(backend, attempt)
    run_backward(backend, attempt, trace)
    return recalled(attempt, trace, backend, Contender(backend, Rules()).rules, reference)


@pytest.mark.parametrize("make", BACKENDS.values(), ids=BACKENDS)
@pytest.mark.parametrize(("wrap", "detail"), WRAPPERS.values(), ids=WRAPPERS)
def test_recalled__callable__is_stateful_if_it_remembers(
    make: Callable[[Callable[..., Any]], Backend], wrap: Callable[..., Any], detail: str
):
    backend = make(wrap)
    found = seen(body, backend)
    if not detail:
        assert found is None
        return
    assert not isinstance(found, str)
    assert found is not None
    assert found.misalignment is not None
    assert (found.outcome, found.kind) == ("misaligned", "stateful")
    assert detail in found.misalignment.detail


class Remembering(TorchBackend):
    """Ranks as a worker sees them, one of whose operators answers as before; no process begins anew."""

    shows_steps = False
    kept: real.Tensor | None = None

    def run(self, program: Any, sources: Any, **how: Any) -> Trace:
        trace = super().run(program, sources, **how)
        trace.is_kept, trace.shown = True, frozenset(ref.index for ref in output_refs(program))
        at = next(i for i, step in enumerate(program.steps) if step.target == "torch.tanh")
        self.kept = trace.values[at] if self.kept is None else self.kept
        trace.values[at] = self.kept
        return trace


def one() -> object:
    return torch.tanh(random_tensor(dims=(2, 3)))


def two() -> object:
    x = random_tensor(dims=(2, 3))
    return torch.exp(x), torch.tanh(x)


@pytest.mark.parametrize("made", [one, two])
def test_recalled__value_is_that_of_the_call_before__is_stateful_whatever_else_is_returned(made: Callable[[], object]):
    found = seen(made, Remembering())
    assert isinstance(found, Verdict)
    assert found.kind == "stateful"


@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_recalled__trained_by_a_compiler_of_torch__is_right():
    assert seen(body, CompileBackend({"backend": "aot_eager"})) is None


def test_recalled__wrong_at_other_values_whatever_came_before__is_another_matter():
    def half() -> object:
        return torch.abs(random_tensor(dims=(2, 3), low=0.7, high=0.75))

    assert seen(half, BACKENDS["export"](always_wrong_at_other_values)) is None


def test_recalled__broken_graph__is_left_out():
    def broken() -> object:
        made = torch.exp(random_tensor(dims=(2, 3)))
        return torch.sin(made) if made.sum() > 0 else made

    assert seen(broken, CompileBackend({"backend": "eager"})) in {"no_steps", None}
