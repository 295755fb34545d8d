"""What is verified: a function or module of two files, what it takes, and the project of tests that is made of them."""

from __future__ import annotations

import ast
import json
import keyword
import os
import resource
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from ci_autotest.errors import UsageError
from ci_autotest.host.sandbox_client import SandboxJob, forked_in_sandbox
from ci_autotest.kinds import SubstituteCandidate
from ci_autotest.run import machine_resources
from ci_autotest.values.sandbox import kept_environ

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ci_autotest.run.fork_client import ForkClient
    from ci_autotest.run.worker_start import ProcessHandle

_INSPECTOR: Final = Path(__file__).with_name("inspector.py")
#: Functions that describe a problem and solve none, as ``inspector.py`` has them.
HELPERS: Final = ("get_inputs", "get_init_inputs")
#: Its variable with the question.
QUESTION: Final = "CI_AUTOTEST_QUESTION"
#: Name of the candidate, and of the folder of its file.
CANDIDATE: Final = "candidate"
#: Seconds that a file may take to be imported and looked at.
_INSPECTED_S: Final = 120
#: Bytes that a file may print while it is looked at, and of these those that are read.
_PRINTED_BYTES: Final = 1 << 28
_READ_BYTES: Final = 1 << 22
#: Profiles of the test besides ordinary values: none. Of equal numbers, in rows that are repeated or tied, a
#: normalization gives rounding alone, in which honest kernels differ.
_PROFILES: Final = ()
#: A case has at most this number of elements at the sizes of the example; a larger example is drawn smaller.
_ELEMENTS: Final = 1 << 22
_SMALL: Final = 8
#: How many times the reference's own error is allowed. A lower precision is off by thousands of times it.
_FACTOR: Final = 16


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """What a file has, as the inspector says it.

    Attributes:
        error: Why it cannot be looked at; empty if it can.
        callables: Functions and modules that it defines, and which of both each is.
        chosen: The one that is verified; empty if none was named.
        kind: ``function`` or ``module``.
        init: Arguments of the module.
        parameters: Parameters and buffers of the module, as inputs are described, by name.
        inputs: What it takes: a shape, a dtype and the least and greatest number of a tensor, or a value.
        examples: The same in sizes that are quick.
        fixed: Sizes that cannot be another one.
        calls: Operators of torch that one call runs; ``None`` if that was not seen.
    """

    error: str = ""
    callables: dict[str, str] = {}
    chosen: str = ""
    kind: str = ""
    init: list[Any] = []
    parameters: dict[str, dict[str, Any]] = {}
    inputs: list[dict[str, Any]] = []
    examples: list[dict[str, Any]] = []
    fixed: list[int] = []
    calls: list[str] | None = None


class SubjectPlace(NamedTuple):
    """A file and what of it is meant.

    Attributes:
        file: Absolute path.
        name: Name of the function or module; empty if none was given.
    """

    file: Path
    name: str = ""


def place_of(text: str, role: str) -> SubjectPlace:
    """Return the place that a command line names: ``FILE``, ``FILE:NAME`` or ``MODULE:NAME``.

    Args:
        text: The argument.
        role: ``REFERENCE`` or ``CANDIDATE``, for messages.

    Raises:
        UsageError: There is no such file.
    """
    head, _, name = text.rpartition(":") if ":" in text else (text, "", "")
    for path in (Path(head), Path(f"{head.replace('.', '/')}.py"), Path(head.replace(".", "/"), "__init__.py")):
        if path.is_file():
            return SubjectPlace(path.resolve(), name)
    message = f"{role} {text!r} is neither a file nor a module below this folder. Give FILE, FILE:NAME or MODULE:NAME."
    raise UsageError(message)


class Inspector(NamedTuple):
    """How a file is looked at.

    Attributes:
        before: The beginning of the command, for a sandbox; empty for none.
        is_forward_only: Whether calls have no gradients.
        address: Socket of the server of that sandbox; empty if there is none.
        fork_client: Forks what needs no sandbox; ``None`` if no server is ready.
    """

    before: tuple[str, ...] = ()
    is_forward_only: bool = False
    address: str = ""
    fork_client: ForkClient | None = None

    def started(self, question: str, printed: Any, errors: Any) -> ProcessHandle:
        """Return the process that answers a question: a fork of a server if there is one, else one of its own."""
        if self.address:
            job = SandboxJob(
                [question], {}, machine_resources.memory_bytes(1), script=str(_INSPECTOR), file_bytes=_PRINTED_BYTES
            )
            forked = forked_in_sandbox(self.address, job, (printed.fileno(), errors.fileno()))
            if forked is not None:
                return forked
        if self.fork_client is not None:
            return self.fork_client.script(_INSPECTOR, {QUESTION: question}, printed)
        words = [sys.executable, "-I", "-B", str(_INSPECTOR), question]
        return subprocess.Popen(
            [*self.before, *words], stdin=subprocess.DEVNULL, stdout=printed, stderr=errors,
            env=kept_environ() if self.before else None, preexec_fn=_limit_files,  # noqa: PLW1509 - this process has one thread
        )  # fmt: skip


def inspected(
    place: SubjectPlace,
    inspector: Inspector,
    init: list[Any] | None = None,
    examples: list[dict[str, Any]] | None = None,
) -> Description:
    """Return what a file has; it is imported in a process of its own.

    Args:
        place: The file.
        inspector: How it is looked at.
        init: Arguments of the candidate's module.
        examples: Inputs of the candidate; ``None`` for a reference.
    """
    question = {
        "path": str(place.file), "name": place.name, "init": init or [], "examples": examples,
        "is_forward_only": inspector.is_forward_only,
    }  # fmt: skip
    # Of what is printed the end is kept, in a file that cannot grow for ever.
    with tempfile.TemporaryFile() as printed, tempfile.TemporaryFile() as errors:
        process = inspector.started(json.dumps(question), printed, errors)
        try:
            status: int | None = process.wait(_INSPECTED_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            status = None
        lines = _end(printed).strip().splitlines()
        try:
            found = msgspec.json.decode(lines[-1] if lines else "", type=Description)
        except msgspec.MsgspecError:
            ending = f"did not end within {_INSPECTED_S} s" if status is None else f"ended with status {status}"
            found = Description(error=f"{place.file.name} {ending} while it was imported: {_end(errors)[-300:]}")
    return msgspec.structs.replace(found, error=_line(found.error))


def _line(text: str) -> str:
    """Return a text from outside as one line that a terminal can show."""
    return " ".join("".join(each if each.isprintable() else " " for each in text).split())[:600]


def _limit_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (_PRINTED_BYTES, _PRINTED_BYTES))


def _end(file: Any) -> str:
    file.seek(max(file.seek(0, os.SEEK_END) - _READ_BYTES, 0))
    text: str = file.read().decode(errors="replace")
    return text


def candidate_row(root: Path, visible: Sequence[str]) -> SubstituteCandidate:
    """Return the row of the candidate, which sees its own folder and some others; it replaces nothing yet."""
    folder = str(root / CANDIDATE)
    return SubstituteCandidate(name=CANDIDATE, sandbox=(folder, *visible), replace={"none.none": "none.none"})


def copied(place: SubjectPlace, root: Path) -> SubjectPlace:
    """Return a place in a folder of its own: of the candidate's folder nothing is seen but its file."""
    return place._replace(file=Path(shutil.copy(place.file, root / CANDIDATE)))


class Pair(NamedTuple):
    """A reference and a candidate.

    Attributes:
        reference: The reference's file, with the name of what is verified.
        candidate: The candidate's.
        about: What the reference has.
        candidate_kind: ``function`` or ``module``.
        has_parameters: Whether parameters are inputs of both; if not, both construct them from one seed.
    """

    reference: SubjectPlace
    candidate: SubjectPlace
    about: Description
    candidate_kind: str
    has_parameters: bool


def stated_name(files: Sequence[Path]) -> str:
    """Return the one public name that all files bind, if each binds it by ``def``; empty if that is not so plain.

    Files are only read: to look at them takes a process and an import of torch each.
    """
    bound: list[dict[str, bool]] = []
    for file in files:
        try:
            statements = ast.parse(file.read_bytes()).body
        except (OSError, SyntaxError, ValueError):
            return ""
        names = {node.name: True for node in statements if isinstance(node, ast.FunctionDef)}
        others = [name for statement in statements for name in _names_bound(statement)]
        bound.append({**names, **dict.fromkeys(others, False)})
    common = [name for name in bound[0] if all(name in names for names in bound) and name not in HELPERS]
    public = [name for name in common if not name.startswith("_")]
    return public[0] if len(public) == 1 and all(names[public[0]] for names in bound) else ""


def _names_bound(statement: ast.stmt) -> list[str]:
    """Return what a statement binds otherwise than by ``def``; names that are imported are none of the file's."""
    if isinstance(statement, ast.FunctionDef | ast.Import | ast.ImportFrom):
        return []
    if isinstance(statement, ast.ClassDef):
        return [statement.name]
    return [node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]


def common_name(reference: Description, candidate: Description) -> str:
    """Return the one function that both files define, or the only one of each.

    Raises:
        UsageError: It is not clear which one is meant.
    """
    both = [name for name in reference.callables if name in candidate.callables]
    if len(both) == 1:
        return both[0]
    has, other = (", ".join(about.callables) or "nothing" for about in (reference, candidate))
    message = (
        f"it is not clear what to verify: REFERENCE defines {has}, CANDIDATE {other}. "
        "Name it, as FILE:NAME, or call it the same in both files, or Model and ModelNew."
    )
    raise UsageError(message)


#: The functions of ours that call what is verified.
_SHIMS: Final = ("verify_reference.call", "verify_candidate.call")
#: Names that the test has for something else.
_NAMES_OF_A_TEST: Final = (
    "autotest", "autotest_verify", "ci_autotest", "oneof", "random_tensor", "torch", "verify", "verify_candidate",
    "verify_reference",
)  # fmt: skip
_SHIM: Final = '''"""The {role} as a function of tensors."""

import importlib.util
import sys

import torch

sys.path.insert(0, {folder!r})
_spec = importlib.util.spec_from_file_location("verified_{role}", {file!r})
_module = importlib.util.module_from_spec(_spec)
sys.modules["verified_{role}"] = _module
_spec.loader.exec_module(_module)
{made}

def call({takes}):
    return {gives}
'''
_ELSEWHERE: Final = '''"""The reference's file, where a worker finds it."""

import sys
from pathlib import Path

sys.path.append({folder!r})
exec(compile(Path({file!r}).read_text("utf-8"), {file!r}, "exec"))
'''
_TEST: Final = '''"""The cases of a verification."""

from ci_autotest import autotest, oneof, random_tensor, torch
import {module}


@autotest(n={cases}, profiles={profiles}, auto_backward={backward})
def verify():
{sizes}
    return {target}({inputs})
'''


def write_project(root: Path, pair: Pair, *, cases: int, is_forward_only: bool, visible: list[Path]) -> None:
    """Write the tests, the configuration, and the two modules that give both sides one signature.

    Args:
        root: A folder, in which the candidate has a folder of its own.
        pair: What is verified.
        cases: Number of cases.
        is_forward_only: Whether values are compared and no gradients.
        visible: More folders that the candidate sees.
    """
    inside, targets = pair.candidate.file.parent, _targets(pair)
    if targets == _SHIMS:
        (root / "verify_reference.py").write_text(_shim("reference", pair), encoding="utf-8")
        (inside / "verify_candidate.py").write_text(_shim("candidate", pair), encoding="utf-8")
    else:
        own = pair.reference.file
        text = _ELSEWHERE.format(folder=str(own.parent), file=str(own))
        (root / own.name).write_text(text, encoding="utf-8")
    row = msgspec.structs.replace(
        candidate_row(root, [str(folder) for folder in visible]), replace=dict([targets]), forward_only=is_forward_only
    )
    rule = {"operator": "*", "factor": _FACTOR, "reason": "an honest kernel rounds in other places than the reference"}
    config = {"strictness": "measured", "tolerances": [rule], "candidates": [msgspec.to_builtins(row)]}
    (root / "autotest.yml").write_text(json.dumps(config), encoding="utf-8")
    text = _test_text(pair, targets[0], cases, is_forward_only=is_forward_only)
    (root / "autotest_verify.py").write_text(text, encoding="utf-8")


def _targets(pair: Pair) -> tuple[str, str]:
    """Return what the test calls and what takes its place: the user's own functions, whose names stand in programs.

    Modules, and functions of files whose names are taken, are called by functions of ours.
    """
    stems = [place.file.stem for place in (pair.reference, pair.candidate)]
    folders = [sysconfig.get_paths()[name] for name in ("purelib", "platlib")]
    taken = {
        *sys.stdlib_module_names,
        *_NAMES_OF_A_TEST,
        *(stem for stem in stems if PathFinder.find_spec(stem, folders) is not None),
    }
    is_plain = all(stem.isidentifier() and not keyword.iskeyword(stem) and stem not in taken for stem in stems)
    if {pair.about.kind, pair.candidate_kind} != {"function"} or not is_plain or stems[0] == stems[1]:
        return _SHIMS
    return f"{stems[0]}.{pair.reference.name}", f"{stems[1]}.{pair.candidate.name}"


def _shim(role: str, pair: Pair) -> str:
    about = pair.about
    kind = about.kind if role == "reference" else pair.candidate_kind
    file, name = pair.reference if role == "reference" else pair.candidate
    own = [f"p{i}" for i in range(len(about.parameters) if pair.has_parameters else 0)]
    takes = [f"x{i}" for i in range(len(about.inputs))]
    made, gives = "", f"_module.{name}({', '.join(takes)})"
    if kind == "module":
        arguments = ", ".join(map(repr, about.init))
        made = f"torch.manual_seed(0)\n_model = _module.{name}({arguments})\n"
        gives = f"_model({', '.join(takes)})"
        if pair.has_parameters:
            # A buffer that a call writes to is a copy, because the reference writes to its own too.
            copies = [
                f"{at}.clone()" if each.get("is_buffer") else at
                for at, each in zip(own, about.parameters.values(), strict=True)
            ]
            state = ", ".join(f"{path!r}: {text}" for path, text in zip(about.parameters, copies, strict=True))
            given = "".join(f"{at}, " for at in takes)
            gives = f"torch.func.functional_call(_model, {{{state}}}, ({given}))"
    return _SHIM.format(
        folder=str(file.parent), file=str(file), role=role, made=made, takes=", ".join([*own, *takes]), gives=gives
    )


def _test_text(pair: Pair, target: str, cases: int, *, is_forward_only: bool) -> str:
    about = pair.about
    tensors = [*(about.parameters.values() if pair.has_parameters else ()), *about.inputs]
    fixed = {*about.fixed, *(size for each in about.parameters.values() for size in each["shape"])}
    free = {size for each in about.inputs for size in each.get("shape", ()) if size not in fixed}
    elements = max((_elements(each) for each in about.inputs), default=1)
    sizes = [
        f"    n{size} = oneof({', '.join(map(str, _sizes(size, is_large=elements > _ELEMENTS)))})"
        for size in sorted(free)
    ]
    return _TEST.format(
        module=target.partition(".")[0],
        target=target,
        cases=cases,
        profiles=list(_PROFILES),
        backward=not is_forward_only,
        sizes="\n".join(sizes) or "    # Every size is one of the example's.",
        inputs=", ".join(_input(each, free, is_differentiated=not is_forward_only) for each in tensors),
    )


def _elements(description: dict[str, Any]) -> int:
    count = 1
    for size in description.get("shape", ()):
        count *= size
    return count


def _sizes(size: int, *, is_large: bool) -> list[int]:
    """Return the sizes that take a size's place: its own in half of the cases, and others around thresholds."""
    others = [1, size + 1, 2 * size, 7, 17] if size <= _SMALL else [1, size - 1, size + 1, 7, 33, 65, 130]
    own = min(size, 48) if is_large else size
    bounded = [min(other, 300) for other in others] if is_large or size > 300 else others  # noqa: PLR2004 - a row each
    return [*[own] * len(bounded), *bounded]


def _input(description: dict[str, Any], free: set[int], *, is_differentiated: bool) -> str:
    if "value" in description:
        return repr(description["value"])
    dims = ", ".join(f"n{size}" if size in free else str(size) for size in description["shape"])
    low, high = description["ends"]
    dtype = description["dtype"]
    if dtype == "bool":
        return f"random_tensor(dims=[{dims}], dtype=bool)"
    if dtype.startswith(("float", "bfloat")):
        # Constants, as weights of ones, become numbers around them.
        low, high = (low - 0.5, high + 0.5) if low == high else (low, high)
        has_gradient = is_differentiated and not description.get("is_buffer")
        ends = f"low={low!r}, high={high!r}{'' if has_gradient else ', requires_grad=False'}"
    else:
        ends = f"low={low!r}, high={high + 1!r}"
    return f"random_tensor(dims=[{dims}], dtype=torch.{dtype}, {ends})"
