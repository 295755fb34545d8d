"""What the database knows about a failing case: NumPy's opinion, and what PyTorch's own tests expect to fail."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ci_autotest.config import OpOverride
from ci_autotest.kinds import KINDS, AnyCandidate
from ci_autotest.opinfo.background import SampleBackground
from ci_autotest.opinfo.database import entries
from ci_autotest.opinfo.schedule import KeptSamples, Samples, SampleSpot
from ci_autotest.values.verdict import Verdict

WRONG = Verdict(outcome="misaligned", kind="value")
CRASHED = Verdict(outcome="crashed", kind="crash")


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
