"""Operators of the user's as targets: which names may be one, and which of them a program from outside may name."""

from __future__ import annotations

import operator

import pytest

from ci_autotest.errors import ProgramError
from ci_autotest.host.steps import PYTHON_TARGETS
from ci_autotest.program.check import check_program
from ci_autotest.program.ir import CALL_FUNCTION, OUTPUT, PLACEHOLDER, Program, Ref, Step, TensorSpec
from ci_autotest.program.targets import is_function, is_overload, is_own, named_in, own_operator

X = Step(PLACEHOLDER, "x", (TensorSpec("float32", (), (), 0, 1),))


def calling(target: str) -> Program:
    call = Step(CALL_FUNCTION, target, (Ref(0),))
    return Program((), (X, call, Step(OUTPUT, "output", (Ref(1),))))


@pytest.mark.parametrize(
    "target", ["refs.swiglu", "my.refs.Gate", "torch.ops.mine.swiglu", "torch.ops.mine.add.Tensor"]
)
def test_is_own__operator_of_the_users__is_one_where_it_is_named(target: str):
    assert is_own(target)
    check_program(calling(target), named_in({own_operator(target)}))
    check_program(calling(target), named_in({target.rpartition(".")[0]}))
    for names in ((), ("refs",), ("other.swiglu",)):
        if target != "refs.swiglu" or names != ("refs",):
            with pytest.raises(ProgramError, match=r"and operators that the autotest\.yml here names"):
                check_program(calling(target), named_in(names))
    with pytest.raises(ProgramError, match="which is not on the allow list"):
        check_program(calling(target))


@pytest.mark.parametrize(
    "target",
    ["os.system", "subprocess.run", "builtins.eval", "operator.call", "torch.load", "torch.ops.load_library", "swiglu",
     "torch.ops.mine.load", "refs.__class__", "refs.__dict__.pop", "refs.f()", "refs.f; import os", "adapters.f", "",
     "torch.ops.aten.from_file", "importlib.import_module", "r" * 190 + ".swiglu_of_mine"],
)  # fmt: skip
def test_is_own__anything_else__is_refused_whatever_is_named(target: str):
    assert not is_own(target)
    with pytest.raises(ProgramError, match="which is not on the allow list"):
        check_program(calling(target), named_in({target, target.rpartition(".")[0]}))


@pytest.mark.parametrize("name", ["add.out", "_softmax.default", "__and__.Tensor", "_foreach_add_.Scalar", "to.dtype"])
def test_is_overload__of_the_dispatcher__may_be_private_and_is_named_by_the_namespace(name: str):
    target = f"torch.ops.aten.{name}"

    assert is_overload(target)
    check_program(calling(target), named_in({"torch.ops.aten"}))
    with pytest.raises(ProgramError, match=r"if `paths` of the autotest\.yml here has"):
        check_program(calling(target), named_in({"torch.ops.mine", "builtin:overloads"}))


@pytest.mark.parametrize(
    "target",
    ["torch.ops.aten.from_file.default", "torch.ops.aten.set_.source_Storage", "torch.ops.aten.set_data.default",
     "torch.ops.aten.___class__.x", "torch.ops.aten.add.out()", "torch.ops.aten.add.a.b", "torch.ops.aten._softmax",
     "torch.ops.mine._private.default"],
)  # fmt: skip
def test_is_overload__files_memory_and_what_is_no_overload__are_none(target: str):
    assert not is_overload(target)


def test_is_function__names_of_the_operator_module__are_those_that_a_step_can_call():
    allowed = {name for name in dir(operator) if is_function(f"operator.{name}")}
    assert {f"operator.{name}" for name in allowed} == {name for name in PYTHON_TARGETS if name.startswith("operator.")}
    assert {"and_", "iadd", "getitem"} <= allowed
    assert allowed.isdisjoint({"imatmul", "not_", "call", "attrgetter"})
