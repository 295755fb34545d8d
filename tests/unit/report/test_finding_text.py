"""Code as wide as a page: the same Python, and never cut."""

from __future__ import annotations

import ast
import random
import time

import pytest

from ci_autotest.report.finding_text import WIDTH, fitted

NUMBERS = ", ".join(str(i / 7) for i in range(64))


@pytest.mark.parametrize(
    "code",
    [
        f"x = torch.tensor([{NUMBERS}])",
        f"x = torch.tensor([[{NUMBERS}], [{NUMBERS}]]).requires_grad_()  # misaligned, by much, here",
        f"def f(x):\n    return torch.cat([x, torch.tensor([{NUMBERS}], dtype=torch.float64)], 1)",
        "with torch.no_grad():\n    y = interpolate(x, size=(5, 7), mode='bilinear', align_corners=False, antialias=True, a=1)",
        f"x = f('{'a, ' * 60}', 1)",
        f"x = 1  # {NUMBERS}",
        f"x = {'a' * 200}, 1",
        f"y.backward(torch.tensor([{NUMBERS}]))",
    ],
)
def test_fitted__long_lines__are_the_same_python(code: str) -> None:
    found = fitted(code)

    assert ast.dump(ast.parse(found)) == ast.dump(ast.parse(code))
    assert [line for line in found.splitlines() if line != line.rstrip()] == []
    assert fitted(found) == found


def test_fitted__tensor_of_64__is_no_wider_than_the_page() -> None:
    found = fitted(f"x = torch.tensor([{NUMBERS}]).requires_grad_()").splitlines()

    assert (max(map(len, found)) <= WIDTH, 13 <= len(found) <= 15) == (True, True)
    assert all(line.startswith("    ") for line in found[1:])


@pytest.mark.parametrize(
    "code", ["x" * 500, "(" * 500, "'''" + "x, " * 200, f"[{NUMBERS}", "\t1\n 2" + " " * 300, "\x00" * 200]
)
def test_fitted__what_is_no_python__stays_as_it_is(code: str) -> None:
    assert fitted(code) == code


def test_fitted__random_text__ends_and_loses_nothing() -> None:
    generator = random.Random(0)  # noqa: S311 - no secret
    for _ in range(500):
        code = "".join(generator.choice("ab,()[]{}'\"\\# \r\n01") for _ in range(generator.randrange(400)))
        assert "".join(fitted(code, 20).split()) == "".join(code.split())


@pytest.mark.parametrize(
    "code", ["x = [" + "0," * 49_000 + "]", "x = [" + "0, " * 33_000 + "]", "f(" + " " * 99_000 + ",1)"]
)
def test_fitted__many_commas__takes_time_by_their_number(code: str) -> None:
    begun = time.process_time()

    assert "".join(fitted(code).split()) == "".join(code.split())
    assert time.process_time() - begun < 20  # the square of their number is hours
