"""OneFlow 0.9.0 in its own interpreter, eagerly and by ``nn.Graph``.

It is not installed by `make install`: CPython 3.10 and `make candidates`, or the commands in the reason below.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch as plain_torch

from ci_autotest import random_tensor, torch
from ci_autotest.alignment.tolerance_rules import Rules
from ci_autotest.backends.registry import build
from ci_autotest.kinds import ModuleCandidate
from tests.candidates import needs, path_of
from tests.engine import judged, record
from tests.projects import Project, outcomes

PYTHON = path_of("oneflow")
pytestmark = needs("oneflow")
functional = torch.nn.functional


def candidate(**more):
    return build(ModuleCandidate(name="oneflow", module="oneflow", python=str(PYTHON), **more), "cpu")


@pytest.fixture(scope="module")
def oneflow():
    backend = candidate()
    yield backend
    backend.close()


@pytest.fixture(scope="module")
def graphs():
    backend = candidate(mode="graph")
    yield backend
    backend.close()


def of(*dims, **how):
    return random_tensor(dims=dims, **how)


def like(x):
    return torch.zeros(x.shape, dtype=x.dtype) + torch.softmax(x, dim=1)


def written(x):
    x.mul_(3)
    x[0] = 1.0
    return x


def trained_then_evaluated():
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 2, 2), torch.nn.BatchNorm2d(2), torch.nn.ReLU())
    value = of(2, 3, 4, 5)
    first = module(value)
    module.eval()
    return first, module(value)


def penalized_weights():
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    return module(of(5, 3)).sum() + sum(weight.pow(2).sum() for weight in module.parameters())


ALIGNED = {
    "abs": lambda: torch.abs(of(3, 4)),
    "leaky_relu, whose slope has no default there": lambda: functional.leaky_relu(of(3, 5)),
    "elu, by position": lambda: functional.elu(of(3, 5), 0.5),
    "hardtanh": lambda: functional.hardtanh(of(3, 5), min_val=-0.3),
    "threshold": lambda: functional.threshold(of(3, 5), 0.1, 2.0),
    "smooth_l1_loss": lambda: functional.smooth_l1_loss(of(3, 5), of(3, 5), beta=0.5),
    "softmax": lambda: functional.softmax(of(3, 5), dim=-1),
    "matmul": lambda: of(2, 3, 4) @ of(4, 5),
    "conv2d": lambda: functional.conv2d(of(2, 4, 9, 8), of(6, 2, 3, 2), of(6), stride=(2, 1), padding=1, groups=2),
    "a module with statistics": lambda: torch.nn.BatchNorm2d(3)(of(2, 3, 4, 5)),
    "a mode that changes": trained_then_evaluated,
    "a dtype and a shape that are read": lambda: like(of(3, 4)),
    "max_pool2d": lambda: functional.max_pool2d(of(2, 3, 7, 8), 3, stride=2, padding=1),
    "sum": lambda: torch.sum(of(3, 4, 5), dim=(0, 2), keepdim=True),
    "silu, without an argument that it lacks": lambda: functional.silu(of(3, 4), inplace=False),
    "std, whose second argument is another one there": lambda: torch.std(of(3, 4), False),
    "sort, whose indices are int32 there": lambda: torch.sort(of(7)),
    "argmax": lambda: torch.argmax(of(3, 7), dim=1),
    "indexing": lambda: of(3, 5, 6)[:, -2, 1:5:2],
    "in place": lambda: written(of(3, 4, requires_grad=False)),
    "gather": lambda: torch.gather(of(4, 3), 1, of(4, 2, dtype=plain_torch.int64, low=0, high=3)),
    "strided": lambda: torch.exp(of(3, 4).transpose(0, 1)),
    "an LSTM's cell": lambda: torch.nn.LSTMCell(3, 4)(of(2, 3), (of(2, 4), of(2, 4))),
    "parameters that are read by their paths": penalized_weights,
    "a part of a module": lambda: torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh())[0](of(2, 3)),
    "a plain LSTM": lambda: plain_torch.nn.LSTM(3, 4, 2, bidirectional=True)(of(5, 2, 3))[0],
    "a plain GRU": lambda: plain_torch.nn.GRU(3, 4, batch_first=True, bias=False)(of(5, 2, 3))[0],
    "a plain RNN": lambda: plain_torch.nn.RNN(3, 4, nonlinearity="relu")(of(5, 2, 3))[0],
}
#: Of a module's statistics see below.
GRAPHS = [name for name in ALIGNED if name not in {"a module with statistics", "a mode that changes"}]


def step_of(make, module, loss=functional.mse_loss, shape=(5, 6)):
    """Return a body that trains for two steps as people do; the values after it are compared."""

    def body():
        model, x = module(), of(*shape, requires_grad=False)
        optimizer = make(model.parameters())
        for _ in range(2):
            optimizer.zero_grad()
            found = model(x)
            found = found[0] if isinstance(found, tuple) else found
            loss(found, torch.zeros_like(found)).backward()
            optimizer.step()
        return loss(*[torch.tanh(each) for each in (found, found)])

    return body


def classes():
    model = plain_torch.nn.Sequential(plain_torch.nn.Linear(6, 8), plain_torch.nn.ReLU(), plain_torch.nn.Linear(8, 4))
    classified = plain_torch.nn.CrossEntropyLoss()(model(of(5, 6)), of(5, dtype=plain_torch.int64, low=0, high=4))
    optimizer = plain_torch.optim.Adam(model.parameters(), lr=0.01, betas=(0.4, 0.9))
    classified.backward()
    optimizer.step()
    return model(of(5, 6))


def by_hand():
    layer = torch.nn.Linear(6, 4)
    functional.mse_loss(layer(of(5, 6)), of(5, 4)).backward()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.sub_(0.1 * parameter.grad)
            parameter.grad = None
    return layer(of(5, 6))


def convolutions():
    nn = plain_torch.nn
    return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())


def sgd(parameters):
    return plain_torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def adam(parameters):
    return plain_torch.optim.Adam(parameters, lr=0.01)


TRAINING = {
    "a linear layer by SGD": step_of(sgd, lambda: plain_torch.nn.Linear(6, 4)),
    "convolutions by SGD": step_of(sgd, convolutions, plain_torch.nn.MSELoss(), (2, 3, 6, 6)),
    "an LSTM by Adam": step_of(adam, lambda: plain_torch.nn.LSTM(6, 4), shape=(5, 2, 6)),
    "classes by Adam, of which one average moves by more than half": classes,
    "modules of the recording torch by hand": by_hand,
}


@pytest.mark.parametrize("body", TRAINING.values(), ids=TRAINING)
def test_oneflow__training_step__is_aligned(oneflow, body):
    found = judged(record(body, profile="ordinary"), oneflow).verdict
    assert found.outcome == "aligned", (found.oracle, found.misalignment)


def test_oneflow__step_by_hand_with_large_numbers__is_not_held_against_the_copy_that_localization_makes(oneflow):
    found = judged(record(by_hand, case=1, profile="large"), oneflow).verdict
    assert found.outcome == "aligned", (found.oracle, found.misalignment)


@pytest.mark.parametrize(
    ("operator", "row", "body"),
    [
        ("torch.addcdiv", {"inplace": "oneflow.Tensor.addcmul_", "positional": ["input", "tensor1", "tensor2"]}, "an LSTM by Adam"),
        ("torch.nn.functional.mse_loss", {"to": "oneflow.nn.functional.l1_loss", "positional": ["input", "target"]}, "a linear layer by SGD"),
    ],
)  # fmt: skip
def test_oneflow__wrong_row_of_a_training_step__is_the_culprit(operator, row, body):
    backend = candidate(mapping={operator: {**row, "reason": "planted"}})
    try:
        found = judged(record(TRAINING[body], profile="ordinary"), backend).verdict
    finally:
        backend.close()
    assert (found.outcome, found.operator, found.blame) == ("misaligned", operator, "candidate")


@pytest.mark.parametrize("body", ALIGNED.values(), ids=ALIGNED)
def test_oneflow__operators_of_many_families__are_aligned_forward_and_backward(oneflow, body):
    found = judged(record(body, profile="ordinary"), oneflow).verdict
    assert found.outcome == "aligned", (found.oracle, found.misalignment)


@pytest.mark.parametrize("name", GRAPHS)
def test_oneflow__the_same_as_one_graph__are_aligned_with_the_reference_and_with_itself(graphs, name):
    found = judged(record(ALIGNED[name], profile="ordinary"), graphs).verdict
    assert found.outcome == "aligned", (found.oracle, found.misalignment)


def reads(x):
    return x * 2 if float(x.sum()) > 0 else x * 3


UNSUPPORTED = {
    "an average in a new tensor": (lambda: torch.lerp(of(3), of(3), 0.5), "oneflow.lerp"),
    "an operator": (lambda: torch.hypot(of(3), of(3)), "oneflow.hypot"),
    "an argument": (lambda: torch.round(of(3), decimals=2), "argument 'decimals' of torch.round"),
    "an in-place form": (
        lambda: functional.elu(of(3) * 2, inplace=True),
        "argument 'inplace' of torch.nn.functional.elu",
    ),
    "a tensor to write to": (
        lambda: torch.exp(of(3, requires_grad=False), out=torch.zeros(3)),
        "keyword argument 'out'",
    ),
    "a dtype": (lambda: torch.exp(of(3, dtype=plain_torch.complex64)), "complex64"),
    "keepdim that is ignored": (lambda: torch.argmax(of(3, 4), keepdim=True), "keepdim without dim"),
    "a generator of its own": (lambda: functional.dropout(of(30), 0.5), "draws random numbers"),
}


@pytest.mark.parametrize(("body", "named"), UNSUPPORTED.values(), ids=UNSUPPORTED)
def test_oneflow__without_counterpart__is_unsupported_and_named(oneflow, body, named):
    found = judged(record(body, profile="ordinary"), oneflow).verdict
    assert found.outcome == "unsupported"
    assert named in found.oracle


def test_oneflow__body_that_reads_a_number__is_no_graph(graphs):
    found = judged(record(lambda: reads(of(3)), profile="ordinary"), graphs).verdict
    assert (found.outcome, "while the graph is traced" in found.oracle) == ("unsupported", True)


def planted(operator, to):
    return {operator: {"to": to, "positional": ["input"], "reason": "planted"}}


WRONG_ROWS = {
    "value": (planted("torch.sin", "oneflow.cos"), lambda: torch.sin(of(3, 4)), ("value", "torch.sin")),
    "gradient": (
        planted("torch.clone", "oneflow.Tensor.detach"),
        lambda: of(3).clone() * of(3),
        ("metadata", "torch.clone"),
    ),
    "dtype": ({"torch.argmax": {"to": "oneflow.max"}}, lambda: torch.argmax(of(5)), ("dtype", "torch.argmax")),
    "error": (
        {"torch.nn.functional.elu": {"to": "oneflow.nn.functional.elu", "rename": {"input": "x"}}},
        lambda: functional.elu(of(3)),
        ("error", "torch.nn.functional.elu"),
    ),
}


@pytest.mark.parametrize("mode", ["eager", "graph"])
@pytest.mark.parametrize(("rows", "body", "expected"), WRONG_ROWS.values(), ids=WRONG_ROWS)
def test_oneflow__planted_wrong_row__is_misaligned_in_both_modes(rows, body, expected, mode):
    backend = candidate(mapping=rows, mode=mode)
    try:
        found = judged(record(body, profile="ordinary"), backend).verdict
    finally:
        backend.close()
    if (mode, expected[0]) == ("graph", "metadata"):
        assert found.outcome == "aligned", "outputs of a graph have no gradient, and say nothing of one"
    else:
        assert (found.outcome, found.kind, found.operator) == ("misaligned", *expected)


def test_oneflow__what_its_graph_alone_does_otherwise__is_of_kind_graph(oneflow, graphs):
    # nn.Graph of OneFlow 0.9.0 does not count the batches of a normalization.
    attempt = record(ALIGNED["a module with statistics"], profile="ordinary")
    assert judged(attempt, oneflow).verdict.outcome == "aligned"
    found = judged(attempt, graphs).verdict
    assert (found.kind, found.operator) == ("graph", "torch.nn.functional.batch_norm")
    assert "num_batches_tracked after the run, as a graph" in found.misalignment.what


def test_oneflow__check_graph_of_a_test__is_answered_by_its_graphs(oneflow):
    rules = Rules(check_graph=True)
    counted = record(ALIGNED["a module with statistics"], profile="ordinary")
    assert judged(counted, oneflow, rules).verdict.kind == "graph"
    assert judged(record(ALIGNED["softmax"], profile="ordinary"), oneflow, rules).verdict.outcome == "aligned"


def test_run__mode_graph__says_what_was_compared_and_ends_with_its_kind(tmp_path: Path):
    project = Project(tmp_path)
    project.configure(
        candidates=[
            {"name": name, "backend": "module", "module": "oneflow", "python": str(PYTHON), "mode": name}
            for name in ("eager", "graph")
        ]
    )
    project.tests(
        "@autotest(n=2, profiles=[])\ndef right():\n    return torch.tanh(random_tensor(2))\n\n"
        "@autotest(n=2, profiles=[])\ndef counts():\n    return torch.nn.BatchNorm1d(3)(random_tensor(2, 4, 3))\n"
    )

    done = project.run()

    report = project.report()
    assert outcomes(report) == {
        ("right", "eager"): "aligned", ("right", "graph"): "aligned",
        ("counts", "eager"): "aligned", ("counts", "graph"): "misaligned",
    }, done.said  # fmt: skip
    assert [each["mode"] for each in report["candidates"]] == ["", "graph, forward only"]
    (found,) = report["findings"]
    assert (found["kind"], found["candidate"], found["repro_verified"]) == ("graph", "graph", True), done.said
    repro = project.repro(found)
    assert (repro.status, "num_batches_tracked after the run, as a graph" in repro.out) == (1, True), repro.said


MATMUL = """
@autotest(n=30)
def writes():
    return random_tensor(ndim=2) * 2


@autotest(n=100, auto_backward=False)
def nothing_to_add_up():
    x = random_tensor(ndim=2, dim1=0, requires_grad=False)
    return torch.matmul(x, random_tensor(ndim=2, dim0=0, requires_grad=False))
"""


def test_run__result_that_nothing_writes_to__is_a_finding_and_its_repro_shows_it(tmp_path: Path):
    # OneFlow's matmul leaves the memory of its result as it was where there is nothing to add up: by hand, 1 x 0 by 0 x 1.
    project = Project(tmp_path)
    project.configure(candidates=[{"name": "flow", "backend": "module", "module": "oneflow", "python": str(PYTHON)}])
    project.tests(MATMUL)
    done = project.run()
    (finding,) = project.report()["findings"]
    assert (finding["operator"], finding["kind"], finding["confirmed"], finding["repro_verified"]) == (
        "torch.matmul", "nondeterminism", True, True,
    ), done.said  # fmt: skip
    assert done.status == 1


def test_run__crash_of_a_host_that_goes_back__is_of_the_operator_whose_it_is(tmp_path: Path):
    # By hand: the backward pass of cat of nothing ends OneFlow by SIGFPE; those of sum and cumsum do not.
    project = Project(tmp_path)
    project.configure(candidates=[{"name": "flow", "backend": "module", "module": "oneflow", "python": str(PYTHON)}])
    project.tests(
        "@autotest(n=1, profiles=[])\ndef nothing():\n    x = random_tensor(2, dim0=0, dim1=3)\n"
        "    return torch.cat([x, x]), x.sum(), x.cumsum(0)\n"
    )
    done = project.run()
    (finding,) = project.report()["findings"]
    assert (finding["operator"], finding["kind"], finding["repro_verified"]) == ("torch.cat", "crash", True), done.said
    assert "its backward pass crashed" in finding["program"]
