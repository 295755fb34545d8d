"""Names, without torch, because the parent process checks paths with them: sources, their families, and variants.

A variant of a sample is how an operator is called with it. Variants are the profiles of ``builtin:opinfo``.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ci_autotest.errors import UsageError
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


class SampleSource(NamedTuple):
    """A source of samples; methods and attributes are those of ``ci_autotest.extensions.Source``."""

    name: str
    families: tuple[str, ...]
    candidate: str = ""
    worker: str = "ci_autotest.opinfo.source:SampleTests"

    def owns(self, file: str) -> bool:
        """Whether a file name is the source, or one of its families, or begins a test's id."""
        return file == self.name or file.startswith((f"{self.name}/", f"{self.name}:"))

    def files(self, location: str) -> list[str]:
        """Return the source, or the family of it.

        Raises:
            UsageError: It has no such family.
        """
        family = location.removeprefix(self.name).removeprefix("/")
        if location != self.name and family not in self.families:
            message = f"'{location}' is not a family of {self.name}. Known: {', '.join(self.families)}."
            raise UsageError(message)
        return [location]

    def shown(self, file: str) -> str:
        """Return the name itself."""
        return file


SOURCES: Final = tuple(SampleSource(name, families) for name, families in FAMILIES.items())


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
