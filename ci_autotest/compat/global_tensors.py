"""OneFlow's global tensors in a recording: ``placement``, ``sbp``, ``to_global`` and the generators of them.

A recording has whole tensors, so ``to_global`` changes no element. What it says about an input narrows what a candidate
with ranks draws for it (``TensorSpec.placements``). ``all_placement`` and ``all_sbp`` have one member in each case,
which is drawn: a loop over them runs once, and the cases of the test go through the members.

Source: the wheel oneflow 0.9.0, ``oneflow/test_utils/automated_test_util/generators.py`` and ``global_scope.py``.
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

from ci_autotest.compat.oneflow_unittest import ON_RANKS, without_skip
from ci_autotest.errors import AuthorError, UnsupportedReason
from ci_autotest.program.distribution import PARTIAL, REPLICATE, shard
from ci_autotest.program.ir import CALL_METHOD
from ci_autotest.record.context import CURRENT
from ci_autotest.record.declaration import Declaration, declaration_of
from ci_autotest.record.draw.generators import Either, Generator
from ci_autotest.record.modules import RecordedModule
from ci_autotest.record.skips import FalseAssumption, Unavailable, unsupported
from ci_autotest.record.values import RecordedTensor
from ci_autotest.values.declared_test import ATTRIBUTE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from ci_autotest.record.draw.draws import Drawer

    F = TypeVar("F", bound=Callable[..., Any])

#: Methods whose result lies as the tensor lies that has them.
_SAME_PLACEMENT: Final = frozenset({"to", "detach", "clone", "contiguous", "requires_grad_", "float", "int", "long"})


class _OnRanks(Unavailable):
    """What says how a tensor lies on ranks. Only ``to_global`` takes it; another call is unsupported."""

    def refuse(self) -> None:
        """End the body of this case; outside of a test do nothing."""
        if CURRENT.get() is not None:
            unsupported(UnsupportedReason.RANKS, f"{self!r} is an argument of a call; only `to_global` takes it here")


@dataclass(frozen=True)
class Sbp(_OnRanks):
    """How a tensor lies along one dimension of the ranks.

    Args:
        name: ``split``, ``broadcast`` or ``partial_sum``.
        dim: The dimension that is cut; a negative one counts from the end.
    """

    name: str
    dim: int = 0

    def placement(self, dimensions: int) -> str:
        """Return the same in our words, for a tensor of so many dimensions."""
        if self.name == "split":
            return shard(self.dim % max(1, dimensions) if self.dim < 0 else self.dim)
        return PARTIAL if self.name == "partial_sum" else REPLICATE

    def __repr__(self) -> str:
        return f"oneflow.sbp.{self.name}{f'(dim={self.dim})' if self.name == 'split' else ''}"


class SbpNames:
    """``oneflow.sbp``."""

    sbp = Sbp
    broadcast = Sbp("broadcast")
    partial_sum = Sbp("partial_sum")

    @staticmethod
    def split(dim: int | None = None, axis: int | None = None) -> Sbp:
        """Return the one that cuts a dimension; ``axis`` is its name in earlier versions."""
        found = axis if dim is None else dim
        if type(found) is not int:
            message = f"flow.sbp.split({found!r}) names no dimension. Write flow.sbp.split(0)."
            raise AuthorError(message)
        return Sbp("split", found)


@dataclass(frozen=True, eq=False)
class Placement(_OnRanks):
    """The ranks that a tensor lies on. Here these are always all ranks of the candidate, whatever is named.

    Args:
        type: Kind of device.
        ranks: The ranks as the file names them; their shape is that of the mesh.
    """

    type: str
    ranks: Any

    @property
    def hierarchy(self) -> tuple[int, ...]:
        """The shape of the ranks."""
        shape: tuple[int, ...] = np.array(self.ranks).shape
        return shape

    @classmethod
    def all(cls, kind: str) -> Placement:
        """Return the placement on all ranks."""
        return cls(kind, _RANKS)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Placement) and self.type == other.type and np.array_equal(self.ranks, other.ranks)

    def __hash__(self) -> int:
        return hash((self.type, *np.array(self.ranks).flat))

    def __repr__(self) -> str:
        return f'oneflow.placement(type="{self.type}", ranks={np.array(self.ranks).tolist()})'


#: The ranks of a recording, which is one process.
_RANKS: Final[NDArray[Any]] = np.array([0])


class _Members(Generator):
    """A generator of one member of a list; in a loop, the list of the member that the case has."""

    __slots__ = ()

    def members(self) -> list[Any]:
        """Return all that may be drawn."""
        raise NotImplementedError

    def draw(self, drawer: Drawer, wanted: object, site: str) -> object:
        """Choose a member."""
        found = self.members()
        return found[0] if len(found) == 1 else Either(tuple(found)).draw(drawer, wanted, site)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.members() if CURRENT.get() is None else [self.value()])

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __getitem__(self, key: Any) -> Any:
        return list(self)[key]


class Placements(_Members):
    """``all_placement()``, ``random_placement()`` and those of one kind of device."""

    __slots__ = ()

    def members(self) -> list[Any]:
        """Return the only placement: all ranks of the candidate."""
        return [Placement.all("cpu")]

    @property
    def type(self) -> str:
        """Kind of device."""
        return "cpu"

    @property
    def ranks(self) -> NDArray[Any]:
        """The ranks of a recording."""
        return _RANKS


class Sbps(_Members):
    """``all_sbp(...)`` and ``random_sbp(...)``: what a tensor may have, one for each dimension of the ranks.

    Args:
        placement: Its ranks decide how many dimensions there are, instead of ``dim``.
        dim: Number of dimensions of the ranks.
        max_dim: Dimensions below this one may be cut; 0 for a number, which is the same on all ranks.
        except_split: Whether none may be cut.
        except_broadcast: Whether it may not be the same on all ranks.
        except_partial_sum: Whether the ranks may not hold summands.
        valid_split_axis: Dimensions that may be cut; all below ``max_dim`` by default.
    """

    __slots__ = ("_count", "_one")

    def __init__(  # noqa: PLR0913, PLR0917 - OneFlow's signature
        self,
        placement: Placement | Placements | None = None,
        dim: int = 1,
        max_dim: int = 0,
        except_split: bool = False,  # noqa: FBT001, FBT002
        except_broadcast: bool = False,  # noqa: FBT001, FBT002
        except_partial_sum: bool = False,  # noqa: FBT001, FBT002
        valid_split_axis: int | Sequence[int] | None = None,
    ) -> None:
        self._count = dim if placement is None else np.array(placement.ranks).ndim
        axes = range(max_dim) if valid_split_axis is None else np.atleast_1d(valid_split_axis).tolist()
        cuts = [] if except_split else [SbpNames.split(axis) for axis in range(max_dim) if axis in axes]
        whole = [] if except_broadcast and max_dim else [SbpNames.broadcast]
        self._one = [*cuts, *whole, *([SbpNames.partial_sum] if max_dim and not except_partial_sum else [])]

    def members(self) -> list[Any]:
        """Return each combination of what the dimensions of the ranks may have."""
        found = [list(each) for each in itertools.product(self._one, repeat=self._count)]
        return found or [[SbpNames.broadcast] * self._count]


def to_global(owner: Any, *args: Any, **kwargs: Any) -> Any:
    """Return ``owner.to_global(placement, sbp)``: the tensor itself, whose input then lies on ranks as ``sbp`` says.

    The parameters of a module lie as the candidate's ranks have them. What is computed lies as its operator leaves it,
    and a change of that is left out, because it changes no element.
    """
    if isinstance(owner, RecordedModule):
        return owner
    if not isinstance(owner, RecordedTensor):
        return owner.to_global(*args, **kwargs)
    [sbp] = args[1:2] or [kwargs.get("sbp")]
    if sbp is None:
        message = "to_global() names no sbp. Write x.to_global(placement, flow.sbp.split(0)), or another sbp."
        raise AuthorError(message)
    index = owner._ref.index  # noqa: SLF001 - of the same recording
    recorder = owner._recorder  # noqa: SLF001
    step = recorder.steps[index]
    while step.op == CALL_METHOD and step.target in _SAME_PLACEMENT and step.receiver is not None:
        index = step.receiver
        step = recorder.steps[index]
    wanted = _placements(sbp, owner._tensor.dim())  # noqa: SLF001 - reading its shape would be a step
    if wanted:
        recorder.steps[index] = step.with_spec(placements=wanted)
    return owner


def _placements(sbp: Any, dimensions: int) -> tuple[str, ...]:
    """Return what ``sbp`` says in our words; nothing if it does not say."""
    sbp = sbp.value() if isinstance(sbp, Generator) else sbp
    given = sbp if isinstance(sbp, list | tuple) else [sbp]
    wrong = next((each for each in given if not isinstance(each, Sbp)), None)
    if wrong is not None:
        message = f"to_global(): sbp {wrong!r} is none. Write flow.sbp.split(0), flow.sbp.broadcast or a list of them."
        raise AuthorError(message)
    return tuple(each.placement(dimensions) for each in given)


def globaltest(function: F) -> F:
    """Declare a test of global tensors, with the options of the tests that it calls.

    It runs on every candidate: on one process its tensors are whole. It also runs where ``skip_unless_1n2d`` stands,
    because the candidate's row says how many ranks there are.
    """
    test = without_skip(function)
    declaration = declaration_of(test) or _declaration(test)

    @functools.wraps(test)
    def on_ranks(*args: Any, **kwargs: Any) -> Any:
        found, recorder = test(*args, **kwargs), CURRENT.get()
        # A loop that leaves members out may have met one of these, where OneFlow's goes on to the next.
        if recorder is not None and not recorder.steps:
            raise FalseAssumption
        return found

    setattr(on_ranks, ATTRIBUTE, declaration)
    setattr(on_ranks, ON_RANKS, True)
    return on_ranks  # type: ignore[return-value]


def _declaration(body: Callable[..., Any]) -> Declaration:
    """Return the options of a test whose body calls others that are declared: theirs, the weakest where they differ."""
    called = [body.__globals__.get(name) for name in body.__code__.co_names]
    found = [each for each in map(declaration_of, called) if each is not None]
    if not found:
        return Declaration(body, is_foreign=True, check_dtype=False)
    return replace(
        found[0],
        body=body,
        n=None,
        auto_backward=all(each.auto_backward for each in found),
        check_allclose=all(each.check_allclose for each in found),
        check_dtype=all(each.check_dtype for each in found),
        rtol=max((each.rtol for each in found if each.rtol is not None), default=None),
        atol=max((each.atol for each in found if each.atol is not None), default=None),
    )


#: Names of the star import; ``consistent`` is that of versions before 0.8.
NAMES: Final[dict[str, Any]] = {
    "globaltest": globaltest, "consistent": globaltest,
    **dict.fromkeys(
        (
            "all_placement", "all_cpu_placement", "all_cuda_placement", "random_placement", "random_cpu_placement",
            "random_gpu_placement",
        ),
        Placements,
    ),
    "all_sbp": Sbps, "random_sbp": Sbps,
}  # fmt: skip
