"""The epochs of a loader under test, with worker processes and without; each calls the user's function anew.

A recorder writes down what every sample draws, in the workers too.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import re
from functools import wraps
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import torch
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, Sampler, get_worker_info

from ci_autotest.backends.sameness import byte_view
from ci_autotest.errors import AuthorError
from ci_autotest.loader.generators import (
    FoundGenerator,
    dotted_name,
    first_numbers,
    global_generators,
    held_generators,
    plain_numbers,
    reseed,
    state_of,
)
from ci_autotest.loader.observations import LoaderSample, Observations, ObservedGenerator, SampleDraws

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ci_autotest.loader.declaration import LoaderDeclaration


#: Batches of an epoch that are observed for each worker.
_BATCHES: Final = 6
#: Items that are asked of every worker if nothing is drawn.
_PROBED: Final = 3
#: Two seeds for the question whether a sample seeds a generator anew.
_SEEDS: Final = (20_240_117, 31_337)


class LoaderTrial:
    """Run a declared function's loader.

    Args:
        declaration: The options of the test.
        make: The function, bound to its arguments.
        seed: Seed of the global generators when the function is called.
        rank: Rank of this process.
    """

    def __init__(self, declaration: LoaderDeclaration, make: Callable[..., Any], seed: int, rank: int) -> None:
        self._declaration = declaration
        self._make = make
        self._seed = seed
        self._rank = rank
        self._generators: dict[str, ObservedGenerator] = {}

    def observations(self) -> Observations:
        """Return what is observed of the loader in all its epochs."""
        loader = self._loader()
        dataset = _own_dataset(loader.dataset)
        workers, epochs = self._declaration.workers, range(self._declaration.epochs)
        distributed, init = _shuffling_sampler(loader), loader.worker_init_fn
        with self._running(loader, workers):
            observed = [self._epoch(loader, epoch) for epoch in epochs]
        is_whole = all(whole for _, whole in observed)
        again = self._loader()
        with self._running(again, workers):
            second = self._epoch(again, 0)[0] if observed[0][0] else ()
        alone = self._loader()
        with self._running(alone, 0):
            single, is_single_whole = self._epoch(alone, 0)
        drawn = any(sample.draws for samples, _ in observed for sample in samples)
        is_iterable = isinstance(loader.dataset, IterableDataset)
        probe = () if drawn or is_iterable else self._probe(self._loader())
        return Observations(
            dataset=dotted_name(type(dataset)), is_iterable=is_iterable,
            is_whole=is_whole, is_alone_whole=is_single_whole, size=_size(loader.dataset),
            epochs=tuple(samples for samples, _ in observed), again=second, alone=single, probe=probe,
            generators=self._generators, reseeded=tuple(self._reseeded(self._loader())), distributed=distributed,
            init=_line(init), context=_context(loader), is_persistent=loader.persistent_workers,
            torch=str(torch.__version__),
        )  # fmt: skip

    def _loader(self) -> DataLoader[Any]:
        """Return a new loader of the function; the global generators are seeded first, as a training script does."""
        for item in global_generators():
            # The global generator of numpy refuses a seed of more than 32 bits.
            reseed(item.generator, (self._seed + self._rank) % 2**32)
        made = self._make()
        # `callable` would also hold for a dataset that defines `__call__`.
        if inspect.isroutine(made):
            made = made(self._seed)
        if isinstance(made, DataLoader):
            return made
        if not (hasattr(made, "__getitem__") or hasattr(made, "__iter__")):
            message = (
                f"it returned an object of type {type(made).__name__}. Return a Dataset, an IterableDataset, a "
                "DataLoader or a function make(seed) that returns a DataLoader."
            )
            raise AuthorError(message)
        if isinstance(made, IterableDataset) or not hasattr(made, "__getitem__"):
            return DataLoader(made, batch_size=1)
        return DataLoader(made, batch_size=_batch_size(made, self._declaration.workers), shuffle=_size(made) > 0)

    @contextlib.contextmanager
    def _running(self, loader: Any, workers: int) -> Iterator[None]:
        """Put the recorder into a loader and set its number of workers; end its workers afterwards."""
        kind = type(loader.dataset)
        kept = {name: vars(kind)[name] for name in _CALLS if name in vars(kind)}
        held = _LoaderRecorder(loader.dataset, loader.worker_init_fn, loader.collate_fn)
        loader.worker_init_fn, loader.collate_fn, loader.num_workers = held.start, held.collate, workers
        # A loader that was made without workers has no such number, and 2 is torch's default with workers.
        if workers and loader.prefetch_factor is None:
            loader.prefetch_factor = 2
        # The workers send the recorder's notes instead of tensors, so there is nothing to pin.
        loader.pin_memory = False
        if not workers:
            # torch refuses both without workers.
            loader.prefetch_factor = None
            loader.timeout = 0
            object.__setattr__(loader, "persistent_workers", False)
            object.__setattr__(loader, "_DataLoader__multiprocessing_context", None)
            held.watch(loader.dataset)
        try:
            yield
        finally:
            loader._iterator = None  # noqa: SLF001 - persistent workers end with it
            for name in _CALLS:
                with contextlib.suppress(TypeError, AttributeError):
                    setattr(kind, name, kept[name]) if name in kept else delattr(kind, name)

    def _epoch(self, loader: Any, epoch: int) -> tuple[tuple[LoaderSample, ...], bool]:
        """Return the samples of an epoch, and whether it was observed to its end."""
        _set_epoch(loader, epoch)
        limit = _BATCHES * max(self._declaration.workers, 1)
        iterator = iter(loader)
        batches: list[_RecordedBatch] = list(itertools.islice(iterator, limit))
        # If the limit was reached, only a further batch shows whether the epoch goes on.
        is_whole = len(batches) < limit or next(iterator, None) is None
        for batch in batches:
            self._generators |= batch.generators
        return tuple(sample for batch in batches for sample in batch.samples), is_whole

    def _probe(self, loader: Any) -> tuple[LoaderSample, ...]:
        """Return samples of the same items in every worker, each item twice in a row."""
        size = _size(loader.dataset)
        if size < 1:
            return ()
        workers = self._declaration.workers
        items = [item for item in range(min(_PROBED, size)) for _ in range(2)]
        order = [[item] for item in items for _ in range(workers)]
        probing: Any = DataLoader(
            loader.dataset, batch_sampler=order, worker_init_fn=loader.worker_init_fn,
            multiprocessing_context=loader.multiprocessing_context, collate_fn=loader.collate_fn,
        )  # fmt: skip
        with self._running(probing, workers):
            return self._epoch(probing, 0)[0]

    def _reseeded(self, loader: Any) -> Iterator[str]:
        """Yield the drawn generators whose state after a sample does not depend on their state before it.

        A dataset may seed a generator with the item's number in each call: then equal states before mean nothing.
        """
        for access in self._generators:
            with contextlib.suppress(Exception):  # a dataset may need its worker
                call = _first_call(loader)
                roots = {"dataset": loader.dataset, "collate_fn": loader.collate_fn}
                call()
                found = {item.access: item.generator for item in (*global_generators(), *held_generators(**roots))}
                ends = set()
                for seed in _SEEDS:
                    reseed(found[access], seed)
                    call()
                    ends.add(state_of(found[access]))
                if len(ends) == 1:
                    yield access


_CALLS: Final = ("__getitem__", "__getitems__", "__iter__")


def _first_call(loader: Any) -> Callable[[], object]:
    """Return a function that asks the dataset for one item, always the same."""
    if isinstance(loader.dataset, IterableDataset):
        return lambda: next(iter(loader.dataset))
    item = next(iter(loader.sampler)) if loader.batch_sampler is None else next(iter(loader.batch_sampler))
    key = item[0] if isinstance(item, list | tuple) else item
    return lambda: loader.collate_fn([loader.dataset[key]])


def _size(dataset: Any) -> int:
    try:
        return len(dataset)
    except (TypeError, NotImplementedError):
        return -1


def _batch_size(dataset: Any, workers: int) -> int:
    """Return a batch size with which every worker has several batches."""
    return max(1, min(4, _size(dataset) // (3 * workers)))


def _own_dataset(dataset: Any) -> Any:
    """Return the dataset inside torch's own wrappers, such as ``Subset`` and ``ConcatDataset``."""
    while type(dataset).__module__.startswith("torch."):
        inner = getattr(dataset, "dataset", None) or next(iter(getattr(dataset, "datasets", ())), None)
        if inner is None:
            break
        dataset = inner
    return dataset


def _samplers(loader: Any) -> list[tuple[str, Any]]:
    """Return the samplers of a loader with how each is reached, also those that another one holds."""
    found: list[tuple[str, Any]] = []
    waiting = [("loader.batch_sampler", loader.batch_sampler), ("loader.sampler", loader.sampler)]
    while waiting:
        access, sampler = waiting.pop(0)
        if sampler is None or any(sampler is other for _, other in found):
            continue
        found.append((access, sampler))
        held = getattr(sampler, "__dict__", {}).items()
        waiting += [(f"{access}.{name}", item) for name, item in held if isinstance(item, Sampler)]
    return found


def _shuffling_sampler(loader: Any) -> str:
    for access, sampler in _samplers(loader):
        if isinstance(sampler, DistributedSampler) and sampler.shuffle:
            return access
    return ""


def _set_epoch(loader: Any, epoch: int) -> None:
    """Tell the sampler and the dataset which epoch begins, as Lightning and Accelerate do."""
    batches = loader.batch_sampler
    for each in (loader.sampler, batches, getattr(batches, "sampler", None), loader.dataset):
        tell: Any = getattr(each, "set_epoch", None)
        if callable(tell):
            tell(epoch)


def _context(loader: Any) -> str:
    context = loader.multiprocessing_context or torch.multiprocessing.get_context()
    return str(context.get_start_method())


def _line(function: Any) -> str:
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return "" if code is None else f"{Path(code.co_filename)}:{code.co_firstlineno}"


# The recorder in each worker of a loader: it writes down what every sample draws from every generator.
#
# It is the loader's ``worker_init_fn`` and ``collate_fn``, around the user's own, so it reaches the workers however
# they are started, and ``get_worker_info().dataset`` stays the user's dataset.


#: Calls of a worker of which the first numbers of each generator are written down.
_PEEKED: Final = 2
#: The address in the default ``repr`` of an object.
_ADDRESS: Final = re.compile(r"\bat 0x[0-9a-fA-F]+")
#: Levels of parts of a sample that are read.
_DEPTH: Final = 6


class _RecordedBatch(NamedTuple):
    """What a worker sends instead of its batch: the samples of it, and the generators that they drew from."""

    samples: list[LoaderSample]
    generators: dict[str, ObservedGenerator]


class _LoaderRecorder:
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

    def collate(self, items: Any) -> _RecordedBatch:
        """Call the user's ``collate_fn``, and return the batch's samples; this is the loader's ``collate_fn``."""
        self._record(lambda: self._collate(items), (), is_collation=True)
        batch = _RecordedBatch(self._samples, self._generators)
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
        return f"{value.dtype}{tuple(value.shape)}".encode() + bytes(byte_view(value))
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
