"""A finding names its pattern in the report, the terminal, the comment and the repro, although it was shrunk."""

import pytest

from tests.projects import Project

KERNELS = """
import torch


def softmax(x, dim=-1, **rest):
    found = torch.softmax(x, dim)
    if found.shape[-1] > 3:
        found = found.clone()
        found[..., -3:] = 2.0
    return found
"""
TEST = """
@autotest(n=4, auto_backward=False)
def softmax():
    x = random_tensor(ndim=2, dim0=random(10, 20), dim1=35)
    return torch.nn.functional.softmax(x, dim=-1)
"""
WORDS = "only the last 3 of each row of 35, the candidate has 2 there"


@pytest.fixture
def ran(tmp_path):
    project = Project(tmp_path)
    project.write("kernels.py", KERNELS)
    project.substitute({"torch.nn.functional.softmax": "kernels.softmax"})
    project.tests(TEST)
    done = project.run()
    assert done.status == 1, done.said
    return project, done


def test_run__last_elements_of_each_row_wrong__every_surface_names_the_pattern(ran):
    project, done = ran
    finding = project.report()["findings"][0]
    folder = project.folder / "autotest-report"
    texts = [
        done.out, finding["message"], (folder / finding["repro"]).read_text(), (folder / "comment.md").read_text(),
        (folder / "findings" / finding["id"] / "README.md").read_text(),
    ]  # fmt: skip

    assert [WORDS in text for text in texts] == [True] * 5, finding
    assert finding["pattern"]["region"] == {
        "type": "box", "parts": [{"type": "span", "axis": 1, "start": 32, "stop": 35, "size": 35}],
    }  # fmt: skip
    assert finding["pattern"]["mismatched"] > finding["difference"]["mismatched"]
