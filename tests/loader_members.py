"""Members of the families of data loaders: their test files, put together from parts."""

from __future__ import annotations

from dataclasses import dataclass

HEAD = """import ctypes, functools, itertools, os, random
import numpy, torch
from torch.utils.data import ConcatDataset, DataLoader, Dataset, DistributedSampler, IterableDataset, Sampler, Subset, get_worker_info
from ci_autotest import loadertest

"""
GENERATORS = {
    "numpy": ("numpy.random.default_rng({seed})", "{rng}.normal()", "numpy.random.Generator"),
    "state": ("numpy.random.RandomState({seed})", "{rng}.uniform(-1, 1)", "numpy.random.RandomState"),
    "python": ("random.Random({seed})", "{rng}.random()", "random.Random"),
    "torch": ("torch.Generator().manual_seed({seed})", "torch.rand((), generator={rng})", "torch.Generator"),
}
#: Draws from the global generators, which torch seeds in each worker.
GLOBALS = ("torch.rand(())", "float(numpy.random.rand())", "random.random()", "torch.randint(0, 1000, ())")


@dataclass(frozen=True)
class Member:
    """A loader of a family: its test file, the options of its test, and what must be found.

    Args:
        source: The file; the line that makes the shared generator ends with ``# planted``.
        pattern: Start of the words that must be found; empty for an innocent one.
        options: Of ``@loadertest``.
        kind: Class of the generator, if one is shared.
    """

    source: str
    pattern: str = ""
    options: dict | None = None
    kind: str = ""

    @property
    def line(self) -> int:
        return next((n for n, line in enumerate(self.source.splitlines(), 1) if line.endswith("# planted")), 0)


def map_style(draw, *, name="Rows", init="pass", size=24, extra=""):
    return f"""
class {name}(Dataset):
    def __init__(self):
        self.data = torch.arange({size} * 5.0).reshape({size}, 5)
        {init}

    def __len__(self):
        return {size}

    def __getitem__(self, index):
        {extra}
        return self.data[index] + {draw}

"""


def declared(returned):
    return f"""
@loadertest()
def made():
    return {returned}
"""


def loader_of(dataset, rng, **more):
    given = {"batch_size": rng.choice([1, 2, 3]), "shuffle": rng.random() < 0.5, **more}
    return f"DataLoader({dataset}, {', '.join(f'{key}={value}' for key, value in given.items())})"
