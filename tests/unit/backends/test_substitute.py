"""Replacement is by operator, however a body spells it and whatever module calls it; a run that replaced nothing says so."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
import torch as real
from torch.nn import functional as F  # noqa: N812 - as everybody writes it

from ci_autotest import random_tensor, torch
from ci_autotest.backends.devices import prove
from ci_autotest.backends.function_paths import load_function
from ci_autotest.backends.registry import build
from ci_autotest.backends.substitute.backend import SubstituteBackend
from ci_autotest.doc_links import Page, more
from ci_autotest.errors import UnavailableError, UnsupportedReason
from ci_autotest.kinds import SubstituteCandidate
from tests.engine import record, substitute, tried


def x(**how):
    return random_tensor(ndim=2, dim0=2, dim1=3, **how)


class Counted:
    """Count its calls, and answer as the function given."""

    def __init__(self, function) -> None:
        self.function = function
        self.calls = 0

    def __call__(self, *args, **kwargs):
        self.calls += 1
        return self.function(*args, **kwargs)


SPELLINGS = {
    "torch": lambda: torch.softmax(x(), dim=-1),
    "method": lambda: x().softmax(dim=-1),
    "functional": lambda: torch.nn.functional.softmax(x(), dim=-1),
    "special": lambda: torch.special.softmax(x(), dim=-1),
    "module": lambda: torch.nn.Softmax(dim=-1)(x()),
    "module inside a module": lambda: torch.nn.Sequential(torch.nn.Softmax(dim=-1))(x()),
    "plain torch": lambda: real.softmax(x(), dim=-1),
    "plain functional": lambda: F.softmax(x(), dim=-1),
}


@pytest.mark.parametrize("body", SPELLINGS.values(), ids=SPELLINGS)
@pytest.mark.parametrize("name", ["softmax", "nn.functional.softmax", "Tensor.softmax", "special.softmax"])
def test_run__any_spelling__is_answered_once(body, name):
    mine = Counted(lambda value, dim=None, **_: (value - value.logsumexp(dim, True)).exp())
    backend = substitute(**{name: mine})
    attempt = record(body)
    trace = backend.run(attempt.program, attempt.sources)
    assert (trace.failure, trace.untested, mine.calls) == (None, None, 1)
    assert trace.calls["torch.nn.functional.softmax"] == 1


@pytest.mark.parametrize("body", SPELLINGS.values(), ids=SPELLINGS)
def test_run__function_with_the_public_signature__is_enough(body):
    # Torch's own wrappers pass a private `_stacklevel` on; a user's kernel need not know of it.
    def softmax(value, dim=None, dtype=None):
        return (value - value.logsumexp(dim, keepdim=True)).exp()

    verdict = tried(body, substitute(softmax=softmax))
    assert (verdict.outcome, verdict.misalignment) == ("aligned", None)


def test_run__inner_calls_of_a_replacement__are_not_replaced():
    mine = Counted(lambda a, b: real.add(a, b))
    assert tried(lambda: x() + x(), substitute(add=mine)).outcome == "aligned"
    assert mine.calls > 0


IN_PLACE = {
    "method": lambda: x(requires_grad=False).mul_(2),
    "augmented": lambda: augmented(x(requires_grad=False)),
    "of a view": lambda: x(requires_grad=False)[0].mul_(2),
    "of a graph": lambda: (x() * 1).mul_(2),
}


def augmented(value):
    value *= 2
    return value


@pytest.mark.parametrize("body", IN_PLACE.values(), ids=IN_PLACE)
def test_run__in_place_spelling__writes_to_the_receiver(body):
    assert tried(body, substitute(mul=lambda a, b: real.mul(a, b))).outcome == "aligned"
    verdict = tried(body, substitute(mul=lambda a, b: a * b + (b == 2)))
    assert (verdict.outcome, verdict.operator, verdict.blame) == ("misaligned", "torch.mul", "candidate")


def written(function):
    """Return a body in which a function writes to what it is given, which is seen beside what it returns."""

    def body():
        value = x() * 1
        return function(value), value

    return body


IN_PLACE_FUNCTIONS = {
    "torch.exp_": ("exp", written(torch.exp_), real.exp),
    "torch.exp_, result dropped": ("exp", lambda: dropped(torch.exp_), real.exp),
    "method": ("exp", written(lambda value: value.exp_()), real.exp),
    "functional": ("relu", written(torch.nn.functional.relu_), real.relu),
    "by keyword": ("relu", written(lambda value: torch.nn.functional.relu(input=value, inplace=True)), F.relu),
    "of a view": ("exp", lambda: torch.exp_(x(requires_grad=False)[0]), real.exp),
    "written by the replacement itself": ("exp", written(torch.exp_), lambda value: value.exp_()),
}


def dropped(function):
    value = x() * 1
    function(value)
    return value


@pytest.mark.parametrize("name", IN_PLACE_FUNCTIONS)
def test_run__in_place_function__writes_to_its_argument(name):
    operator, body, right = IN_PLACE_FUNCTIONS[name]
    assert tried(body, substitute(**{operator: right})).outcome == "aligned"
    verdict = tried(body, substitute(**{operator: lambda *args, **how: right(*args, **how) * 1.01 + 0.1}))
    assert (verdict.outcome, verdict.blame) == ("misaligned", "candidate")


@pytest.mark.parametrize(
    ("gives", "said"),
    [
        pytest.param(lambda value: value.exp().sum(0, keepdim=True), "float32[1, 3]", id="another shape"),
        pytest.param(lambda value: value.exp() + 0j, "complex64[2, 3]", id="a dtype that does not fit"),
        pytest.param(lambda _: None, "NoneType", id="nothing"),
    ],
)
def test_run__in_place_spelling_of_a_result_that_does_not_fit__says_what_and_where(gives, said):
    verdict = tried(lambda: dropped(torch.exp_), substitute(exp=gives))
    assert (verdict.outcome, verdict.kind) == ("misaligned", "error")
    assert f"the replacement returned {said}, which cannot be written in place to float32[2, 3]." in str(
        verdict.misalignment
    )


def chosen(one, other):
    return one.where(one > other, other * 2)


#: Bodies that call an operator with its operands the other way round, by the operator.
REFLECTED = {
    "sub": lambda: 3 - x(),
    "rsub": lambda: torch.rsub(x(), 3, alpha=2),
    "div": lambda: 3 / x(),
    "pow": lambda: 2 ** x(),
    "remainder": lambda: 2 % x(),
    "floor_divide": lambda: 2 // x(),
    "sub of two": lambda: torch.rsub(x(), x()),
    "where": lambda: chosen(x(), x()),
}


@pytest.mark.parametrize("name", REFLECTED)
def test_run__operands_the_other_way_round__are_given_in_the_operators_order(name):
    operator = {"rsub": "sub", "sub of two": "sub"}.get(name, name)
    right = Counted(getattr(real, operator))
    assert tried(REFLECTED[name], substitute(**{operator: right})).outcome == "aligned"
    assert right.calls > 0
    wrong = substitute(**{operator: lambda a, b, **more: getattr(real, operator)(b, a, **more)})
    assert tried(REFLECTED[name], wrong).outcome == "misaligned"


def test_run__other_operand_first_where_it_is_the_same__the_tensor_comes_first():
    def rowwise(value, other):
        return real.stack([row * other for row in value])

    assert tried(lambda: 2 * x(), substitute(mul=rowwise)).outcome == "aligned"


def test_run__in_place_module__writes_to_the_receiver():
    def body():
        value = x() * 1
        return torch.nn.ReLU(inplace=True)(value), value

    # A replacement that saves its input for the backward pass could not answer in place: relu saves its result.
    assert tried(body, substitute(relu=lambda value: value.relu())).outcome == "aligned"


@pytest.mark.parametrize(
    ("body", "seen"),
    [
        (lambda: torch.exp(x()), "torch.exp"),
        (lambda: torch.nn.Linear(3, 2)(x()), "torch.nn.functional.linear"),
        (lambda: x() * 2, "torch.mul"),
    ],
    ids=["function", "module", "operator"],
)
def test_run__never_called__is_untested_with_the_spellings_seen(body, seen):
    attempt = record(body)
    backend = substitute(softmax=real.softmax)
    trace = backend.run(attempt.program, attempt.sources)
    assert trace.untested.reason is UnsupportedReason.NOT_REPLACED
    assert trace.untested.detail.startswith(
        "no call was replaced: torch.nn.functional.softmax did not occur; operators called:"
    )
    assert seen in trace.untested.detail
    assert trace.calls.get(seen) == 0


def test_run__calls__are_counted_in_its_trace():
    backend = substitute(exp=real.exp)
    attempt = record(lambda: torch.exp(torch.exp(x())) + 1)
    for _ in range(3):
        trace = backend.run(attempt.program, attempt.sources)
    assert trace.calls == {"torch.exp": 2, "torch.add": 0}


@pytest.fixture
def kernels(monkeypatch):
    module = ModuleType("fake_kernels")
    module.exp = real.exp
    module.number = 3
    monkeypatch.setitem(sys.modules, "fake_kernels", module)
    return module


def test_substitute_backend__path__is_imported(kernels):
    assert SubstituteBackend({"torch.Tensor.exp_": "fake_kernels.exp"}).functions == {"torch.exp": real.exp}
    candidate = SubstituteCandidate(name="k", replace={"torch.exp": "fake_kernels.exp"})
    assert isinstance(build(candidate, "cpu"), SubstituteBackend)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("no_such_module.exp", "replacement 'no_such_module.exp' cannot be imported: ModuleNotFoundError"),
        ("fake_kernels.sin", "module 'fake_kernels' has no function 'sin'. It has exp."),
        ("fake_kernels.number", "module 'fake_kernels' has no function 'number'. It has exp."),
    ],
)
def test_load_function__what_is_not_there__says_what_is(path, said, kernels):
    with pytest.raises(UnavailableError) as caught:
        load_function(path)
    assert said in str(caught.value)


LOOKED_FOR = (
    "It is looked for in the test file's folder, the configuration's folder, the current folder and PYTHONPATH."
    + more(Page.IMPORTS)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import torch\ndef exp(x:\n", "SyntaxError: '(' was never closed (own_kernels.py, line 2)."),
        ("def f():\n    raise ValueError('no GPU')\n\nf()\n", "ValueError: no GPU (own_kernels.py, line 2 in f)."),
        (
            "import no_such_library\n",
            "ModuleNotFoundError: No module named 'no_such_library' (own_kernels.py, line 1 in <module>).",
        ),
        (None, f"ModuleNotFoundError: No module named 'own_kernels'. {LOOKED_FOR}"),
    ],
    ids=["syntax", "raises", "imports what is missing", "not found"],
)
def test_load_function__module_fails__says_where_it_was_looked_for_only_if_not_found(
    text, message, tmp_path, monkeypatch
):
    monkeypatch.syspath_prepend(tmp_path)
    if text is not None:
        (tmp_path / "own_kernels.py").write_text(text)
    with pytest.raises(UnavailableError) as caught:
        load_function("own_kernels.exp")
    assert str(caught.value) == f"replacement 'own_kernels.exp' cannot be imported: {message}"


@pytest.mark.skipif(real.cuda.is_available(), reason="there is a device")
def test_prove__device_that_is_not_there__says_what_to_do():
    prove("cpu", "mine")
    with pytest.raises(UnavailableError, match=r"gpu: torch .* cannot use device 'cuda' here"):
        prove("cuda", "gpu")
