"""Tests of the database as programs: what a sample becomes in each variant, and what the configuration leaves of them.

Of a failing case the database knows NumPy's opinion, and what PyTorch's own tests expect to fail.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ci_autotest.config import OpInfo, OpOverride
from ci_autotest.errors import ConfigError
from ci_autotest.kinds import KINDS, AnyCandidate
from ci_autotest.opinfo.database import entries
from ci_autotest.opinfo.names import CONJUGATE, ERROR, IN_PLACE, NON_CONTIGUOUS, OPINFO, ORDINARY, OUT
from ci_autotest.opinfo.schedule import KeptSamples, Samples, SampleSpot
from ci_autotest.opinfo.source import SampleBackground, SampleTests
from ci_autotest.program.ir import PLACEHOLDER
from ci_autotest.run.worker.tests import SourceSetting
from ci_autotest.values.case import test_key as stream_key
from ci_autotest.values.verdict import Verdict
from tests.engine import attempts

#: Variants, and the calls of the program that the first sample of it becomes.
CALLS = {
    "torch.add": {
        ORDINARY: ["torch.add"], NON_CONTIGUOUS: ["torch.add"], IN_PLACE: ["clone", "add_"],
        OUT: ["torch.add"], CONJUGATE: ["conj", "conj", "torch.add"],
    },
    "torch.gather": {ERROR: ["torch.gather"]},
    "torch.cauchy": {ORDINARY: ["cauchy_"]},
    "torch.item": {ORDINARY: ["item"]},
    "torch.randn": {ORDINARY: ["torch.randn"]},
    "torch.where": {ORDINARY: ["where"]},
    "torch.stack": {ORDINARY: ["torch.stack"]},
    "torch.linalg.svd": {ORDINARY: ["torch.linalg.svd"]},
}  # fmt: skip
WRONG = Verdict(outcome="misaligned", kind="value")
CRASHED = Verdict(outcome="crashed", kind="crash")


def attempt(opinfo: SampleTests, name: str, variant: str):
    declaration, body = opinfo.find("", name)
    body.count(60)
    test = f"builtin:opinfo::{name}"
    # The last one, because the first samples are often too small for a layout.
    case = max(case for case, spot in enumerate(body._spots) if spot.variant == variant)
    return attempts().attempt(declaration, body, (stream_key(0, test), test, case, 0))


@pytest.mark.parametrize(("name", "variant"), [(name, variant) for name, own in CALLS.items() for variant in own])
def test_body__sample__is_recorded_as_a_written_test_would_be(name: str, variant: str):
    found = attempt(SampleTests(SourceSetting(OPINFO, Path(), 0)), name, variant)

    assert not found.skipped
    assert found.profile == variant
    calls = [step.target for _, step in found.program.calls if step.target != "operator.getitem"]
    assert [call for call in calls if not call.startswith("builtins.")][: len(CALLS[name][variant])] == CALLS[name][
        variant
    ]


def test_body__variants__inputs_are_what_the_variant_says():
    opinfo = SampleTests(SourceSetting(OPINFO, Path(), 0))
    strided, out = (attempt(opinfo, "torch.add", variant).program for variant in (NON_CONTIGUOUS, OUT))
    specs = [step.args[0] for step in strided.steps if step.op == PLACEHOLDER]

    assert not any(spec.is_contiguous for spec in specs if spec.shape)
    assert "out" in dict(next(step for _, step in out.calls).kwargs)


def test_body__error_input__refusal_is_demanded():
    found = attempt(SampleTests(SourceSetting(OPINFO, Path(), 0)), "torch.gather", ERROR)

    assert "torch.gather" in [step.target for _, step in found.program.calls]
    assert found.is_complete
    assert found.background is not None  # what PyTorch expects to fail holds for refusals too


def test_tests__allowlist_and_exclusions__leave_their_entries_and_variants():
    chosen = OpInfo(
        dtypes=("int64",), op_allowlist=("add", "div.floor_rounding"),
        op_overrides={"add": (OpOverride(decorator="skip", test_name="test_out"),)},
        test_exclusions={"TestCommon": ("test_noncontiguous_samples", "test_errors")},
    )  # fmt: skip
    opinfo = SampleTests(SourceSetting(OPINFO, Path(), 0, chosen))

    names = [one.name for one in opinfo.tests("builtin:opinfo", (), 30)]
    found = {(spot.variant, spot.dtype) for spot in opinfo.find("", "torch.add")[1]._spots}

    assert names == ["torch.add", "torch.div[floor_rounding]"]
    assert found == {(ORDINARY, "int64"), (IN_PLACE, "int64")}


def test_tests__entry_that_does_not_exist__is_an_error_that_names_the_nearest():
    with pytest.raises(ConfigError) as refusal:
        SampleTests(SourceSetting(OPINFO, Path(), 0, OpInfo(op_allowlist=("linalg.nrom",)))).tests(
            "builtin:opinfo", (), 1
        )

    assert str(refusal.value) == (
        f"opinfo names 'linalg.nrom', which is no entry of PyTorch {torch.__version__}'s database. "
        "Did you mean 'linalg.norm'?"
    )


@pytest.mark.parametrize(
    ("chosen", "wrong", "nearest"),
    [
        pytest.param(
            OpInfo(op_overrides={"add": (OpOverride(decorator="skip", cls_name="TestComon"),)}),
            "TestComon", "TestCommon", id="class_of_a_row",
        ),
        pytest.param(
            OpInfo(op_overrides={"add": (OpOverride(decorator="skip", cls_name="TestMathBits", test_name="test_out"),)}),
            "TestMathBits.test_out", "TestMathBits.test_conj_view", id="test_of_another_class",
        ),
        pytest.param(
            OpInfo(test_exclusions={"TestCommon": ("test_eror",)}), "TestCommon.test_eror", "TestCommon.test_errors",
            id="test_of_an_exclusion",
        ),
        pytest.param(OpInfo(test_exclusions={"TestMathBit": "*"}), "TestMathBit", "TestMathBits", id="whole_class"),
    ],
)  # fmt: skip
def test_tests__test_of_pytorch_that_does_not_exist__is_an_error_that_names_the_nearest(
    chosen: OpInfo, wrong: str, nearest: str
):
    with pytest.raises(ConfigError) as refusal:
        SampleTests(SourceSetting(OPINFO, Path(), 0, chosen)).tests("builtin:opinfo", ("none",), 1)

    assert str(refusal.value) == (
        f"opinfo names {wrong!r}, which is no test of PyTorch {torch.__version__}'s database. Did you mean {nearest!r}?"
    )


def test_tests__test_of_pytorch_that_is_no_variant__is_accepted_from_a_copied_list():
    row = OpOverride(decorator="skip", cls_name="TestJit", test_name="test_variant_consistency_jit")
    chosen = OpInfo(op_allowlist=("add",), op_overrides={"add": (row,)}, test_exclusions={"TestMeta": "*"})

    assert [
        one.name for one in SampleTests(SourceSetting(OPINFO, Path(), 0, chosen)).tests("builtin:opinfo", ("none",), 1)
    ] == ["torch.add"]


def background(name: str, variant: str = "ordinary", dtype: str = "float32", *rows: OpOverride) -> SampleBackground:
    entry = entries()[name]
    return SampleBackground(
        entry, Samples(entry, name, 0, KeptSamples()).get(dtype, 0), SampleSpot(variant, dtype, 0), rows
    )


def row(backend: str, device: str) -> AnyCandidate:
    return KINDS[backend](name="c", device=device)


def test_notes__numpy_computes_the_same__agrees():
    assert background("torch.exp").notes(row("torch", "cpu"), WRONG) == ("NumPy agrees with the reference",)


def test_notes__numpy_computes_something_else__says_by_how_much(monkeypatch: pytest.MonkeyPatch):
    found = background("torch.exp")
    monkeypatch.setattr(found.entry.info, "ref", lambda x: np.exp(x) + 0.5)

    assert [note.partition(",")[0] for note in found.notes(row("torch", "cpu"), WRONG)] == [
        "NumPy's function for it differs from the reference too"
    ]


def test_notes__entry_without_a_function_of_numpy__are_none():
    assert background("torch.logaddexp").notes(row("torch", "cpu"), WRONG) == ()


BITS = OpOverride(decorator="expectedFailure", reason="slow bits")
OF_INTEGERS = OpOverride(decorator="expectedFailure", device_type="cuda", dtypes=("int64",))


@pytest.mark.parametrize(
    ("case", "side", "reason"),
    [
        pytest.param(
            ("torch.matmul", "out"), ("torch", "mps"),
            "known by PyTorch: its database lists TestCommon.test_out as an expected failure", id="listed",
        ),
        pytest.param(("torch.matmul", "out"), ("module", "mps"), "", id="another_framework"),
        pytest.param(("torch.matmul", "out"), ("fx", "mps"), "", id="graph_that_passes_changed"),
        pytest.param(("torch.addbmm", "in_place"), ("torch", "cpu"), "", id="skipped"),
        pytest.param(
            ("torch.nn.functional.dropout", "ordinary"), ("torch.compile", "cpu"), "", id="listed_for_accelerators_alone"
        ),
        pytest.param(("torch.add", "ordinary"), ("torch", "cuda:0"), "", id="not_listed"),
        pytest.param(("torch.add", "ordinary", "float32", BITS), ("module", "npu"), "slow bits", id="overrides"),
        pytest.param(
            ("torch.add", "ordinary", "float32", OF_INTEGERS), ("torch", "cuda"), "", id="overrides_of_another_dtype"
        ),
    ],
)  # fmt: skip
def test_known__difference_on_a_device__is_what_pytorch_s_lists_say(
    case: tuple[Any, ...], side: tuple[str, str], reason: str
):
    assert background(*case).known(row(*side), WRONG) == reason


def test_known__crash_of_a_listed_test__is_none_because_pytorch_expects_none():
    assert background("torch.matmul", "out").known(row("torch", "mps"), CRASHED) == ""


@pytest.mark.parametrize(
    ("backend", "skipped"),
    [
        ("torch", ["PyTorch skips its own TestCommon.test_variant_consistency_eager of it on cpu"]),
        ("fx", []),
    ],
)
def test_notes__test_that_pytorch_skips__is_named(backend: str, skipped: list[str]):
    notes = background("torch.addbmm", "in_place").notes(row(backend, "cpu"), WRONG)

    assert [note for note in notes if "skips" in note] == skipped
