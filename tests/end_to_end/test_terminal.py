"""The command in a terminal: one line of progress that leaves nothing behind, a table that fits, a debugger that works."""

from __future__ import annotations

import json

import pytest

from tests.projects import Project, together
from tests.terminal import Terminal

KERNELS = """
import torch


def exp(x):
    print("kernel of", tuple(x.shape))
    return torch.exp(x)


def abs(x):
    print("wrong kernel")
    return torch.abs(x) + 1
"""
TESTS = """
@autotest(n=40)
def exponential_of_the_scores_of_the_attention_over_the_last_dimension():
    return torch.exp(random_tensor(ndim=2))


@autotest(n=40)
def magnitude():
    return torch.abs(random_tensor(ndim=2))
"""
FILE = "autotests/autotest_activations_of_the_block.py"
NAMES = ("exponential_of_the_scores_of_the_attention_over_the_last_dimension", "magnitude")


def project(tmp_path) -> Project:
    made = Project(tmp_path)
    made.write("mykernels.py", KERNELS)
    made.tests(TESTS, FILE)
    made.substitute({"torch.exp": "mykernels.exp", "torch.abs": "mykernels.abs"})
    return made


@pytest.fixture(scope="module")
def terminals(tmp_path_factory: pytest.TempPathFactory) -> dict[int, tuple[int, Terminal]]:
    """Return status and terminal of the same run by width."""

    def ran(width: int) -> tuple[int, Terminal]:
        made = project(tmp_path_factory.mktemp("terminal"))
        terminal = Terminal(made.folder, ("run", "--workers", "1"), width)
        return terminal.status(), terminal

    widths = (60, 80, 120)
    return dict(zip(widths, together(*(lambda width=width: ran(width) for width in widths)), strict=True))


@pytest.mark.parametrize("width", [60, 80, 120])
def test_run__in_a_terminal__the_progress_is_one_line_and_nothing_of_it_is_left(width: int, terminals):
    status, terminal = terminals[width]
    shown = [frame for frame in terminal.frames() if any("cases/s" in line for line in frame)]
    assert status == 1
    assert shown != []
    for frame in shown:
        (line,) = [line for line in frame if "cases/s" in line]
        assert line == frame[-1]
        assert " / 80 cases" in line
        assert len(line) < width
    assert [line for line in terminal.screen() if "cases/s" in line] == []
    assert terminal.written.rindex("\x1b[?25h") > terminal.written.rindex("\x1b[?25l")


@pytest.mark.parametrize("width", [60, 80, 120])
def test_run__in_a_terminal__each_test_has_one_row_with_its_name(width: int, terminals):
    lines = terminals[width][1].screen()
    start = next(i for i, line in enumerate(lines) if line.startswith("test "))
    rows = lines[start + 1 : lines.index("", start)]
    names = [row.split()[0].partition("::")[2] or row.split()[0] for row in rows if row.startswith("  ") or "::" in row]
    heads, tails = [name.partition("…")[0] for name in names], [name.rpartition("…")[2] for name in names]
    assert len(names) == len(NAMES)
    assert all(
        name.startswith(head) and name.endswith(tail) for name, head, tail in zip(NAMES, heads, tails, strict=True)
    )
    assert [row for row in rows if "flaky" in row or "timed out" in row] == []


@pytest.mark.parametrize("width", [60, 80, 120])
def test_run__in_a_terminal__sentences_are_broken_between_words(width: int, terminals):
    lines = terminals[width][1].screen()
    start = next(i for i, line in enumerate(lines) if line.startswith("  blame: "))
    end = next(i for i, line in enumerate(lines) if i > start and not line.startswith("    "))
    sentence = " ".join(line.strip() for line in lines[start:end])
    message = project_message(terminals[width][1])
    assert sentence in message


def project_message(terminal: Terminal) -> str:
    """Return the message of the one finding, as the report has it."""
    (finding,) = json.loads((terminal.folder / "autotest-report" / "report.json").read_text())["findings"]
    return str(finding["message"])


def test_run__in_a_terminal__the_verdict_has_a_colour(terminals):
    written = terminals[120][1].written
    assert "\x1b[1;31m✗ 1 operator misaligned" in written


#: A body runs more than once, and stops only once.
STOPS = """
STOPPED = []


@autotest(n=1)
def relu():
    x = random_tensor(ndim=2)
    if not STOPPED:
        STOPPED.append(x)
        breakpoint()
    return torch.relu(x)
"""


def test_run__debugger_in_this_process__reads_from_the_terminal(tmp_path):
    made = Project(tmp_path)
    made.tests(STOPS)
    terminal = Terminal(tmp_path, ("run", "--workers", "0", "--candidate", "torch"), 80)
    terminal.wait_for("(Pdb) ")
    terminal.type("p 6 * 7\n")
    terminal.wait_for("42")
    terminal.type("c\n")
    assert terminal.status() == 0, terminal.written
    assert "✓ aligned: 1 test on 1 candidate, 1 case" in terminal.written


@pytest.mark.parametrize("is_busy", [False, True], ids=["quit", "ctrl-c and quit"])
def test_run__debugger_is_left__the_run_is_interrupted_and_has_its_report(tmp_path, is_busy: bool):
    made = Project(tmp_path)
    made.tests(STOPS)
    terminal = Terminal(tmp_path, ("run", "--workers", "0", "--candidate", "torch"), 80)
    terminal.wait_for("(Pdb) ")
    if is_busy:
        terminal.type("import time; print(6 * 7); time.sleep(1000)\n")
        terminal.wait_for("42")
        terminal.type("\x03")
        terminal.wait_for("(Pdb) ")
    terminal.type("q\n")
    assert terminal.status() == 130, terminal.written
    assert made.report()["interrupted"]


def test_run__ctrl_c_while_a_kernel_hangs_in_this_process__ends_the_run(tmp_path):
    made = Project(tmp_path)
    made.tests(
        "@autotest(n=1)\ndef relu():\n    x = random_tensor(ndim=2)\n    print('hanging')\n"
        "    while True:\n        pass\n    return torch.relu(x)\n"
    )
    terminal = Terminal(tmp_path, ("run", "--workers", "0", "--candidate", "torch"), 80)
    terminal.wait_for("hanging")
    terminal.type("\x03")
    assert terminal.status() == 130, terminal.written
    assert made.report()["interrupted"]
