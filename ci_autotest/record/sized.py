"""Cases of a plain body that are drawn side by side: an input of all of them at a time, from the words of a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

from ci_autotest.record.draws import Drawer
from ci_autotest.record.profiles import ORDINARY, VALUE_PROFILES, valued
from ci_autotest.record.streams import SMALL
from ci_autotest.record.tensors import usual_elements, usual_spec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ci_autotest.program.ir import Step, TensorSpec
    from ci_autotest.record.drawing import Drawn
    from ci_autotest.record.sizing import Input
    from ci_autotest.record.streams import Fetched, Streams

_KIND: Final = "float32"
_float32: Final = torch.float32
_from_numpy: Final = torch.from_numpy
#: Profiles that draw no scalar and change no size, of inputs that have a dimension.
_SIDE_BY_SIDE: Final = frozenset({ORDINARY, "zero_dim", *VALUE_PROFILES})


class Batch(NamedTuple):
    """What cases that are drawn side by side have in common.

    Attributes:
        inputs: How each is drawn.
        fetched: Words of the cases.
        streams: Where further ones come from.
        alone: Draws one of them again, by its row, as others are drawn.
        asks: Which inputs ask for their gradient.
        dtypes: Of the inputs.
    """

    inputs: Sequence[Input]
    fetched: Fetched
    streams: Streams
    alone: Callable[[int], Drawn]
    asks: tuple[bool, ...]
    dtypes: tuple[str, ...]

    @classmethod
    def of(cls, inputs: Sequence[Input], fetched: Fetched, streams: Streams, alone: Callable[[int], Drawn]) -> Batch:
        """Return the batch of these inputs."""
        return cls(inputs, fetched, streams, alone, tuple(one.with_grad for one in inputs), (_KIND,) * len(inputs))


class Sized:
    """One of them: what ``Drawn`` is for a case that was drawn alone.

    Attributes:
        profile: What the case turned out to be about.
        sources: Data of each input.
        specs: Of each input.
        calls: None: no call has a drawn argument.
    """

    __slots__ = ("_batch", "_row", "profile", "sources", "specs")

    calls: tuple[Step, ...] = ()

    def __init__(self, batch: Batch, row: int) -> None:
        """Begin with nothing drawn."""
        self._batch, self._row = batch, row
        self.profile = ORDINARY
        self.sources: list[torch.Tensor] = []
        self.specs: list[TensorSpec] = []

    @property
    def asks(self) -> tuple[bool, ...]:
        """Which inputs ask for their gradient."""
        return self._batch.asks

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Dtypes of the inputs."""
        return self._batch.dtypes

    @property
    def log(self) -> list[tuple[Any, ...]]:
        """What was drawn; worked out again, for few are asked for it."""
        return self._batch.alone(self._row).log

    def cotangent(self, position: int, output: torch.Tensor, *, is_random: bool) -> torch.Tensor:
        """Return what is put into an output."""
        batch, row = self._batch, self._row
        if output.dtype is not _float32 or not is_random:
            return batch.alone(row).cotangent(position, output, is_random=is_random)
        fetched = batch.fetched
        array = batch.streams.cotangent_of(
            fetched.floats, fetched.base(row), position, output.numel(), fetched.seed(row)
        )
        return _from_numpy(array.reshape(output.shape))


def rows_side_by_side(profiles: Sequence[str], inputs: Sequence[Input]) -> list[int]:
    """Return the rows of the cases that can be drawn side by side."""
    usual = _SIDE_BY_SIDE if all(one.sizes for one in inputs) else _SIDE_BY_SIDE - {"zero_dim"}
    return [row for row, profile in enumerate(profiles) if profile in usual]


def sized(batch: Batch, rows: Sequence[int], profiles: Sequence[str]) -> list[Sized]:
    """Return cases as drawn.

    Args:
        batch: What they have in common.
        rows: Of the fetched words.
        profiles: What each case is about, by row.
    """
    fetched = batch.fetched
    found = [Sized(batch, row) for row in rows]
    # The words of each case in the order in which they are used, after that of the seed; a column each.
    words = list(zip(*[fetched.words[row] for row in rows], strict=True))[-2::-1]
    drawers = {
        at: Drawer(batch.streams, batch.fetched.key(row), {}, profiles[row])
        for at, row in enumerate(rows)
        if profiles[row] in VALUE_PROFILES
    }
    floats, bases = fetched.floats, list(map(fetched.base, rows))
    for one in batch.inputs:
        begin = one.slot * SMALL
        for at, (case, base, shape) in enumerate(zip(found, bases, one.shapes(words), strict=True)):
            spec, count = usual_spec(_KIND, shape, one.with_grad)
            drawer = drawers.get(at)
            if drawer is not None or count > SMALL:
                batch.streams.reopen(fetched.opened(rows[at]))
            if count <= SMALL:
                array = floats[base + begin : base + begin + count]
            else:
                array = usual_elements(batch.streams, one.slot, shape)
            if drawer is not None:
                array = array.copy()  # small ones share their words
                if valued(drawer, str(one.slot), _KIND, array):
                    case.profile = drawer.profile
            case.specs.append(spec)
            case.sources.append(_from_numpy(array.reshape(shape)))
    return found
