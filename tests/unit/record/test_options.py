"""The options of ``@autotest``: each means something, and one message says what is wrong."""

from __future__ import annotations

import pytest
import torch as real

from ci_autotest import autotest, random_tensor, torch
from ci_autotest.alignment.tolerance_rules import rules_for
from ci_autotest.errors import AuthorError
from ci_autotest.record.declaration import declaration_of
from ci_autotest.record.draw.profiles import TURNS
from ci_autotest.record.options import dtype_of
from tests.engine import record, substitute, tried

KNOWN = (
    "It has n, auto_backward, rtol, atol, check_dtype, check_allclose, check_grad_use_random_data, check_graph, "
    "include_complex, profiles, dtypes, id, raises, match, examples, batch, forms."
)


def body():
    return torch.exp(random_tensor(ndim=2))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"cases": 5}, f"autotest() has no option 'cases'. Did you mean n? {KNOWN}"),
        ({"case": 3}, f"autotest() has no option 'case'. Did you mean n? {KNOWN}"),
        ({"raise_on": 1}, f"autotest() has no option 'raise_on'. {KNOWN}"),
        ({"timeout": 1}, f"autotest() has no option 'timeout'. {KNOWN}"),
        ({"check_alclose": False}, f"autotest() has no option 'check_alclose'. Did you mean check_allclose? {KNOWN}"),
        ({"colour": 1}, f"autotest() has no option 'colour'. {KNOWN}"),
        ({"n": body}, "@autotest was given the function itself. Write @autotest() with parentheses."),
        ({"n": 0}, "autotest(n=0) is not a number of cases. Write 1 or more, or nothing for the configuration's."),
        ({"n": "5"}, "autotest(n='5') is not a number of cases. Write 1 or more, or nothing for the configuration's."),
        ({"n": True}, "autotest(n=True) is not a number of cases. Write 1 or more, or nothing for the configuration's."),
        ({"auto_backward": "yes"}, "autotest(auto_backward='yes') is none of its values. Write True, False or 'auto'."),
        ({"check_graph": 1}, "autotest(check_graph=1) is none of its values. Write True, False or 'ValidatedFalse'."),
        ({"check_dtype": None}, "autotest(check_dtype=None) is none of its values. Write True or False."),
        ({"include_complex": 2}, "autotest(include_complex=2) is none of its values. Write True or False."),
        ({"rtol": -1, "atol": 0}, "autotest(rtol=-1) is not a tolerance. Write a number that is 0 or more; "),
        (
            {"rtol": 0, "atol": float("inf")},
            "autotest(atol=inf) is not a tolerance. Write a number that is 0 or more; check_allclose=False compares no elements.",
        ),
        ({"rtol": 0, "atol": "small"}, "autotest(atol='small') is not a tolerance. Write a number that is 0 or more; "),
        ({"id": " "}, "autotest(id=' ') names no test. Write a text that no other test has."),
        ({"profiles": "large"}, "autotest(profiles='large') is not a list. Write profiles=('large',), or () for ordinary"),
        ({"profiles": ("huge",)}, "autotest(profiles=...) has no profile 'huge'. Use zero_dim, "),
        ({"dtypes": "float32"}, "autotest(dtypes='float32') is not a list of dtypes. Write dtypes=(torch.float32, torch.float64)."),
        ({"batch": 0}, "autotest(batch=0) does not say where the batch is. Write batch={0: 0, 1: 1}: the number of a tensor"),
        ({"batch": {0: -1}}, "autotest(batch={0: -1}) does not say where the batch is."),
        ({"batch": {}}, "autotest(batch={}) does not say where the batch is."),
        ({"dtypes": ()}, "autotest(dtypes=()) is not a list of dtypes."),
        ({"dtypes": ("float31",)}, "autotest(dtypes=...) has 'float31', but data cannot be drawn for that. Use bfloat16, float16"),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, dict) else "",
)  # fmt: skip
def test_autotest__bad_option__says_what_to_write(given, says):
    with pytest.raises(AuthorError) as refused:
        autotest(**given)
    assert str(refused.value).startswith(says)


def test_autotest__every_option__is_declared():
    declaration = declaration_of(
        autotest(
            7, "auto", 1e-3, 1e-4, check_dtype=False, check_graph=True, profiles=["large"], id="mine",
            dtypes=(float, "float64", real.bfloat16), check_allclose=False, check_grad_use_random_data=False,
            include_complex=True,
        )(body)
    )  # fmt: skip
    assert declaration is not None
    assert (declaration.n, declaration.auto_backward, declaration.rtol, declaration.atol) == (7, True, 1e-3, 1e-4)
    assert (declaration.check_dtype, declaration.check_graph, declaration.check_allclose) == (False, True, False)
    assert (declaration.check_grad_use_random_data, declaration.profiles, declaration.id) == (False, ("large",), "mine")
    assert declaration.dtypes == ("float32", "float64", "bfloat16", "complex64")


def test_autotest__validated_false_of_oneflow__is_no_graph_check():
    declaration = declaration_of(autotest(check_graph="ValidatedFalse")(body))
    assert declaration is not None
    assert declaration.check_graph is False


@pytest.mark.parametrize("given", [True, "auto"])
def test_auto_backward__an_output_without_a_gradient__is_let_be(given):
    def smallest():
        return torch.argmin(random_tensor(ndim=2)), torch.exp(random_tensor(ndim=1))

    declaration = declaration_of(autotest(auto_backward=given)(smallest))
    assert declaration is not None
    assert list(record(smallest, auto_backward=declaration.auto_backward).cotangents) == [1]


def test_auto_backward__false__puts_no_gradient_in():
    assert record(body, auto_backward=False).cotangents == {}


def test_dtypes__swept__go_through_every_dtype_with_every_profile():
    dtypes = ("float32", "float64", "bfloat16", "int64")
    seen = {(case % 2, (case // 2) % TURNS, dtype_of(case, dtypes)) for case in range(2 * TURNS * 4)}
    assert len(seen) == 2 * TURNS * 4
    assert dtype_of(5, None) is None


def test_dtypes__swept__are_those_of_tensors_that_are_left_open():
    def open_and_closed():
        return random_tensor(ndim=1) + 1, random_tensor(ndim=1, dtype=int) + 1

    for case, wanted in ((0, "float64"), (2, "complex64")):
        attempt = record(open_and_closed, case, dtypes=("float64", "complex64"))
        specs = [step.args[0].dtype for step in attempt.program.body if step.op == "placeholder"]
        assert specs == [wanted, "int64"]


def only_for_double(x):
    return real.Tensor.exp(x) + (1 if x.dtype is real.float64 else 0)


def test_dtypes__fault_of_one_dtype__is_found_by_the_sweep_alone():
    kernel = substitute(exp=only_for_double)
    swept = [tried(body, kernel, case=case, dtypes=("float32", "float64")).outcome for case in (0, 2)]
    assert swept == ["aligned", "misaligned"]
    assert [tried(body, kernel, case=case).outcome for case in (0, 2)] == ["aligned", "aligned"]


def other_values(x):
    return real.Tensor.exp(x) + 1


def other_dtype(x):
    return real.Tensor.exp(x).double()


def other_shape(x):
    return real.Tensor.exp(x)[:1]


@pytest.mark.parametrize(
    ("kernel", "outcome", "kind"),
    [(other_values, "aligned", None), (other_dtype, "misaligned", "dtype"), (other_shape, "misaligned", "shape")],
)
def test_check_allclose__false__compares_all_but_elements(kernel, outcome, kind):
    declaration = declaration_of(autotest(check_allclose=False)(body))
    rules = rules_for((), "tolerance", "kernels", declaration)

    def tall():
        return torch.exp(random_tensor(2, 3, 4))

    verdict = tried(tall, substitute(exp=kernel), rules)
    assert (verdict.outcome, verdict.kind) == (outcome, kind)


def test_check_allclose__false__still_sees_that_an_input_was_resized():
    def resizing(value):
        found = real.exp(value)
        value.resize_(value.numel() + 1)
        return found

    rules = rules_for((), "tolerance", "kernels", declaration_of(autotest(check_allclose=False)(body)))
    verdict = tried(lambda: torch.exp(random_tensor(1, 4, requires_grad=False)), substitute(exp=resizing), rules)
    assert (verdict.outcome, verdict.kind) == ("misaligned", "mutation")


def test_check_grad_use_random_data__false__puts_ones_in():
    attempt = record(body, check_grad_use_random_data=False)
    assert real.equal(attempt.cotangents[0], real.ones_like(attempt.trace.values[-2]))
    assert not real.equal(record(body).cotangents[0], attempt.cotangents[0])


def test_autotest__one_tolerance__is_the_bound_of_its_test():
    def loose(x):
        return real.exp(x) * (1 + 1e-3)

    candidate = substitute(exp=loose)
    for bound, outcome in (({"rtol": 1e-2}, "aligned"), ({"atol": 1e-9}, "misaligned")):
        rules = rules_for((), "tolerance", "kernels", declaration_of(autotest(**bound)(body)))
        assert tried(body, candidate, rules).outcome == outcome
