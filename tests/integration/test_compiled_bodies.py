"""A body is compiled once for its sizes: compilers of the tests count how often they are asked, and what they made runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch as real

from ci_autotest import random_tensor, torch
from ci_autotest.backends.compilers.compiled_bodies import body_key
from ci_autotest.backends.compilers.export import ExportBackend
from ci_autotest.backends.compilers.torch_compile import CompileBackend
from ci_autotest.backends.compilers.user_exporter import UserExporter
from tests.engine import judged, record

if TYPE_CHECKING:
    from collections.abc import Callable

    from ci_autotest.backends.protocol import Backend
    from ci_autotest.values.verdict import Verdict


class Counted:
    """A compiler, or a function for exporters, that counts: graphs, runs, and graphs for several sizes."""

    def __init__(self) -> None:
        self.graphs = self.runs = self.of_many_sizes = 0

    def __call__(self, graph: real.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        self.graphs += 1
        self.of_many_sizes += any(isinstance(each, real.SymInt) for each in inputs)
        return self.counting(graph.forward)

    def export(self, program: real.export.ExportedProgram) -> Callable[..., Any]:
        self.graphs += 1
        return self.counting(program.module())

    def counting(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            self.runs += 1
            return function(*args)

        return run


def everything(_: Any) -> int:
    return 1000


def compiled(compiler: Callable[..., Any], **how: Any) -> CompileBackend:
    return CompileBackend({"backend": compiler}, delegated=everything, **how)


def verdicts(body: Callable[[], object], backend: Backend, cases: int = 3) -> list[Verdict]:
    return [judged(record(body, 2 * case, profile="ordinary"), backend).verdict for case in range(cases)]


def of_one_size() -> object:
    return torch.exp(torch.sin(random_tensor(dims=(2, 3))))


def of_any_size() -> object:
    return torch.exp(random_tensor(ndim=2))


BACKENDS = {
    "torch.compile": lambda counted: compiled(counted),
    "forward_only": lambda counted: compiled(counted, how="forward_only"),
    "export": lambda counted: ExportBackend(UserExporter(counted.export, "counted"), delegated=everything),
}


@pytest.mark.parametrize("make", BACKENDS.values(), ids=BACKENDS)
def test_run__three_cases_of_one_size__are_compiled_once(make: Callable[[Counted], Backend]):
    counted = Counted()
    assert [each.outcome for each in verdicts(of_one_size, make(counted))] == ["aligned"] * 3
    assert counted.graphs == 1
    assert counted.runs >= 3


@pytest.mark.parametrize("make", BACKENDS.values(), ids=BACKENDS)
def test_run__three_cases_of_other_sizes__are_compiled_each_for_its_own(make: Callable[[Counted], Backend]):
    counted = Counted()
    assert [each.outcome for each in verdicts(of_any_size, make(counted))] == ["aligned"] * 3
    assert (counted.graphs, counted.of_many_sizes) == (3, 0)


def test_body_key__weights_of_a_module__belong_to_it():
    program, module = record(of_one_size).program, real.nn.Linear(3, 2)
    twin = real.nn.Linear(3, 2)
    twin.load_state_dict(module.state_dict())
    assert body_key(program, [module]) == body_key(program, [twin])
    twin.weight.data[0, 0] += 1
    assert body_key(program, [module]) != body_key(program, [twin])
    assert body_key(program, [module]) != body_key(program, [module.eval()])
    assert body_key(program, [object()]) is None


def test_begin_window__callable_for_several_sizes__is_made_anew():
    counted = Counted()
    backend = ExportBackend(UserExporter(counted.export, "counted", is_dynamic=True), delegated=everything)
    attempts = [record(lambda size=size: torch.exp(random_tensor(2, size, 5))) for size in (3, 4)]
    made = []
    for _ in range(2):
        backend.begin_window()
        assert {judged(attempt, backend).verdict.outcome for attempt in attempts} == {"aligned"}
        made.append(counted.graphs)
    assert made == [1, 2]


def test_run__many_bodies__all_are_right_and_the_oldest_is_forgotten():
    counted = Counted()
    backend = compiled(counted)
    bodies = [lambda size=size: torch.exp(random_tensor(dims=(size,))) for size in range(2, 22)]
    attempts = [record(body, profile="ordinary") for body in (*bodies, bodies[0], bodies[-1])]
    assert {judged(attempt, backend).verdict.outcome for attempt in attempts} == {"aligned"}
    assert (counted.graphs, counted.runs) == (21, 22)


def test_run__torch_in_another_state__is_compiled_again_once():
    counted = Counted()
    backend = compiled(counted)
    verdicts(of_one_size, backend)
    real.use_deterministic_algorithms(True)  # what dynamo compiles holds for this setting
    try:
        assert [each.outcome for each in verdicts(of_one_size, backend)] == ["aligned"] * 3
    finally:
        real.use_deterministic_algorithms(False)
    assert counted.graphs == 2


def test_taken_compile_s__only_the_first_run__takes_time():
    backend = compiled(Counted())
    verdicts(of_one_size, backend, 1)
    assert backend.taken_compile_s() > 0
    verdicts(of_one_size, backend)
    assert backend.taken_compile_s() == 0


def keeps_first_values(graph: real.fx.GraphModule, _: Any) -> Callable[..., Any]:
    """Return the results of the first inputs for all later ones, as a compiler that folds its example inputs."""
    held: list[Any] = []

    def run(*args: Any) -> Any:
        if not held:
            held.append(graph.forward(*args))
        return held[0]

    return run


def test_run__compiler_that_keeps_the_first_values__is_right_once_and_then_wrong():
    backend = compiled(keeps_first_values, how="forward_only")
    assert [each.outcome for each in verdicts(of_one_size, backend)] == ["aligned", "misaligned", "misaligned"]


def test_run__exporter_that_refuses__is_asked_once():
    asked = []

    def refuse(program: real.export.ExportedProgram) -> None:
        asked.append(program)
        message = "no such operator"
        raise ValueError(message)

    found = verdicts(of_one_size, ExportBackend(UserExporter(refuse, "refuse")))
    assert {(each.outcome, each.oracle) for each in found} == {("unsupported", "refuse: ValueError: no such operator")}
    assert len(asked) == 1
