"""Cases in lockstep come out as they do alone: gradients to the bit, and every fault that one case of a batch may have."""

from __future__ import annotations

import importlib
import re

import msgspec
import pytest
import torch as real

from ci_autotest.alignment.cases import differentiate
from ci_autotest.alignment.elements import same_bits
from ci_autotest.backends.forming import formed
from ci_autotest.backends.torch_eager import TorchBackend
from ci_autotest.config import Candidate
from ci_autotest.discovery import families
from ci_autotest.record.declare import declaration_of
from ci_autotest.record.drawing import DrawnCases, alike, performed
from ci_autotest.run import casework, templates
from ci_autotest.run.bench import Bench
from ci_autotest.run.messages import Discover, Hello, RunCases
from ci_autotest.run.place import Place
from ci_autotest.run.tests import SUITE
from tests.engine import Nowhere, attempts, record, substitute

CASES = 12


def declared_in(family: str):
    module = importlib.import_module(f"ci_autotest.suite.{family}")
    return [found for value in vars(module).values() if (found := declaration_of(value)) is not None]


@pytest.mark.parametrize("family", families())
def test_gradients_of_the_suite__in_columns__are_the_engines_to_the_bit(family):
    apart, swept = [], 0
    for declaration in declared_in(family):
        attempts = [
            attempt
            for case in range(4)
            if (attempt := record(declaration.body, case, test="t", auto_backward=declaration.auto_backward)).refused
            is None
        ]
        for _, lockstep in formed(attempts):
            lockstep.backward(lockstep.reference, Nowhere(), is_torchs_own=True)

            for position in lockstep.reference.cases:
                attempt = lockstep.attempt(position)
                gradients, swept = attempt.trace.gradients, swept + 1
                differentiate(attempt, TorchBackend())
                assert gradients.keys() == attempt.trace.gradients.keys(), declaration.body.__name__
                for key, expected in attempt.trace.gradients.items():
                    found = gradients[key]
                    same = found is expected if expected is None else found is not None and same_bits(found, expected)
                    apart += [] if same else [(declaration.body.__name__, key)]
    assert apart == []
    assert swept or family not in {"activations", "arithmetic", "pointwise", "reductions", "shape"}


def told(family: str, size: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what a bench says of 48 cases of each test of a family in batches of a size, times aside."""
    monkeypatch.setattr(casework, "BATCH", size)
    monkeypatch.setattr(casework, "_PART_S", float("inf"))
    for module in (casework, templates):
        monkeypatch.setattr(module, "MANY", 0 if size > 1 else 1 << 30)
    bench = Bench(Place.create(), lambda _: None)
    candidates = [Candidate(name="torch", backend="torch"), Candidate(name="off", backend="torch")]
    bench.answer(
        Hello(
            root=".", folders=[], seed=0, strictness="tolerance", reference_device="cpu", candidates=candidates,
            tolerances=[],
        )
    )  # fmt: skip
    bench.equipment.backends["off"] = substitute(
        exp=lambda value: real.Tensor.exp(value) * 1.01, mul=real.Tensor.mul, sum=real.Tensor.sum
    )
    found = bench.answer(Discover(f"{SUITE}{family}"))
    done = [
        bench.answer(RunCases(test=test, cases=list(range(48)), candidates=["torch", "off"])) for test in found.tests
    ]
    return [re.sub(r'"\w*_s":[0-9.e+-]+', "", msgspec.json.encode(one).decode()) for one in done]


@pytest.mark.filterwarnings("ignore")  # torch warns once in a process: one of the two runs only
@pytest.mark.parametrize("family", families())
def test_the_suite__in_batches_of_1_and_of_16__comes_out_the_same(family, monkeypatch):
    assert told(family, 1, monkeypatch) == told(family, 16, monkeypatch)


@pytest.mark.parametrize("family", families())
def test_plain_bodies_of_the_suite__drawn__are_as_recorded(family):
    apart, seen = [], 0
    for declaration in declared_in(family):
        body, key = declaration.body, (9, declaration.body.__name__)
        templates = (attempts().template(declaration, body, (*key, case, 0)) for case in range(20, 24))
        template = next((one for one in templates if one is not None), None)
        if template is None:
            continue
        cases = list(range(24, 36))
        drawn = attempts().drawn(declaration, template, key, cases)
        for positions in alike(drawn):
            own = DrawnCases(
                template, [drawn[at] for at in positions], are_random=declaration.check_grad_use_random_data
            )
            lockstep = performed(own, TorchBackend(), Nowhere(), (), goes_back=declaration.auto_backward)
            for one in lockstep.reference.cases if lockstep is not None else ():
                ours = lockstep.attempt(one)
                theirs = attempts().attempt(declaration, body, (*key, cases[positions[one]], 0))
                seen += 1
                if not is_same_attempt(ours, theirs):
                    apart.append((body.__name__, cases[positions[one]]))
    assert apart == []
    assert seen or family in {"attention", "complex_numbers", "convolutions", "embedding", "randomness", "recurrent"}


def is_same_attempt(ours, theirs):
    pairs = [(ours.sources, theirs.sources), (ours.cotangents, theirs.cotangents)]
    return (
        (ours.program, ours.log, ours.profile, ours.trace.facts)
        == (theirs.program, theirs.log, theirs.profile, theirs.trace.facts)
        and all(one.keys() == other.keys() for one, other in pairs)
        and all(
            tensor.stride() == other[key].stride() and same_bits(tensor, other[key])
            for one, other in pairs
            for key, tensor in one.items()
        )
    )
