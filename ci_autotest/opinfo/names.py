"""Names, without torch, because the parent process checks paths with them: sources, their families, and variants.

A variant of a sample is how an operator is called with it. Variants are the profiles of ``builtin:opinfo``.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ci_autotest.program.targets import OVERLOADS

OPINFO: Final = "builtin:opinfo"
MODULES: Final = "builtin:modules"

#: Families of the operator database: its own folders of definitions first, then its classes of entries. The module
#: database has none. Families of overloads: what they return is new, written to ``self``, or to ``out=``.
FAMILIES: Final[dict[str, tuple[str, ...]]] = {
    OPINFO: (
        "fft", "linalg", "masked", "nn.functional", "signal", "sparse", "special",
        "unary", "binary", "reductions", "shape", "other",
    ),
    MODULES: (),
    OVERLOADS: ("functional", "in_place", "out"),
}  # fmt: skip
ORDINARY: Final = "ordinary"
NON_CONTIGUOUS: Final = "non_contiguous"
CONJUGATE: Final = "conjugate"
IN_PLACE: Final = "in_place"
OUT: Final = "out"
ERROR: Final = "error_input"
#: Not variants, but tests of PyTorch's: of the gradients of all variants, and of Inductor.
GRADIENT: Final = "gradient"
INDUCTOR: Final = "inductor"


def source_of(file: str) -> str:
    """Return the source that a file name belongs to, such as ``builtin:opinfo``; empty for any other file."""
    return next((source for source in FAMILIES if file == source or file.startswith((f"{source}/", f"{source}:"))), "")


class PyTorchTest(NamedTuple):
    """A test of PyTorch's own, by which the database and device backends list what they expect to fail."""

    cls_name: str
    test_name: str


#: PyTorch's own test of each variant: its names are those that ``test_exclusions`` and the database's lists use.
OPERATOR_TESTS: Final[dict[str, PyTorchTest]] = {
    ORDINARY: PyTorchTest("TestCommon", "test_compare_cpu"),
    NON_CONTIGUOUS: PyTorchTest("TestCommon", "test_noncontiguous_samples"),
    CONJUGATE: PyTorchTest("TestMathBits", "test_conj_view"),
    IN_PLACE: PyTorchTest("TestCommon", "test_variant_consistency_eager"),
    OUT: PyTorchTest("TestCommon", "test_out"),
    ERROR: PyTorchTest("TestCommon", "test_errors"),
    GRADIENT: PyTorchTest("TestBwdGradients", "test_fn_grad"),
    INDUCTOR: PyTorchTest("TestInductorOpInfo", "test_comprehensive"),
}
#: The same of modules.
MODULE_TESTS: Final[dict[str, PyTorchTest]] = {
    ORDINARY: PyTorchTest("TestModule", "test_forward"),
    NON_CONTIGUOUS: PyTorchTest("TestModule", "test_non_contiguous_tensors"),
    ERROR: PyTorchTest("TestModule", "test_errors"),
    GRADIENT: PyTorchTest("TestModule", "test_grad"),
    INDUCTOR: PyTorchTest("TestModule", "test_forward"),
}
#: The same of overloads, which have no other variants.
OVERLOAD_TESTS: Final[dict[str, PyTorchTest]] = {
    name: OPERATOR_TESTS[name] for name in (ORDINARY, ERROR, GRADIENT, INDUCTOR)
}
