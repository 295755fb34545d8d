"""``results.sarif`` is valid against the schema of SARIF 2.1.0, as a package of Microsoft's carries it."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from ci_autotest.report import sarif
from tests import report_samples as samples
from tests.npm import fetched

pytestmark = pytest.mark.heavy

PACKAGE = "@microsoft/jest-sarif@1.0.0-beta.0"


@pytest.fixture(scope="module")
def validator() -> Any:
    schema = json.loads(fetched(PACKAGE, "lib/schemas/sarif-2.1.0-rtm.5.json").read_bytes())
    assert schema["title"].startswith("Static Analysis Results Format (SARIF) Version 2.1.0")
    return jsonschema.validators.validator_for(schema)(schema, format_checker=jsonschema.FormatChecker())


RESULTS = {
    "empty": samples.run(),
    "misaligned": samples.misaligned(),
    "everything": samples.everything(),
    "accepted": samples.misaligned(findings=(samples.finding(known="int32 indices"),)),
    "no location": samples.misaligned(findings=(samples.finding(location=None),)),
    "ended early": samples.run(results=(), exit_code=2),
    **{
        name: samples.misaligned(findings=(samples.finding(operator=text, headline=text, message=text, test=text),))
        for name, text in samples.HOSTILE.items()
    },
}


@pytest.mark.parametrize("result", RESULTS.values(), ids=RESULTS)
def test_render__any_run__is_valid_for_the_schema(validator, result) -> None:
    assert [error.message[:200] for error in validator.iter_errors(json.loads(sarif.render(result)))] == []


@pytest.mark.parametrize(
    "fault",
    [{"version": "2.0.0"}, {"runs": [{}]}, {"runs": [{"tool": {"driver": {"name": "x"}}, "results": [{}]}]}],
    ids=["version", "no tool", "no message"],
)
def test_validator__planted_fault__is_refused(validator, fault) -> None:
    log = {**json.loads(sarif.render(samples.misaligned())), **fault}

    assert list(validator.iter_errors(log)) != []
