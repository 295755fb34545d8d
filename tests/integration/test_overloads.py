"""The overloads of PyTorch's dispatcher as tests: the shipped lists are those of the installed torch, and the programs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from ci_autotest.config import OpInfo
from ci_autotest.errors import AuthorError
from ci_autotest.opinfo.database import entries, foreach_entries
from ci_autotest.opinfo.names import FAMILIES
from ci_autotest.opinfo.overload_calls import _MISSING, OverloadCall, _as, adapted, overload_of
from ci_autotest.opinfo.overload_samples import SAMPLES
from ci_autotest.opinfo.overloads import WRITTEN, dispatcher_overloads, overload_entries, refuse_other, table
from ci_autotest.opinfo.source import SampleTests
from ci_autotest.program.ir import OUTPUT, PLACEHOLDER
from ci_autotest.program.targets import OVERLOADS
from ci_autotest.report.coverage import overloads
from ci_autotest.run.worker.tests import SourceSetting
from ci_autotest.values.case import test_key as stream_key
from tests.engine import attempts

#: Overloads, and the calls of the program that their first sample becomes: what converts an input or a result, too.
CALLS = {
    "aten.add.out": ["torch.ops.aten.add.out"],
    "aten.add_.Tensor": ["torch.ops.aten.add_.Tensor"],
    "aten.__and__.Tensor": ["torch.ops.aten.__and__.Tensor"],
    "aten._foreach_add_.Scalar": ["torch.ops.aten._foreach_add_.Scalar"],
    "aten._softmax_backward_data.default": ["torch.ops.aten._softmax_backward_data.default"],
    "aten._fused_adam_.default": ["torch.ops.aten._fused_adam_.default"],
    "aten.conv2d.padding": ["torch.ops.aten.conv2d.padding"],
    "aten.linalg_svd.U": ["torch.ops.aten.linalg_svd.U"],
    "aten._sparse_softmax.int": ["to_sparse", "torch.ops.aten._sparse_softmax.int", "to_dense"],
    "aten.mkldnn_linear.default": ["to_mkldnn", "torch.ops.aten.mkldnn_linear.default", "to_dense"],
    "aten.int_repr.default": ["torch.quantize_per_tensor", "torch.ops.aten.int_repr.default"],
    "aten.is_same_size.default": ["torch.ops.aten.is_same_size.default"],
}


def attempt(name: str, case: int = 0):
    declaration, body = SampleTests(SourceSetting(OVERLOADS, Path(), 0)).find("", name)
    test = f"{OVERLOADS}::{name}"
    return attempts().attempt(declaration, body, (stream_key(0, test), test, case, 0))


@pytest.mark.skipif(not torch.__version__.startswith(table().torch), reason="the files are of another torch")
def test_lists__installed_torch__have_each_overload_of_the_dispatcher_once():
    listed = overloads()

    assert sorted(listed.all) == sorted(dispatcher_overloads())
    assert len(set(listed.all)) == len(listed.all)
    assert sorted(listed.tested) == sorted(table().overloads)


def test_lists__left_out__are_a_tenth_at_most():
    listed = overloads()

    assert len(listed.tested) >= 0.9 * len(listed.all)


def test_table__rows__name_samples_that_exist():
    known = {*entries(), *foreach_entries(), *(f"{WRITTEN}{name}" for name in SAMPLES)}

    assert {row.source for row in table().overloads.values()} <= known
    assert all(row.samples and all(row.samples.values()) for row in table().overloads.values())


@pytest.mark.parametrize("name", CALLS)
def test_body__sample__calls_the_overload_and_has_an_output(name: str):
    found = attempt(name)

    calls = [step.target for _, step in found.program.calls]
    assert not found.skipped
    assert list(dict.fromkeys(calls)) == CALLS[name]
    assert next(step for step in found.program.steps if step.op == OUTPUT).args


def test_body__out__is_given_other_elements_than_the_result():
    found = attempt("aten.exp2.out")
    call = next(step for _, step in found.program.calls)
    target = dict(call.kwargs)["out"]

    assert found.program.steps[target.index].op == PLACEHOLDER
    assert bool((found.sources[found.program.steps[target.index].target] == 1).all())


def test_adapted__arguments_that_the_reference_refuses__give_no_call():
    assert adapted(overload_of("aten.mm.default"), OverloadCall((torch.ones(2, 3), torch.ones(2, 3)), {}), "") is None


def test_tests__families__are_what_the_schema_says_and_counting_makes_no_sample():
    found = {one.name: one for one in SampleTests(SourceSetting(OVERLOADS, Path(), 0)).tests(OVERLOADS, (), 20)}
    names = ("aten.add.Tensor", "aten.add_.Tensor", "aten.add.out")

    assert [found[name].file for name in names] == [f"{OVERLOADS}/{family}" for family in FAMILIES[OVERLOADS]]
    assert all(one.samples > 0 for one in found.values())


def test_tests__allowlist__names_overloads():
    chosen = OpInfo(op_allowlist=("aten.add.out", "add"))

    assert [
        one.name for one in SampleTests(SourceSetting(OVERLOADS, Path(), 0, chosen)).tests(OVERLOADS, ("none",), 1)
    ] == ["aten.add.out"]


def test_refuse_other__another_version__says_what_to_do():
    with pytest.raises(AuthorError) as refusal:
        refuse_other("2.14.1+cpu", "2.13")

    assert str(refusal.value) == (
        "builtin:overloads lists the overloads of PyTorch 2.13, and PyTorch 2.14.1+cpu is installed. Install PyTorch "
        "2.13, or use builtin:opinfo, which reads the database of the installed one."
    )


def test_overload_entries__installed_version__are_those_of_the_table():
    assert list(overload_entries()) == list(table().overloads)


def test_guide__reasons__are_those_of_the_list():
    listed = overloads()
    guide = (Path(__file__).parent.parent.parent / "docs" / "how-to" / "builtin-sources.md").read_text("utf-8")

    assert all(re.search(rf"\| `{reason}`: [^|]* \| {len(own)} \|", guide) for reason, own in listed.left_out.items())
    assert f"{len(listed.tested):,} of the {len(listed.all):,} overloads" in guide


def test_as__list_with_none__is_missing_unless_its_elements_may_be_none():
    assert _as("List[int]", [1, None], None, is_optional=False) is _MISSING
    assert _as("List[Optional[Tensor]]", [None], None, is_optional=False) == [None]
