"""A fault of a real compiler: its layer is named, and the repro says so by itself."""

from __future__ import annotations

import pytest

from tests.projects import Project, ended, finding_of

#: ``avg_pool2d``'s backward pass with a padding of one number in a tuple: inductor of torch 2.13 raises.
TESTS = """
@autotest(n=1, profiles=())
def pooled():
    x = random_tensor(ndim=4, dim0=1, dim1=1, dim2=5, dim3=5)
    return torch.nn.functional.avg_pool2d(x, 3, stride=2, padding=(1,))
"""


@pytest.mark.heavy
def test_run__fault_of_inductor__names_the_layer_and_its_repro_shows_the_ablation(tmp_path):
    project = Project(tmp_path)
    project.tests(TESTS)
    project.configure(case_timeout="5m", candidates=[{"name": "inductor", "backend": "torch.compile"}])
    # Inductor's first graph makes g++ compile PyTorch's headers, which takes more than a minute on a busy machine.
    done = ended(project.start("run", "--workers", "1"), timeout_s=600)
    assert done.status == 1, done.said
    finding = finding_of(project.report(), "avg_pool2d")
    assert (finding["kind"], finding["blame"], finding["layer"], finding["repro_verified"]) == (
        "error", "candidate", "inductor", True,
    )  # fmt: skip
    assert "torch.compile(program" in finding["program"]
    said = project.repro(finding).out
    for line in ("backend='eager': aligned", "backend='aot_eager': aligned", "the layer at fault is inductor"):
        assert line in said
