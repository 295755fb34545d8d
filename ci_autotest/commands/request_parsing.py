"""Parsing of the command line and ``autotest.yml``: options override ``--set``, the file, and the defaults."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from ci_autotest import config as configuration
from ci_autotest.commands.command_options import ALL_CASES
from ci_autotest.commands.keyword_expression import parsed
from ci_autotest.commands.request import Request
from ci_autotest.config import Config
from ci_autotest.config.known_differences import check_known
from ci_autotest.environments import interpreter
from ci_autotest.errors import ConfigError, UsageError, path_text
from ci_autotest.kinds import ModuleCandidate
from ci_autotest.plan import shard_of

if TYPE_CHECKING:
    from pathlib import Path

    from ci_autotest.kinds import AnyCandidate


def request_of(paths: tuple[str, ...], given: dict[str, Any], start: Path, *, needs_candidate: bool = True) -> Request:
    """Return the request of a command line.

    Args:
        paths: Paths of the command line.
        given: Options by name; ``None`` for those that were not given.
        start: The folder in which the command was started.
        needs_candidate: Whether a request without a candidate has none; otherwise it has the built-in ones.

    Raises:
        ConfigError: The file or an option is wrong.
    """
    is_in_process = _is_in_process(given)
    path = given.get("config")
    _refuse_no_text(start.resolve() / (path or ""))
    file = path if path is not None else configuration.find(start)
    config = configuration.read(file) if file is not None else Config()
    merged = msgspec.structs.replace(config, **(_settings(given.get("set") or ()) | _overrides(given)))
    source = str(file) if file is not None else "command line"
    configuration.check(merged, source)
    check_known(merged, source)
    root = file.resolve().parent if file is not None else start.resolve()
    return Request(
        config=merged,
        root=root,
        start=start.resolve(),
        paths=paths,
        candidates=tuple(
            _with_interpreter(candidate, root)
            for candidate in _candidates(merged, given, needs_candidate=needs_candidate)
        ),
        shard=shard_of(given.get("shard") or "1/1"),
        baseline=given.get("baseline"),
        cases=None if given.get("cases") == ALL_CASES else given.get("cases"),
        takes_all=given.get("cases") == ALL_CASES,
        device=given.get("device"),
        executor=given.get("executor") or "local",
        file=path,
        keywords=parsed(given["keywords"]) if given.get("keywords") is not None else None,
        is_last_failed=bool(given.get("last_failed")),
        failures_at_most=1 if given.get("first_only") else given.get("maxfail"),
        is_in_process=is_in_process,
        is_output_shown=bool(given.get("shows_output")),
    )


def _is_in_process(given: dict[str, Any]) -> bool:
    """Return whether everything runs in this process.

    Raises:
        UsageError: An option does not go together with workers on a cluster.
    """
    is_in_process = given.get("workers") == "0"
    option = "--workers 0" if is_in_process else "-s" if given.get("shows_output") else ""
    if option and given.get("executor") == "ray":
        message = f"{option} needs processes of this machine, and --executor is ray. Leave one of the two out."
        raise UsageError(message)
    if is_in_process and given.get("is_json"):
        message = "with --workers 0, what tests print would be among the lines of --json. Leave one of the two out."
        raise UsageError(message)
    return is_in_process


def _refuse_no_text(path: Path) -> None:
    """Refuse a working folder whose name is not text: it goes into messages to workers and into reports.

    Raises:
        ConfigError: Its path is not UTF-8.
    """
    name = path_text(str(path))
    if name != str(path):
        message = f"{name} is not UTF-8. Rename that folder, or work in another."
        raise ConfigError(message)


def _settings(given: tuple[str, ...]) -> dict[str, Any]:
    """Return the configuration keys that ``--set KEY=YAML`` gives, parsed as in the file."""
    plain: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            message = f"--set is {text!r}. Write KEY=VALUE, the value in YAML, such as case_timeout=30s."
            raise ConfigError(message)
        plain[name.strip().replace("-", "_")] = configuration.parse(value, f"--set {name}")
    config = configuration.decode(plain, "--set")
    return {name: getattr(config, name) for name in plain}


def _overrides(given: dict[str, Any]) -> dict[str, Any]:
    if given.get("budget") is not None:
        configuration.duration_s(given["budget"], "--budget")
    if given.get("memory") is not None:
        configuration.size_bytes(given["memory"], "--memory")
    names = ("budget", "strictness", "fail_on", "output", "memory", "compat")
    found = {name: given[name] for name in names if given.get(name) is not None}
    if given.get("cases") not in {None, ALL_CASES}:
        found["cases"] = given["cases"]
    if given.get("seed") is not None:
        found["seed"] = _number(given["seed"], "seed", ("random", "commit"))
    if given.get("workers") not in {None, "0"}:  # 0 is no number of processes: `Request.is_in_process`.
        found["workers"] = _number(given["workers"], "workers", ("auto",))
    return found


def _number(text: str, name: str, words: tuple[str, ...]) -> int | str:
    if text in words:
        return text
    try:
        number = int(text)
    except ValueError:
        number = -1
    greatest = configuration.AT_MOST[name] if name == "workers" else configuration.SEEDS - 1
    if not 0 <= number <= greatest:
        allowed = f"a number from 0 to {greatest}"
        *others, last = words
        listed = ", ".join([allowed, *others])
        message = f"--{name} is {text[:80]!r}. Give {listed}{',' if name == 'workers' else ''} or {last}."
        raise ConfigError(message)
    return number


def _with_interpreter(candidate: AnyCandidate, root: Path) -> AnyCandidate:
    """Return a candidate; a built-in one gets the interpreter of its own environment, if there is one."""
    built_in = configuration.BUILT_IN.get(candidate.name)
    if not isinstance(candidate, ModuleCandidate) or built_in is None or candidate.python:
        return candidate
    if candidate.framework != built_in.framework:
        return candidate
    python = root / interpreter(candidate.name)
    return msgspec.structs.replace(candidate, python=str(python)) if python.is_file() else candidate


def _may_move(candidate: AnyCandidate) -> bool:
    """Whether ``--device`` is for a candidate."""
    return candidate.device == "cpu" and not candidate.stays_on_cpu


def _candidates(config: Config, given: dict[str, Any], *, needs_candidate: bool) -> tuple[AnyCandidate, ...]:
    named = tuple(given.get("candidate") or ())
    # `list`, `replay`, `draws` and `doctor` also work without a configuration, on the built-in candidates.
    if not named and not config.candidates:
        # A run of data loaders needs no candidate; a run of operators is refused when its tests are known.
        return () if needs_candidate else tuple(configuration.BUILT_IN.values())
    found = configuration.chosen(config, named)
    device = given.get("device")
    return tuple(
        msgspec.structs.replace(
            candidate,
            # Nobody names a candidate on the command line to have it skipped, so a missing one is an error.
            required=candidate.required or candidate.name in named or device == "cuda",
            device=device if device is not None and _may_move(candidate) else candidate.device,
            speed=candidate.speed or bool(given.get("speed")),
        )
        for candidate in found
    )
