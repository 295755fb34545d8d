"""How inputs lie on OneFlow's ranks, on the wire and in a repro."""

from __future__ import annotations

import pytest

from ci_autotest.errors import ProgramError
from ci_autotest.program.distribution import Distribution
from ci_autotest.program.ir import PLACEHOLDER, Program, Step, TensorSpec
from ci_autotest.program.json_values import plain_spec, spec_of
from ci_autotest.program.note import note_of
from ci_autotest.program.recording import Recording
from ci_autotest.program.repro.rank_processes import global_lines, lies_text


def spec(placement: str, shape: tuple[int, ...] = (5, 2), ranks: int = 2) -> TensorSpec:
    on = Distribution((ranks,), (placement,)) if placement else None
    return TensorSpec("float32", shape, (shape[-1], 1), 0, 10, distribution=on)


@pytest.mark.parametrize("placement", ["", "Replicate", "Partial", "Shard(1)"], ids=str)
def test_spec_of__plain_spec__is_the_spec(placement: str):
    assert spec_of(plain_spec(spec(placement))) == spec(placement)


@pytest.mark.parametrize(
    ("mesh", "placements"), [([2], ["Split(0)"]), (["2"], ["Replicate"]), ([0], ["Replicate"])], ids=str
)
def test_spec_of__no_distribution__is_refused(mesh: list[object], placements: list[str]):
    with pytest.raises(ValueError, match="is not a distribution"):
        spec_of({**plain_spec(spec("")), "distribution": {"mesh": mesh, "placements": placements}})


@pytest.mark.parametrize(
    ("placement", "said"),
    [
        ("", ""), ("Replicate", ""), ("Partial", ", lies=oneflow.sbp.partial_sum"),
        ("Shard(1)", ", lies=oneflow.sbp.split(1)"),
    ],
    ids=lambda value: value or "nothing",
)  # fmt: skip
def test_lies_text__placement__is_said_in_oneflows_words(placement: str, said: str):
    assert lies_text(spec(placement)) == said


@pytest.mark.parametrize(
    ("placement", "ranks", "line"),
    [
        ("Shard(0)", 2, "# x lies as split(0): [3, 2], [2, 2]"),
        ("Shard(0)", 4, "# x lies as split(0): [2, 2], [1, 2], [1, 2], [1, 2]"),
        ("Shard(1)", 2, "# x lies as split(1): [5, 1] each"),
        ("Partial", 3, "# x lies as partial_sum: [5, 2] each"),
    ],
    ids=lambda value: str(value)[:10],
)
def test_global_lines__shape__is_that_of_each_part(placement: str, ranks: int, line: str):
    program = Program((), (Step(PLACEHOLDER, "x", (spec(placement, ranks=ranks),), (), "x"),))

    assert global_lines(Recording(program, {}), ranks)[1:] == [line]


@pytest.mark.parametrize("given", ["2", True, -1, 17], ids=str)
def test_note_of__no_number_of_ranks__is_refused(given: object):
    with pytest.raises(ProgramError):
        note_of({"backend": "module", "host": {"module": "oneflow", "ranks": given}})
