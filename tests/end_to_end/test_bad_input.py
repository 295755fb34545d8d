"""Tests that are wrong: each costs itself only, is told once with file and line, and never passes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.projects import Done, Project

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Body by name, with what is said of it; each is the only line of its test, on line 3 of its file.
WRONG = {
    "own_error": ("return random_tensor() + undefined", "the body raised NameError: name 'undefined' is not defined"),
    "untold_type": (
        "return torch.var(random_tensor(ndim=2), random(0, 2))",
        (
            "argument 1 of torch.var: the type of random(0, 2) is unknown. "
            "Write random(0, 2).to(int), .to(float) or .to(bool)."
        ),
    ),
    "empty_range": (
        "return random_tensor(ndim=1, dim0=random(120).to(int)) + 1",
        "random(120) has an empty range: low is 120, high is 6. Write random(0, 120) or random(120, 121).",
    ),
    "no_tensor": (
        "return {'a': random_tensor() + 1, 'b': object()}",
        "the body returns object. Return a recorded tensor, a tuple of them, or nothing.",
    ),
    "a_string": (
        "return 'x'",
        "the body returns str 'x', which no recorded step gave: every side would return the same.",
    ),
    "interrupts": ("raise KeyboardInterrupt", "the body raised KeyboardInterrupt: "),
    "exits": ("raise SystemExit(0)", "the body raised SystemExit: 0"),
    "ends_its_process": ("__import__('os')._exit(0)", "the reference ended its process in case 0"),
}
GOOD = "\n@autotest(n=2)\ndef add():\n    return random_tensor(ndim=1) + 1\n"
REJECTED = """
@autotest(n=2)
def mismatched():
    x = random_tensor(ndim=2, dim0=3, dim1=4)
    return torch.matmul(x, x)

"""


@pytest.mark.parametrize(("key", "bounds"), [("tolerances", {"rtol": 0.1, "atol": 0.1}), ("known", {})])
def test_run__row_of_an_operator_that_torch_does_not_have__is_status_2(key: str, bounds: Any, tmp_path: Any):
    project = project_in(tmp_path)
    rows = [{"operator": "torch.sofmax", "reason": "misspelt", **bounds}]
    project.configure(candidates=[{"name": "torch", "backend": "torch"}], **{key: rows})
    project.tests(GOOD)
    done = project.run()
    assert (done.status, done.err) == (
        2, f"{key}[0]: torch has no operator 'torch.sofmax'. Did you mean 'torch.softmax'?\n"
    ), done.said  # fmt: skip


def project_in(folder: Any) -> Project:
    project = Project(folder)
    project.configure(candidates=[{"name": "torch", "backend": "torch"}])
    return project


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Project, Done]]:
    """Return what came of a run with every wrong body, files that do not import, and one good test."""
    project = project_in(tmp_path_factory.mktemp("wrong"))
    for name, (line, _) in WRONG.items():
        project.write(f"autotests/autotest_{name}.py", f"{IMPORTS}\n@autotest(n=2)\ndef test():\n    {line}\n")
    project.write("autotests/autotest_no_module.py", "import nowhere_at_all\nfrom ci_autotest import autotest\n")
    project.write("autotests/autotest_no_syntax.py", "from ci_autotest import autotest\ndef f(:\n")
    project.write("autotests/autotest_quits.py", "from ci_autotest import autotest\nimport os\nos._exit(0)\n")
    project.write("autotests/autotest_z_good.py", f"{IMPORTS}{GOOD}")
    done = project.run()
    assert done.status == 1, done.said
    return project, done


IMPORTS = "from ci_autotest import autotest, random, random_tensor, torch\n"


def broken(project: Project, file: str) -> dict[str, Any]:
    found = [item for item in project.report()["broken"] if item["test"].partition("::")[0] == f"autotests/{file}"]
    assert len(found) == 1, project.report()["broken"]
    return found[0]


@pytest.mark.parametrize("name", sorted(WRONG))
def test_run__body_is_wrong__says_what_and_where(name: str, wrong: tuple[Project, Done]):
    project, done = wrong
    found = broken(project, f"autotest_{name}.py")
    assert found["message"].startswith(WRONG[name][1])
    if name != "ends_its_process":
        line = 3 if found["message"].startswith("the body returns") else 5
        assert found["message"].endswith(f"(autotest_{name}.py, line {line})")
    assert found["location"] == {"file": f"autotests/autotest_{name}.py", "line": 3}
    assert done.out.count(found["message"]) == 1, "told once"


@pytest.mark.parametrize(
    ("file", "message", "shown"),
    [
        ("autotest_no_module.py", "ModuleNotFoundError: No module named 'nowhere_at_all'", "import nowhere_at_all"),
        ("autotest_no_syntax.py", "SyntaxError: invalid syntax (autotest_no_syntax.py, line 2)", "def f(:"),
        ("autotest_quits.py", "while importing it, the process ended with status 0", ""),
    ],
)
def test_run__file_does_not_import__shows_the_traceback(
    file: str, message: str, shown: str, wrong: tuple[Project, Done]
):
    project, done = wrong
    found = broken(project, file)
    assert found["message"] == f"does not import: {message}"
    assert shown in found["traceback"]
    assert shown in done.out


def test_run__wrong_tests__show_no_frame_of_ours(wrong: tuple[Project, Done]):
    project, done = wrong
    shown = [line for item in project.report()["broken"] for line in item["traceback"].splitlines()]
    assert [line for line in (*shown, *done.out.splitlines()) if "/ci_autotest/" in line or "importlib" in line] == []


def test_run__wrong_tests__say_nothing_of_addresses(wrong: tuple[Project, Done]):
    project, _ = wrong
    assert "0x" not in str([item["message"] for item in project.report()["broken"]])


def test_run__wrong_tests__the_good_one_runs(wrong: tuple[Project, Done]):
    project, done = wrong
    good = [item for item in project.report()["results"] if item["test"] == "autotests/autotest_z_good.py::add"]
    assert [(item["outcome"], item["cases"]["aligned"]) for item in good] == [("aligned", 2)]
    assert done.err == ""


def test_run__wrong_tests__none_is_aligned(wrong: tuple[Project, Done]):
    project, _ = wrong
    report = project.report()
    assert [item["test"] for item in report["results"] if item["outcome"] == "aligned"] == [
        "autotests/autotest_z_good.py::add"
    ]
    assert report["summary"]["broken"] == len(WRONG) + 3


def test_run__every_draw_is_rejected__only_refusals_are_compared(tmp_path: Any):
    project = project_in(tmp_path)
    project.tests(REJECTED)
    done = project.run()
    report = project.report()
    assert done.status == 0, done.said
    assert [(item["outcome"], item["weak"], item["attempts"]) for item in report["results"]] == [
        ("aligned", True, {"accepted": 0, "rejected": 40})
    ]
    assert (
        "weak: autotests/autotest_all.py::mismatched: no attempt is accepted, so only refusals are compared; declare "
        "`raises=` if the test is about them; for example, the reference said: torch.matmul: RuntimeError: mat1 and "
        "mat2 shapes cannot be multiplied (3x4 and 3x4)"
    ) in done.out
    assert "⚠ aligned where compared: 1 test on 1 candidate, 2 cases; 1 test of which only refusals were" in done.out


#: Programs of autograd's documentation that must raise; the test declares no `raises=`.
REFUSED = """
import torch

@autotest(n=2)
def leaf():
    w = torch.ones(3, requires_grad=True)
    y = torch.exp(random_tensor(1, 3) * w)
    w.add_(1)
    return y

@autotest(n=2)
def parameter():
    module = torch.nn.Linear(3, 3)
    y = torch.exp(module(random_tensor(2, 2, 3)))
    module.weight.add_(1)
    return y

@autotest(n=2)
def saved_value():
    w = torch.exp(random_tensor(1, 3))
    y = w * w
    w[0] = 1
    y.sum().backward()

@autotest(n=2)
def backward_twice():
    y = torch.exp(random_tensor(1, 3)).sum()
    y.backward()
    y.backward()

@autotest(n=2)
def reshaped():
    return torch.reshape(torch.exp(random_tensor(2, 3, 4)), (7,))

"""


def test_run__programs_that_must_raise__are_compared_by_their_refusals(tmp_path: Any):
    project = project_in(tmp_path)
    project.tests(REFUSED)
    project.write(
        "mykernels.py", "import torch\n\ndef exp(x):\n    return torch.exp(x)\n\ndef reshape(x, shape):\n    return x\n"
    )
    replaced = {"exp": {"torch.exp": "mykernels.exp"}, "lenient": {"torch.reshape": "mykernels.reshape"}}
    project.configure(
        candidates=[{"name": name, "backend": "substitute", "replace": row} for name, row in replaced.items()]
    )
    done = project.run()
    report = project.report()
    assert (done.status, report["broken"]) == (0, []), done.said
    found = {(item["candidate"], item["test"].rpartition(":")[2]): item["outcome"] for item in report["results"]}
    names = ("leaf", "parameter", "saved_value", "backward_twice", "reshaped")
    assert {found["exp", name] for name in names} == {"aligned"}
    assert (found["lenient", "reshaped"], found["lenient", "leaf"]) == ("misaligned", "unsupported")
    assert [(item["kind"], item["operator"]) for item in report["findings"]] == [("leniency", "torch.reshape")]


def test_run__body_without_an_operator__compares_nothing(tmp_path: Any):
    project = project_in(tmp_path)
    project.tests(
        "@autotest(n=2)\ndef same():\n    return random_tensor()\n\n\n@autotest(n=2)\ndef empty():\n    pass\n"
    )
    done = project.run()
    assert done.status in {1, 3}, done.said
    assert [item["outcome"] for item in project.report()["results"] if item["outcome"] == "aligned"] == []


@pytest.mark.parametrize(
    ("output", "why"),
    [("taken", "File exists"), ("taken/below", "Not a directory")],
)
def test_run__output_cannot_be_written__is_refused_before_anything_runs(output: str, why: str, tmp_path: Any):
    project = project_in(tmp_path)
    project.write("autotests/autotest_all.py", f"open('imported', 'w').close()\n{IMPORTS}{GOOD}")
    project.write("taken", "a file")
    done = project.run("--output", output)
    message = f"the output folder '{tmp_path}/{output}' cannot be written: {why}. Choose another with --output.\n"
    assert (done.status, done.out, done.err) == (2, "", message)
    assert (tmp_path / "taken").read_text("utf-8") == "a file"
    assert not (tmp_path / "imported").exists()
