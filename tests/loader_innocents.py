"""Families of data loaders whose workers, epochs and ranks share nothing: none of them may be accused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.loader_members import GENERATORS, GLOBALS, HEAD, Member, declared, loader_of, map_style

if TYPE_CHECKING:
    import random
    from collections.abc import Callable


def constant(rng):
    return Member(HEAD + map_style(str(rng.randrange(9)) + " * 0") + declared(loader_of("Rows()", rng)))


def deterministic(rng):
    extra = rng.choice(
        [
            "noise = numpy.random.default_rng(int(index)).normal()",
            "torch.manual_seed(int(index)); noise = torch.rand(2).sum()",
            "random.seed(int(index)); noise = random.random()",
        ]
    )
    return Member(HEAD + map_style("noise", extra=extra) + declared(loader_of("Rows()", rng)))


def cache(rng):
    init = "self.noise = numpy.random.default_rng(0).normal(size=24); self.kept = {}"
    extra = "self.kept.setdefault(index, self.noise[index] * 2)"
    return Member(HEAD + map_style("float(self.kept[index])", init=init, extra=extra) + declared("Rows()"))


def global_draws(rng):
    return Member(HEAD + map_style(rng.choice(GLOBALS)) + declared(loader_of("Rows()", rng)))


def mended(rng):
    make, draw, _ = GENERATORS[rng.choice(["numpy", "python", "torch"])]
    init = f"""
def init(worker):
    get_worker_info().dataset.rng = {make.format(seed="torch.initial_seed()")}
"""
    rows = map_style(draw.format(rng="self.rng"), init=f"self.rng = {make.format(seed=1)}")
    return Member(HEAD + rows + init + declared(loader_of("Rows()", rng, worker_init_fn="init")))


def lazy_mended(rng):
    make, draw, _ = GENERATORS[rng.choice(["numpy", "python", "torch"])]
    extra = f"if self.rng is None:\n            self.rng = {make.format(seed='torch.initial_seed()')}"
    return Member(
        HEAD + map_style(draw.format(rng="self.rng"), init="self.rng = None", extra=extra) + declared("Rows()")
    )


def shared_stream(rng):
    text = f"""
class Stream(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        for number in itertools.islice(range({rng.randrange(17, 30)}), first, None, step):
            yield torch.full((2,), float(number)) + {rng.choice(["0", "torch.rand(2)", "random.random()"])}
"""
    return Member(HEAD + text + declared("Stream()"))


def ranked(rng):
    text = """
def make(seed):
    rank = int(os.environ["RANK"])
    torch.manual_seed(seed + 1000 * rank)
    data = Rows()
    return DataLoader(data, batch_size=2, sampler=DistributedSampler(data, num_replicas=2, rank=rank, seed=seed))

@loadertest(ranks=2)
def made():
    return make
"""
    return Member(HEAD + map_style(rng.choice(GLOBALS), size=40) + text, options={"ranks": 2})


INNOCENT: dict[str, Callable[[random.Random], Member]] = {
    "constant": constant,
    "deterministic by index": deterministic,
    "cache": cache,
    "global generators": global_draws,
    "mended by worker_init_fn": mended,
    "made in each worker": lazy_mended,
    "shared stream": shared_stream,
    "ranks with own seeds": ranked,
}
