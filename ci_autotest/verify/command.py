"""``ci-autotest verify``: two files become a run whose candidate is in a sandbox, and its result one verdict."""

from __future__ import annotations

import hashlib
import io
import platform
import secrets
import tempfile
import time
from contextlib import ExitStack, closing
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ci_autotest.commands.progress import Progress
from ci_autotest.commands.request_parsing import request_of
from ci_autotest.commands.run import run
from ci_autotest.errors import UsageError
from ci_autotest.report.finding_folders import check_writable
from ci_autotest.run.fork_client import ForkClient
from ci_autotest.run.process import Limits
from ci_autotest.run.sandbox_servers import SandboxStarter
from ci_autotest.run.worker_start import FORK_SERVER
from ci_autotest.values.sandbox import SANDBOX_SERVERS, sandbox_servers, sandboxed, warm_sandbox
from ci_autotest.verify.report import write_report
from ci_autotest.verify.subject import (
    CANDIDATE,
    Inspector,
    Pair,
    candidate_row,
    common_name,
    copied,
    inspected,
    place_of,
    stated_name,
    write_project,
)
from ci_autotest.verify.verdict import STATUSES, Authenticity, judged, public, rejected, signed, undecided
from ci_autotest.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TextIO

    from ci_autotest.values.result import RunResult
    from ci_autotest.verify.subject import Description, SubjectPlace
    from ci_autotest.verify.verdict import VerifyVerdict

#: The variable that holds the key of the signature.
KEY: Final = "CI_AUTOTEST_VERIFY_KEY"
#: Cases of a verification.
_CASES: Final = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What is asked for on the command line.

    Attributes:
        reference: ``FILE``, ``FILE:NAME`` or ``MODULE:NAME``.
        candidate: Likewise.
        is_json: Whether the verdict is printed as JSON.
        seed: Seed of the cases, to repeat a verification; ``None`` for one that nobody knows.
        budget: Time for the cases.
        is_forward_only: Whether gradients are not compared.
        is_public: Whether nothing of the hidden cases is shown.
        allow: Operators of torch that the candidate may call though the reference calls them.
        asks_authenticity: Whether it counts who did the work.
        include: More folders that the candidate sees.
        output: Folder of the report; ``None`` for none.
    """

    reference: str
    candidate: str
    is_json: bool = False
    seed: int | None = None
    budget: str = "60s"
    is_forward_only: bool = False
    is_public: bool = False
    allow: tuple[str, ...] = ()
    asks_authenticity: bool = True
    include: tuple[Path, ...] = ()
    output: Path | None = None


def verify(options: Verification, environ: Mapping[str, str], stream: TextIO) -> int:
    """Print the verdict; return 0 if it is accepted, 1 if rejected, 3 if undecided.

    Raises:
        UsageError: The command line names no files, or it is not clear what is meant.
        UnavailableError: This system has no sandbox.
        OutputError: The report cannot be written.
    """
    begun = time.monotonic()
    reference, candidate = place_of(options.reference, "REFERENCE"), place_of(options.candidate, "CANDIDATE")
    if reference == candidate:
        message = "REFERENCE and CANDIDATE are the same."
        raise UsageError(message)
    for folder in options.include:
        if reference.file.is_relative_to(folder.resolve()):
            message = f"--include {folder} would show REFERENCE to the candidate. Give a folder without it."
            raise UsageError(message)
    sandboxed([])  # Where there is none, that is said before anything is run.
    if options.output is not None:
        check_writable(options.output)
    found, result = _verdict(options, reference, candidate, environ)
    found = msgspec.structs.replace(found, versions=_versions(), duration_s=round(time.monotonic() - begun, 3))
    found = signed(public(found) if options.is_public else found, environ.get(KEY, ""))
    if options.output is not None:
        shown = None if options.is_public else result
        write_report(found, shown, candidate.file.name, options.output, environ)
    stream.write(_text(found) if not options.is_json else msgspec.json.encode(found).decode() + "\n")
    return STATUSES[found.verdict]


def _verdict(
    options: Verification, reference: SubjectPlace, candidate: SubjectPlace, environ: Mapping[str, str]
) -> tuple[VerifyVerdict, RunResult | None]:
    """Return the verdict, and the run by which it was found; ``None`` if it did not come to that."""
    with ExitStack() as stack:
        root, environ = _prepared(options, environ, stack)
        own = copied(candidate, root)
        facts: dict[str, Any] = {
            "sandbox": "bubblewrap", "reference_sha256": _digest(reference.file), "candidate_sha256": _digest(own.file),
            "options": _other_options(options),
        }  # fmt: skip
        before = (*sandboxed([str(own.file.parent), *map(str, options.include)]), "--")
        address = sandbox_servers(environ).addresses.get(CANDIDATE, "")
        fork_client = stack.enter_context(closing(ForkClient(environ, Limits(0.0)))) if FORK_SERVER in environ else None
        inside = Inspector(before, options.is_forward_only, address=address)
        outside = Inspector((), options.is_forward_only, fork_client=fork_client)
        if not reference.name and not own.name:
            name = stated_name((reference.file, own.file))
            reference, own = reference._replace(name=name), own._replace(name=name)
        about = inspected(reference, outside)
        if about.error:
            return undecided(f"the reference cannot be used: {about.error}", **facts), None
        seen = inspected(own, inside, about.init, about.examples)
        if not seen.error and not (about.chosen and seen.chosen):
            name = common_name(about, seen)
            reference, own = reference._replace(name=reference.name or name), own._replace(name=own.name or name)
            about = inspected(reference, outside)
            seen = inspected(own, inside, about.init, about.examples)
        if about.error:
            return undecided(f"the reference cannot be used: {about.error}", **facts), None
        if seen.error:
            return rejected(f"the candidate cannot be used: {seen.error}", **facts), None
        pair = Pair(
            reference._replace(name=about.chosen), own._replace(name=seen.chosen), about, seen.kind,
            has_parameters=_same_parameters(about, seen),
        )  # fmt: skip
        write_project(root, pair, cases=_CASES, is_forward_only=options.is_forward_only, visible=list(options.include))
        # Nobody knows it before the candidate's file is read, and its process never does.
        seed = secrets.randbits(62) if options.seed is None else options.seed
        facts |= {"hidden": options.seed is None, "seed": str(seed)}
        given = {"seed": str(seed), "budget": options.budget}
        if options.output is not None and not options.is_public:
            given["output"] = str(options.output)
        request = request_of((), given, root, needs_candidate=True)
        result = run(request, environ, Progress(io.StringIO(), is_live=False, is_quiet=True))
        found = judged(result, _authenticity(options, about, seen), _unchecked(options, pair), **facts)
        return found, result


def _prepared(options: Verification, environ: Mapping[str, str], stack: ExitStack) -> tuple[Path, Mapping[str, str]]:
    """Return the folder of the verification, and an environment that names the server of the candidate's sandbox.

    A service may have prepared both. Else the server imports torch while the reference is looked at.
    """
    warm = warm_sandbox(environ)
    if warm is not None and not options.include:
        return Path(warm.folder), {**environ, SANDBOX_SERVERS: warm.variable}
    root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ci-autotest-verify-"))).resolve()
    (root / CANDIDATE).mkdir()  # before its sandbox is made, which shows only folders that are there
    row = candidate_row(root, [str(folder) for folder in options.include])
    starter = stack.enter_context(closing(SandboxStarter([row], root, environ, 0)))
    return root, {**environ, **starter.variables}


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _other_options(options: Verification) -> dict[str, str]:
    """Return what was asked for besides the defaults."""
    plain = Verification(reference="", candidate="")
    names = ("budget", "is_forward_only", "allow", "asks_authenticity")
    return {name: str(getattr(options, name)) for name in names if getattr(options, name) != getattr(plain, name)}


def _unchecked(options: Verification, pair: Pair) -> list[str]:
    """Return what these cases leave out besides what all do."""
    parameters = pair.about.parameters
    has_own_weights = bool(parameters) and not pair.has_parameters
    return [
        *(["gradients"] if options.is_forward_only else ()),
        *(["other parameters than those of one seed, as the candidate's have other names"] if has_own_weights else ()),
        *(["what buffers hold after a call"] if any(each.get("is_buffer") for each in parameters.values()) else ()),
        *(["who did the work"] if not options.asks_authenticity else ()),
    ]  # fmt: skip


def _same_parameters(reference: Description, candidate: Description) -> bool:
    """Whether both are modules whose parameters have the same names and shapes, and so can be inputs of both."""
    if reference.kind != "module" or candidate.kind != "module":
        return False
    shapes = [{name: each.get("shape") for name, each in about.parameters.items()} for about in (reference, candidate)]
    return shapes[0] == shapes[1]


def _authenticity(options: Verification, reference: Description, candidate: Description) -> Authenticity:
    if not options.asks_authenticity:
        return Authenticity(calls=candidate.calls or [])
    if candidate.calls is None:
        return Authenticity(is_unseen=True)
    allowed = {name.removeprefix("aten::").removeprefix("torch.") for name in options.allow}
    shared = [name for name in candidate.calls if name in (reference.calls or ()) and name not in allowed]
    return Authenticity(authentic=not shared, calls=candidate.calls, shared=shared)


def _versions() -> dict[str, str]:
    try:
        torch = version("torch")
    except PackageNotFoundError:
        torch = ""
    return {"ci-autotest": VERSION, "python": platform.python_version(), "torch": torch}


def _text(verdict: VerifyVerdict) -> str:
    """Return a verdict for a reader."""
    mark = {"accepted": "✓", "rejected": "✗", "undecided": "?"}[verdict.verdict]
    lines = [f"{mark} {verdict.verdict}: {verdict.reason}"]
    if verdict.finding is not None and verdict.finding.message:
        lines += ["", verdict.finding.message.rstrip(), ""]
    cases = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in verdict.cases.items())
    lines += [f"cases: {cases}; probes: {verdict.probes}"] if cases else []
    calls = verdict.authenticity.calls
    lines += [f"the candidate calls {', '.join(f'aten::{name}' for name in calls)}"] if calls else []
    lines += [f"not checked: {'; '.join(verdict.not_checked)}"]
    lines += (
        [f"seed {verdict.seed}{' (hidden)' if verdict.hidden else ''}; held by {verdict.sandbox}"]
        if verdict.seed
        else []
    )
    return "\n".join(lines) + "\n"
