"""No false alarm: the shipped suite in every profile against implementations that are different and right.

``python -m benchmarks.soak FIRST COUNT`` runs the cases ``FIRST .. FIRST + COUNT`` of every test on each of them and
appends what was accused to ``soak.jsonl``, one line each, to be read by hand.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import torch
from torch._decomp import core_aten_decompositions
from torch._prims.context import TorchRefsMode
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils._python_dispatch import TorchDispatchMode

from ci_autotest.alignment.cases import Contender, accept, differentiate, try_case
from ci_autotest.alignment.rules import rules_for
from ci_autotest.backends.torch_compile import CompileBackend
from ci_autotest.backends.torch_eager import TorchBackend
from ci_autotest.case import test_key
from ci_autotest.record.attempt import Attempts
from ci_autotest.result import TOLERATED_BLAMES
from ci_autotest.run.tests import Library

FAMILIES = Path(__file__).resolve().parents[1] / "ci_autotest" / "suite"
SEED = 20261120


class Decomposed(TorchDispatchMode):
    """Answer ATen's operators by their decompositions, forward and backward."""

    def __init__(self):
        """Read the table once."""
        super().__init__()
        self.table = core_aten_decompositions()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        decomposed = self.table.get(func)
        if decomposed is not None:
            with self:
                found = decomposed(*args, **kwargs)
            if found is not NotImplemented:
                return found
        return func(*args, **kwargs)


class ChannelsLast(TorchFunctionMode):
    """Hand images to the functions of torch.nn.functional with their channels last."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name = resolve_name(func) or ""
        if name.startswith("torch.nn.functional.") and not (kwargs or {}).get("inplace"):
            args = tuple(last(arg) for arg in args)
        return func(*args, **(kwargs or {}))


def last(value):
    is_image = isinstance(value, torch.Tensor) and value.dim() == 4
    return value.contiguous(memory_format=torch.channels_last) if is_image else value


@contextmanager
def two_threads():
    torch.set_num_threads(2)
    try:
        yield
    finally:
        torch.set_num_threads(1)


class Anew:
    """Enter something that can be entered once, again for each call: what we ask of a value is not asked under it."""

    def __init__(self, make):
        """Hold what makes it."""
        self._make = make

    def __enter__(self):
        """Enter a new one."""
        self._now = self._make()
        return self._now.__enter__()

    def __exit__(self, *raised):
        """Leave it."""
        return self._now.__exit__(*raised)


class Under:
    """Run torch under something else.

    Args:
        around: Makes what is entered for each call.
        backward: Whether it is entered for the backward pass too.
    """

    shows_steps = True
    takes_copies = False

    def __init__(self, around, *, backward=True):
        """Hold what is entered."""
        self.plain = TorchBackend()
        self.around, self.in_backward = around, backward
        self.on_step = None

    def run(self, program, sources, *, snapshots=False):
        """Run forward."""
        return self.plain.run(program, sources, snapshots=snapshots, around=Anew(self.around))

    def backward(self, program, trace, cotangents):
        """Run backward."""
        if not self.in_backward:
            return self.plain.backward(program, trace, cotangents)
        with self.around():
            return self.plain.backward(program, trace, cotangents)

    def take_seen(self):
        """Return nothing."""
        return {}


CANDIDATES = {
    "decompositions": lambda: Under(Decomposed),
    "references": lambda: Under(lambda: TorchRefsMode(strict=False), backward=False),
    "onednn off": lambda: Under(lambda: torch.backends.mkldnn.flags(enabled=False)),
    "two threads": lambda: Under(two_threads),
    "channels last": lambda: Under(ChannelsLast, backward=False),
}
#: PyTorch's references are written in primitives that have no gradients.
FORWARD = ("references",)
#: A compiler needs a hundred milliseconds for each case: it gets one in so many.
COMPILED_EVERY = 20


def soak(first: int, count: int, output: Path) -> Counter:
    """Run a chunk and return outcomes by candidate."""
    torch.set_num_threads(1)
    library, attempts, reference = Library(Path.cwd()), Attempts(), TorchBackend()
    made = {name: make() for name, make in CANDIDATES.items()}
    compiled = CompileBackend({"backend": "aot_eager"})
    seen: Counter = Counter()
    with output.open("a") as file:
        for family in sorted(path.stem for path in FAMILIES.glob("[a-z]*.py")):
            for test in library.tests(f"builtin:suite/{family}"):
                declaration, call = library.find(test)
                rules = rules_for((), "tolerance", "soak", declaration)
                contenders = {name: Contender(backend, rules) for name, backend in made.items()}
                key = test_key(SEED, test.id)
                for case in range(first, first + count):
                    accepted = accept(
                        case,
                        lambda k, n: attempts.attempt(declaration, call, (key, test.id, k, n)),
                        {},
                        lambda *_: None,
                    )
                    if accepted.attempt is None:
                        seen["rejected"] += 1
                        continue
                    forward = accepted.attempt._replace(cotangents={})
                    verdicts = {name: try_case(forward, contenders[name], reference).verdict for name in FORWARD}
                    differentiate(accepted.attempt, reference)
                    chosen = (
                        {**contenders, "aot_eager": Contender(compiled, rules)}
                        if not case % COMPILED_EVERY
                        else contenders
                    )
                    for name, contender in chosen.items():
                        if name not in FORWARD:
                            verdicts[name] = try_case(accepted.attempt, contender, reference).verdict
                    for name, verdict in verdicts.items():
                        accused = verdict.outcome == "misaligned" and verdict.blame not in TOLERATED_BLAMES
                        seen[name, "accused" if accused else verdict.outcome] += 1
                        seen["cases"] += 1
                        if verdict.outcome == "misaligned":
                            file.write(json.dumps(line(test.id, case, name, accepted.attempt.profile, verdict)) + "\n")
    return seen


def line(test, case, name, profile, verdict):
    found = verdict.misalignment
    return {
        "test": test, "case": case, "candidate": name, "profile": profile, "operator": verdict.operator,
        "kind": verdict.kind, "blame": verdict.blame, "oracle": verdict.oracle, "what": found.what,
        "detail": found.detail[:300], "ours": found.candidate, "theirs": found.reference,
        "pair": list(found.difference.first_pair_decimal) if found.difference else None,
    }  # fmt: skip


def main(words: list[str]) -> int:
    """Run a chunk; the status is that of its accusations."""
    first, count = int(words[0]), int(words[1])
    output = Path(words[2] if len(words) > 2 else "soak.jsonl")
    begun = time.perf_counter()
    seen = soak(first, count, output)
    print(f"cases {first} to {first + count - 1}: {seen['cases']:,} compared in {time.perf_counter() - begun:.0f} s")
    for (name, outcome), number in sorted((key, n) for key, n in seen.items() if isinstance(key, tuple)):
        print(f"  {name:16} {outcome:12} {number:8,}")
    return int(any(outcome == "accused" for _, outcome in (key for key in seen if isinstance(key, tuple))))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
