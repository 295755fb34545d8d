import pytest

from ci_autotest.report.error_pattern_text import pattern_sentence
from ci_autotest.values.error_pattern import (
    Border,
    Box,
    Condition,
    Constant,
    Diagonal,
    ErrorMap,
    ErrorPattern,
    Every,
    Everything,
    Indices,
    Moved,
    Offset,
    Reordered,
    Rounded,
    Run,
    Scaled,
    Span,
    Triangle,
)

_MAP = ErrorMap(cells=(), block=(), levels=b"", counts=())


def _words(region=None, relation=None, shape=(40, 35), wrong=6, covered=6):
    return pattern_sentence(
        ErrorPattern(shape=shape, mismatched=wrong, region=region, covered=covered, relation=relation, map=_MAP)
    )


@pytest.mark.parametrize(
    ("region", "words"),
    [
        (Box(parts=(Span(axis=1, start=32, stop=35, size=35),)), "only the last 3 of each row of 35"),
        (Box(parts=(Span(axis=1, start=0, stop=1, size=35),)), "only the first of each row of 35"),
        (Box(parts=(Span(axis=1, start=4, stop=5, size=35),)), "only column 4 of 35"),
        (Box(parts=(Span(axis=0, start=1024, stop=1031, size=1031),)), "only rows from 1,024 on"),
        (Box(parts=(Span(axis=0, start=0, stop=2, size=40),)), "only the first 2 rows"),
        (Box(parts=(Span(axis=0, start=3, stop=7, size=40),)), "only rows 3 to 6"),
        (Box(parts=(Every(axis=0, start=1, step=2, size=40),)), "only every second row, from 1 on"),
        (Box(parts=(Indices(axis=1, indices=(2, 9), size=35),)), "only columns 2 and 9"),
        (
            Box(parts=(Span(axis=0, start=3, stop=7, size=40), Span(axis=1, start=32, stop=35, size=35))),
            "only the last 3 of each row of 35, in rows 3 to 6",
        ),
        (Every(axis=None, start=0, step=32, size=1400), "only every 32nd element, from element 0 on"),
        (Run(start=1024, stop=1400, size=1400), "only elements from 1,024 on, of 1,400 in row-major order"),
        (Diagonal(offset=0), "only on the diagonal"),
        (Diagonal(offset=7, anti=True), "only on the antidiagonal (row + column = 7)"),
        (Triangle(offset=1, upper=True), "only above the diagonal"),
        (Triangle(offset=0, upper=False), "only on and below the diagonal"),
        (Border(width=1, axes=2), "only within 1 element of an edge of the last 2 axes"),
        (Condition(input="x", property="zero"), "only where x is exactly 0"),
        (Condition(input="x", property="nan"), "only where x is NaN"),
        (Condition(input="x", property="at_least", bound=88.75), "only where x is 88.75 or more"),
        (Condition(input="", property="negative"), "only where the reference is negative"),
        (Condition(input="x", property="infinite", axis=1), "only in rows of x that have an infinity"),
    ],
)  # fmt: skip
def test_pattern_sentence__region(region, words):
    assert _words(region) == words


@pytest.mark.parametrize(
    ("relation", "words"),
    [
        (Scaled(factor=2.0), "everything, by a factor of 2"),
        (Scaled(factor=-1.0), "everything, with the opposite sign"),
        (Offset(amount=0.5), "everything, by adding 0.5"),
        (Constant(value=0.0), "everything, the candidate has 0 there"),
        (Constant(value="nan"), "everything, the candidate has NaN there"),
        (Moved(axis=1, by=1), "everything, the values are 1 place too early along the rows"),
        (Reordered(axis=None), "everything, the last two axes are swapped"),
        (Reordered(axis=0), "everything, the values are reversed along axis 0"),
        (Rounded(dtype="bfloat16"), "everything, the candidate's values are numbers of bfloat16"),
    ],
)
def test_pattern_sentence__relation(relation, words):
    assert _words(Everything(), relation) == words


def test_pattern_sentence__some_elements_of_the_region_agree__are_counted():
    assert _words(Diagonal(offset=0), covered=8) == "only on the diagonal (6 of these 8 elements)"


def test_pattern_sentence__no_pattern__is_empty():
    assert (_words(), pattern_sentence(None)) == ("", "")
