"""A group of hosts as real processes: planted faults of one rank are found, named, and cost their case alone.

The framework is a fake (``fakes/oneflow_ranks``); OneFlow itself is in ``end_to_end/test_oneflow_global.py``.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ci_autotest import random_tensor, torch
from ci_autotest.backends.framework.interpreter import Interpreter
from ci_autotest.backends.framework.mapping.table import MappingTable
from ci_autotest.backends.framework.mapping.translation import Translator
from ci_autotest.backends.framework.process import HostLostError
from ci_autotest.backends.ranks.global_tensors import GlobalTensorBackend
from ci_autotest.backends.ranks.placement_draw import Meshes, distributed
from ci_autotest.backends.ranks.ranks import numbered
from ci_autotest.errors import UnsupportedReason
from ci_autotest.program.distribution import REPLICATE, Distribution
from ci_autotest.program.ir import PLACEHOLDER, Program
from tests.engine import judged, record
from tests.fakes.rank_faults.rank_faults import FAULTS

FAKES = Path(__file__).parent.parent / "fakes"
FOLDERS = str(FAKES / "oneflow_ranks"), str(FAKES / "rank_faults")


def started(ranks):
    table = MappingTable("oneflow", "", "oneflow", like_torch=True, rows={})
    interpreter = Interpreter("global", sys.executable, "oneflow", "cpu", FOLDERS)
    return GlobalTensorBackend(interpreter, Translator(table), ranks, silence_s=1.0)


@pytest.fixture(scope="module")
def group():
    backend = started(2)
    yield backend
    backend.close()


@pytest.fixture(scope="module")
def groups(group):
    """Groups by their number of ranks."""
    four = started(4)
    yield {2: group, 4: four}
    four.close()


def verdict(name, group, *, requires_grad=False):
    def body():
        return getattr(torch, name)(random_tensor(dims=(4, 6), low=0.1, high=0.9, requires_grad=requires_grad))

    return judged(record(body), group).verdict


def test_adapted__inputs_that_oneflow_cannot_distribute__are_on_every_rank(group):
    def body():
        module = torch.nn.Linear(4, 4)
        return random_tensor(dims=(1, 1)), random_tensor(dims=(4,), dtype=torch.float16), module.weight + 0

    keys = [(number, 0) for number in range(8)]
    programs = [group.adapted(record(body)._replace(key=key)).program for key in keys]
    placed = [step.args[0].distribution for program in programs for step in program.steps if step.op == PLACEHOLDER]

    assert {str(one) for one in placed if one.placements[0] != "Partial"} == {"Replicate"}


RANK_FAULTS = {
    "sin": "rank 1 holds other bits than rank 0",
    "abs": "rank 1 raised ValueError, rank 0 went on",
    "exp": "rank 1 ended by signal 9 (SIGKILL), rank 0 went on",
    "tan": "rank 1 raised ValueError, rank 0 waits for ever",
    "tanh": "rank 1 raised ValueError, rank 0 waits for ever",
}


@pytest.mark.parametrize(("name", "seen"), RANK_FAULTS.items(), ids=RANK_FAULTS)
def test_group__one_rank_is_at_fault__is_named_and_the_next_case_is_right(group, name, seen):
    found = verdict(name, group)

    assert (found.outcome, found.kind, found.operator, found.misalignment.candidate) == (
        "misaligned", "rank", f"torch.{name}", seen,
    )  # fmt: skip
    assert verdict("cos", group).outcome == "aligned"


def named(name, rank, group):
    """Return the verdict on a call whose fault is on one rank: every rank has the whole input, which names it."""

    def body():
        return getattr(torch, name)(random_tensor(dims=(2, 2), low=rank + 0.1, high=rank + 0.9, requires_grad=False))

    attempt = group.adapted(record(body, profiles=()))
    everywhere = Distribution((len(group._host._hosts),), (REPLICATE,))
    first, *rest = attempt.program.body
    first = first._replace(args=(replace(first.args[0], distribution=everywhere),))
    return judged(attempt._replace(program=Program((), (first, *rest), attempt.program.cotangents)), group).verdict


PLACES = [(ranks, rank) for ranks in (2, 4) for rank in range(ranks)]


#: What the rank at fault is said to have done, by fault, and whether the operator of the fault can be named.
LOSSES = {
    "killed": ("ended by signal 9 (SIGKILL)", True),
    "segfault": ("ended by signal 11 (SIGSEGV)", True),
    "exit_0": ("ended with status 0", True),
    "raises": ("raised ValueError", True),
    "garbage": ("sent a frame with ", False),
    "zeros": ("sent an invalid answer (", False),
}


@pytest.mark.heavy
@pytest.mark.parametrize("fault", LOSSES)
def test_group__fault_of_any_rank_of_two_and_four__is_named_and_the_next_case_is_right(groups, fault):
    text, is_located = LOSSES[fault]
    number = [*FAULTS].index(fault)
    for ranks, rank in PLACES:

        def body(rank=rank):
            return torch.clamp(random_tensor(dims=(4, 6), requires_grad=False), rank, number)

        found = judged(record(body, profiles=()), groups[ranks]).verdict

        seen = found.misalignment.candidate
        assert (found.outcome, found.kind) == ("misaligned", "rank"), seen
        assert seen.startswith(f"rank {rank} {text}"), seen
        assert seen.endswith(f", {numbered([other for other in range(ranks) if other != rank])} went on")
        assert found.operator == "torch.clamp" or not is_located
        assert verdict("cos", groups[ranks]).outcome == "aligned"


@pytest.mark.heavy
@pytest.mark.parametrize("rank", [0, 2])
def test_group__a_rank_of_four_raises_alone__is_named_and_the_others_are_ended(groups, rank):
    others = [other for other in range(4) if other != rank]

    found = named("log1p", rank, groups[4])

    assert (found.kind, found.misalignment.candidate) == (
        "rank", f"rank {rank} raised ValueError, {numbered(others)} wait for ever",
    )  # fmt: skip
    assert verdict("cos", groups[4]).outcome == "aligned"


def test_group__all_ranks_raise_one_error__is_an_error_of_the_candidate(group):
    found = verdict("sign", group)

    assert (found.outcome, found.kind) == ("misaligned", "error")


def test_group__shrunk_program_lies_on_two_ranks__runs_on_two_and_the_next_on_all(groups):
    attempt = record(lambda: torch.sin(random_tensor(dims=(4, 6), requires_grad=False)))
    on_two = distributed(attempt, Meshes(2), ("Shard(0)",))
    seen = [
        judged(each, groups[4]).verdict.misalignment.candidate for each in (attempt._replace(program=on_two), attempt)
    ]

    assert seen == ["rank 1 holds other bits than rank 0", "rank 3 holds other bits than ranks 0, 1 and 2"]
    assert groups[4].repro_note(on_two, attempt.sources).ranks == 2


@pytest.mark.parametrize(
    ("name", "words"), [("ceil", "ceil7 has no maching sbp"), ("floor", "Only local tensors have 'device'")]
)
def test_group__oneflow_refuses_a_placement_or_global_tensors__is_unsupported_with_its_words(group, name, words):
    found = verdict(name, group)

    assert (found.outcome, found.oracle) == ("unsupported", f"oneflow 0.9.0: {words}")


def test_group__no_gradient__is_unsupported_and_says_that_it_is_the_backward_pass(group):
    found = verdict("atan", group, requires_grad=True)

    assert (found.outcome, found.reason) == ("unsupported", UnsupportedReason.NO_COUNTERPART)
    assert found.oracle == ("in the backward pass, oneflow 0.9.0: The gradient function for op atan is not found")


def test_group__wrong_value_without_a_gradient__is_misaligned(group):
    found = verdict("sinh", group, requires_grad=True)

    assert (found.outcome, found.kind, found.operator) == ("misaligned", "value", "torch.sinh")


def test_group__one_rank_alone_has_a_gradient__is_a_fault_of_the_ranks(group):
    found = verdict("acos", group, requires_grad=True)

    assert (found.outcome, found.kind) == ("misaligned", "rank")
    assert found.misalignment.candidate == "rank 0 raised NotImplementedError, rank 1 went on"


def test_group__all_ranks_end_alike__is_a_lost_host(group):
    with pytest.raises(HostLostError) as lost:
        verdict("log", group)

    assert lost.value.code == -9
    assert verdict("cos", group).outcome == "aligned"
