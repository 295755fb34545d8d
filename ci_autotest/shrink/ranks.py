"""Passes over how inputs lie on the ranks of a candidate that is a group: fewer ranks, then plainer placements."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ci_autotest.program.distribution import FEWEST, REPLICATE, Distribution, shard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ci_autotest.program.ir import Step, TensorSpec
    from ci_autotest.program.recording import Recording


def simpler_ranks(best: Callable[[], Recording]) -> Iterator[Recording]:
    """Yield the program on fewer ranks, and with one input lying more plainly each time.

    Args:
        best: Returns the smallest program so far.
    """
    mesh = best().program.mesh
    if mesh is None:
        return
    for smaller in _smaller(mesh):
        for kept in range(len(mesh)):
            now = best()
            if (own := now.program.mesh) == mesh and len(own) > kept:
                yield _changed(now, partial(_on, smaller, kept))
    for number, spec in enumerate(_specs(best())):
        tried: set[Distribution] = set()
        # A placement that was kept is the new start: what is plainer is asked again.
        while plain := next((one for one in _plainer(spec.shape, _on_ranks(best(), number)) if one not in tried), None):
            tried.add(plain)
            yield _changed(best(), partial(_replaced, plain), number)


def on_fewest(recording: Recording) -> Recording | None:
    """Return the program on two ranks; ``None`` if it lies on two already, or on none."""
    mesh = recording.program.mesh
    return _changed(recording, partial(_on, (FEWEST,), 0)) if mesh not in {None, (FEWEST,)} else None


def _on_ranks(recording: Recording, number: int) -> Distribution | None:
    return _specs(recording)[number].distribution


def _replaced(plain: Distribution, _: Distribution) -> Distribution:
    return plain


def _on(mesh: tuple[int, ...], kept: int, on: Distribution) -> Distribution:
    """Return a distribution on a mesh of one dimension, with one of the placements that it had."""
    return Distribution(mesh, (on.placements[kept],))


def _smaller(mesh: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return smaller meshes, the smallest first: the first that shows the finding ends the search."""
    whole = Distribution(mesh, ()).ranks
    return [(size,) for size in range(FEWEST, whole + (len(mesh) > 1))]


def _plainer(shape: tuple[int, ...], on: Distribution | None) -> Iterator[Distribution]:
    """Yield plainer placements of an input: replicated, then cut along the first dimension."""
    count = len(on.placements) if on is not None else 0
    if on is not None and on.placements != (REPLICATE,) * count:
        yield Distribution(on.mesh, (REPLICATE,) * count)
        for place, placement in enumerate(on.placements):
            if placement != REPLICATE and count > 1:
                yield Distribution(on.mesh, (*on.placements[:place], REPLICATE, *on.placements[place + 1 :]))
        if shape and set(on.placements) != {shard(0)}:
            yield Distribution(on.mesh, (*on.placements[:-1], shard(0)))


def _specs(recording: Recording) -> list[TensorSpec]:
    return [spec for step in recording.program.steps if (spec := step.spec) is not None]


def _changed(
    recording: Recording, change: Callable[[Distribution], Distribution], number: int | None = None
) -> Recording:
    """Return a recording with the distribution of one input changed, or of all."""
    count = -1
    moved: list[Step] = []
    for step in recording.program.steps:
        spec = step.spec
        if spec is not None:
            count += 1
            if spec.distribution is not None and number in {None, count}:
                step = step.with_spec(distribution=change(spec.distribution))  # noqa: PLW2901
        moved.append(step)
    return replace(recording, program=recording.program.with_steps(moved))
