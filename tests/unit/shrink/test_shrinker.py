"""Shrinking against a judge that is a pure function: the exact minimum of each pass, and a budget that holds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ci_autotest.program.ir import CALL_FUNCTION, OUTPUT, PLACEHOLDER, Program, Ref, Step, TensorSpec
from ci_autotest.program.recording import Recording
from ci_autotest.shrink.data import simpler_data
from ci_autotest.shrink.passes import simpler_draws
from ci_autotest.shrink.shrinker import TRIALS_AT_MOST, Redraw, ShownTrial, Shrinker, TrialProgram, is_same
from ci_autotest.values.case import Draw
from ci_autotest.values.verdict import Verdict

BAD = Verdict(outcome="misaligned", operator="torch.exp", kind="value", blame="candidate")
GOOD = Verdict(outcome="aligned")
NUMBERS = {"float32": "<f4", "float64": "<f8", "float16": "<f2", "int64": "<i8", "complex64": "<c8"}


def recording(values=(0.3, -1.7), dtype: str = "float32", cotangent=None, *, requires_grad: bool = True) -> Recording:
    spec = TensorSpec(dtype, (len(values),), (1,), 0, len(values), requires_grad)
    tensors = {"t0": np.array(values, NUMBERS[dtype]).tobytes()}
    cotangents = ()
    if cotangent is not None:
        cotangents = (replace(spec, requires_grad=False),)
        tensors["cotangent_0"] = np.array(cotangent, NUMBERS[dtype]).tobytes()
    body = (
        Step(PLACEHOLDER, "t0", (spec,), (), "x"),
        Step(CALL_FUNCTION, "torch.exp", (Ref(0),), (), "exp"),
        Step(OUTPUT, "output", (Ref(1),), (), "output"),
    )
    return Recording(Program((), body, cotangents), tensors)


def numbers(shown: Recording, key: str = "t0") -> list:
    spec = shown.program.body[0].args[0]
    return np.frombuffer(shown.tensors[key], NUMBERS[spec.dtype]).tolist()


def values(log: tuple[Draw, ...]) -> dict[str, object]:
    return {draw.site: draw.value for draw in log}


def shapes(shown: Recording) -> list:
    return [(spec.shape, spec.dtype) for step in shown.program.body if isinstance(spec := step.args[0], TensorSpec)]


class Judge:
    """Answer proposals: ``draws_fail`` of values by site, ``data_fail`` of a recording."""

    def __init__(
        self,
        log=(),
        start=None,
        draws_fail=lambda _: True,
        data_fail=lambda _: True,
        profile="ordinary",
        keeps_shape=True,
    ):
        self.keeps_shape = keeps_shape
        self.log, self.start, self.draws_fail, self.data_fail = log, start or recording(), draws_fail, data_fail
        self.best = ShownTrial(BAD, self.start, log, profile)
        self.asked = []
        self.profile = profile
        self.last = log  # the log of the smallest draws that failed

    def answer(self, proposal):
        self.asked.append(proposal)
        if isinstance(proposal, Redraw):
            edited = tuple(
                draw._replace(value=kept(draw, proposal.edits[draw.site])) if draw.site in proposal.edits else draw
                for draw in self.log
            )
            fails = self.draws_fail({**values(edited), "profile": proposal.profile})
            if fails:
                self.last, self.profile = edited, proposal.profile
            return ShownTrial(BAD if fails else GOOD, self.start, edited, proposal.profile)
        same_shape = not self.keeps_shape or shapes(proposal.recording) == shapes(self.start)
        verdict = BAD if same_shape and self.data_fail(proposal.recording) else GOOD
        return ShownTrial(verdict, proposal.recording, self.last, self.profile)

    def shrunk(self) -> Shrinker:
        return run(Shrinker(self.best), self)


def kept(draw: Draw, value: object) -> object:
    return value if isinstance(value, bool) or draw.kind == "float" else min(max(value, draw.low), draw.high - 1)


def run(shrinker: Shrinker, judge: Judge) -> Shrinker:
    while (proposal := shrinker.propose()) is not None:
        shrinker.tell(judge.answer(proposal))
    return shrinker


SIZE = Draw("0.dim0", "dim", 1, 100, 57, 1)
NDIM = Draw("0.ndim", "ndim", 1, 6, 4, 1)
AXIS = Draw("1", "int", -4, 4, -3, 0)
SCALE = Draw("2", "float", 0.0, 5.0, 3.7, 0.0)
FLAG = Draw("3", "bool", 0, 2, value=True, simplest=False)
PICK = Draw("4.pick", "choice", 0, 3, 2, 1)


@pytest.mark.parametrize(
    ("log", "fails", "minimum"),
    [
        pytest.param((SIZE,), lambda v: True, {"0.dim0": 1}, id="size: everything fails"),
        pytest.param((SIZE,), lambda v: v["0.dim0"] >= 17, {"0.dim0": 17}, id="size: from 17 on"),
        pytest.param((SIZE,), lambda v: v["0.dim0"] >= 57, {"0.dim0": 57}, id="size: as it is"),
        pytest.param((SIZE,), lambda v: v["0.dim0"] >= 2, {"0.dim0": 2}, id="size: from 2 on"),
        pytest.param((NDIM,), lambda v: v["0.ndim"] >= 3, {"0.ndim": 3}, id="dimensions"),
        pytest.param((AXIS,), lambda v: v["1"] < 0, {"1": -1}, id="a negative number"),
        pytest.param((AXIS,), lambda v: v["1"] <= -2, {"1": -2}, id="a more negative number"),
        pytest.param((SCALE,), lambda v: True, {"2": 0.0}, id="a float that does not matter"),
        pytest.param((SCALE,), lambda v: v["2"] > 1, {"2": 3.7}, id="a float that matters stays"),
        pytest.param((FLAG,), lambda v: True, {"3": False}, id="a flag that does not matter"),
        pytest.param((FLAG,), lambda v: v["3"], {"3": True}, id="a flag that matters"),
        pytest.param((PICK,), lambda v: True, {"4.pick": 1}, id="an alternative: the simplest"),
        pytest.param((PICK,), lambda v: v["4.pick"] == 2, {"4.pick": 2}, id="an alternative that matters"),
        pytest.param(
            (SIZE, NDIM, AXIS, SCALE, FLAG, PICK), lambda v: v["0.dim0"] >= 9 and v["3"],
            {"0.dim0": 9, "0.ndim": 1, "1": 0, "2": 0.0, "3": True, "4.pick": 1}, id="all kinds, two matter",
        ),
        pytest.param(
            (SIZE, Draw("1.dim0", "dim", 1, 100, 40, 1)), lambda v: v["0.dim0"] + v["1.dim0"] >= 60,
            {"0.dim0": 20, "1.dim0": 40}, id="two that trade: the first is moved first",
        ),
        pytest.param(
            (SIZE, AXIS), lambda v: v["0.dim0"] >= 10 or v["1"] == 0, {"0.dim0": 1, "1": 0}, id="all at once",
        ),
    ],
)  # fmt: skip
def test_shrinker__draws__reach_the_minimum(log, fails, minimum):
    assert values(Judge(log, draws_fail=fails).shrunk().best.draws) == minimum


@pytest.mark.parametrize("least", [1, 2, 3, 9, 31, 32, 33, 56, 57])
def test_shrinker__size_that_fails_from_a_bound__is_found_in_few_trials(least):
    judge = Judge((SIZE,), draws_fail=lambda v: v["0.dim0"] >= least)
    assert values(judge.shrunk().best.draws) == {"0.dim0": least}
    assert sum(isinstance(p, Redraw) for p in judge.asked) <= 14


DATA = [
    ("does not matter", (0.3, -1.7), lambda v: True, [0.0, 0.0]),
    ("must not be zero", (0.3, -1.7), all, [1.0, 1.0]),
    ("one must be negative", (0.3, -1.7), lambda v: min(v) < 0, [0.0, -2.0]),
    ("must differ", (0.3, -1.7, 5.2), lambda v: len(set(v)) == 3, [0.0, 1.0, 2.0]),
    ("must be halves", (0.3, -1.7), lambda v: any(n % 1 for n in v), [0.0, -1.5]),
    ("must be as it is", (0.3, -1.7), lambda v: v[1] == np.float32(-1.7), [0.0, float(np.float32(-1.7))]),
    ("NaN matters", (float("nan"), 2.5), lambda v: any(n != n for n in v), [float("nan"), 0.0]),  # noqa: PLR0124 - NaN
    ("infinity matters", (float("inf"), 2.5), lambda v: float("inf") in v, [float("inf"), 0.0]),
    ("large matters", (9000.0, 1.5), lambda v: max(v) > 4000, [9000.0, 0.0]),
]


@pytest.mark.parametrize(("start", "fails", "minimum"), [row[1:] for row in DATA], ids=[row[0] for row in DATA])
def test_shrinker__data__reach_the_minimum(start, fails, minimum):
    judge = Judge(start=recording(start), data_fail=lambda shown: fails(numbers(shown)))
    assert str(numbers(judge.shrunk().best.recording)) == str(minimum)


@pytest.mark.parametrize(
    ("dtype", "start", "minimum"),
    [("float64", (0.3, 2.0), [0.0, 0.0]), ("float16", (0.3, 2.0), [0.0, 0.0]), ("int64", (7, -3), [0, 0]),
     ("complex64", (1 + 2j, 3.5j), [0, 0])],
)  # fmt: skip
def test_shrinker__any_dtype__is_simplified(dtype, start, minimum):
    assert numbers(Judge(start=recording(start, dtype)).shrunk().best.recording) == minimum


def test_shrinker__bfloat16__is_simplified():
    spec = TensorSpec("bfloat16", (2,), (1,), 0, 2)
    start = recording()
    body = (start.program.body[0]._replace(args=(spec,)), *start.program.body[1:])
    judge = Judge(
        start=Recording(Program((), body), {"t0": b"\x9a\x3e\xda\xbf"}),
        data_fail=lambda shown: shown.tensors["t0"] != bytes(4),
    )
    assert judge.shrunk().best.recording.tensors["t0"] == b"\x00\x00\x80\x3f"  # zero and one


def test_shrinker__value_misaligned__drops_what_is_for_gradients():
    best = Judge(start=recording(cotangent=(0.5, 0.5))).shrunk().best.recording
    assert best.program.cotangents == ()
    assert set(best.tensors) == {"t0"}
    assert not best.program.body[0].args[0].requires_grad


def test_shrinker__gradients_are_needed_to_fail__keeps_them():
    judge = Judge(start=recording(cotangent=(0.5, 0.25)), data_fail=lambda shown: shown.program.cotangents != ())
    best = judge.shrunk().best.recording
    assert numbers(best, "cotangent_0") == [0.0, 0.0]
    assert best.program.body[0].args[0].requires_grad


def test_shrinker__gradient_misaligned__never_proposes_to_drop_them():
    judge = Judge(start=recording(cotangent=(0.5, 0.25)))
    judge.best = replace(judge.best, verdict=Verdict(outcome="misaligned", operator="torch.exp", kind="gradient"))
    run(Shrinker(judge.best), judge)
    assert all(p.recording.program.cotangents for p in judge.asked if isinstance(p, TrialProgram))


def test_shrinker__expected_values__are_made_again_for_new_data():
    start = recording()
    start = Recording(
        start.program,
        {**start.tensors, "output_0": bytes(8)},
        expected={"output_0": TensorSpec("float32", (2,), (1,), 0, 2)},
    )
    judge = Judge(start=start)
    run(Shrinker(judge.best), judge)
    simpler = [p.recording for p in judge.asked if isinstance(p, TrialProgram) and p.recording is not start]
    assert simpler
    assert all("output_0" not in item.tensors for item in simpler)


@pytest.mark.parametrize("needed", ["large", "ordinary"])
def test_shrinker__profile__becomes_ordinary_where_it_may(needed):
    judge = Judge((SIZE,), profile="large", draws_fail=lambda v: v["profile"] == needed or needed == "ordinary")
    assert judge.shrunk().best.profile == needed
    redraws = [p for p in judge.asked if isinstance(p, Redraw)]
    assert (redraws[0].edits, redraws[0].profile) == ({}, "ordinary")
    assert {p.profile for p in redraws[1:]} == {needed}


def test_shrinker__pass_without_progress__makes_none_when_run_again():
    judge = Judge((SIZE, NDIM, AXIS, SCALE, FLAG, PICK), draws_fail=lambda v: v["0.dim0"] >= 9 and v["1"] < 0,
                  data_fail=lambda shown: sum(numbers(shown)) > 3)  # fmt: skip
    first = judge.shrunk().best
    again = Judge(first.draws, first.recording, judge.draws_fail, judge.data_fail)
    second = again.shrunk().best
    assert values(second.draws) == values(first.draws)
    assert second.recording.tensors == first.recording.tensors


def test_shrinker__everything_is_refused__best_is_the_start():
    judge = Judge((SIZE, NDIM), draws_fail=lambda _: False, data_fail=lambda _: False)
    assert judge.shrunk().best is judge.best


def test_shrinker__trials__are_bounded():
    log = tuple(Draw(f"{i}.dim0", "dim", 1, 10**6, 10**6 - 1 - i, 1) for i in range(60))
    judge = Judge(log, draws_fail=lambda v: all(n > 7 for s, n in v.items() if s != "profile"))
    shrinker = judge.shrunk()
    assert shrinker.trials == len(judge.asked) == TRIALS_AT_MOST
    assert shrinker.propose() is None


def test_shrinker__worker_lost_in_a_trial__goes_on():
    judge = Judge((SIZE,), draws_fail=lambda v: v["0.dim0"] >= 9)
    shrinker = Shrinker(judge.best)
    lost = 0
    while (proposal := shrinker.propose()) is not None:
        lost += 1
        shrinker.tell(None if lost == 2 else judge.answer(proposal))
    assert values(shrinker.best.draws)["0.dim0"] >= 9
    assert lost > 3


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"outcome": "aligned"}, id="outcome"),
        pytest.param({"outcome": "crashed"}, id="another outcome"),
        pytest.param({"operator": "torch.sin"}, id="operator"),
        pytest.param({"kind": "gradient"}, id="kind"),
        pytest.param({"blame": "reference"}, id="blame"),
    ],
)
def test_is_same__one_of_four_differs__is_another(other):
    changed = Verdict(
        **{"outcome": "misaligned", "operator": "torch.exp", "kind": "value", "blame": "candidate", **other}
    )
    assert not is_same(changed, BAD)
    judge = Judge((SIZE,))
    shrinker = Shrinker(judge.best)
    while (proposal := shrinker.propose()) is not None:
        shrinker.tell(ShownTrial(changed, recording((0.0, 0.0)), judge.answer(proposal).draws))
    assert shrinker.best is judge.best


def test_is_same__what_need_not_be_kept__may_differ():
    assert is_same(Verdict(outcome="misaligned", operator="torch.exp", kind="value", blame="candidate", step=7), BAD)


def test_simpler_draws__site_that_vanishes__is_left_alone():
    log = [NDIM, SIZE]

    def now() -> tuple[Draw, ...]:
        return tuple(log)

    for change in simpler_draws(now):
        if NDIM.site in change.edits and len(change.edits) == 1:
            log[:] = [NDIM._replace(value=1)]  # with one dimension less the size is drawn no more
            change.kept = True
    assert log == [NDIM._replace(value=1)]


def test_simpler_data__data_already_simple__proposes_little():
    simple = recording((0.0, 0.0), requires_grad=False)
    proposals = [numbers(item) for item in simpler_data(lambda: simple, gradient=True)]
    assert [0.0, 0.0] not in proposals
    assert len(proposals) <= 2


def test_shrinker__larger_program_that_shows_the_same__is_not_kept():
    shrinker = Shrinker(ShownTrial(BAD, recording()))
    assert shrinker.propose() is not None
    shrinker.tell(ShownTrial(BAD, recording((0.3, -1.7, 0.1))))
    assert shrinker.best.recording == recording()
