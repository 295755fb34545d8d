"""A difference that a row of `known` accepts is misaligned nowhere: not in a count, not in a line, not in the progress."""

from __future__ import annotations

from tests.projects import Project

KERNELS = "import torch\n\n\ndef floor(x):\n    return torch.ceil(x)\n\n\ndef abs(x):\n    return torch.abs(x) + 1\n"
TESTS = """
@autotest(n=8)
def rounded():
    return torch.floor(random_tensor(ndim=2))


@autotest(n=8)
def magnitude():
    return torch.abs(random_tensor(ndim=2))
"""
REPLACED = {"torch.floor": "mykernels.floor", "torch.abs": "mykernels.abs"}
KNOWN = {"operator": "torch.floor", "reason": "rounds up"}


def project(tmp_path, *known: dict[str, str]) -> Project:
    made = Project(tmp_path)
    made.write("mykernels.py", KERNELS)
    made.tests(TESTS)
    made.substitute(REPLACED, known=list(known))
    return made


def test_run__one_operator_is_accepted__it_is_counted_as_known_everywhere(tmp_path):
    made = project(tmp_path, KNOWN)

    done = made.run()

    report = made.report()
    by_name = {item["test"].rpartition("::")[2]: item for item in report["results"]}
    counts = report["coverage"][0]["counts"]
    assert done.status == 1, done.said
    assert (by_name["rounded"]["outcome"], by_name["magnitude"]["outcome"]) == ("known", "misaligned")
    assert by_name["rounded"]["cases"]["misaligned"] == 0
    assert by_name["rounded"]["cases"]["known"] > 0
    assert (report["summary"]["misaligned"], report["summary"]["known"]) == (1, 1)
    assert (counts["misaligned"], counts["known"]) == (1, 1)
    assert [line for line in done.out.splitlines() if "misaligned" in line and "floor" in line] == []


def test_run__everything_is_accepted__status_0_and_nothing_is_called_misaligned(tmp_path):
    made = project(tmp_path, KNOWN, {"operator": "torch.abs", "reason": "off by one"})

    done = made.run()

    assert done.status == 0, done.said
    assert "misaligned" not in done.out.replace("0 misaligned", "").replace("# misaligned", "")
    assert made.report()["summary"]["known"] == 2
