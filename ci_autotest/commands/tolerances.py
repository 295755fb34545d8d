"""The command ``tolerances``: propose rows of ``tolerances`` from the greatest errors of aligned cases."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import yaml

from ci_autotest.commands.output_writer import read_report
from ci_autotest.values.aligned_error import AlignedError, joined_errors
from ci_autotest.values.amounts import ulp_words
from ci_autotest.values.tolerance import tolerance_for

if TYPE_CHECKING:
    from pathlib import Path
    from typing import TextIO

    from ci_autotest.values.result import RunResult

#: How many times the greatest error a proposed row allows.
_MARGIN: Final = 2.0
_NOTHING: Final = (
    "# No case of this report was aligned and measured, so that there is nothing to propose.\n"
    "# Run ci-autotest again, and give the output folder of that run.\n"
)


def tolerances(path: Path, stream: TextIO) -> int:
    """Print the rows that a report supports, as YAML with the numbers that each rests on."""
    result = read_report(path)
    rows = _measured(result)
    if not rows:
        stream.write(_NOTHING)
        return 0
    stream.write(f"# {_MARGIN:g} times the greatest error of aligned cases, seed {result.seed}.\ntolerances:\n")
    for candidate, tests, error in rows:
        stream.write(f"  # {_basis(error, tests)}\n  - {_flow(_row(candidate, error))}\n")
    return 0


def _measured(result: RunResult) -> list[tuple[str, int, AlignedError]]:
    """Return the candidate, the number of tests and the greatest error, for each candidate, operator and dtype."""
    found = []
    for candidate in sorted({item.candidate for item in result.results}):
        errors = [each for item in result.results if item.candidate == candidate for each in item.errors]
        for error in joined_errors(errors):
            key = error.operator, error.dtype
            tests = sum((each.operator, each.dtype) == key for each in errors)
            found.append((candidate, tests, error))
    return found


def _basis(error: AlignedError, tests: int) -> str:
    """Return the numbers that a row rests on."""
    what = f"{error.cases:,} cases of {tests:,} test{'' if tests == 1 else 's'}"
    if not error.absolute:
        return f"{what}: the same bits"
    ulp = ulp_words(error.ulp, None)
    used = "" if error.used is None else f", {error.used:.3g} of the default tolerance"
    return f"{what}: off by up to {error.absolute:.3g}{ulp and f', {ulp}'}{used}"


def _row(candidate: str, error: AlignedError) -> dict[str, Any]:
    default = tolerance_for(error.dtype)
    if error.used is None:
        rtol, atol = 0.0, _up(_MARGIN * error.absolute)
    else:
        share = _MARGIN * error.used
        rtol, atol = _up(share * default.rtol), _up(share * default.atol)
    reason = f"measured in {error.cases} aligned cases"
    return {
        "operator": error.operator, "candidate": candidate, "dtype": error.dtype, "rtol": rtol, "atol": atol,
        "reason": reason,
    }  # fmt: skip


def _up(number: float) -> float:
    """Return a number rounded up to two digits."""
    if not number:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(number)) - 1)
    return float(f"{math.ceil(number / unit) * unit:.2g}")


def _flow(row: dict[str, Any]) -> str:
    # The report may come from outside: YAML's own writer quotes what is not a plain name.
    return yaml.safe_dump(row, default_flow_style=True, sort_keys=False, width=math.inf).strip()
