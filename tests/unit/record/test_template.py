"""Templates: the cases of a plain body, drawn without running it, are those that it would have recorded."""

from __future__ import annotations

import pytest

from ci_autotest import oneof, random, random_bool, random_dtype, random_tensor, torch
from ci_autotest.backends.torch_eager import TorchBackend
from ci_autotest.record.attempt import Attempts
from ci_autotest.record.declare import Declaration
from ci_autotest.record.drawing import DrawnCases, alike, performed
from ci_autotest.record.sized import Sized
from tests.engine import Nowhere, attempts

NAME = (7, "a_test")
CASES = range(20, 36)


def with_drawn_arguments():
    rows = random(1, 8).to(int)
    x = random_tensor(ndim=2, dim0=rows, dtype=random_dtype(["float", "int"]))
    return (
        torch.sum(x, dim=oneof(0, -1), keepdim=random_bool()),
        x.mul(random(0.5, 2.0).to(float)),
        x[:, : random(1, 3).to(int)],
    )


def with_parts():
    values, indices = torch.max(random_tensor(ndim=2), dim=random(0, 2).to(int))
    return values * 2, indices


def returned_twice():
    y = torch.sin(random_tensor(ndim=2))
    z = y.mul_(2.0)
    return z, y


def nested():
    x = random_tensor(ndim=2, dim0=2, dim1=2)
    return torch.cat([x, torch.exp(x)], dim=random(0, 2).to(int))


def of_sizes():
    x = random_tensor(ndim=2)
    return torch.reshape(x, (x.shape[1], x.shape[0]))


def of_one_of_its_values():
    x = random_tensor(ndim=1)
    return torch.exp(oneof(x, torch.sin(x)))


def of_a_length():
    x = random_tensor()
    return torch.sum(x, x.dim() - 1)


def of_as_many_parts_as_rows():
    return torch.split(random_tensor(ndim=2), 1)


def of_shared_sizes():
    inner = random(1, 8).to(int)
    return torch.matmul(random_tensor(ndim=2, dim1=inner), random_tensor(3, 2, inner, requires_grad=False))


def of_more_elements():
    return torch.tanh(random_tensor(4, 2, 4, 8, 8)) + random_tensor(ndim=0)


def of_given_sizes():
    return random_tensor(ndim=2, dim0=3, dim1=4) @ random_tensor(4, 2, 5, 4, random(2, 6).to(int))


def of_large_outputs():
    return torch.nn.functional.pad(random_tensor(ndim=2), (5, 5, 5, 5)), random_tensor(ndim=1, dim0=2) * 2


def of_more_words_than_an_attempt_opens_with():
    return random_tensor(ndim=5) * 2, random_tensor(ndim=5) * 2, random_tensor(ndim=5) * 2


def of_more_inputs_than_slots():
    x = random_tensor(0) + random_tensor(0) + random_tensor(0) + random_tensor(0) + random_tensor(0)
    return x + random_tensor(0) + random_tensor(0) + random_tensor(0) + random_tensor(1, 2)


def of_a_range():
    return torch.sin(random_tensor(ndim=2, low=2, high=5))


def of_other_dtypes():
    return torch.sum(random_tensor(ndim=2), dim=0, dtype=torch.float64), random_tensor(ndim=1).to(torch.float16) * 2


def refused_unless_three():
    return torch.reshape(torch.reshape(random_tensor(ndim=1), (3,)), (1, 3))


def refused_sometimes():
    return torch.matmul(random_tensor(2, 3, random(3, 5)), torch.exp(random_tensor(2, random(3, 5), 2)))


def going_back():
    x = random_tensor()
    torch.exp(x).sum().backward()
    return x.grad


def template_of(body):
    return attempts().template(Declaration(body), body, (*NAME, 20, 0))


def drawn_of(template, body, cases=CASES):
    attempts().prefetch(NAME[0], list(cases))
    found = attempts().drawn(Declaration(body), template, NAME, list(cases))
    return [
        (positions, DrawnCases(template, [found[position] for position in positions], are_random=True))
        for positions in alike(found)
    ]


@pytest.mark.parametrize(
    "body",
    [
        with_drawn_arguments, with_parts, returned_twice, nested, of_shared_sizes, of_more_elements, of_given_sizes,
        of_large_outputs, of_more_words_than_an_attempt_opens_with, of_more_inputs_than_slots, of_a_range,
        of_other_dtypes,
    ],
    ids=lambda body: body.__name__,
)  # fmt: skip
def test_drawn_cases__are_the_recorded_ones(body):
    seen = set()
    for positions, cases in drawn_of(template_of(body), body):
        watched = {1} if body is returned_twice else ()
        lockstep = performed(cases, TorchBackend(), Nowhere(), watched, goes_back=True)
        for one in lockstep.reference.cases:
            case = CASES[positions[one]]
            seen.add(case)
            drawn = lockstep.attempt(one)
            recorded = attempts().attempt(Declaration(body), body, (*NAME, case, 0))
            assert_same(drawn, recorded)
    assert len(seen) >= 10


def assert_same(drawn, recorded):
    assert (drawn.program, drawn.log, drawn.profile) == (recorded.program, recorded.log, recorded.profile)
    assert drawn.trace.facts == recorded.trace.facts
    for ours, theirs in ((drawn.sources, recorded.sources), (drawn.cotangents, recorded.cotangents)):
        assert ours.keys() == theirs.keys()
        assert all(ours[key].dtype is theirs[key].dtype for key in ours)
        assert all(ours[key].tolist().__repr__() == theirs[key].tolist().__repr__() for key in ours)


@pytest.mark.parametrize(
    ("how", "shapes"),
    [({"dtypes": ("float32", "float64")}, 0), ({"check_grad_use_random_data": False}, 0), ({}, 3)],
    ids=["dtypes", "ones are put in", "shared sizes"],
)
def test_drawn_cases__of_a_test_that_says_more__are_the_recorded_ones(how, shapes):
    body, maker = of_large_outputs, Attempts(shapes=shapes)
    declaration = Declaration(body, **how)
    template = maker.template(declaration, body, (*NAME, 20, 0))
    maker.prefetch(NAME[0], list(CASES))
    found = maker.drawn(declaration, template, NAME, list(CASES))
    for positions in alike(found):
        own = DrawnCases(template, [found[at] for at in positions], are_random=declaration.check_grad_use_random_data)
        lockstep = performed(own, TorchBackend(), Nowhere(), (), goes_back=True)
        for one in lockstep.reference.cases:
            recorded = maker.attempt(declaration, body, (*NAME, CASES[positions[one]], 0))
            assert_same(lockstep.attempt(one), recorded)


@pytest.mark.parametrize("body", [of_shared_sizes, of_more_elements, of_given_sizes], ids=lambda body: body.__name__)
def test_inputs_of_known_dimensions__are_drawn_side_by_side(body):
    template = template_of(body)
    attempts().prefetch(NAME[0], list(CASES))
    found = attempts().drawn(Declaration(body), template, NAME, list(CASES))
    assert sum(isinstance(one, Sized) for one in found) >= 10


def test_cases_that_the_reference_refuses__all_of_them__are_in_no_lockstep():
    body = refused_unless_three
    template = next(
        found for case in range(20, 60) if (found := attempts().template(Declaration(body), body, (*NAME, case, 0)))
    )
    found = [
        one for one in attempts().drawn(Declaration(body), template, NAME, list(CASES)) if one.specs[0].shape[0] != 3
    ]
    cases = DrawnCases(template, found, are_random=True)
    assert performed(cases, TorchBackend(), Nowhere(), (), goes_back=True) is None


@pytest.mark.parametrize(
    "body", [of_sizes, of_one_of_its_values, of_a_length, going_back], ids=lambda body: body.__name__
)
def test_a_body_that_gets_something_of_the_data__has_no_template(body):
    assert template_of(body) is None


def test_a_step_that_gives_another_number_of_parts__leaves_its_case_to_the_body():
    template = template_of(of_as_many_parts_as_rows)
    ((_, cases),) = drawn_of(template, of_as_many_parts_as_rows)
    lockstep = performed(cases, TorchBackend(), Nowhere(), (), goes_back=True)
    kept = {cases.attempt(one, lockstep.reference.trace(0)).sources["t0"].shape[0] for one in lockstep.reference.cases}
    assert len(kept) == 1
    assert 0 < len(lockstep.reference.cases) < len(CASES)


def test_a_case_that_the_reference_refuses__is_left_to_the_body():
    body = refused_sometimes
    template = next(
        found for case in range(20, 30) if (found := attempts().template(Declaration(body), body, (*NAME, case, 0)))
    )
    ((_, cases),) = drawn_of(template, body)
    lockstep = performed(cases, TorchBackend(), Nowhere(), (), goes_back=True)
    assert 0 < len(lockstep.reference.cases) < len(CASES)
    for one, case in enumerate(CASES):
        refused = attempts().attempt(Declaration(body), body, (*NAME, case, 0)).refused is not None
        assert refused is (one not in lockstep.reference.cases)


def test_a_template_whose_names_mean_something_else__draws_nothing(monkeypatch):
    template = template_of(with_parts)
    monkeypatch.setitem(globals(), "random", oneof)
    assert attempts().drawn(Declaration(with_parts), template, NAME, [20]) == []
