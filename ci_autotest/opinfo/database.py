"""PyTorch's operator and module databases: the only module that touches ``torch.testing._internal``, which is private.

Everything that is read from an entry is a method here, so that a new version of PyTorch is a change of this module
alone. What is not there is an error that says which package or version is missing.
"""

from __future__ import annotations

import random
import unittest
import warnings
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import numpy as np
import torch

from ci_autotest.backends.operators.identity import public_name
from ci_autotest.backends.torch_constants import DTYPE_NAMES
from ci_autotest.errors import AuthorError
from ci_autotest.opinfo.names import MODULE_TESTS, MODULES, OPERATOR_TESTS, OPINFO, PyTorchTest
from ci_autotest.values.dtypes import DTYPES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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
_FOREACH: Final = ("unary", "binary", "pointwise", "reduce", "other")
_CPU: Final = "cpu"
#: Name of what ``unittest.skip`` returns.
_SKIP: Final = unittest.skip("").__qualname__


class OpInfoSample(NamedTuple):
    """The arguments of one call.

    Attributes:
        args: Positional arguments; the first one is what a method or an in-place variant is called on.
        kwargs: Keyword arguments.
        broadcasts: Whether the first argument is expanded, so that no in-place variant can hold the result.
        error: The exception that the call must raise; ``None`` if it must not.
        own: The database's own object.
        constructor: Arguments of a module's constructor, by position and by name; ``None`` for an operator.
        is_training: Whether the module is in training mode.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    broadcasts: bool = False
    error: type[Exception] | None = None
    own: Any = None
    constructor: tuple[tuple[Any, ...], dict[str, Any]] | None = None
    is_training: bool = True


class OpInfoEntry(Protocol):
    """An entry of a database.

    Attributes:
        name: ``torch.add``; with its variant, if it has one, ``torch.div[floor_rounding]``.
        full_name: PyTorch's own name of it, ``div.floor_rounding``.
        family: One of ``names.FAMILIES``; empty if the database has none.
        info: The database's own entry.
        tests: PyTorch's own test of each variant.
    """

    @property
    def name(self) -> str: ...  # noqa: D102 - see above
    @property
    def full_name(self) -> str: ...  # noqa: D102
    @property
    def family(self) -> str: ...  # noqa: D102
    @property
    def info(self) -> Any: ...  # noqa: D102
    @property
    def tests(self) -> dict[str, PyTorchTest]: ...  # noqa: D102

    @property
    def call(self) -> Callable[..., Any]:
        """The function or class that the entry describes."""

    @property
    def in_place(self) -> Callable[..., Any] | None:
        """Its in-place variant."""

    @property
    def has_out(self) -> bool:
        """Whether it takes ``out=``."""

    @property
    def has_conjugate(self) -> bool:
        """Whether the database tests it with conjugate views."""

    @property
    def has_reference(self) -> bool:
        """Whether it has a function of NumPy's (or SciPy's) that computes the same."""

    def dtypes(self) -> tuple[str, ...]:
        """Return the dtypes that the database lists for the CPU and that a program can hold."""

    def size(self, dtype: str) -> int | None:
        """Return the number of samples of a dtype; ``None`` if only generating them tells it."""

    def samples(self, dtype: str) -> Iterator[OpInfoSample]:
        """Yield the samples of a dtype; they are drawn from torch's global generator."""

    def errors(self) -> Iterator[OpInfoSample]:
        """Yield the calls that must raise an exception."""

    def reference(self, sample: OpInfoSample) -> Any:
        """Return what NumPy's function gives for a sample."""


@dataclass(frozen=True, slots=True)
class OperatorEntry:
    """An entry of the operator database, an ``OpInfo``; the attributes are those of ``OpInfoEntry``."""

    name: str
    full_name: str
    family: str
    info: Any
    tests: dict[str, PyTorchTest] = field(default_factory=lambda: OPERATOR_TESTS)

    @property
    def call(self) -> Callable[..., Any]:
        """The function that the entry describes."""
        info = self.info
        # A function of the database's own only names a method, or seeds a generator, which every recorded step does.
        own = [info.get_op(), info.method_variant, getattr(torch.Tensor, info.name, None)]
        if not hasattr(torch, info.name) or info.variant_test_name == "in_place":
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

    def size(self, dtype: str) -> None:
        """Return nothing: only generating the samples tells their number."""

    def differentiable(self) -> tuple[str, ...]:
        """Return the dtypes that it has a backward pass for."""
        return _names(self.info.supported_backward_dtypes(_CPU)) if self.info.supports_autograd else ()

    def samples(self, dtype: str) -> Iterator[OpInfoSample]:
        """Yield the samples of a dtype; they are drawn from torch's global generator."""
        requires_grad = dtype in self.differentiable()
        # Not `info.sample_inputs`, which looks through the stack of calls for each sample.
        for one in self.info.sample_inputs_func(self.info, _CPU, getattr(torch, dtype), requires_grad):
            yield OpInfoSample((one.input, *one.args), one.kwargs, bool(one.broadcasts_input), own=one)

    def errors(self) -> Iterator[OpInfoSample]:
        """Yield the calls that must raise an exception."""
        if self.info.error_inputs_func is None:
            return
        for one in self.info.error_inputs_func(self.info, _CPU):
            inner = one.sample_input
            yield OpInfoSample((inner.input, *inner.args), inner.kwargs, error=one.error_type)

    @property
    def has_reference(self) -> bool:
        """Whether it has a function of NumPy's (or SciPy's) that computes the same."""
        return callable(getattr(self.info, "ref", None))

    def reference(self, sample: OpInfoSample) -> Any:
        """Return what NumPy's function gives for a sample."""
        plain = sample.own.numpy()
        return self.info.ref(plain.input, *plain.args, **plain.kwargs)


@dataclass(frozen=True, slots=True)
class ModuleEntry:
    """An entry of the module database, a ``ModuleInfo``; the attributes are those of ``OpInfoEntry``."""

    name: str
    full_name: str
    info: Any
    family: str = ""
    tests: dict[str, PyTorchTest] = field(default_factory=lambda: MODULE_TESTS)
    in_place: None = None
    has_out: bool = False
    has_conjugate: bool = False
    has_reference: bool = False

    @property
    def call(self) -> Callable[..., Any]:
        """The class of the module."""
        found: Callable[..., Any] = self.info.module_cls
        return found

    def dtypes(self) -> tuple[str, ...]:
        """Return the dtypes that the database lists for the CPU and that a program can hold."""
        return _names(self.info.supported_dtypes(_CPU))

    def size(self, dtype: str) -> None:
        """Return nothing: only generating the samples tells their number."""

    def samples(self, dtype: str) -> Iterator[OpInfoSample]:
        """Yield the samples of a dtype, those in training mode first if the mode makes a difference."""
        kind, info = getattr(torch, dtype), self.info
        for is_training in (True, False) if info.train_and_eval_differ else (True,):
            requires_grad = kind.is_floating_point or kind.is_complex
            for one in info.module_inputs_func(info, _CPU, kind, requires_grad, is_training):
                yield _of_module(one, is_training=is_training)

    def errors(self) -> Iterator[OpInfoSample]:
        """Yield the calls that must raise an exception; constructors that must are left out."""
        make = self.info.module_error_inputs_func
        for one in make(self.info, _CPU, torch.float32, False, True) if make is not None else ():  # noqa: FBT003
            if one.error_on.name == "FORWARD_ERROR":
                yield _of_module(one.module_error_input, is_training=True)._replace(error=one.error_type)

    def reference(self, sample: OpInfoSample) -> Any:
        """Return nothing: modules have no function of NumPy's."""


def _of_module(one: Any, *, is_training: bool) -> OpInfoSample:
    made, given = one.constructor_input, one.forward_input
    return OpInfoSample(
        tuple(given.args), dict(given.kwargs), own=one, constructor=(tuple(made.args), dict(made.kwargs)),
        is_training=is_training,
    )  # fmt: skip


def listed(entry: OpInfoEntry, test: PyTorchTest, device_type: str, dtype: str) -> frozenset[str]:
    """Return how a database lists one of PyTorch's tests: ``expectedFailure``, ``skip``, both or neither."""
    found = set[str]()
    for row in entry.info.decorators:
        if getattr(row, "test_name", None) is None or not hasattr(row, "is_active"):
            continue  # A row about no test in particular is about how PyTorch runs its tests.
        if row.is_active(test.cls_name, test.test_name, device_type, getattr(torch, dtype, None), {}):
            for decorator in row.decorators:
                if decorator is unittest.expectedFailure:
                    found.add("expectedFailure")
                elif getattr(decorator, "__qualname__", "") == _SKIP:
                    found.add("skip")
    return frozenset(found)


def listed_tests(source: str) -> set[PyTorchTest]:
    """Return the tests of PyTorch that the rows of a database name; the name of a whole class's is empty."""
    rows = [row for entry in entries(source).values() for row in entry.info.decorators if hasattr(row, "is_active")]
    return {PyTorchTest(row.cls_name or "", row.test_name or "") for row in rows}


def _names(dtypes: Any) -> tuple[str, ...]:
    """Return the names of dtypes in the order of ``DTYPES``, without those that a program cannot hold."""
    names = {DTYPE_NAMES[dtype] for dtype in dtypes}
    return tuple(name for name in DTYPES if name in names)


@lru_cache(maxsize=2)
def entries(source: str = OPINFO) -> dict[str, OpInfoEntry]:
    """Return the entries of a source by name, in the database's order.

    Raises:
        AuthorError: This PyTorch has no such database, or a package that it needs is missing.
    """
    found: dict[str, OpInfoEntry] = {}
    for info in _imported(source):
        if source == MODULES:
            found[f"torch.{info.name}"] = ModuleEntry(f"torch.{info.name}", info.name, info)
            continue
        variant = info.variant_test_name
        name = f"torch.{info.name.removeprefix('torch.')}{f'[{variant}]' if variant else ''}"
        found[name] = OperatorEntry(name, info.full_name, _family(info), info)
    return found


@lru_cache(maxsize=1)
def foreach_entries() -> dict[str, OperatorEntry]:
    """Return the entries of operators on lists of tensors (``torch._foreach_add``), which have no public names.

    Raises:
        AuthorError: As ``entries``.
    """
    entries(OPINFO)
    from torch.testing._internal import common_methods_invocations as databases  # noqa: PLC0415

    found: dict[str, OperatorEntry] = {}
    for kind in _FOREACH:
        for info in getattr(databases, f"foreach_{kind}_op_db", ()):
            found[f"torch.{info.name}"] = OperatorEntry(f"torch.{info.name}", info.name, "", info)
    return found


def _imported(source: str) -> list[Any]:
    try:
        with _kept_flags(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if source == MODULES:
                from torch.testing._internal.common_modules import module_db  # noqa: PLC0415

                return list(module_db)
            from torch.testing._internal.common_methods_invocations import op_db  # noqa: PLC0415

            return list(op_db)
    except ImportError as error:
        raise AuthorError(unreadable(error, source)) from None


def unreadable(error: ImportError, source: str = OPINFO) -> str:
    """Return in one sentence or two why the database cannot be imported, and what to do."""
    missing = (error.name or "").partition(".")[0]
    if missing in _PACKAGES:
        return f"{source} needs {missing}, which is not installed. Run: pip install 'ci-autotest[opinfo]'."
    return (
        f"PyTorch {torch.__version__} has no database that {source} can read ({error}). "
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
