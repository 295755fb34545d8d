"""What the step `plan` hands to the later ones: the runner keeps its outputs, which no test can change."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, kw_only=True)
class InstallArguments:
    """Arguments of the steps `prepare` and `install`."""

    runtime: str  # of the tests: `host`, `python` or `container`; empty if there are none
    torch: str = "auto"  # `cpu` or `default`; `auto` is `cpu`, or `default` if the index of those builds cannot be read
    packages: list[str]  # pip's arguments of the input `install`
    names: list[str]  # of the packages among them
    cache: str = ""  # folder of pip's downloads; empty for pip's own


@dataclass(frozen=True, kw_only=True)
class RunArguments:
    """Arguments of the step `run`."""

    argv: list[str]  # of `ci-autotest`
    runtime: str  # as above; without tests, reports are merged
    report: str  # absolute path of the report's folder
    config: list[str]  # option that names the configuration file, or nothing
    device: str
    image: str  # of the runtime `container`, as the next
    container_options: list[str]


def encoded(arguments: InstallArguments | RunArguments | list[str]) -> str:
    """Return the output with the arguments of a step."""
    return json.dumps(arguments if isinstance(arguments, list) else asdict(arguments))


def decoded(environ: Mapping[str, str]) -> Any:
    """Return the arguments of this step, as plain data."""
    return json.loads(environ["STEP_ARGUMENTS"])
