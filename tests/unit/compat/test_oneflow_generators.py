"""Generators that a file derives, and the values that it reads while it is imported."""

from __future__ import annotations

from ci_autotest import random_tensor
from ci_autotest.compat.oneflow_names import BaseGenerator, GeneratorValues, oneof, random
from tests.engine import record


def test_generator_values__outside_of_tests__are_the_same_in_each_run():
    def read():
        values = GeneratorValues()
        return [values.value(each) for each in (random(1, 1000).to(int), random(0, 1).to(float), oneof(*range(99)))]

    first, second, third = read()
    assert [first, second, third] == read()
    assert (1 <= first < 1000, 0 <= second < 1, third in range(99)) == (True, True, True)


def test_generator_values__of_anything_else__is_its_own_method():
    class Setting:
        def value(self):
            return 7

    assert GeneratorValues().value(Setting()) == 7


class Even(BaseGenerator):
    def __init__(self, half):
        self.half = half
        super().__init__([half])

    def _calc_value(self):
        return 2 * self.half.value()


def test_base_generator__derived_class__draws_its_parts_and_keeps_its_value():
    sizes = set()

    def body():
        size = Even(random(1, 5).to(int))
        x = random_tensor(1, size)
        sizes.add((x.shape[0], size.value()))
        return x.sin()

    for case in range(8):
        record(body, case, profile="ordinary")
    assert {(size, size) for size in (2, 4, 6, 8)} >= sizes
    assert len(sizes) > 1


def test_base_generator__eval__draws_the_parts_anew():
    found = []

    def body():
        size = Even(random(1, 500).to(int))
        found.append({size.eval() for _ in range(8)})
        return random_tensor(1, 2).sin()

    record(body)
    assert len(found[0]) > 1
