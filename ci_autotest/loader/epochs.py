"""The epochs of a loader under test, with worker processes and without; each calls the user's function anew."""

from __future__ import annotations

import contextlib
import inspect
import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, Sampler

from ci_autotest.errors import AuthorError
from ci_autotest.loader.generators import dotted_name, global_generators, held_generators, reseed, state_of
from ci_autotest.loader.observations import Observations
from ci_autotest.loader.recorder import LoaderRecorder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ci_autotest.loader.declaration import LoaderDeclaration
    from ci_autotest.loader.observations import LoaderSample, ObservedGenerator
    from ci_autotest.loader.recorder import RecordedBatch

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
        held = LoaderRecorder(loader.dataset, loader.worker_init_fn, loader.collate_fn)
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
        batches: list[RecordedBatch] = list(itertools.islice(iterator, limit))
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
