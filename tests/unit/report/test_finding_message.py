"""What a finding says, and the program that is shown for it."""

from __future__ import annotations

import ast
import dataclasses
from typing import Any

import msgspec
import pytest

from ci_autotest import random_tensor, torch
from ci_autotest.program.note import note_of
from ci_autotest.report.finding_files import repro_script
from ci_autotest.report.finding_message import headline, message_lines
from ci_autotest.report.finding_program import display_program
from tests import report_samples as samples
from tests.engine import recorded

NOT_FINITE = samples.difference(greatest_absolute=None, greatest_ulp=None)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({}, "value of layer_norm is off by up to 0.0041"),
        ({"difference": NOT_FINITE}, "value of layer_norm is not finite"),
        ({"kind": "gradient", "where": "gradient of x"}, "gradient of x is off by up to 0.0041"),
        ({"kind": "gradient", "where": "gradient of x", "difference": None, "candidate_seen": "no gradient"},
         "gradient of x is no gradient, not float32[1, 2] on cpu"),
        ({"kind": "shape", "difference": None}, "shape of layer_norm is float32[1, 2] on cuda:0, not float32[1, 2] on cpu"),
        ({"kind": "shape", "where": "shape of layer_norm", "difference": None}, ": shape of layer_norm is float32[1, 2]"),
        ({"kind": "mutation", "where": "x after the run", "difference": None, "candidate_seen": "float64[1, 2] on cpu"},
         ": x after the run is float64[1, 2] on cpu, not float32[1, 2] on cpu"),
        ({"kind": "error", "difference": None, "candidate_seen": "raises KeyError"}, "raises KeyError where the reference returns"),
        ({"kind": "leniency", "difference": None}, "accepts what the reference rejects"),
        ({"kind": "crash", "outcome": "crashed", "difference": None, "candidate_seen": "the worker ended by signal 11"},
         "the worker ended by signal 11"),
        ({"kind": "mutation", "where": "x after the run"}, "x after the run differs: one side wrote to memory"),
    ],
    ids=["value", "not finite", "gradient", "no gradient", "shape", "its shape", "its metadata", "error", "leniency", "crash", "mutation"],
)  # fmt: skip
def test_headline__kind__is_one_sentence(how, said):
    found = headline(samples.finding(**how))
    assert found.startswith("torch.nn.functional.layer_norm on kernels: ")
    assert said in found
    assert "\n" not in found


def test_message_lines__value__says_what_where_got_allowed_and_what_to_do():
    assert message_lines(samples.finding(), "report/findings/x") == [
        "misaligned: torch.nn.functional.layer_norm on kernels: value of layer_norm is off by up to 0.0041",
        "  differs: value of layer_norm: 1 / 2 elements (50 %)",
        "  candidate: float32[1, 2] on cuda:0",
        "  reference: float32[1, 2] on cpu",
        "  greatest difference: absolute 0.0041 at [0, 1], relative 0.0041; allowed: atol 1e-05, rtol 1.3e-06",
        "  first mismatch: [0, 1]: candidate -0.9959006 (-0x1.fde6ae0000000p-1), reference -0.9999900 "
        "(-0x1.fffeb00000000p-1), in float64 -0.99999 (-0x1.fffeb07466ee3p-1)",
        "  blame: candidate: in float64 the candidate is 1,300 times farther from the truth than the reference",
        f"  test: {samples.TEST}, case 7, seed 1729, profile ordinary, autotests/autotest_norms.py:12",
        "  replay: python report/findings/x/repro.py",
    ]


@pytest.mark.parametrize(("outcome", "verb"), [("crashed", "crashed: "), ("timed_out", "timed out: ")])
def test_message_lines__lost_worker__begins_with_what_happened(outcome, verb):
    found = samples.finding(outcome=outcome, difference=None, where="in step 2", candidate_seen="it ended")
    assert message_lines(found)[0].startswith(verb)
    assert f"case 7 of {samples.TEST}, seed 1729" in message_lines(found)[0]


def test_message_lines__exception_of_a_compiler__has_the_line_below_that_of_torch():
    detail = "BackendCompilerFailed: backend='vendor' raised:\n\nRuntimeError: no kernel of exp\nmore\nleft out"
    lines = message_lines(samples.finding(detail=detail))
    assert "  RuntimeError: no kernel of exp" in lines
    assert "  left out" not in lines


@pytest.mark.parametrize(
    ("pair", "said"),
    [(("0", "nan"), "is 0 where the reference is nan"), (("nan", "1"), "is not finite"), (("3", "-inf"), "is 3 where")],
)
def test_headline__one_side_is_not_finite__says_which(pair: tuple[str, str], said: str):
    difference = msgspec.structs.replace(samples.difference(), greatest_absolute=None, first_pair_decimal=pair)
    assert said in headline(samples.finding(difference=difference, headline=""))


def test_headline__reference_is_to_blame_and_not_finite__says_what_the_reference_has():
    apart = msgspec.structs.replace(
        samples.finding().difference, greatest_absolute=None, first_pair_decimal=("inf", "nan")
    )
    said = headline(samples.finding(blame="reference", difference=apart, where="value of gelu"))
    assert said.endswith("the reference's value of gelu is nan where the candidate is inf")


def test_message_lines__long_detail__is_one_line():
    lines = message_lines(samples.finding(detail="first " + "x" * 1000 + "\nsecond"))
    assert all("\n" not in line and len(line) < 400 for line in lines)


def x():
    return random_tensor(ndim=1, dim0=2)


#: A recording without a candidate's note has a program for reading only.
FOR_READING = "# no program to paste: a few lines cannot run this candidate; repro.py runs it"


def for_reading(recording: Any, finding: Any) -> list[str]:
    first, *lines = display_program(recording, finding).splitlines()
    assert first == FOR_READING
    return lines


def test_display_program__value__is_python_with_a_mark():
    lines = for_reading(recorded(lambda: torch.exp(x() * 2)), samples.finding())
    assert lines[0] == "import torch"
    assert lines[2].startswith("x = torch.tensor([")
    assert lines[2].endswith(".requires_grad_()")
    assert lines[3:] == ["mul = x * 2", "exp = torch.exp(mul)  # misaligned"]
    ast.parse("\n".join(lines))


@pytest.mark.parametrize(("position", "marked"), [(0, "max_1 = max[0]"), (1, "max_2 = max[1]")])
def test_display_program__element_of_a_tuple__is_the_one_with_the_mark(position: int, marked: str):
    found = samples.finding(where=f"value of max[{position}]")
    lines = display_program(recorded(lambda: torch.max(x(), dim=0)), found).splitlines()
    assert [line for line in lines if "misaligned" in line] == [f"{marked}  # misaligned"]


def test_display_program__gradient__shows_what_is_put_in():
    found = samples.finding(kind="gradient", where="gradient of x", headline="off")
    lines = for_reading(recorded(lambda: torch.exp(x())), found)
    assert lines[-2].startswith("exp.backward(torch.tensor([")
    assert lines[-1] == "x.grad  # misaligned"


@pytest.mark.parametrize(
    ("where", "mark", "rest"),
    [
        ("gradient of x", "its gradient differs from run to run", 2),
        ("value of exp", "differs from run to run", 0),
    ],
)
def test_display_program__differs_from_itself__says_so_where_it_does(where: str, mark: str, rest: int):
    found = samples.finding(kind="nondeterminism", where=where, headline="it differs")
    lines = for_reading(recorded(lambda: torch.exp(x())), found)
    assert lines[3] == f"exp = torch.exp(x)  # {mark}"
    assert len(lines) == 4 + rest
    assert [line.partition("(")[0] for line in lines[4:]] == ["exp.backward", "x.grad  # differs from run to run"][
        :rest
    ]


def test_display_program__backward_raises__shows_what_is_put_in():
    found = samples.finding(kind="error", where="backward pass")
    lines = for_reading(recorded(lambda: torch.exp(x())), found)
    assert lines[3] == "exp = torch.exp(x)  # its backward pass is misaligned"
    assert lines[4].startswith("exp.backward(torch.tensor([")


def test_display_program__gradient_of_a_graph__is_a_program():
    found = samples.finding(kind="graph", where="gradient of x, as a graph", headline="off")
    lines = for_reading(recorded(lambda: torch.exp(x())), found)
    assert lines[3] == "exp = torch.exp(x)  # its backward pass is misaligned"
    assert lines[-1] == "x.grad  # misaligned"


def test_message_lines__differs_from_itself__names_the_runs():
    lines = message_lines(samples.finding(kind="nondeterminism"))
    assert {"  second run: float32[1, 2] on cuda:0", "  first run: float32[1, 2] on cpu"} <= set(lines)
    assert any("second run -0.9" in line and ", first run -0.9" in line for line in lines)


def test_message_lines__only_an_earlier_run_has_its_cases__says_so_and_how_it_is_forgotten():
    lines = message_lines(samples.finding(earlier=True))
    (said,) = [line for line in lines if "earlier run" in line]
    assert "no case of this run shows it" in said
    assert ".autotest/findings/layer_norm-3f2a still fails (delete that folder" in said


def test_display_program__module_that_hides_what_it_calls__names_what_is_replaced():
    recording = recorded(lambda: torch.nn.Sequential(torch.nn.ReLU())(x()))
    noted = dataclasses.replace(
        recording,
        note=note_of({"backend": "substitute", "spellings": {"mine.relu": ["torch.nn.functional.relu", "torch.relu"]}}),
    )
    text = display_program(noted, samples.finding(operator="torch.nn.Sequential"))
    assert "    torch.nn.functional.relu: mine.relu,\n    torch.relu: mine.relu,\n" in text


def test_headline__state__says_by_how_much():
    found = samples.finding(kind="state", where="state running_mean after the run")
    assert headline(found).endswith("on kernels: state running_mean after the run is off by up to 0.0041")


def test_display_program__large_tensor__is_named():
    text = display_program(recorded(lambda: torch.exp(random_tensor(ndim=2, dim0=20, dim1=20))), samples.finding())
    assert "stored['t0']" in text
    assert len(text) < 400
    ast.parse(text)


HOSTILE = ['"""', "\\", '"""; import os', "\n", "{x}", "\x00", *samples.HOSTILE.values()]


@pytest.mark.parametrize("text", [item[:200] for item in HOSTILE], ids=range(len(HOSTILE)))
def test_repro_script__hostile_texts__stay_in_the_docstring(text, tmp_path):
    # Everything that comes from a candidate's exception or a test's name is shown, and never becomes code.
    hostile = {"headline": f"a {text}", "detail": f"b {text}", "candidate_seen": text, "where": text, "oracle": text}
    recording = recorded(lambda: torch.exp(x()))
    plain = ast.parse(repro_script(recording, samples.finding(), tmp_path, (tmp_path,), 60.0).replace("\x00", ""))
    script = repro_script(recording, samples.finding(**hostile), tmp_path, (tmp_path,), 60.0)
    tree = ast.parse(script)
    assert [ast.dump(node) for node in tree.body[1:]] == [ast.dump(node) for node in plain.body[1:]]
