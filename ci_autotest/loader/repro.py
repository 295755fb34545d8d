"""The repro of a finding of a data loader: one file that needs torch and the user's module, and nothing of ours."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from ci_autotest.loader.comparison import Problem
    from ci_autotest.loader.observations import Observations
    from ci_autotest.values.verdict import Verdict


#: Text of the expression that reads a generator's state, by its class.
_STATES: Final = {
    "numpy.random.Generator": "repr(generator.bit_generator.state)",
    "numpy.random.RandomState": "repr(generator.get_state(legacy=False))",
    "random.Random": "repr(generator.getstate())",
    "torch.Generator": "repr(generator.get_state().tolist())",
}
#: What a sample is known by, and how the samples are compared.
_SHAPES: Final = {
    "workers": ("state", "workers"), "epochs": ("state", "epochs"), "ranks": ("state", "ranks"),
    "hidden": ("value", "hidden"), "whole": ("value", "whole"), "items": ("item", "items"), "rows": ("item", "ranks"),
    "order": ("item", "order"),
}  # fmt: skip


#: Start of the name under which a test file is imported.
FILE_MODULE: Final = "autotest_file_"


def file_module(file: str) -> str:
    """Return the name under which a test file is imported."""
    return FILE_MODULE + "".join(c if c.isalnum() else "_" for c in file)


class Subject(NamedTuple):
    """How a loader is made again.

    Attributes:
        root: The configuration's folder.
        file: File of the test relative to it; empty for a factory of a module.
        name: Qualified name of the test, or ``MODULE:FACTORY``.
        workers: Number of workers.
        epochs: Number of epochs.
        ranks: Number of ranks.
        seed: Seed of the global generators.
    """

    root: str
    file: str
    name: str
    workers: int
    epochs: int
    ranks: int
    seed: int


def script(problem: Problem, seen: Observations, subject: Subject, verdict: Verdict) -> str:
    """Return the script that shows a problem; empty if a script cannot make the loader again.

    Args:
        problem: The first problem of the loader.
        seen: What was observed.
        subject: How the loader is made.
        verdict: The verdict, whose words head the script.
    """
    if "[" in subject.name:  # the arguments of `parametrize` are known to pytest's marks only
        return ""
    token, shape = _SHAPES[problem.pattern]
    held = problem.generator
    found = verdict.misalignment
    assert found is not None  # noqa: S101 - a problem has a misalignment
    title = f"{seen.dataset}: {found.candidate}.".replace("\\", "/").replace('"', "'")
    facts = {
        "title": title, "root": json.dumps(subject.root), "workers": subject.workers, "epochs": subject.epochs,
        "ranks": subject.ranks, "seed": subject.seed, "access": held.access if held is not None else "None",
        "state": _STATES[held.kind] if held is not None else "None", "fixed": json.dumps(found.reference),
        "wrong": json.dumps(found.candidate),
    }  # fmt: skip
    load = _LOAD_TEST if subject.file else _LOAD_FACTORY
    facts |= {"file": json.dumps(subject.file), "name": json.dumps(subject.name)}
    facts["module"] = json.dumps(file_module(subject.file))
    parts = [load, _TOKENS[token], _WATCH, _RANKS if shape == "ranks" else "", _MAIN[shape]]
    text = "".join(parts)
    for name, value in facts.items():
        text = text.replace(f"<{name}>", str(value))
    return text


# The text of the repros of data loaders. ``<name>`` is replaced by a fact of the finding.


_HEAD: Final = '''"""<title>

Ends with 1 while it does, with 0 when it is mended, and with 2 if the loader cannot be made. It needs torch and the
module of the dataset.
"""

import importlib
import importlib.util
import itertools
import json
import os
import random
import subprocess
import sys
import types

import numpy
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

WORKERS, EPOCHS, RANKS = <workers>, <epochs>, <ranks>
SEED = <seed> + int(os.environ.get("RANK", 0))
# The folder in which it was found, unless it is run in another checkout.
ROOT = os.getcwd() if os.path.exists(os.path.join(os.getcwd(), <file>)) else <root>

'''

_LOAD_TEST: Final = f'''{_HEAD}
def function():
    """Return the function of the test file. Its decorators come from ci-autotest, and are not needed here."""
    names = types.ModuleType("ci_autotest")
    names.__getattr__ = lambda name: torch if name == "torch" else lambda *_, **__: lambda body: body
    sys.modules["ci_autotest"] = names
    path = os.path.join(ROOT, <file>)
    sys.path += [os.path.dirname(path), ROOT]
    spec = importlib.util.spec_from_file_location(<module>, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[<module>] = module
    spec.loader.exec_module(module)
    owner, _, name = <name>.rpartition(".")
    return getattr(getattr(module, owner)() if owner else module, name)

'''

# A factory has no test file. With `.`, which always exists, the repro takes the folder in which it is started.
_LOAD_FACTORY: Final = f"""{_HEAD.replace("<file>", '"."')}
def function():
    sys.path += [ROOT, <root>]
    module, _, name = <name>.partition(":")
    found = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found

"""

_MAKE: Final = '''
def make():
    """Return the loader, with the global generators seeded as a training script does."""
    torch.manual_seed(SEED)
    numpy.random.seed(SEED % 2**32)
    random.seed(SEED)
    made = function()()
    if callable(made) and not hasattr(made, "__getitem__") and not hasattr(made, "__iter__"):
        made = made(<seed>)
    if isinstance(made, DataLoader):
        return made
    if isinstance(made, IterableDataset):
        return DataLoader(made, batch_size=1)
    return DataLoader(made, batch_size=max(1, min(4, len(made) // (3 * WORKERS))), shuffle=True)

'''

_STATE: Final = f'''{_MAKE}
def token(dataset, iterator, collate_fn, index, result):
    """Return the state of the generator, from which the numbers of the next sample follow."""
    try:
        generator = <access>
        return <state>
    except (AttributeError, IndexError, KeyError, TypeError):
        return None  # it is made later, and may be declared as None before

'''

_VALUE: Final = f"""{_MAKE}
def token(dataset, iterator, collate_fn, index, result):
    return repr(result)

"""

_ITEM: Final = f"""{_MAKE}
def token(dataset, iterator, collate_fn, index, result):
    return repr(index)

"""

_TOKENS: Final = {"state": _STATE, "value": _VALUE, "item": _ITEM}

#: The loader's ``worker_init_fn`` and ``collate_fn``, around the user's own.
_WATCH: Final = '''
class Watch:
    """Note what each sample of a loader is known by."""

    by_state = token.__doc__ is not None

    def __init__(self, loader, workers):
        self.init, self.collate, self.seen = loader.worker_init_fn, loader.collate_fn, []
        loader.worker_init_fn, loader.collate_fn, loader.num_workers = self.start, self.batch, workers
        loader.prefetch_factor, loader.pin_memory = 2 if workers else None, False
        if not workers:
            object.__setattr__(loader, "persistent_workers", False)
            self.watch(loader.dataset, 0)

    def start(self, worker):
        if self.init is not None:
            self.init(worker)
        self.watch(get_worker_info().dataset, worker)

    def watch(self, dataset, worker):
        self.worker, self.dataset, self.iterator, self.inside = worker, dataset, None, False
        kind = type(dataset)
        if isinstance(dataset, IterableDataset):
            kind.__iter__ = self.iterated(kind.__iter__)
            return
        for name in ("__getitem__", "__getitems__"):
            if callable(getattr(kind, name, None)):
                setattr(kind, name, self.called(getattr(kind, name)))

    def called(self, original):
        def call(dataset, index):
            if self.inside or dataset is not self.dataset:
                return original(dataset, index)
            return self.note(lambda: original(dataset, index), index)

        return call

    def iterated(self, original):
        def iterate(dataset):
            self.iterator = iterator = original(dataset)
            while True:
                try:
                    yield self.note(lambda: next(iterator), None)
                except StopIteration:
                    return

        return iterate

    def note(self, call, index):
        before = token(self.dataset, self.iterator, self.collate, index, None)
        self.inside = True
        try:
            result = call()
        finally:
            self.inside = False
        after = token(self.dataset, self.iterator, self.collate, index, result)
        if not self.by_state:
            self.seen.append((self.worker, after))
        elif before != after:  # numbers were drawn; a generator that was made is known by its state after that
            self.seen.append((self.worker, f"made {after}" if before is None else before))
        return result

    def batch(self, items):
        if self.by_state:
            self.note(lambda: self.collate(items), None)
        seen, self.seen = self.seen, []
        return seen


def epoch(loader, number):
    """Return (worker, token) of the first samples of an epoch."""
    for each in (loader.sampler, loader.batch_sampler, getattr(loader.batch_sampler, "sampler", None), loader.dataset):
        if hasattr(each, "set_epoch"):
            each.set_epoch(number)
    return [entry for batch in itertools.islice(loader, 6 * WORKERS) for entry in batch]


def shared(groups):
    """Return how many of the tokens of several groups are in more than one of them."""
    sets = [set(group) for group in groups]
    return sum(sum(one in other for other in sets) > 1 for one in set().union(*sets))


def by_worker(entries):
    return [[token for worker, token in entries if worker == number] for number in range(WORKERS)]

'''

_RANKS: Final = '''
def of_rank(rank):
    """Return the tokens of one rank, from a process with the variables that torchrun sets."""
    names = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(RANKS), "LOCAL_WORLD_SIZE": str(RANKS)}
    words = [sys.executable, os.path.abspath(__file__), "--rank"]
    done = subprocess.run(words, env={**os.environ, **names}, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])

'''

_END: Final = """
def main():
    try:
        found = count()
    except Exception as error:
        print(f"the loader cannot be run: {type(error).__name__}: {error}", file=sys.stderr)
        return 2
    print(f"{found} times: " + <wrong> if found else <fixed>)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
"""

_OF_RANK: Final = """    if sys.argv[1:] == ["--rank"]:
        print(json.dumps(tokens()))
        sys.exit(0)
    sys.exit(main())"""

_MAIN: Final = {
    "workers": f"""
def count():
    loader = make()
    Watch(loader, WORKERS)
    return shared(by_worker(epoch(loader, 0)))

{_END}""",
    "epochs": f"""
def count():
    loader = make()
    Watch(loader, WORKERS)
    return shared([[token for _, token in epoch(loader, number)] for number in range(EPOCHS)])

{_END}""",
    "ranks": f"""
def count():
    return shared([of_rank(rank) for rank in range(RANKS)])


def tokens():
    loader = make()
    Watch(loader, WORKERS)
    return [token for _, token in epoch(loader, 0)]

{_END}""".replace("    sys.exit(main())", _OF_RANK),
    "hidden": f"""
def count():
    made = make()
    # Every worker gets the same items, each twice.
    order = [[item] for item in range(min(3, len(made.dataset))) for _ in range(2) for _ in range(WORKERS)]
    loader = DataLoader(made.dataset, batch_sampler=order, worker_init_fn=made.worker_init_fn)
    Watch(loader, WORKERS)
    rows = [tuple(row) for row in by_worker(epoch(loader, 0))]
    is_random = any(len(set(row)) > len(row) // 2 for row in rows)
    return len(rows) - len(set(rows)) if is_random else 0

{_END}""",
    "whole": f"""
def count():
    loader, alone = make(), make()
    original = type(alone.dataset).__iter__
    Watch(alone, 0)
    once = len(epoch(alone, 0))
    type(alone.dataset).__iter__ = original
    Watch(loader, WORKERS)
    entries = epoch(loader, 0)
    return shared(by_worker(entries)) or max(0, len(entries) - once)

{_END}""",
    "items": f"""
def count():
    loader, alone = make(), make()
    Watch(loader, WORKERS)
    first = sorted(token for _, token in epoch(loader, 0))
    Watch(alone, 0)
    return int(first != sorted(token for _, token in epoch(alone, 0)))

{_END}""",
    "order": f"""
def count():
    loader = make()
    Watch(loader, WORKERS)
    orders = [[token for _, token in epoch(loader, number)] for number in range(EPOCHS)]
    return int(all(order == orders[0] for order in orders))

{_END}""",
}
