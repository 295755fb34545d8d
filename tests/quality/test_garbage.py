"""No body of the shipped suite leaves its attempt to Python's collector: it holds every tensor of the case."""

from __future__ import annotations

import gc
import importlib

import pytest

from ci_autotest.discovery import families
from ci_autotest.record.declaration import declaration_of
from ci_autotest.record.recorder import Recorder
from tests.engine import record
from tests.tables import thinned


def declared_in(family: str):
    module = importlib.import_module(f"ci_autotest.suite.{family}")
    return [found for value in vars(module).values() if (found := declaration_of(value)) is not None]


@pytest.mark.filterwarnings("ignore")  # torch's own, of operators that will change
@pytest.mark.parametrize("family", thinned(families(), 4))
def test_attempts_of_the_suite__dropped__are_gone(family):
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        for declaration in declared_in(family):
            for case in range(4):
                record(declaration.body, case, test="t", auto_backward=declaration.auto_backward)
        gc.collect()
        assert [type(one) for one in gc.garbage if isinstance(one, Recorder)] == []
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
