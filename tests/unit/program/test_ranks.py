"""The comments of a repro that say how its inputs lie on ranks: a name from outside never becomes code."""

from __future__ import annotations

import pytest

from ci_autotest.errors import ProgramError
from ci_autotest.program.distribution import Distribution
from ci_autotest.program.ir import (
    CALL_FUNCTION,
    CALL_METHOD,
    OUTPUT,
    PLACEHOLDER,
    Mapping_,
    Program,
    Ref,
    Step,
    TensorSpec,
)
from ci_autotest.program.note import note_of
from ci_autotest.program.recording import Recording
from ci_autotest.program.repro.module_ranks import batch_lines, module_body, share_lines
from ci_autotest.program.repro.ranks import mesh_lines, rank_lines, starts_ranks

WEIGHT = TensorSpec("float32", (4, 3), (3, 1), 0, 12, distribution=Distribution((2,), ("Shard(0)",)))


@pytest.mark.parametrize(
    ("name", "comments"),
    [
        pytest.param(
            "weight",
            [
                "# on a mesh of 2 ranks; the code below is the reference's",
                "# module.weight lies as Shard(0): [2, 3] each",
            ],
            id="parameter",
        ),
        pytest.param("weight\nimport os; os.system('id')", [], id="code in the name of a parameter"),
        pytest.param("weight\rimport os; os.system('id')", [], id="other line break"),
    ],
)
def test_rank_lines__name_of_a_parameter__is_shown_within_its_comment(name, comments):
    setup = (
        Step(PLACEHOLDER, "t0", (WEIGHT,), (), "weight", in_setup=True),
        Step(CALL_FUNCTION, "torch.nn.Linear", (3, 4), (), "module", in_setup=True),
        Step(CALL_METHOD, "load_state_dict", (Ref(1), Mapping_(((name, Ref(0)),))), (), "loaded", in_setup=True),
    )
    note = note_of({"backend": "dtensor"})
    recording = Recording(Program(setup, (Step(OUTPUT, "output", (), (), "output"),)), {}, note)
    assert rank_lines(recording) == comments
    assert not any("os.system" in line for line in mesh_lines(recording, starts_processes=False))


X = Step(PLACEHOLDER, "t0", (WEIGHT,), (), "x")
SHARED = Recording(Program((), (X, Step(OUTPUT, "output", (Ref(0),), (), "output"))), {}, note_of({"backend": "ddp"}))


def test_share_lines__input_with_the_batch__says_how_it_is_split():
    assert share_lines(SHARED) == [
        "# on 2 ranks, wrapped by DistributedDataParallel; the code below is the reference's",
        "# x is split along dimension 0: 2, 2 rows",
    ]


def sized(*indices: int, slices: bool = False) -> Recording:
    """Return a body that holds its number of rows as a size."""
    view = Step(CALL_METHOD, "view", (Ref(0), 4, 3), (), "view")
    plan = {"joins": [[0, "rows", 0]], "rows": [2, 2], "unused": False, "independent": True, "weights": [],
            "of_slices": [], "sizes": [], "sized": [*indices], "slices": slices}  # fmt: skip
    program = Program((), (X, view, Step(OUTPUT, "output", (Ref(1),), (), "output")))
    return Recording(program, {}, note_of({"backend": "ddp", "plan": plan}))


def test_module_body__number_of_rows_as_a_size__is_that_of_the_rank():
    assert "view = x.view([2, 2][dist.get_rank()], 3)" in module_body(sized(1))
    assert share_lines(sized(1))[-1] == "# 4, the number of rows, is that of a rank in view"


def test_module_body__slices__number_of_rows_as_a_size__is_that_of_the_slice():
    assert "view = x.view([2, 2][rank_], 3)" in module_body(sized(1, slices=True))


def test_module_body__damaged_step_with_rows__is_refused():
    with pytest.raises(ProgramError, match="names step 7 as one that holds the number of rows"):
        module_body(sized(7))


@pytest.mark.parametrize("wrap", ["a:b\nimport os", "os;x:y", "wrapped"])
def test_note_of__wrapper_of_a_note_from_outside__is_never_printed(wrap: str):
    with pytest.raises(ProgramError, match="never printed as code"):
        note_of({"backend": "ddp", "wrap": wrap})


@pytest.mark.parametrize(
    "plan",
    [{}, {"rows": []}, {"rows": [1], "joins": [[0, "import os", 0]]}],
    ids=["empty", "no rows", "unknown join"],
)
def test_note_of__damaged_plan__is_refused(plan: object):
    with pytest.raises(ProgramError, match="the note of the program is damaged or edited"):
        note_of({"backend": "ddp", "plan": plan})


def test_batch_lines__no_plan__is_refused():
    with pytest.raises(ProgramError, match="does not say how its ranks share the batch"):
        batch_lines(Recording(SHARED.program, {}, note_of({"backend": "ddp"})))


@pytest.mark.parametrize(
    ("note", "starts"),
    [
        ({"backend": "dtensor", "starts_ranks": True}, True),
        ({"backend": "dtensor", "processes": True}, False),
        ({"backend": "torch", "starts_ranks": True}, False),
    ],
    ids=["says so", "simulation not tried", "no ranks"],
)
def test_starts_ranks__note_of_a_program__only_if_it_says_so(note: dict[str, object], starts: bool):
    made = note_of(note)
    assert starts_ranks(made) is starts
    lines = mesh_lines(Recording(SHARED.program, {}, made), starts_processes=starts)
    assert any("simulated(MESH)" in line for line in lines) is (note["backend"] == "dtensor" and not starts)
