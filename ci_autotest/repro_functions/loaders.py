"""How the repro of a data loader makes the loader again, and counts what its processes share."""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import json
import os
import random
import subprocess
import sys
import types
from typing import TYPE_CHECKING, Any

import numpy  # noqa: ICN001 - a generator's place may name it
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

if TYPE_CHECKING:
    from collections.abc import Callable

WORKERS: int
EPOCHS: int
RANKS: int
SEED: int
#: Returns the function of the test, or the factory.
function: Callable[[], Any]
#: Whether a sample is known by the state of a generator before it.
BY_STATE: bool
#: Returns what a sample is known by.
token: Callable[..., Any]


def from_test(root: str, file: str, module: str, name: str) -> Any:
    """Return the function of a test file. Its decorators come from ci-autotest, and are not needed here."""
    names: Any = types.ModuleType("ci_autotest")
    names.__getattr__ = lambda name: torch if name == "torch" else lambda *_, **__: lambda body: body
    sys.modules["ci_autotest"] = names
    # The folder in which it was found, unless it is run in another checkout.
    root = os.getcwd() if os.path.exists(os.path.join(os.getcwd(), file)) else root
    path = os.path.join(root, file)
    sys.path += [os.path.dirname(path), root]
    spec = importlib.util.spec_from_file_location(module, path)
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    sys.modules[module] = found
    spec.loader.exec_module(found)
    owner, _, name = name.rpartition(".")
    return getattr(getattr(found, owner)() if owner else found, name)


def from_factory(root: str, name: str) -> Any:
    """Return the factory of a module."""
    sys.path += [os.getcwd(), root]
    module, _, path = name.partition(":")
    found = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    return found


def make() -> Any:
    """Return the loader, with the global generators seeded as a training script does."""
    seed = SEED + int(os.environ.get("RANK", "0"))
    torch.manual_seed(seed)
    numpy.random.seed(seed % 2**32)  # noqa: NPY002, TID251 - as training scripts do
    random.seed(seed)
    made = function()()
    if callable(made) and not hasattr(made, "__getitem__") and not hasattr(made, "__iter__"):
        made = made(SEED)
    if isinstance(made, DataLoader):
        return made
    if isinstance(made, IterableDataset):
        return DataLoader(made, batch_size=1)
    return DataLoader(made, batch_size=max(1, min(4, len(made) // (3 * WORKERS))), shuffle=True)


class Watch:
    """Notes what each sample of a loader is known by: its `worker_init_fn` and `collate_fn`, around the user's own."""

    def __init__(self, loader: Any, workers: int) -> None:
        self.init, self.collate = loader.worker_init_fn, loader.collate_fn
        self.seen: list[tuple[int, Any]] = []
        loader.worker_init_fn, loader.collate_fn, loader.num_workers = self.start, self.batch, workers
        loader.prefetch_factor, loader.pin_memory = 2 if workers else None, False
        if not workers:
            object.__setattr__(loader, "persistent_workers", False)
            self.watch(loader.dataset, 0)

    def start(self, worker: int) -> None:
        """Begin in a worker."""
        if self.init is not None:
            self.init(worker)
        info: Any = get_worker_info()
        self.watch(info.dataset, worker)

    def watch(self, dataset: Any, worker: int) -> None:
        """Note each sample of a dataset."""
        self.worker, self.dataset, self.iterator, self.inside = worker, dataset, None, False
        kind = type(dataset)
        if isinstance(dataset, IterableDataset):
            kind.__iter__ = self.iterated(kind.__iter__)
            return
        for name in ("__getitem__", "__getitems__"):
            if callable(getattr(kind, name, None)):
                setattr(kind, name, self.called(getattr(kind, name)))

    def called(self, original: Any) -> Any:
        """Return a method that notes the sample that it gives."""

        def call(dataset: Any, index: Any) -> Any:
            if self.inside or dataset is not self.dataset:
                return original(dataset, index)
            return self.note(lambda: original(dataset, index), index)

        return call

    def iterated(self, original: Any) -> Any:
        """Return a method that notes each sample of an iterator."""

        def iterate(dataset: Any) -> Any:
            self.iterator = iterator = original(dataset)
            while True:
                try:
                    yield self.note(lambda: next(iterator), None)
                except StopIteration:
                    return

        return iterate

    def note(self, call: Any, index: Any) -> Any:
        """Return what a call gives, and note what that sample is known by."""
        before = token(self.dataset, self.iterator, self.collate, index, None)
        self.inside = True
        try:
            result = call()
        finally:
            self.inside = False
        after = token(self.dataset, self.iterator, self.collate, index, result)
        if not BY_STATE:
            self.seen.append((self.worker, after))
        elif before != after:  # numbers were drawn; a generator that was made is known by its state after that
            self.seen.append((self.worker, f"made {after}" if before is None else before))
        return result

    def batch(self, items: Any) -> Any:
        """Return what is noted of a batch in the place of the batch."""
        if BY_STATE:
            self.note(lambda: self.collate(items), None)
        seen, self.seen = self.seen, []
        return seen


def epoch(loader: Any, number: int) -> list[tuple[int, Any]]:
    """Return (worker, token) of the first samples of an epoch."""
    inner: Any = getattr(loader.batch_sampler, "sampler", None)
    for each in (loader.sampler, loader.batch_sampler, inner, loader.dataset):
        if hasattr(each, "set_epoch"):
            each.set_epoch(number)
    return [entry for batch in itertools.islice(loader, 6 * WORKERS) for entry in batch]


def watched_epoch(workers: int) -> list[tuple[int, Any]]:
    """Return (worker, token) of the first samples of a new loader."""
    loader = make()
    Watch(loader, workers)
    return epoch(loader, 0)


def shared(groups: list[list[Any]]) -> int:
    """Return how many of the tokens of several groups are in more than one of them."""
    sets = [set(group) for group in groups]
    return sum(sum(one in other for other in sets) > 1 for one in set().union(*sets))


def by_worker(entries: list[tuple[int, Any]]) -> list[list[Any]]:
    """Return the tokens of each worker."""
    return [[token for worker, token in entries if worker == number] for number in range(WORKERS)]


def of_workers() -> int:
    """Count the samples that workers share."""
    return shared(by_worker(watched_epoch(WORKERS)))


def of_epochs() -> int:
    """Count the samples that epochs share."""
    loader = make()
    Watch(loader, WORKERS)
    return shared([[token for _, token in epoch(loader, number)] for number in range(EPOCHS)])


def of_ranks() -> int:
    """Count the samples that ranks share."""
    return shared([of_rank(rank) for rank in range(RANKS)])


def of_rank(rank: int) -> list[Any]:
    """Return the tokens of one rank, from a process with the variables that torchrun sets."""
    names = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(RANKS), "LOCAL_WORLD_SIZE": str(RANKS)}
    words = [sys.executable, os.path.abspath(__file__), "--rank"]
    done = subprocess.run(words, env={**os.environ, **names}, capture_output=True, text=True, check=True)
    found: list[Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def print_tokens() -> None:
    """Print the tokens of this rank."""
    print(json.dumps([token for _, token in watched_epoch(WORKERS)]))


def of_equal_items() -> int:
    """Count the workers that give the same values for the same items, if these are random."""
    made = make()
    # Every worker gets the same items, each twice.
    order = [[item] for item in range(min(3, len(made.dataset))) for _ in range(2) for _ in range(WORKERS)]
    loader = DataLoader(made.dataset, batch_sampler=order, worker_init_fn=made.worker_init_fn)
    Watch(loader, WORKERS)
    rows = [tuple(row) for row in by_worker(epoch(loader, 0))]
    is_random = any(len(set(row)) > len(row) // 2 for row in rows)
    return len(rows) - len(set(rows)) if is_random else 0


def of_whole() -> int:
    """Count the samples that several workers give of a dataset that each of them iterates over."""
    loader, alone = make(), make()
    original = type(alone.dataset).__iter__
    Watch(alone, 0)
    once = len(epoch(alone, 0))
    type(alone.dataset).__iter__ = original
    Watch(loader, WORKERS)
    entries = epoch(loader, 0)
    return shared(by_worker(entries)) or max(0, len(entries) - once)


def of_items() -> int:
    """Return 1 if workers give other items than one process."""
    first = sorted(token for _, token in watched_epoch(WORKERS))
    return int(first != sorted(token for _, token in watched_epoch(0)))


def of_order() -> int:
    """Return 1 if all epochs have one order."""
    loader = make()
    Watch(loader, WORKERS)
    orders = [[token for _, token in epoch(loader, number)] for number in range(EPOCHS)]
    return int(all(order == orders[0] for order in orders))


def counted(count: Callable[[], int], wrong: str, fixed: str) -> int:
    """Print what is counted; return 1 if there is any, and 2 if the loader cannot be run."""
    try:
        found = count()
    except Exception as error:
        print(f"the loader cannot be run: {type(error).__name__}: {error}", file=sys.stderr)
        return 2
    print(f"{found} times: {wrong}" if found else fixed)
    return 1 if found else 0
