"""The module database: a sample constructs a module, sets its mode and calls it."""

from __future__ import annotations

from pathlib import Path

from ci_autotest.opinfo.names import MODULES
from ci_autotest.opinfo.source import SampleTests
from ci_autotest.run.worker.tests import SourceSetting
from ci_autotest.values.case import test_key as stream_key
from tests.engine import attempts


def test_body__sample_of_a_module__constructs_converts_and_calls_it():
    declaration, body = SampleTests(SourceSetting(MODULES, Path(), 0)).find("", "torch.nn.Linear")
    test = f"{MODULES}::torch.nn.Linear"

    found = attempts().attempt(declaration, body, (stream_key(0, test), test, 2, 0))

    assert body._spots[2].dtype == "float64"
    assert [step.target for step in found.program.setup if step.op != "placeholder"] == [
        "torch.nn.Linear", "load_state_dict", "to",
    ]  # fmt: skip
    assert [step.target for _, step in found.program.calls] == ["torch.nn.Linear"]


def test_tests__module_database__lists_each_module_once():
    found = [one.name for one in SampleTests(SourceSetting(MODULES, Path(), 0)).tests(MODULES, ("none",), 1)]

    assert len(found) == len(set(found)) > 100
    assert "torch.nn.Conv2d" in found
