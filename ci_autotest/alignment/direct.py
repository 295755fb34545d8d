"""A test run where it was called: under pytest or unittest, in their process, without isolation."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ci_autotest import config as configuration
from ci_autotest.alignment.cases import Contender, accept, differentiate, try_case
from ci_autotest.alignment.rules import rules_for
from ci_autotest.backends.build import available_device, build
from ci_autotest.backends.torch_eager import TorchBackend
from ci_autotest.errors import AuthorError, ConfigError
from ci_autotest.result import TOLERATED_BLAMES

if TYPE_CHECKING:
    from collections.abc import Callable

    from ci_autotest.backends.trace import Attempt
    from ci_autotest.config import Config
    from ci_autotest.result import Verdict

SAID_ONCE: Final = "ci-autotest: tests run in this process, without isolation; `ci-autotest run` gives each a worker.\n"


class Setting(NamedTuple):
    """Where a test that is run in its caller's process belongs: the configuration, its folder and the test's id."""

    config: Config
    root: Path
    test: str


def setting_of(file: str, name: str, declared: str | None) -> Setting:
    """Return the setting of a test: the nearest ``autotest.yml`` above its file, else above the current folder.

    Raises:
        ConfigError: There is none, or it has no candidate: torch held against itself would be green without a test.
    """
    source = Path(file).resolve()
    path = configuration.find(source.parent) or configuration.find(Path.cwd())
    config = configuration.read(path) if path else configuration.Config()
    if path is None or not config.candidates:
        message = (
            f"no candidate to hold {name} against: no {configuration.FILE_NAME} with `candidates:` "
            f"above {source.parent} or the current folder. Write one, or use `ci-autotest run --candidate NAME`."
        )
        raise ConfigError(message)
    root = path.parent.resolve()
    for folder in (str(source.parent), str(root)):
        if folder not in sys.path:
            sys.path.append(folder)
    shown = source.relative_to(root).as_posix() if source.is_relative_to(root) else source.as_posix()
    return Setting(config, root, declared or f"{shown}::{name.replace('.', '::')}")


def run_here(declared: Any, setting: Setting, draw: Callable[[int, int], Attempt]) -> None:  # noqa: ANN401
    """Run a test's cases and raise on the first that is misaligned.

    Args:
        declared: The test's declaration.
        setting: Where it belongs.
        draw: Makes the attempt ``(case, number)``.

    Raises:
        AssertionError: A candidate is misaligned.
        AuthorError: Nothing was compared.
    """
    __tracebackhide__ = True
    config = setting.config
    candidates = config.candidates
    contenders = {
        candidate.name: Contender(
            build(candidate, available_device(candidate.device)),
            rules_for(config.tolerances, config.strictness, candidate.name, declared),
        )
        for candidate in candidates
    }
    compared = dict.fromkeys(contenders, 0)
    reasons: dict[str, str] = {}
    refusal = ""
    reference = TorchBackend()
    for case in range(declared.n or config.cases):
        found = accept(case, draw, contenders, lambda _case, _name, _number: None)
        refusal = found.refusal or refusal
        if found.attempt is None:
            continue
        differentiate(found.attempt, reference)
        for name, contender in contenders.items():
            verdict = try_case(found.attempt, contender, reference).verdict
            if verdict.outcome == "misaligned" and verdict.blame not in TOLERATED_BLAMES:
                raise AssertionError(_message(verdict, name, setting.test, case))
            compared[name] += verdict.outcome == "aligned"
            reasons[name] = verdict.oracle
    for name, count in compared.items():
        if not count:
            reason = reasons.get(name) or refusal or "no case was accepted"
            message = f"{setting.test} compared nothing on {name}: {reason}."
            raise AuthorError(message)


def _message(verdict: Verdict, candidate: str, test: str, case: int) -> str:
    found = verdict.misalignment
    lines = [f"misaligned: {verdict.operator} on {candidate}, case {case} of {test}"]
    if found is not None:
        lines.append(f"  {found.what}: candidate {found.candidate}; reference {found.reference}")
        if found.difference is not None:
            lines.append(f"  mismatched elements: {found.difference.mismatched} / {found.difference.total}")
        lines += [f"  {found.detail}"] if found.detail else []
    lines.append(f"  blame: {verdict.blame}; {verdict.oracle}")
    return "\n".join([*lines, f"  the smallest program and its repro: ci-autotest run {test}"])
