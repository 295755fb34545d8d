"""PyTorch's operator database: the only module that touches ``torch.testing._internal``, which is private.

Everything that is read from an entry is a method here, so that a new version of PyTorch is a change of this module
alone. What is not there is an error that says which package or version is missing.
"""

from __future__ import annotations

import random
import unittest
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import torch

from ci_autotest.backends.operators.identity import public_name
from ci_autotest.errors import AuthorError
from ci_autotest.opinfo.families import OPINFO
from ci_autotest.values.dtypes import DTYPES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ci_autotest.opinfo.variants import PyTorchTest

#: Version of PyTorch whose database this module was written for and is tested with.
WRITTEN_FOR: Final = "2.13"
#: Packages that the database imports, and that no installation of PyTorch brings along.
_PACKAGES: Final = frozenset({"expecttest", "scipy"})
_CLASSES: Final = {
    "UnaryUfuncInfo": "unary", "BinaryUfuncInfo": "binary", "ReductionOpInfo": "reductions", "ShapeFuncInfo": "shape",
    "SpectralFuncInfo": "fft",
}  # fmt: skip
#: Prefixes of names whose entries PyTorch defines in a file of their own.
_PREFIXES: Final = ("fft", "linalg", "masked", "nn.functional", "signal", "sparse", "special")
_CPU: Final = "cpu"
#: Name of what ``unittest.skip`` returns.
_SKIP: Final = unittest.skip("").__qualname__


class Sample(NamedTuple):
    """The arguments of one call.

    Attributes:
        args: Positional arguments; the first one is what a method or an in-place variant is called on.
        kwargs: Keyword arguments.
        broadcasts: Whether the first argument is expanded, so that no in-place variant can hold the result.
        error: The exception that the call must raise; ``None`` if it must not.
        own: The database's own object.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    broadcasts: bool = False
    error: type[Exception] | None = None
    own: Any = None


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of the operator database.

    Args:
        name: ``torch.add``; with its variant, if it has one, ``torch.div[floor_rounding]``.
        full_name: PyTorch's own name of it, ``div.floor_rounding``.
        family: One of ``families.FAMILIES``.
        info: The entry itself.
    """

    name: str
    full_name: str
    family: str
    info: Any

    @property
    def call(self) -> Callable[..., Any]:
        """The function that the entry describes."""
        info = self.info
        # A function of the database's own only names a method, or seeds a generator, which every recorded step does.
        own = [info.get_op(), info.method_variant, getattr(torch.Tensor, info.name, None)]
        if not hasattr(torch, info.name):
            own.append(info.get_inplace())
        function: Callable[..., Any] = next((one for one in own if one and public_name(one)), own[0])
        return function

    @property
    def in_place(self) -> Callable[..., Any] | None:
        """Its in-place variant."""
        found: Callable[..., Any] | None = self.info.get_inplace()
        return found

    @property
    def has_out(self) -> bool:
        """Whether it takes ``out=``."""
        return bool(self.info.supports_out)

    @property
    def has_conjugate(self) -> bool:
        """Whether the database tests it with conjugate views."""
        return bool(self.info.test_conjugated_samples)

    def dtypes(self) -> tuple[str, ...]:
        """Return the dtypes that the database lists for the CPU and that a program can hold."""
        return _names(self.info.supported_dtypes(_CPU))

    def differentiable(self) -> tuple[str, ...]:
        """Return the dtypes that it has a backward pass for."""
        return _names(self.info.supported_backward_dtypes(_CPU)) if self.info.supports_autograd else ()

    def samples(self, dtype: str) -> Iterator[Sample]:
        """Yield the samples of a dtype; they are drawn from torch's global generator."""
        requires_grad = dtype in self.differentiable()
        # Not `info.sample_inputs`, which looks through the stack of calls for each sample.
        for one in self.info.sample_inputs_func(self.info, _CPU, getattr(torch, dtype), requires_grad):
            yield Sample((one.input, *one.args), one.kwargs, bool(one.broadcasts_input), own=one)

    def errors(self) -> Iterator[Sample]:
        """Yield the calls that must raise an exception."""
        if self.info.error_inputs_func is None:
            return
        for one in self.info.error_inputs_func(self.info, _CPU):
            inner = one.sample_input
            yield Sample((inner.input, *inner.args), inner.kwargs, error=one.error_type)

    @property
    def has_reference(self) -> bool:
        """Whether it has a function of NumPy's (or SciPy's) that computes the same."""
        return callable(getattr(self.info, "ref", None))

    def reference(self, sample: Sample) -> Any:
        """Return what NumPy's function gives for a sample."""
        plain = sample.own.numpy()
        return self.info.ref(plain.input, *plain.args, **plain.kwargs)

    def listed(self, test: PyTorchTest, device_type: str, dtype: str) -> str:
        """Return how the database lists one of PyTorch's tests: as an expected failure, or skipped; empty if not."""
        for row in self.info.decorators:
            if getattr(row, "test_name", None) is None or not hasattr(row, "is_active"):
                continue  # A row about no test in particular is about how PyTorch runs its tests.
            if row.is_active(test.cls_name, test.test_name, device_type, getattr(torch, dtype, None), {}):
                for decorator in row.decorators:
                    if decorator is unittest.expectedFailure:
                        return "an expected failure"
                    if getattr(decorator, "__qualname__", "") == _SKIP:
                        return "skipped"
        return ""


def _names(dtypes: Any) -> tuple[str, ...]:
    """Return the names of dtypes in the order of ``DTYPES``, without those that a program cannot hold."""
    names = {str(dtype).removeprefix("torch.") for dtype in dtypes}
    return tuple(name for name in DTYPES if name in names)


@lru_cache(maxsize=1)
def entries() -> dict[str, Entry]:
    """Return the entries by name, in the database's order.

    Raises:
        AuthorError: This PyTorch has no such database, or a package that it needs is missing.
    """
    found = {}
    for info in _imported():
        variant = info.variant_test_name
        name = f"torch.{info.name.removeprefix('torch.')}{f'[{variant}]' if variant else ''}"
        found[name] = Entry(name, info.full_name, _family(info), info)
    return found


def _imported() -> list[Any]:
    try:
        with _kept_flags(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from torch.testing._internal.common_methods_invocations import op_db  # noqa: PLC0415
    except ImportError as error:
        raise AuthorError(unreadable(error)) from None
    return list(op_db)


def unreadable(error: ImportError) -> str:
    """Return in one sentence or two why the database cannot be imported, and what to do."""
    missing = (error.name or "").partition(".")[0]
    if missing in _PACKAGES:
        return f"{OPINFO} needs {missing}, which is not installed. Run: pip install 'ci-autotest[opinfo]'."
    return (
        f"PyTorch {torch.__version__} has no operator database that {OPINFO} can read ({error}). "
        f"It is written for PyTorch {WRITTEN_FOR}."
    )


@contextmanager
def _kept_flags() -> Iterator[None]:
    """Undo what the import of PyTorch's test helpers changes for the whole process.

    They forbid assignments to ``torch.backends.*`` flags, which tests of a user may make.
    """
    flags = getattr(torch.backends, "disable_global_flags", _kept_flags).__globals__
    name = "__allow_nonbracketed_mutation_flag"
    before = flags.get(name)
    try:
        yield
    finally:
        if before is not None:
            flags[name] = before


def _family(info: Any) -> str:
    for prefix in _PREFIXES:
        if info.name.startswith(f"{prefix}."):
            return prefix
    return next((_CLASSES[kind.__name__] for kind in type(info).__mro__ if kind.__name__ in _CLASSES), "other")


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed every generator that the database draws from, and restore them afterwards."""
    state, python = torch.get_rng_state(), random.getstate()
    bits: Any = np.random.get_bit_generator()  # type: ignore[attr-defined]
    held = bits.state
    torch.default_generator.manual_seed(seed)  # A hundred times as fast as `torch.manual_seed`.
    random.seed(seed)
    np.random.set_bit_generator(np.random.Philox(seed))  # type: ignore[attr-defined]
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            yield
    finally:
        np.random.set_bit_generator(bits)  # type: ignore[attr-defined]
        bits.state = held
        random.setstate(python)
        torch.set_rng_state(state)
