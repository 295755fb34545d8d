"""What the ledger keeps of failing cases does not grow with them, and is the same in any order."""

from __future__ import annotations

import itertools
import random

import msgspec
import pytest

from ci_autotest.commands.budget import not_run_note
from ci_autotest.commands.run_statistics import Ledger
from ci_autotest.run.events import LostCase, Task
from ci_autotest.run.progress_beacon import Spot
from ci_autotest.run.worker_loss import WorkerLostError
from ci_autotest.values.coverage_values import NAMES_LISTED, Exercised
from ci_autotest.values.error_pattern import Box, ErrorMap, ErrorPattern, Everything, Span
from ci_autotest.values.tally import UsageTally
from ci_autotest.values.verdict import BackwardPass, Misalignment, Value
from tests.verdict_samples import FIRST, OFF, SECOND, done

REFERENCE = msgspec.structs.replace(OFF, blame="reference")
LENIENT = msgspec.structs.replace(OFF, kind="leniency")
REJECTED = msgspec.structs.replace(LENIENT, is_of_a_rejected_attempt=True)
LENIENT_BACKWARD = msgspec.structs.replace(
    LENIENT, misalignment=Misalignment(kind="leniency", step=0, at=BackwardPass(), candidate="a", reference="b")
)


def ledger():
    return Ledger([(FIRST, range(1000)), (SECOND, range(10))], ("here",))


def test_suspects__many_cases_fail_alike_in_any_order__the_first_stand_for_them_and_all_are_counted():
    held, cases = ledger(), list(range(7, 507))
    random.Random(3).shuffle(cases)  # noqa: S311 - an order
    for case in cases:
        held.part(FIRST.id, done([case]))
    held.part(SECOND.id, done([4, 2]))
    (suspect,) = held.suspects()
    assert (suspect.case, suspect.cases, suspect.of_cases, suspect.tests) == (7, 502, 502, (FIRST.id, SECOND.id))
    assert suspect.others == ((8, 0, FIRST), (9, 0, FIRST), (2, 0, SECOND))
    assert [(hit.test, hit.count, hit.of_cases) for hit in suspect.hits] == [(FIRST.id, 500, 500), (SECOND.id, 2, 2)]
    assert [hit.cases for hit in suspect.hits] == [tuple(range(7, 107)), (2, 4)]
    assert held.done == 502


def test_ledger__failing_cases__do_not_grow_it():
    held = ledger()
    sizes = []
    for start in (0, 500):
        held.part(FIRST.id, done(range(start, start + 500)))
        (hits,) = held.pairs[FIRST.id, "here"].failures.values()
        sizes.append((len(hits.first), len(hits.cases)))
    assert sizes == [(3, 100), (3, 100)]


def test_suspects__not_the_candidates_fault__never_stands_for_what_is():
    held = ledger()
    held.part(FIRST.id, done([1], REFERENCE))
    held.part(SECOND.id, done([5]))
    (suspect,) = held.suspects()
    assert (suspect.test, suspect.case, suspect.cases) == (SECOND, 5, 2)


def test_suspects__patterns_of_several_cases__the_one_that_tells_most_is_the_findings():
    def off(shape, wrong, region):
        no_map = ErrorMap(cells=(), block=(), levels=b"", counts=())
        at = Misalignment(kind="value", step=0, at=Value(name="exp"), candidate="a", reference="b")
        pattern = ErrorPattern(shape=shape, mismatched=wrong, region=region, map=no_map)
        return msgspec.structs.replace(OFF, misalignment=at, pattern=pattern)

    tail = Box(parts=(Span(axis=1, start=64, stop=88, size=88),))
    every = {4: off((1, 2), 2, Everything()), 6: off((64, 88), 1536, tail), 5: off((2, 65), 2, tail)}
    for order in itertools.permutations(every):
        held = ledger()
        for case in order:
            held.part(FIRST.id, done([case], every[case]))
        (suspect,) = held.suspects()
        pattern = msgspec.structs.replace(every[6].pattern, case=6)
        assert (suspect.case, suspect.verdict.pattern) == (4, pattern)


@pytest.mark.parametrize(
    ("verdict", "count"),
    [
        pytest.param(REJECTED, 0, id="the reference rejects the attempt"),
        pytest.param(LENIENT_BACKWARD, 1, id="the reference rejects its backward pass"),
        pytest.param(OFF, 1, id="misaligned"),
    ],
)
def test_done__misaligned_case__is_counted_where_it_is_one(verdict, count):
    held = ledger()
    held.part(FIRST.id, done([0], verdict))
    assert (held.done, held.pairs[FIRST.id, "here"].done, held.has_suspects) == (count, count, True)
    assert held.suspected == (verdict is OFF)


def test_suspects__lost_cases__are_told_by_number_and_by_whether_they_repeat():
    held = ledger()
    error = WorkerLostError("ended by signal 11 (SIGSEGV)", Spot(0, 0, 0, 0, 0), "")
    task = Task(FIRST, (0, 1, 2), ("here",))
    for case, repeats in ((2, "alone"), (0, "alone"), (1, "never")):
        held.lost(LostCase(task, case, "here", error, repeats))
    found = [(suspect.case, suspect.repeats, suspect.hits[0].cases) for suspect in held.suspects()]
    assert found == [(0, "alone", (0, 2)), (1, "never", (1,))]


@pytest.mark.parametrize("repeats", ["alone", "history", "never", "unknown"])
def test_lost__reference_was_running__the_test_is_broken_only_where_it_ends_its_process_alone(repeats):
    held = ledger()
    error = WorkerLostError("ended with status 3", Spot(0, -1, 0, 0, 0), "")
    held.lost(LostCase(Task(FIRST, (0, 1), ("here",)), 0, None, error, repeats, after=(SECOND.id,)))
    assert bool(held.tests[FIRST.id].broken) == (repeats == "alone")
    assert [lost.after for lost in held.ended_after] == [(SECOND.id,)] * (repeats == "history")
    assert len(held.cut) == (repeats in {"never", "unknown"})


@pytest.mark.parametrize(("repeats", "is_complete"), [("alone", True), ("unknown", False)])
def test_is_complete__run_was_ended_after_a_loss__says_so_and_names_what_was_not_run(repeats, is_complete):
    held = Ledger([(FIRST, range(4))], ("here",))
    error = WorkerLostError("ended by signal 11 (SIGSEGV)", Spot(0, 0, 0, 0, 0), "")
    held.lost(LostCase(Task(FIRST, (0, 1, 2, 3), ("here",)), 0, "here", error, repeats))
    assert (held.is_complete, not_run_note(held) == "") == (is_complete, is_complete)


def test_part__coverage__is_added_up_by_candidate_and_names_made_up_are_not():
    held = ledger()
    one, other = Exercised(cases=1, aligned=1, arguments=("input",)), Exercised(cases=2, dtypes=("int64",))
    for told in (
        {"": {"torch.exp": one}, "here": {"torch.exp": one}},
        {"": {"torch.exp": other}, "made up": {"x": one}},
    ):
        usage = {name: UsageTally(exercised=exercised) for name, exercised in told.items()}
        held.part(FIRST.id, msgspec.structs.replace(done([]), usage=usage))
    both = Exercised(cases=3, aligned=1, arguments=("input",), dtypes=("int64",))
    assert {name: usage.exercised for name, usage in held.usage.items()} == {
        "": {"torch.exp": both}, "here": {"torch.exp": one},
    }  # fmt: skip


def test_part__usage_of_names_that_are_no_candidates_of_the_test__is_not_counted_and_names_are_bounded():
    held = ledger()
    many = Exercised(cases=1, arguments=tuple(map(str, range(NAMES_LISTED + 9))))
    forged = UsageTally(
        calls={"torch.exp": 5}, probed=("torch.exp",), left_out=("w",), exercised={"torch.exp": many}
    )  # fmt: skip
    held.part(FIRST.id, msgspec.structs.replace(done([]), usage={"": forged, "made up": forged, "here": forged}))
    recorded, here = held.usage[""], held.usage["here"]
    assert (recorded.calls, recorded.probed, recorded.left_out) == ({}, (), ())
    assert (here.calls, here.probed, here.left_out) == ({"torch.exp": 5}, ("torch.exp",), ("w",))
    assert [len(usage.exercised["torch.exp"].arguments) for usage in (recorded, here)] == [NAMES_LISTED] * 2
    assert {*held.usage} == {"", "here"}
