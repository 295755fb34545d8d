"""The overloads of PyTorch's dispatcher as entries: ``builtin:overloads``.

``overloads.json`` says for each overload whose samples it is tested with and which of their calls it takes the
arguments of. ``benchmarks/overload_table.py`` makes the file for one version of PyTorch, and a test compares it with
the installed one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import torch

from ci_autotest.errors import AuthorError
from ci_autotest.opinfo.database import OpInfoSample, entries, foreach_entries
from ci_autotest.opinfo.names import OVERLOAD_TESTS
from ci_autotest.opinfo.overload_calls import OverloadCall, adapted, call_of, overload_of
from ci_autotest.opinfo.overload_samples import SAMPLES
from ci_autotest.opinfo.sample_draws import arguments_of
from ci_autotest.program.targets import OVERLOADS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch._ops import OpOverload

    from ci_autotest.opinfo.database import OpInfoEntry
    from ci_autotest.opinfo.names import PyTorchTest


class OverloadRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"source": "of"}):
    """What one overload is tested with.

    Attributes:
        source: An entry of the operator database, or ``=`` and a name in ``overload_samples``.
        donor: The call of a sample of which it takes the arguments; empty for samples that are written by hand.
        samples: Numbers of the samples by dtype.
    """

    source: str
    donor: str
    samples: dict[str, tuple[int, ...]]


class OverloadTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The tested overloads of one version of PyTorch."""

    torch: str
    overloads: dict[str, OverloadRow]


class _Info(NamedTuple):
    """What of the database's own entry is asked: what PyTorch expects to fail, which it lists for no overload."""

    decorators: tuple[()] = ()


@dataclass(frozen=True, slots=True)
class OverloadEntry:
    """An overload; the attributes are those of ``OpInfoEntry``."""

    name: str
    row: OverloadRow
    info: Any = field(default_factory=_Info)
    tests: dict[str, PyTorchTest] = field(default_factory=lambda: OVERLOAD_TESTS)
    in_place: None = None
    has_out: bool = False
    has_conjugate: bool = False
    has_reference: bool = False

    @property
    def full_name(self) -> str:
        """The overload, ``aten.add.out``."""
        return self.name

    @property
    def family(self) -> str:
        """Whether it returns what is new, or writes to ``self`` or to ``out=``."""
        arguments = self.call._schema.arguments
        if any(one.is_out for one in arguments):
            return "out"
        return "in_place" if self.call._schema.is_mutable else "functional"

    @property
    def call(self) -> OpOverload:
        """The overload itself."""
        return overload_of(self.name)

    def dtypes(self) -> tuple[str, ...]:
        """Return the dtypes of its samples."""
        return tuple(self.row.samples)

    def size(self, dtype: str) -> int:
        """Return the number of samples of a dtype."""
        return len(self.row.samples.get(dtype, ()))

    def samples(self, dtype: str) -> Iterator[OpInfoSample]:
        """Yield the samples of a dtype; one that does not reach the overload has the error that says so."""
        for call in self._calls(dtype):
            if call is None:
                yield OpInfoSample((), {}, error=LookupError)
            else:
                yield OpInfoSample(*call)

    def _calls(self, dtype: str) -> Iterator[OverloadCall | None]:
        source = self.row.source
        if source.startswith(WRITTEN):
            makers = SAMPLES[source.removeprefix(WRITTEN)]
            for number in self.row.samples[dtype]:
                yield adapted(self.call, arguments_of(makers[number]()), "")
            return
        entry, left = _sources()[source], list(self.row.samples[dtype])
        for number, sample in enumerate(entry.samples(dtype)):
            if not left:
                return
            if number == left[0]:
                left.pop(0)
                yield call_of(entry, sample, self.row.donor, self.call)
        yield from [None] * len(left)

    def errors(self) -> Iterator[OpInfoSample]:
        """Yield nothing: the database has no calls of overloads that must raise."""
        return iter(())

    def reference(self, sample: OpInfoSample) -> Any:
        """Return nothing: overloads have no function of NumPy's."""


#: What a source starts with that is a name in ``overload_samples``.
WRITTEN: Final = "="


def _sources() -> dict[str, OpInfoEntry]:
    return {**foreach_entries(), **entries()}


@lru_cache(maxsize=1)
def table() -> OverloadTable:
    """Return the table that ships with the package."""
    return msgspec.json.decode(files("ci_autotest.opinfo").joinpath("overloads.json").read_bytes(), type=OverloadTable)


@lru_cache(maxsize=1)
def overload_entries() -> dict[str, OpInfoEntry]:
    """Return the entries by name, in the order of their names.

    Raises:
        AuthorError: The installed PyTorch is another version than the table's.
    """
    found = table()
    refuse_other(torch.__version__, found.torch)
    return {name: OverloadEntry(name, row) for name, row in found.overloads.items()}


def refuse_other(installed: str, listed: str) -> None:
    """Refuse a PyTorch whose overloads are others than those of the table.

    Raises:
        AuthorError: It is another version.
    """
    if ".".join(installed.split(".")[:2]) != listed:
        message = (
            f"{OVERLOADS} lists the overloads of PyTorch {listed}, and PyTorch {installed} is installed. Install "
            f"PyTorch {listed}, or use builtin:opinfo, which reads the database of the installed one."
        )
        raise AuthorError(message)


def dispatcher_overloads() -> dict[str, OpOverload]:
    """Return every overload that coverage counts: those of ``aten`` that take or return a tensor.

    TorchScript's functions of the same namespace are not in it: they never reach the dispatcher, so no backend has
    kernels for them.
    """
    found = {}
    for name in sorted(torch._C._dispatch_get_all_op_names()):
        namespace, _, rest = name.partition("::")
        if namespace != "aten":
            continue
        spelled = f"aten.{rest}" if "." in rest else f"aten.{rest}.default"
        overload = overload_of(spelled)
        types = [str(one.type) for one in (*overload._schema.arguments, *overload._schema.returns)]
        if any("Tensor" in one for one in types):
            found[spelled] = overload
    return found
