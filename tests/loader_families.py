"""Families of data loaders with a planted fault: seeded, so that no two members are alike.

``python -m benchmarks.loader_families [NAME ...]`` prints what is found of each and the CPU seconds that it takes.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ci_autotest.loader.declaration import LoaderDeclaration
from ci_autotest.loader.observer import Asked, judgement_of
from tests.loader_innocents import INNOCENT
from tests.loader_members import GENERATORS, HEAD, Member, declared, loader_of, map_style

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from pathlib import Path

    from ci_autotest.loader.trial import Judgement


def held(kind):
    def family(rng):
        name, seed = rng.choice(["rng", "_random", "generator", "noise"]), rng.choice(["", rng.randrange(99)])
        make, draw, cls = GENERATORS[kind]
        seed = rng.randrange(99) if kind == "torch" else seed
        init = f"self.{name} = {make.format(seed=seed)}  # planted"
        text = HEAD + map_style(draw.format(rng=f"self.{name}"), init=init, size=rng.randrange(20, 60))
        made = rng.choice(["Rows()", loader_of("Rows()", rng), "lambda seed: DataLoader(Rows(), batch_size=2)"])
        return Member(text + declared(made), "workers 0, 1, 2 and 3 draw", kind=cls)

    return family


def of_module(rng):
    make, draw, cls = GENERATORS[rng.choice(list(GENERATORS))]
    text = f"HELD = {make.format(seed=rng.randrange(99))}  # planted\n" + map_style(draw.format(rng="HELD"))
    return Member(HEAD + text + declared(loader_of("Rows()", rng)), "workers 0, 1, 2 and 3 draw", kind=cls)


def lazy(rng):
    make, draw, cls = GENERATORS[rng.choice(list(GENERATORS))]
    extra = f"if self.rng is None:\n            self.rng = {make.format(seed=rng.randrange(99))}  # planted"
    text = map_style(draw.format(rng="self.rng"), init="self.rng = None", extra=extra)
    return Member(HEAD + text + declared("Rows()"), "workers 0, 1, 2 and 3 draw", kind=cls)


def constant_init(rng):
    call, draw, place = rng.choice(
        [
            ("numpy.random.seed(7)", "float(numpy.random.rand())", "numpy.random.RandomState"),
            ("random.seed(3)", "random.random()", "random.Random"),
            ("torch.manual_seed(1)", "torch.rand(())", "torch.Generator"),
        ]
    )
    init = f"\ndef init(worker):  # planted\n    {call}\n"
    made = loader_of("Rows()", rng, worker_init_fn="init")
    return Member(HEAD + map_style(draw) + init + declared(made), "workers 0, 1, 2 and 3 draw", kind=place)


def init_of_id(rng):
    call, draw, place = rng.choice(
        [
            ("numpy.random.seed(worker + {k})", "float(numpy.random.rand())", "numpy.random.RandomState"),
            ("random.seed(worker * {k})", "random.random()", "random.Random"),
            ("torch.manual_seed({k} + worker)", "torch.rand(())", "torch.Generator"),
        ]
    )
    init = f"\ndef init(worker):  # planted\n    {call.format(k=rng.randrange(2, 99))}\n"
    made = loader_of("Rows()", rng, worker_init_fn="init")
    return Member(HEAD + map_style(draw) + init + declared(made), "epochs 0 and 1 draw", kind=place)


def equal_ranks(rng):
    made = (
        "DataLoader(data, batch_size=2, sampler=DistributedSampler(data, num_replicas=int(os.environ['WORLD_SIZE']), "
        "rank=int(os.environ['RANK'])))"
    )
    text = f"""
def make(seed):
    torch.manual_seed(seed)
    data = Rows()
    return {made}

@loadertest(ranks=2)
def made():
    return make
"""
    return Member(
        HEAD + map_style(rng.choice(["torch.rand(())", "random.random()"]), size=40) + text,
        "ranks 0 and 1 draw",
        {"ranks": 2},
    )


def persistent(rng):
    make, draw, cls = GENERATORS[rng.choice(list(GENERATORS))]
    init = f"self.rng = {make.format(seed=rng.randrange(99))}  # planted"
    made = loader_of("Rows()", rng, persistent_workers=True, num_workers=rng.choice([1, 2, 4]))
    return Member(
        HEAD + map_style(draw.format(rng="self.rng"), init=init) + declared(made),
        "workers 0, 1, 2 and 3 draw",
        kind=cls,
    )


def c_generator(rng):
    draw = f"float(LIBC.rand() % {rng.randrange(1000, 9999)})"
    head = f"LIBC = ctypes.CDLL(None)\nLIBC.srand({rng.randrange(1, 99)})\n"
    return Member(
        HEAD + head + map_style(draw) + declared(loader_of("Rows()", rng)), "workers 0, 1, 2 and 3 get the same random"
    )


def read_whole(rng):
    noise = rng.choice(["0", "torch.rand(2)", "random.random()"])
    # Only the number of random samples tells, and of that the first six batches of each of four workers are seen.
    size = rng.randrange(8, 20 if noise == "0" else 17)
    text = f"""
class Stream(IterableDataset):
    def __iter__(self):
        for number in range({size}):
            yield torch.full((2,), float(number)) + {noise}
"""
    return Member(HEAD + text + declared("Stream()"), "workers 0, 1, 2 and 3 give")


def augmentation(rng):
    make, draw, cls = GENERATORS[rng.choice(["numpy", "python", "state"])]
    count = rng.choice(["[Jitter(), Jitter()]", "(Jitter(),)", "{'one': Jitter()}.values()"])
    text = f"""
class Jitter:
    def __init__(self):
        self.state = {make.format(seed=rng.choice(["", 4]))}  # planted

    def __call__(self, row):
        return row + {draw.format(rng="self.state")}

class Pipeline:
    def __init__(self, steps):
        self.steps = list(steps)

    def __call__(self, row):
        return functools.reduce(lambda value, step: step(value), self.steps, row)
"""
    rows = map_style("0", init=f"self.transform = Pipeline({count})").replace(
        "self.data[index] + 0", "self.transform(self.data[index])"
    )
    return Member(HEAD + text + rows + declared("Rows()"), "workers 0, 1, 2 and 3 draw", kind=cls)


def wrapper(rng):
    make, draw, cls = GENERATORS[rng.choice(list(GENERATORS))]
    init = f"self.rng = {make.format(seed=rng.randrange(99))}  # planted"
    own = """
class Own(Dataset):
    def __init__(self, inner):
        self.inner = inner

    def __len__(self):
        return len(self.inner)

    def __getitem__(self, index):
        return self.inner[index]
"""
    made = rng.choice(
        [
            "Subset(Rows(), range(20))",
            "ConcatDataset([Rows(), Rows()])",
            "Own(Rows())",
            "Own(Subset(Rows(), range(16)))",
        ]
    )
    return Member(
        HEAD + map_style(draw.format(rng="self.rng"), init=init) + own + declared(made),
        "workers 0, 1, 2 and 3 draw",
        kind=cls,
    )


def no_set_epoch(rng):
    text = f"""
class Grouped(Sampler):
    def __init__(self, data):
        self.inner = DistributedSampler(data, num_replicas={rng.choice([1, 2])}, rank=0, seed={rng.randrange(99)})

    def __iter__(self):
        return iter(self.inner)

    def __len__(self):
        return len(self.inner)

def build():
    data = Rows()
    return DataLoader(data, batch_size=2, sampler=Grouped(data))
"""
    return Member(HEAD + map_style("0", size=40) + text + declared("build()"), "epochs 0 and 1 have the same order")


PLANTED: dict[str, Callable[[random.Random], Member]] = {
    "held numpy.random.Generator": held("numpy"),
    "held numpy.random.RandomState": held("state"),
    "held random.Random": held("python"),
    "held torch.Generator": held("torch"),
    "generator of the module": of_module,
    "lazy": lazy,
    "worker_init_fn constant": constant_init,
    "worker_init_fn of the id": init_of_id,
    "equal seeds on ranks": equal_ranks,
    "persistent workers": persistent,
    "C generator": c_generator,
    "IterableDataset read whole": read_whole,
    "augmentation object": augmentation,
    "Subset, ConcatDataset, wrapper": wrapper,
    "set_epoch does not reach": no_set_epoch,
}

#: The half that was looked at only once everything was written.
KEPT_ASIDE = frozenset({
    "held numpy.random.RandomState", "held torch.Generator", "worker_init_fn of the id", "persistent workers",
    "IterableDataset read whole", "Subset, ConcatDataset, wrapper", "set_epoch does not reach",
 "mended by worker_init_fn", "shared stream", "ranks with own seeds",
})  # fmt: skip
FAMILIES = {**PLANTED, **INNOCENT}


def judged(member: Member, folder: Path, timeout_s: float = 300.0) -> Judgement:
    """Return the judgement on a member, whose file is written to a folder."""
    (folder / "autotest_member.py").write_text(member.source, encoding="utf-8")
    declaration = LoaderDeclaration(lambda: None, **(member.options or {}))
    return judgement_of(
        Asked(str(folder), [str(folder)], "autotest_member.py", "made", 0, declaration), timeout_s, os.environ
    )


def shortcomings(member: Member, found: Judgement) -> list[str]:
    """Return what a judgement lacks: the right class, the generator's kind, the line that makes it."""
    seen = found.verdict.misalignment
    if not member.pattern:
        return (
            []
            if found.verdict.outcome == "aligned"
            else [f"accused: {seen.candidate if seen else found.verdict.outcome}"]
        )
    if seen is None or not seen.candidate.startswith(member.pattern):
        return [f"wants {member.pattern!r}, found {seen.candidate if seen else found.verdict.outcome}"]
    wanted = [member.kind] if member.kind else []
    wanted += [f"autotest_member.py:{member.line}"] if member.line else []
    return [f"lacks {text!r}: {seen.detail}" for text in wanted if text not in seen.detail]
