"""The command ``doctor``: whether candidates can be used here, which operators they have, and what to install."""

from __future__ import annotations

import textwrap
from contextlib import closing
from typing import TYPE_CHECKING, Final, NamedTuple

from ci_autotest import environments
from ci_autotest.commands.executors import single_processes
from ci_autotest.commands.request import hello_for
from ci_autotest.environments import RECIPES
from ci_autotest.errors import ConfigError, UnavailableError
from ci_autotest.kinds import ModuleCandidate
from ci_autotest.report.coverage import catalogue
from ci_autotest.run.messages import Broken, Examine, Examined
from ci_autotest.run.pool import Pool
from ci_autotest.values.judgement import FINE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import TextIO

    from ci_autotest.commands.request import Request
    from ci_autotest.kinds import AnyCandidate
    from ci_autotest.values.result import CandidateInfo, OperatorStanding

_SILENCE_S: Final = 300.0
_WIDTH: Final = 118
#: Why a candidate lacks operators, by standing.
_WORDS: Final = {
    "unsupported": "its table says that there is no counterpart",
    "absent": "its framework has no function of that name",
    "no_kernel": "its device has no kernel for it; operators that torch composes of others are not counted here",
    "unmapped": "its table has no row for it",
}


class CandidateExamination(NamedTuple):
    """Result of examining one candidate.

    Attributes:
        info: Whether it is available, its versions and its device.
        examined: Its operators and devices; ``None`` if it is not available.
        failure: Why it could not be examined.
    """

    info: CandidateInfo
    examined: Examined | None = None
    failure: str = ""


def doctor(request: Request, environ: Mapping[str, str], stream: TextIO) -> int:
    """Examine the candidates of a request and print what they have and what is missing.

    Raises:
        ConfigError: A row of a candidate's configuration is wrong.
        UnavailableError: A candidate that is required, or named on the command line, cannot be used.
    """
    public = {operator for own in catalogue().public.values() for operator in own}
    # Those that a run of the suite counts as tested, so that both give the same number.
    operators = [operator for own in catalogue().suite.values() for operator in own if operator in public]
    missing = []
    with (
        single_processes(request, environ, _SILENCE_S) as executor,
        closing(Pool(executor, hello_for(request, 0))) as pool,
    ):
        for info, candidate in zip(pool.ready().candidates, request.candidates, strict=True):
            found = _examined(pool, info, operators)
            stream.writelines(f"{line}\n" for line in _lines(found, candidate, is_named=candidate.required))
            stream.flush()
            if candidate.required and found.examined is None:
                missing.append(candidate.name)
    if missing:
        message = f"not available: {', '.join(missing)}. The lines above say what is missing."
        raise UnavailableError(message)
    return FINE


def _examined(pool: Pool, info: CandidateInfo, operators: Sequence[str]) -> CandidateExamination:
    if not info.available:
        return CandidateExamination(info)
    answer = pool.ask(Examine(candidate=info.name, operators=list(operators)))
    if isinstance(answer, Examined):
        return CandidateExamination(info, answer)
    if isinstance(answer, Broken) and answer.is_refusal:
        raise ConfigError(answer.message)
    if isinstance(answer, Broken):
        return CandidateExamination(info, failure=answer.message)
    return CandidateExamination(info, failure=f"its process {getattr(answer, 'reason', 'answered out of turn')}")


def _lines(found: CandidateExamination, candidate: AnyCandidate, *, is_named: bool) -> list[str]:
    info = found.info
    if found.examined is None:
        reason = info.reason or f"candidate '{info.name}': {found.failure}."
        return [f"{info.name}: NOT AVAILABLE", *_wrapped(reason), *_how_to_install(candidate), ""]
    versions = ", ".join(f"{name} {version}" for name, version in info.libraries.items())
    framework = candidate.framework or (candidate.backend if candidate.packages else "torch")
    lines = [f"{info.name}: available", *_wrapped(f"{framework} {info.version}{f' ({versions})' if versions else ''}")]
    if isinstance(candidate, ModuleCandidate) and candidate.python:
        lines += _wrapped(f"interpreter: {candidate.python}")
    known = ", ".join(found.examined.devices) or "not reported by its adapter"
    lines += _wrapped(f"devices here: {known}; it runs on {info.device}")
    return [*lines, *_operators(found.examined.operators, is_named=is_named), ""]


def _operators(operators: Sequence[OperatorStanding], *, is_named: bool) -> list[str]:
    if not operators:
        return _wrapped("operators of the shipped suite: torch's exporter decides for each body if it can be exported")
    supported = sum(item.standing == "supported" for item in operators)
    lines = _wrapped(f"operators of the shipped suite: it has {supported} of {len(operators)}")
    for standing, words in _WORDS.items():
        own = [item for item in operators if item.standing == standing]
        if own:
            lines += _wrapped(f"{len(own)}: {words}{':' if is_named else ''}")
        for item in own if is_named else ():
            lines += _wrapped(f"{item.operator}{f': {item.reason}' if item.reason else ''}", "    ")
    return lines


def _how_to_install(candidate: AnyCandidate) -> list[str]:
    """Return the commands that install the framework, and the row for autotest.yml; nothing if they are unknown."""
    if candidate.packages:
        command = environments.beside_torch(candidate.packages)
        return ["  in the interpreter that has torch:", *_wrapped(command, "    ")]
    name = next((name for name in RECIPES if _is_for(name, candidate)), None)
    if name is None or not isinstance(candidate, ModuleCandidate):
        return []
    row = (
        f"{{name: {candidate.name}, backend: module, module: {candidate.module}, "
        f"python: {environments.interpreter(name)}}}"
    )
    lines = [f"  an environment for it takes CPython {RECIPES[name].python} and about {RECIPES[name].size_mb:,} MB:"]
    lines += [f"    {line}" for line in environments.commands(name)]
    return [*lines, "  and in autotest.yml, under candidates:", f"    - {row}"]


def _is_for(name: str, candidate: AnyCandidate) -> bool:
    if not isinstance(candidate, ModuleCandidate) or candidate.module != RECIPES[name].module:
        return False
    # Several environments hold a torch: only the one in the candidate's own path is meant.
    return candidate.module != "torch" or f"/{name}/" in candidate.python


def _wrapped(text: str, indent: str = "  ") -> list[str]:
    one_line = " ".join(text.split())
    return textwrap.wrap(
        one_line, _WIDTH, initial_indent=indent, subsequent_indent=f"{indent}  ", break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip
