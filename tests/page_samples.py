"""Reports and folders for the page: patterns of several dimensions, gradients, a baseline, and thousands of findings."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import TYPE_CHECKING

import numpy as np

from ci_autotest.alignment.error_pattern import DifferingTensor, error_pattern
from ci_autotest.report import report_json
from ci_autotest.values.coverage_values import Exercised, OperatorCoverage
from ci_autotest.values.tolerance import Tolerance
from tests import program_samples as programs
from tests import report_samples as samples

if TYPE_CHECKING:
    from pathlib import Path

    from ci_autotest.values.error_pattern import ErrorPattern
    from ci_autotest.values.result import RunResult

TOLERANCE = Tolerance(1e-5, 1e-5)


def errors(*shape: int, last: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Return a candidate and a reference that differ in the last elements of each row."""
    rng = np.random.default_rng(sum(shape))
    reference = rng.normal(size=shape)
    candidate = reference.copy()
    candidate[..., -last:] += rng.normal(size=(*shape[:-1], last)) + 3
    return candidate, reference


def pattern(*shape: int, last: int = 3) -> ErrorPattern:
    """Return the pattern of tensors of which the last elements of each row are wrong."""
    candidate, reference = errors(*shape, last=last)
    wrong = ~np.isclose(candidate, reference, rtol=TOLERANCE.rtol, atol=TOLERANCE.atol)
    ulps = np.abs(candidate - reference) * 2**20
    return error_pattern(DifferingTensor(candidate, reference, wrong, {}, TOLERANCE, ulps))


def coverage() -> tuple[OperatorCoverage, ...]:
    """Return three operators of two families, one compared on one candidate only."""
    seen = Exercised(cases=20, aligned=20)
    return (
        OperatorCoverage(
            operator="torch.abs", family="pointwise", recorded=seen, candidates={"kernels": seen, "compiled": seen}
        ),
        OperatorCoverage(operator="torch.neg", family="pointwise", recorded=seen, candidates={"kernels": seen}),
        OperatorCoverage(
            operator=samples.OPERATOR, family="normalization", recorded=seen, candidates={"kernels": seen}
        ),
    )


def result(**changes: object) -> RunResult:
    """Return a run with a matrix, a gradient of three dimensions, a vector and a crash; one is new, one fixed."""
    findings = (
        samples.finding(pattern=pattern(20, 35)),
        samples.numbered(1, kind="gradient", where="gradient of x", target=programs.OPERATOR, pattern=pattern(4, 6, 8)),
        samples.numbered(2, candidate="compiled", pattern=pattern(100, last=9)),
        samples.numbered(3, outcome="crashed", kind="crash", difference=None, candidate_seen="ended by signal 11"),
    )
    names = [f"autotests/autotest_all.py::test{index}" for index in range(3)]
    values = {
        "findings": findings, "operators": coverage(), "new": ("op00001-0000",), "fixed": ("kernels torch.sum value",),
        "results": (samples.failed(), *(samples.outcome(name, each) for name in names for each in ("kernels", "compiled"))),
        **changes,
    }  # fmt: skip
    return samples.misaligned(**values)


def many(count: int) -> RunResult:
    """Return a run of ``count`` findings, each with a map of 20 times 20 cells, and as many tests."""
    shared = pattern(20, 20)
    names = [f"autotests/autotest_all.py::test{index:05}" for index in range(count)]
    findings = tuple(samples.numbered(index, pattern=shared, test=name) for index, name in enumerate(names))
    results = tuple(samples.failed(test=name, findings=(item.id,)) for name, item in zip(names, findings, strict=True))
    return samples.misaligned(findings=findings, results=results)


def written(found: RunResult, folder: Path) -> Path:
    """Write a report with the folders of its findings, each with the same program, and return the folder."""
    report_json.write(found, folder / "report.json")
    files = dict(zip(("program.json", "tensors.safetensors"), programs.files(negations=3), strict=True))
    for finding in found.findings:
        place = folder / "findings" / finding.id
        place.mkdir(parents=True)
        for name, data in files.items():
            (place / name).write_bytes(data)
    return folder


class Reader(HTMLParser):
    """The tags, attributes and scripts of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.addresses: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.addresses |= {value for name, value in attrs if name in {"src", "href"}}
