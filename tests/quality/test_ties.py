"""Own operators whose results are equal up to ties: what the indices select is compared, and not the indices."""

from __future__ import annotations

from typing import Any

import pytest
import torch as real

from ci_autotest import operator, random, random_tensor
from ci_autotest.backends.substitute.backend import SubstituteBackend
from ci_autotest.errors import AuthorError
from tests.engine import run_test


@operator(ties=1)
def route(x: Any) -> Any:
    found = real.topk(x, 2, dim=-1)
    return found.values, found.indices


@operator
def strict_route(x: Any) -> Any:
    found = real.topk(x, 2, dim=-1)
    return found.values, found.indices


@operator(ties=0)
def nearest(x: Any) -> Any:
    return real.argmax(x, dim=-1)


def from_the_end(x: Any) -> Any:
    """Pick of equal elements the last, as a kernel that walks backwards does."""
    values, places = real.sort(x.flip(-1), dim=-1, descending=True, stable=True)
    return values[..., :2], (x.shape[-1] - 1 - places)[..., :2]


def of_others(x: Any) -> Any:
    values, places = from_the_end(x)
    return values, (places + 1) % x.shape[-1]


def one_twice(x: Any) -> Any:
    values, places = from_the_end(x)
    return values, places[..., :1].expand(places.shape).clone()


def beyond(x: Any) -> Any:
    values, places = from_the_end(x)
    return values, places + x.shape[-1]


def outcomes(name: str, kernel: Any, body: Any) -> set[str]:
    backend = SubstituteBackend({})
    backend.functions = {f"{__name__}.{name}": kernel}
    return {verdict.outcome for verdict in run_test(body, backend)}


def routed() -> Any:
    return route(random_tensor(2, 3, random(2, 9)))


def strictly_routed() -> Any:
    return strict_route(random_tensor(2, 3, random(2, 9)))


def found_nearest() -> Any:
    return nearest(random_tensor(2, 3, random(2, 9)))


def test_ties__kernel_picks_others_of_equal_elements__is_aligned():
    assert outcomes("route", from_the_end, routed) == {"aligned"}
    assert outcomes("nearest", lambda x: from_the_end(x)[1][..., 0], found_nearest) == {"aligned"}
    # The same kernel is wrong where nothing was declared: some cases have ties.
    assert outcomes("strict_route", from_the_end, strictly_routed) == {"aligned", "misaligned"}


@pytest.mark.parametrize("kernel", [of_others, one_twice, beyond])
def test_ties__indices_that_select_something_else__are_misaligned(kernel: Any):
    assert "misaligned" in outcomes("route", kernel, routed)


@pytest.mark.parametrize("ties", [-1, True, "1", 1.0])
def test_ties__no_number_of_an_output__is_refused(ties: Any):
    with pytest.raises(AuthorError, match=r"write the number of the output that holds indices, counted from 0\."):
        operator(ties=ties)
