"""Cases of a plain body that are drawn side by side: an input of all of them at a time, from the words of a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

from ci_autotest.record.profiles import ORDINARY, SHAPE_PROFILES, VALUE_PROFILES, valued
from ci_autotest.record.streams import SMALL
from ci_autotest.record.tensors import usual_spec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ci_autotest.program.ir import Step, TensorSpec
    from ci_autotest.record.drawing import Drawn
    from ci_autotest.record.sizing import Input
    from ci_autotest.record.streams import Fetched, Streams

_KIND: Final = "float32"
_float32: Final = torch.float32
_from_numpy: Final = torch.from_numpy


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
        calls: Empty: no call has a drawn argument.
    """

    __slots__ = ("_batch", "_row", "profile", "sources", "specs")

    calls: tuple[Step, ...] = ()

    def __init__(
        self,
        batch: Batch,
        row: int,
        profile: str,
        specs: tuple[TensorSpec, ...],
        sources: tuple[torch.Tensor, ...],
    ) -> None:
        """Hold what was drawn."""
        self._batch, self._row = batch, row
        self.profile, self.specs, self.sources = profile, specs, sources

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
    """Return the rows of cases that can be drawn side by side: whose profile draws no scalar and changes no size."""
    usual = {ORDINARY, *VALUE_PROFILES}
    if all(one.sizes for one in inputs):
        usual.add("zero_dim")  # a given number of dimensions stands
        if not any(one.has_free for one in inputs):
            usual.update(SHAPE_PROFILES)  # as do given sizes
    return [row for row, profile in enumerate(profiles) if profile in usual]


def sized(batch: Batch, rows: Sequence[int], profiles: Sequence[str]) -> list[Sized]:
    """Return cases as drawn.

    Args:
        batch: What they have in common.
        rows: Of the fetched words.
        profiles: What each case is about, by row.
    """
    fetched, streams = batch.fetched, batch.streams
    # The words of each case in the order in which they are used, after that of the seed; a column each.
    words = list(zip(*[fetched.words[row] for row in rows], strict=True))[-2::-1]
    valued_rows = [(at, row) for at, row in enumerate(rows) if profiles[row] in VALUE_PROFILES]
    about = [ORDINARY] * len(rows)
    floats, bases = fetched.floats, list(map(fetched.base, rows))
    specs, sources = [], []
    for one in batch.inputs:
        shapes = one.shapes(words)
        known = [usual_spec(_KIND, shape, one.with_grad) for shape in shapes]
        begin = one.slot * SMALL
        arrays = [floats[base + begin : base + begin + count] for base, (_, count) in zip(bases, known, strict=True)]
        large = [at for at, (_, count) in enumerate(known) if count > SMALL]
        if large:
            drawn = streams.unit_floats(
                str(one.slot), fetched.test, [(fetched.first + rows[at], known[at][1]) for at in large]
            )
            for at, array in zip(large, drawn, strict=True):
                arrays[at] = array
        for at, row in valued_rows:
            streams.reopen(fetched.opened(row))
            arrays[at] = arrays[at].copy()  # words are shared
            if valued(profiles[row], streams, str(one.slot), _KIND, arrays[at]):
                about[at] = profiles[row]
        specs.append([spec for spec, _ in known])
        sources.append([_from_numpy(array.reshape(shape)) for array, shape in zip(arrays, shapes, strict=True)])
    columns = zip(rows, about, zip(*specs, strict=True), zip(*sources, strict=True), strict=True)
    return [Sized(batch, *column) for column in columns]
