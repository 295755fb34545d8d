"""What was observed of a data loader, as frozen values that cross from the observing process as JSON."""

from __future__ import annotations

import msgspec


class ObservedStruct(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of every value that leaves the observing process."""


class ObserverTask(ObservedStruct, frozen=True, kw_only=True):
    """What an observing process has to do.

    Attributes:
        root: The configuration's folder.
        folders: Appended to the import path.
        file: File of the test, or ``loader:MODULE:FACTORY``.
        name: Qualified name of the test in its file.
        seed: Seed of the global generators when the function is called.
        rank: Rank of this process.
        result: File for the observations.
    """

    root: str
    folders: list[str]
    file: str
    name: str
    seed: int
    rank: int
    result: str


class SampleDraws(ObservedStruct, frozen=True, kw_only=True):
    """The draws of one sample from one generator.

    Attributes:
        generator: Its key in ``Observations.generators``.
        before: Hash of its state before the sample; empty if the sample made it.
        after: Hash of its state after the sample.
        numbers: The first numbers that the state before gives, as text; empty after a worker's first samples.
    """

    generator: str
    before: str
    after: str
    numbers: tuple[str, ...] = ()


class LoaderSample(ObservedStruct, frozen=True, kw_only=True):
    """One call of the dataset, or of the loader's ``collate_fn``, in one worker.

    Attributes:
        worker: Number of the worker; 0 without workers.
        position: How many calls the worker had made before in this epoch.
        items: Keys of the items; none for a call of ``collate_fn`` and for an ``IterableDataset``.
        digest: Hash of the result; empty if it cannot be hashed.
        draws: Generators that changed.
        is_collation: Whether it is a call of ``collate_fn``.
        moves_state: Whether numbers that the dataset's attributes hold changed, apart from generators.
    """

    worker: int
    position: int
    items: tuple[str, ...]
    digest: str
    draws: tuple[SampleDraws, ...] = ()
    is_collation: bool = False
    moves_state: bool = False


class ObservedGenerator(ObservedStruct, frozen=True, kw_only=True):
    """A random number generator.

    Attributes:
        kind: Its class, ``numpy.random.Generator``.
        place: Where it lives: ``self.rng``.
        access: Python expression that finds it, given ``dataset``.
        made: ``file:line`` of the statement that makes it; empty if unknown.
        is_global: Whether it is one that torch seeds in each worker.
    """

    kind: str
    place: str
    access: str
    made: str = ""
    is_global: bool = False


class Observations(ObservedStruct, frozen=True, kw_only=True):
    """What one process has observed of its loader.

    Attributes:
        dataset: Dotted name of the dataset's class.
        is_iterable: Whether it is an ``IterableDataset``.
        is_whole: Whether each epoch with workers was observed to its end.
        is_alone_whole: Whether the epoch without workers was.
        size: Number of its items, or -1.
        epochs: The samples of each epoch with workers.
        again: The samples of the first epoch of a second loader, made with the same seed.
        alone: The samples of one epoch without workers.
        probe: Samples of the same items in every worker, each item twice in a row; only if nothing was drawn.
        generators: By key.
        reseeded: Keys of generators that each sample seeds anew.
        distributed: Where the loader holds a ``DistributedSampler`` that shuffles; empty if nowhere.
        init: ``file:line`` of the loader's ``worker_init_fn``.
        context: How the workers are started: ``fork``, ``spawn`` or ``forkserver``.
        is_persistent: Whether the workers live on from epoch to epoch.
        torch: Version of torch.
        error: Why nothing could be observed, in a sentence.
        traceback: The user's own lines of that error.
    """

    dataset: str = ""
    is_iterable: bool = False
    is_whole: bool = True
    is_alone_whole: bool = True
    size: int = -1
    epochs: tuple[tuple[LoaderSample, ...], ...] = ()
    again: tuple[LoaderSample, ...] = ()
    alone: tuple[LoaderSample, ...] = ()
    probe: tuple[LoaderSample, ...] = ()
    # msgspec copies an empty container for each object, so this default is never shared.
    generators: dict[str, ObservedGenerator] = {}
    reseeded: tuple[str, ...] = ()
    distributed: str = ""
    init: str = ""
    context: str = ""
    is_persistent: bool = False
    torch: str = ""
    error: str = ""
    traceback: str = ""
