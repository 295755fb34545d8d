"""The comments of a repro that say how its inputs lie on ranks: a name from outside never becomes code."""

from __future__ import annotations

import pytest

from ci_autotest.program.distribution import Distribution
from ci_autotest.program.ir import (
    CALL_FUNCTION,
    CALL_METHOD,
    OUTPUT,
    PLACEHOLDER,
    Mapping_,
    Program,
    Recording,
    Ref,
    Step,
    TensorSpec,
)
from ci_autotest.program.repro.ranks import rank_head, rank_lines

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
    recording = Recording(Program(setup, (Step(OUTPUT, "output", (), (), "output"),)), {}, {})
    assert rank_lines(recording) == comments
    assert "os.system" not in rank_head(recording, "inputs()")
