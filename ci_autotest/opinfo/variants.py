"""Variants of a sample: how an operator is called with it. They are the profiles of ``builtin:opinfo``."""

from __future__ import annotations

from typing import Final, NamedTuple

ORDINARY: Final = "ordinary"
NON_CONTIGUOUS: Final = "non_contiguous"
CONJUGATE: Final = "conjugate"
IN_PLACE: Final = "in_place"
OUT: Final = "out"
ERROR: Final = "error_input"


class PyTorchTest(NamedTuple):
    """A test of PyTorch's own, by which the database and device backends list what they expect to fail."""

    cls_name: str
    test_name: str


#: PyTorch's own test of each variant: its names are those that ``test_exclusions`` and the database's lists use.
TESTS: Final[dict[str, PyTorchTest]] = {
    ORDINARY: PyTorchTest("TestCommon", "test_compare_cpu"),
    NON_CONTIGUOUS: PyTorchTest("TestCommon", "test_noncontiguous_samples"),
    CONJUGATE: PyTorchTest("TestMathBits", "test_conj_view"),
    IN_PLACE: PyTorchTest("TestCommon", "test_variant_consistency_eager"),
    OUT: PyTorchTest("TestCommon", "test_out"),
    ERROR: PyTorchTest("TestCommon", "test_errors"),
}
#: PyTorch's own test of Inductor.
INDUCTOR: Final = PyTorchTest("TestInductorOpInfo", "test_comprehensive")
#: PyTorch's own test of gradients.
GRADIENT: Final = PyTorchTest("TestBwdGradients", "test_fn_grad")
