"""The recorder in each worker of a loader: it writes down what every sample draws from every generator.

It is the loader's ``worker_init_fn`` and ``collate_fn``, around the user's own, so it reaches the workers however they
are started, and ``get_worker_info().dataset`` stays the user's dataset.
"""

from __future__ import annotations

import contextlib
import re
from functools import wraps
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

from ci_autotest.loader.generators import (
    FoundGenerator,
    first_numbers,
    global_generators,
    held_generators,
    plain_numbers,
    state_of,
)
from ci_autotest.loader.observations import LoaderSample, ObservedGenerator, SampleDraws

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Calls of a worker of which the first numbers of each generator are written down.
_PEEKED: Final = 2
#: The address in the default ``repr`` of an object.
_ADDRESS: Final = re.compile(r"\bat 0x[0-9a-fA-F]+")
#: Levels of parts of a sample that are read.
_DEPTH: Final = 6


class RecordedBatch(NamedTuple):
    """What a worker sends instead of its batch: the samples of it, and the generators that they drew from."""

    samples: list[LoaderSample]
    generators: dict[str, ObservedGenerator]


class LoaderRecorder:
    """Record the samples of one loader.

    Args:
        dataset: The loader's dataset.
        init: The user's ``worker_init_fn``.
        collate: The user's ``collate_fn``.
    """

    def __init__(self, dataset: Any, init: Callable[[int], object] | None, collate: Callable[[Any], Any]) -> None:
        self._dataset = dataset
        self._init = init
        self._collate = collate
        self._samples: list[LoaderSample] = []
        self._generators: dict[str, ObservedGenerator] = {}
        self._roots: dict[str, Any] = {}
        self._worker = 0
        self._position = 0
        self._depth = 0

    def start(self, worker: int) -> None:
        """Call the user's ``worker_init_fn``, then begin to record; this is the loader's ``worker_init_fn``."""
        if self._init is not None:
            self._init(worker)
        info = get_worker_info()
        self._worker = worker
        self.watch(self._dataset if info is None else info.dataset)

    def watch(self, dataset: Any) -> None:
        """Record the calls of a dataset from now on; this changes its class, in this process only."""
        self._dataset = dataset
        self._roots = {"dataset": dataset, "collate_fn": self._collate}
        self._samples, self._generators, self._position = [], {}, 0
        kind: Any = type(dataset)
        if isinstance(dataset, IterableDataset):
            kind.__iter__ = self._iterated(kind.__iter__)
            return
        for name in ("__getitem__", "__getitems__"):
            # A class of C, such as `list`, cannot be changed, and holds no generator.
            with contextlib.suppress(TypeError):
                if callable(getattr(kind, name, None)):
                    setattr(kind, name, self._recorded(getattr(kind, name)))

    def collate(self, items: Any) -> RecordedBatch:
        """Call the user's ``collate_fn``, and return the batch's samples; this is the loader's ``collate_fn``."""
        self._record(lambda: self._collate(items), (), is_collation=True)
        batch = RecordedBatch(self._samples, self._generators)
        self._samples, self._generators = [], {}
        return batch

    def _recorded(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def call(dataset: Any, index: Any) -> Any:
            # A method of the class may call itself, and another dataset may have the same class.
            if self._depth or dataset is not self._dataset:
                return original(dataset, index)
            keys = tuple(map(str, index)) if isinstance(index, list | tuple) else (str(index),)
            return self._record(lambda: original(dataset, index), keys)

        return call

    def _iterated(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def iterate(dataset: Any) -> Iterator[Any]:
            iterator = original(dataset)
            if dataset is not self._dataset:
                yield from iterator
                return
            self._roots["iterator"] = iterator
            # A worker that lives on from epoch to epoch iterates anew in each, and positions are counted by epoch.
            self._position = 0
            while True:
                try:
                    item = self._record(lambda: next(iterator), ())
                except StopIteration:
                    return
                yield item

        return iterate

    def _record(self, call: Callable[[], Any], items: tuple[str, ...], *, is_collation: bool = False) -> Any:
        before, numbers = self._states(), plain_numbers(**self._roots)
        self._depth += 1
        try:
            result = call()
        finally:
            self._depth -= 1
        after = self._states()
        draws = tuple(draw for key in after if (draw := _draw(key, before, after)) is not None)
        for draw in draws:
            found = after[draw.generator].found
            self._generators[draw.generator] = ObservedGenerator(
                kind=found.kind, place=found.place, access=found.access, made=found.made, is_global=found.is_global
            )
        self._samples.append(
            LoaderSample(
                worker=self._worker, position=self._position, items=items, digest=digest_of(result), draws=draws,
                is_collation=is_collation, moves_state=numbers != plain_numbers(**self._roots),
            )
        )  # fmt: skip
        self._position += 1
        return result

    def _states(self) -> dict[str, _State]:
        found = [*global_generators(), *held_generators(**self._roots)]
        peeks = self._position < _PEEKED
        return {
            item.access: _State(item, state_of(item.generator), first_numbers(item.generator) if peeks else ())
            for item in found
        }


class _State(NamedTuple):
    found: FoundGenerator
    digest: str
    numbers: tuple[str, ...]


def _draw(key: str, before: dict[str, _State], after: dict[str, _State]) -> SampleDraws | None:
    """Return what a sample drew from a generator; ``None`` if its state is the same."""
    old, new = before.get(key), after[key]
    if old is None or old.found.generator is not new.found.generator:
        return SampleDraws(generator=key, before="", after=new.digest)
    if old.digest == new.digest:
        return None
    return SampleDraws(generator=key, before=old.digest, after=new.digest, numbers=old.numbers)


def digest_of(sample: Any) -> str:
    """Return a hash of a sample's values; empty if they cannot be read."""
    try:
        text = _bytes(sample, 0)
    except Exception:  # noqa: BLE001 - foreign objects may raise anything when they are read
        return ""
    return blake2b(text, digest_size=8).hexdigest()


def _bytes(value: Any, depth: int) -> bytes:
    """Return type and content of a value; parts begin with their length, so that (1, 11) is not (11, 1)."""
    content = _content(value, depth)
    return f"{type(value).__name__}{len(content)}:".encode() + content


def _content(value: Any, depth: int) -> bytes:
    if isinstance(value, torch.Tensor):
        data = value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy()
        return f"{value.dtype}{tuple(value.shape)}".encode() + bytes(data.tobytes())
    if isinstance(value, np.ndarray) and value.dtype != object:
        return f"{value.dtype}{value.shape}".encode() + value.tobytes()
    if isinstance(value, dict):
        return b"".join(_bytes(key, depth) + _bytes(item, depth + 1) for key, item in value.items())
    if isinstance(value, list | tuple):
        return b"".join(_bytes(item, depth + 1) for item in value)
    if hasattr(value, "tobytes") and callable(value.tobytes):
        return bytes(value.tobytes())
    text = repr(value)
    # A text with an address differs from process to process, so the attributes are hashed instead.
    if _ADDRESS.search(text) is None:
        return text.encode()
    if depth > _DEPTH:
        message = "too deep"
        raise ValueError(message)
    return _bytes(vars(value), depth + 1)
