"""Paddle's bodies as one graph, by ``to_static``: held against its own eager run, gradients too; no fallback is a pass."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest
import torch as real

from ci_autotest import torch
from ci_autotest.backends.framework.backend import RemoteBackend
from ci_autotest.backends.framework.interpreter import Interpreter
from ci_autotest.backends.framework.mapping.table import load_table
from ci_autotest.backends.framework.mapping.translation import Translator
from ci_autotest.host.frameworks.protocol import STEP_BY_STEP
from tests.candidates import needs
from tests.engine import tried
from tests.paddle_bodies import (
    PYTHON,
    WRONG,
    avg_pool2d,
    backend_with,
    batch_norm,
    chain_with_branches,
    complex_product,
    conv2d,
    conv_transpose2d,
    cross_entropy,
    in_place,
    indexing,
    integers_and_floats,
    layer_norm,
    linear,
    lstm,
    max_of_a_dimension,
    mean_and_sum,
    unused_output,
    x,
)
from tests.projects import Project, outcomes

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = needs("paddle")


@pytest.fixture(scope="module")
def paddle():
    backend = backend_with({})
    yield backend
    backend.close()


@pytest.fixture(scope="module")
def graphs():
    backend = backend_with({}).in_mode(is_graph=True)
    yield backend
    backend.close()


def input_handed_on():
    # Its gradient is what is put into it and what comes back through the other output.
    y = x(2, 3)
    return y, y * 2


def input_that_is_not_read():
    x(2)
    return x(2, 3) * 2


def output_of_an_output():
    y = x(2, 3) * 2
    return y, torch.exp(y)


def written_input():
    y = x(2, 3, requires_grad=False)
    y.mul_(3)
    return y


def written_elements():
    y = x(2, 3).clone()
    y[:, 0] = y[:, 1]
    return y


@pytest.mark.parametrize(
    "body",
    [
        linear, conv2d, conv_transpose2d, layer_norm, mean_and_sum, indexing, chain_with_branches, integers_and_floats,
        cross_entropy, avg_pool2d, in_place, unused_output, complex_product, input_handed_on,
        input_that_is_not_read, output_of_an_output,
    ],
    ids=lambda body: body.__name__,
)  # fmt: skip
def test_to_static__operators_of_each_family__are_aligned_with_the_reference_and_with_themselves(graphs, body):
    verdicts = [tried(body, graphs, case=case, profile="ordinary") for case in range(3)]
    assert [(verdict.outcome, verdict.oracle) for verdict in verdicts] == [("aligned", "")] * 3


def test_to_static__what_a_graph_alone_refuses__is_of_kind_graph(paddle, graphs):
    # paddle.compat.max of Paddle 3.3.1 takes no dtype at all once a graph is made.
    assert tried(max_of_a_dimension, paddle, profile="ordinary").outcome == "aligned"
    verdict = tried(max_of_a_dimension, graphs, profile="ordinary")
    assert (verdict.outcome, verdict.kind, verdict.operator) == ("misaligned", "graph", "torch.max")
    assert verdict.misalignment.what == "call of max, as a graph"


def test_to_static__what_is_written_in_place_eagerly_alone__is_of_kind_graph(paddle, graphs):
    # Paddle documents that `scale_` is `scale` in a graph.
    assert tried(written_input, paddle, profile="ordinary").outcome == "aligned"
    verdict = tried(written_input, graphs, profile="ordinary")
    assert (verdict.outcome, verdict.kind) == ("misaligned", "graph")


#: By hand: Paddle 3.3.1 asks `len` of its window, which a value of a graph has not.
STFT = """
import paddle


def transformed(x, window):
    return paddle.signal.stft(x, 4, window=window)


given = paddle.ones([2, 16]), paddle.ones([4])
print(transformed(*given).shape)
try:
    paddle.jit.to_static(transformed, full_graph=True)(*given)
    print("made")
except Exception as error:
    print(type(error).__name__)
"""


def windowed():
    return torch.stft(x(2, 16), 4, window=x(4), return_complex=True)


def test_to_static__stft_with_a_window__is_of_kind_graph_as_it_is_by_hand(paddle, graphs, tmp_path):
    (script := tmp_path / "by_hand.py").write_text(STFT, "utf-8")  # `to_static` reads what it compiles.
    done = subprocess.run([PYTHON, "-W", "ignore", script], capture_output=True, text=True, timeout=300, check=True)
    assert [line for line in done.stdout.splitlines() if line] == ["paddle.Size([2, 3, 17])", "TypeError"]
    assert tried(windowed, paddle, profile="ordinary").outcome == "aligned"
    verdict = tried(windowed, graphs, profile="ordinary")
    assert (verdict.outcome, verdict.kind, verdict.operator) == ("misaligned", "graph", "torch.stft")
    assert verdict.misalignment.candidate == "raises TypeError"


def reads():
    y = x(3)
    return y * 2 if float(y.sum()) > 0 else y * 3


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (reads, "graph of a body that reads a tensor's value while the graph is traced"),
        (written_elements, "graph with operator.setitem"),
        (batch_norm, "graph of a batch_norm that updates running statistics"),
        (lstm, "graph of a recurrent layer with given weights"),
        (lambda: x(2, 3).view(3, 2), "We only support 'view()' in dynamic graph mode"),
        (
            lambda: torch.stft(x(16, requires_grad=False), 4, return_complex=True, pad_mode="reflect"),
            "In to_static mode",
        ),
        (lambda: torch.exp(x(2, dtype=real.float16)), "exp_grad"),
        (lambda: torch.unique_consecutive(x(5, dtype=real.int8)), "unique_consecutive"),
        (lambda: torch.mm(x(2, 2, dtype=real.int64), x(2, 2, dtype=real.int64)), "but received int64"),
    ],
)
@pytest.mark.filterwarnings("ignore:A window was not provided")
def test_to_static__what_cannot_be_one_graph__is_unsupported_and_says_why(graphs, body, said):
    verdict = tried(body, graphs, profile="ordinary")
    assert verdict.outcome == "unsupported"
    assert said in verdict.oracle


def test_to_static__rows_that_are_wrong__are_seen():
    body, operator, row = WRONG["dim dropped"]
    backend = backend_with({operator: row}).in_mode(is_graph=True)
    try:
        verdict = tried(body, backend, profile="ordinary")
    finally:
        backend.close()
    assert (verdict.outcome, verdict.kind) == ("misaligned", "shape")


#: Paddle with one of its functions changed: the compiler, and what it compiles, are its own.
CHANGED = """#!{python}
import sys

import paddle

own = paddle.exp
{patch}
at = sys.argv.index("-c") + 1
boot, sys.argv = sys.argv[at], ["-c", *sys.argv[at + 1 :]]
exec(boot)
"""
IN_GRAPH = "paddle.exp = lambda x, name=None: own(x) if paddle.in_dynamic_mode() else "
FAULTS = {
    "another value in a graph": (IN_GRAPH + "own(x) + 0.5", ("misaligned", "graph", "torch.exp")),
    "another gradient in a graph": (IN_GRAPH + "own(x).detach() + 0 * x", ("misaligned", "graph", "torch.exp")),
    "an error in a graph": (IN_GRAPH + "own(x, 7, 7)", ("misaligned", "graph", "torch.exp")),
    "a fallback to eager": ("paddle.jit.enable_to_static(False)", ("unsupported", None, "")),
}


@pytest.mark.parametrize(("patch", "expected"), FAULTS.values(), ids=FAULTS)
def test_to_static__planted_fault_of_the_compiler__is_no_pass(patch: str, expected: tuple[object, ...], tmp_path: Path):
    python = tmp_path / "python"
    python.write_text(CHANGED.format(python=PYTHON, patch=patch), encoding="utf-8")
    python.chmod(0o755)
    eager = RemoteBackend(Interpreter("paddle", str(python), "paddle", "cpu", ()), Translator(load_table("paddle")))
    try:
        verdicts = [
            tried(lambda: torch.exp(x(2, 3)), eager.in_mode(is_graph=it), profile="ordinary") for it in (False, True)
        ]
    finally:
        eager.close()
    assert verdicts[0].outcome == "aligned"
    assert (verdicts[1].outcome, verdicts[1].kind, verdicts[1].operator) == expected
    if verdicts[1].outcome == "unsupported":
        assert STEP_BY_STEP in verdicts[1].oracle


def test_run__to_static__compares_gradients_and_its_repro_shows_the_graph(tmp_path: Path):
    project = Project(tmp_path)
    project.configure(
        candidates=[{"name": "static", "backend": "module", "module": "paddle", "python": str(PYTHON), "mode": "graph"}]
    )
    project.tests(
        "@autotest(n=6)\ndef right():\n    return torch.tanh(random_tensor(2)) * 2\n\n"
        "@autotest(n=6, profiles=[])\ndef refused():\n    return torch.max(random_tensor(2), dim=1)\n\n"
        "@autotest(n=4, profiles=[])\ndef viewed():\n    return random_tensor(2).view(-1)\n"
    )

    done = project.run()

    report = project.report()
    assert {test: outcome for (test, _), outcome in outcomes(report).items()} == {
        "right": "aligned", "refused": "misaligned", "viewed": "unsupported",
    }, done.said  # fmt: skip
    assert [each["mode"] for each in report["candidates"]] == ["graph"]
    (found,) = report["findings"]
    assert (found["kind"], found["operator"], found["repro_verified"]) == ("graph", "torch.max", True), done.said
    repro = project.repro(found)
    assert (repro.status, "misaligned: as a graph the candidate raises TypeError" in repro.out) == (1, True), repro.said
