"""Two sides of a body, paired: which leaves get gradients, how many pairs, and that every call is really made."""

from __future__ import annotations

import torch

from ci_autotest.speed.timing import LONGEST_S, PAIRS, RunQueue, Side, Times, measured


def leaf(*shape: int) -> torch.Tensor:
    return torch.ones(*shape, requires_grad=True)


def test_side__leaves_of_its_graph_whoever_owns_them__get_gradients():
    module, x = torch.nn.Linear(3, 2), leaf(4, 3)
    side = Side(lambda: (module(x),), {0: torch.ones(4, 2)})
    assert side.has_backward
    assert {id(one) for one in side._leaves} == {id(x), id(module.weight), id(module.bias)}
    assert x.grad is None


def test_side__nothing_requires_grad__has_no_backward_pass():
    x = torch.ones(3)
    side = Side(lambda: (x + 1,), {})
    assert (side.has_backward, side.once(RunQueue()).backward) == (False, 0.0)


def test_side__wait_that_is_longer_than_its_call__leaves_the_time_of_the_call():
    class Ahead(RunQueue):
        """Another clock, on which each look is a second later."""

        looks = 0

        def waited_s(self) -> float:
            self.looks += 1
            return float(self.looks)

    x = leaf(8, 8)
    times = Side(lambda: (x * 2,), {0: torch.ones(8, 8)}).once(Ahead())
    assert (times.forward > 0, times.backward > 0) == (True, True)


def test_measured__two_sides__are_called_equally_often_in_pairs():
    calls = {"candidate": 0, "reference": 0}
    x = leaf(8, 8)

    def side(name: str) -> Side:
        def call():
            calls[name] += 1
            return (x * 2,)

        return Side(call, {0: torch.ones(8, 8)})

    seen = []
    found = measured(side("candidate"), side("reference"), 0, lambda: seen.append(1))
    assert calls["candidate"] == calls["reference"]
    assert len(found.forward) == len(found.backward) == len(seen)
    assert PAIRS[0] <= len(found.forward) <= PAIRS[1]
    assert all(own > 0 and other > 0 for own, other in (*found.forward, *found.backward))


def test_measured__one_side_without_gradient__has_no_backward_times():
    x = leaf(8, 8)
    weights = {0: torch.ones(8, 8)}
    found = measured(Side(lambda: (x.detach(),), weights), Side(lambda: (x * 1,), weights), 0, lambda: None)
    assert found.backward == []


def test_measured__call_that_is_too_long_for_pairs__has_none():
    class Long(Side):
        def once(self, queue) -> Times:
            return Times(LONGEST_S, 0.0)

    side = Long(lambda: (torch.ones(2),), {})
    assert measured(side, side, 0, lambda: None) == ([], [])
