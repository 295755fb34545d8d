"""``history`` shows the runs that ``.autotest/`` has kept, or those of the folders that are named."""

from tests.projects import Project

TEST = """
@autotest(n=3, auto_backward=False)
def relu():
    return torch.nn.functional.relu(random_tensor(ndim=1))
"""


def test_history__two_runs__are_shown_from_the_database_and_from_folders(tmp_path):
    project = Project(tmp_path)
    project.write("kernels.py", "import torch\n\n\ndef relu(x, inplace=False):\n    return torch.relu(x) + 1\n")
    project.substitute({"torch.nn.functional.relu": "kernels.relu"})
    project.tests(TEST)
    assert project.command("history").status == 2
    for name in ("one", "two"):
        project.run("--output", name)
    project.run("autotests/autotest_all.py::relu", "--output", "part")  # A part of the tests is no run of the history.

    kept = project.command("history")
    named = project.command("history", "one", "two", "--output", "trend.html")

    for done in (kept, named):
        assert (done.status, done.err) == (0, "")
        assert done.out.startswith("2 runs, ")
        assert "kernels torch.nn.functional.relu value" in done.out
    assert "<h1>2 runs</h1>" in (tmp_path / "trend.html").read_text("utf-8")
    assert project.command("history", "nothing").status == 2
