"""What coverage counts of a program: operators under their canonical names, arguments under torch's, dtypes."""

from __future__ import annotations

from ci_autotest import nothing, oneof, random_tensor, torch
from ci_autotest.backends.operator_usage import FORMS, OperatorUsage, Use
from tests.engine import record


def uses(body, **how):
    usage = OperatorUsage()
    return usage.uses[usage.form(record(body, profile="ordinary", **how))]


def test_uses__one_operator_in_three_spellings__is_one_with_torchs_names():
    def method():
        return random_tensor(ndim=2).softmax(1)

    def function():
        return torch.softmax(random_tensor(ndim=2), dim=1)

    def functional():
        return torch.nn.functional.softmax(random_tensor(ndim=2), 1)

    expected = (Use("torch.nn.functional.softmax", ("dim", "input"), ("float32",)),)
    assert [uses(body) for body in (method, function, functional)] == [expected] * 3


def test_uses__arguments_have_torchs_default__are_given_all_the_same():
    def body():
        x = random_tensor(ndim=1, dim0=3)
        return torch.add(x, x, alpha=1)

    assert uses(body) == (Use("torch.add", ("alpha", "input", "other"), ("float32",)),)


def test_uses__several_calls_of_one_operator__are_one_with_all_that_was_given():
    def body():
        x = random_tensor(ndim=2, dtype=int)
        return torch.sum(x, dim=0), torch.sum(x.to(torch.float64), keepdim=True, dim=1)

    found = {use.operator: use for use in uses(body)}
    assert found["torch.sum"] == Use("torch.sum", ("dim", "input", "keepdim"), ("float64", "int64"))


def test_uses__operator_of_python__is_torchs():
    def body():
        x = random_tensor(ndim=2)
        return (x * 2)[0] + x.T

    assert {use.operator for use in uses(body)} == {
        "torch.mul",
        "torch.add",
        "torch.Tensor.__getitem__",
        "torch.Tensor.T",
    }


def test_uses__module__is_its_operator_with_what_it_was_constructed_with():
    def body():
        return torch.nn.Conv1d(2, 3, kernel_size=1, stride=1)(random_tensor(ndim=3, dim1=2))

    (found,) = (use for use in uses(body) if use.operator == "torch.nn.functional.conv1d")
    assert {"kernel_size", "stride", "in_channels"} <= set(found.arguments)
    assert found.dtypes == ("float32",)


def test_uses__operator_makes_a_tensor_of_nothing__has_the_dtype_of_its_result():
    def body():
        return torch.zeros(3, dtype=torch.int32)

    (found,) = uses(body)
    assert (found.operator, found.dtypes) == ("torch.zeros", ("int32",))
    assert "dtype" in found.arguments


def test_form__other_data_and_shapes__is_the_same():
    def body():
        return torch.add(random_tensor(ndim=2), 1)

    usage = OperatorUsage()
    assert {usage.form(record(body, case, profile="ordinary")) for case in range(6)} == {1}


def test_form__other_arguments_overloads_and_dtypes__are_told_apart():
    def number():
        return torch.max(random_tensor(ndim=2), 1)

    def tensor():
        x = random_tensor(ndim=2)
        return torch.max(x, x)

    def integers():
        return torch.max(random_tensor(ndim=2, dtype=int), 1)

    def named():
        return torch.max(random_tensor(ndim=2), dim=1)

    usage = OperatorUsage()
    forms = [usage.form(record(body, profile="ordinary")) for body in (number, tensor, integers, named)]
    assert len(set(forms)) == 4
    assert [usage.uses[form][0].arguments for form in forms[:2]] == [("dim", "input"), ("input", "other")]


def test_form__drawn_argument__both_forms_are_seen():
    def body():
        return torch.sum(random_tensor(ndim=2), dim=oneof(0, 1) | nothing())

    usage = OperatorUsage()
    for case in range(12):
        usage.form(record(body, case, profile="ordinary"))
    assert {use.arguments for uses in usage.uses[1:] for use in uses} == {("input",), ("dim", "input")}


def test_form__more_forms_than_are_told_apart__counts_as_none():
    usage = OperatorUsage()
    usage._forms = dict.fromkeys(range(FORMS), 1)
    assert usage.uses[usage.form(record(lambda: torch.abs(random_tensor()), profile="ordinary"))] == ()
