"""``assume`` rejects an attempt, and ``.value()`` of a generator draws in a body."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ci_autotest import assume, generator, random, random_bool, random_tensor, torch
from ci_autotest.alignment.cases import accept
from ci_autotest.errors import AuthorError, UnsupportedReason
from ci_autotest.record.skips import FalseAssumption
from tests.engine import record, substitute, tried

if TYPE_CHECKING:
    from collections.abc import Callable


def squares() -> object:
    rows, columns = random(1, 4).to(int), random(1, 4).to(int)
    x = random_tensor(2, dim0=rows, dim1=columns)
    assume(rows.value() == columns.value())
    return torch.tanh(x)


def test_assume__false__another_attempt_is_drawn_until_it_is_true():
    found = [accept(case, lambda case, number: record(squares, case, number=number), {}, lambda *_: None)
             for case in range(6)]  # fmt: skip
    accepted = [item.attempt for item in found if item.attempt is not None]
    shapes = [tuple(attempt.trace.values[0].shape) for attempt in accepted]
    assert len(shapes) >= 5
    assert all(rows == columns for rows, columns in shapes)
    assert sum(item.rejected for item in found) > 0


def test_assume__always_false__is_rejected_with_the_line():
    def body() -> object:
        assume(random_tensor(1).sum() > 1e9)
        return torch.ones(2)

    found = accept(0, lambda case, number: record(body, case, number=number), {}, lambda *_: None)
    assert found.attempt is None
    assert found.refusal.startswith("assume() (test_assumptions.py, line ")
    assert found.refusal.endswith(") was false")


def test_assume__false__nothing_is_tried_on_a_candidate():
    def never(*_: object) -> object:
        raise AssertionError

    attempt = record(lambda: assume(torch.tanh(random_tensor(1)).sum() > 1e9))
    assert (attempt.refused, attempt.is_rejected) == (None, True)
    assert tried(squares_of_one, substitute(tanh=lambda x: x.tanh())).outcome == "aligned"


def squares_of_one() -> object:
    assume(condition=True)
    return torch.tanh(random_tensor(2))


def test_assume__outside_a_test__is_refused():
    with pytest.raises(AuthorError, match=r"assume\(\) was called outside a test"):
        assume(condition=True)
    # A body that catches every error must not go on with inputs that it has rejected.
    assert not issubclass(FalseAssumption, Exception)


def test_value__in_a_body__is_drawn_logged_and_the_same_wherever_it_is_used():
    def body() -> object:
        size, flag = random(2, 9).to(int), random_bool()
        x = random_tensor(1, dim0=size)
        assert flag.value() in {True, False}
        return x * size.value() if size.value() > 0 and flag.value() is not None else x

    attempt = record(body)
    (size,) = attempt.trace.values[0].shape
    assert attempt.program.steps[1].args[1] == size
    assert len({draw.site for draw in attempt.draws}) == len(attempt.draws) >= 2


def test_value__outside_a_test__is_refused():
    with pytest.raises(AuthorError, match=r"value\(\) was called outside a test"):
        random(1, 3).to(int).value()


def test_generator__subclassed__says_what_to_write_instead():
    with pytest.raises(AuthorError, match="Decorate a function: `@generator def odd"):

        class Odd(generator):  # type: ignore[misc]
            pass


def goes_on_after(ends: Callable[[], object]) -> object:
    x = random_tensor(2)
    try:
        ends()
    except:  # noqa: E722 - what is tested
        x = x * 2
    return torch.tanh(x)


def test_record__body_that_catches_its_own_end__is_no_case():
    false = record(lambda: goes_on_after(lambda: assume(condition=False)))
    assert (false.assumption, false.is_complete, len(false.program.steps)) == ("assume() was false", False, 1)
    ranks = record(lambda: goes_on_after(lambda: random_tensor(1).to_global()))
    assert ranks.unsupported is not None
    assert (ranks.unsupported.reason, len(ranks.program.steps)) == (UnsupportedReason.RANKS, 1)
