"""The end of a snippet: both sides run, and an assertion fails if they differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ci_autotest.program.ir import output_refs
from ci_autotest.program.refusal import refused_outputs
from ci_autotest.program.repro.snippet_sides import DEVICE
from ci_autotest.values.dtypes import DIFFERENTIABLE

if TYPE_CHECKING:
    from ci_autotest.program.recording import Recording
    from ci_autotest.program.repro.permissions import Permissions
    from ci_autotest.program.repro.snippet_sides import SnippetSides

#: Runs in which a nondeterministic candidate must differ at least once.
_RUNS: Final = 50
#: Kinds in which the process crashes or hangs.
LOST: Final = frozenset({"crash", "timeout"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a finding is about. Names in it are only looked up in the program, never printed as code.

    Attributes:
        kind: Of the misalignment.
        aspect: ``value``, ``metadata``, ``memory``, ``end``, ``gradient``, ``cotangent``, ``state`` or ``call``.
        name: Of the step whose value or gradient differs.
        element: Position in a tuple, if the value is part of one.
        parameter: Name of a module's parameter whose gradient differs.
        position: Of the output whose incoming gradient is overwritten.
        has_backward: Whether only the backward pass shows the finding.
        is_absent: Whether there is no numeric difference, because one side lacks the tensor or it has another shape.
        of_reference: Whether the reference is the side that is nondeterministic.
        rtol: Allowed difference as a ratio to the reference.
        atol: Allowed difference in the unit of the elements.
        check_dtype: Whether dtypes are compared.
        is_strict: Whether every bit counts.
        timeout_s: Seconds after which a program that does not return is given up.
        mark: Comment on the assertion.
        permissions: What may be named; ``None``: anything, because the program is our own.
        folders: Folders to add to the import path.
        file: Path of the file with the tensors that are too large for the text; empty if there is none.
    """

    kind: str
    aspect: str = "value"
    name: str = ""
    element: int | None = None
    parameter: str = ""
    position: int = 0
    has_backward: bool = False
    is_absent: bool = False
    of_reference: bool = False
    rtol: float = 0.0
    atol: float = 0.0
    check_dtype: bool = True
    is_strict: bool = False
    timeout_s: int = 60
    mark: str = "misaligned"
    permissions: Permissions | None = None
    folders: tuple[str, ...] = ()
    file: str = ""


def check_lines(recording: Recording, facts: Facts, sides: SnippetSides, expected_text: str = "") -> list[str]:
    """Return the lines that run both sides and fail; ``expected_text`` takes the place of the reference's result."""
    if facts.kind in LOST:
        return _ended(facts, sides)
    if facts.kind == "nondeterminism":
        return _repeated(facts, sides)
    found = _under(sides, [f"found = run({sides.candidate})"])
    is_refusal = bool(refused_outputs(recording.program))
    if facts.kind == "leniency" and is_refusal:
        return [*found, f'assert found, "the candidate accepts what the reference rejects"  # {facts.mark}']
    if facts.kind == "leniency" and facts.has_backward:
        return _accepted(facts, sides)
    expected = f"expected = {expected_text or f'run({sides.reference})'}"
    if facts.kind == "error" and not is_refusal:
        return [expected, *_raised(facts, sides)]
    return [expected, *found, *compared_lines(recording, facts, sides)]


def compared_lines(recording: Recording, facts: Facts, sides: SnippetSides) -> list[str]:
    """Return the assertion that compares ``found`` with ``expected``."""
    mark = f"  # {facts.mark}"
    if facts.aspect in {"metadata", "memory"} or _is_text(recording, facts):
        return [f"assert found == expected, (found, expected){mark}"]
    rtol, atol = (0.0, 0.0) if facts.is_strict or _is_whole(recording, facts) else (facts.rtol, facts.atol)
    more = ("" if facts.check_dtype else ", check_dtype=False") + (
        ", check_device=False" if sides.takes == DEVICE else ""
    )
    lines = [f"torch.testing.assert_close(found, expected, rtol={rtol}, atol={atol}, equal_nan=True{more}){mark}"]
    if facts.is_strict and facts.aspect == "value":
        # `assert_close` takes -0.0 for 0.0, but their reciprocals are infinities of different signs.
        lines.append("torch.testing.assert_close(1 / found, 1 / expected, rtol=0, atol=0, equal_nan=True)  # -0.0 too")
    return lines


def _under(sides: SnippetSides, lines: list[str]) -> list[str]:
    """Return the candidate's lines in its context, with the blank line that Python's prompt needs after a block."""
    return [sides.around, *(f"    {line}" for line in lines), ""] if sides.around else lines


def _ended(facts: Facts, sides: SnippetSides) -> list[str]:
    """Return the lines that run the candidate in a process of its own, which may crash or hang."""
    call = f"run({sides.candidate})"
    around = [f"    {sides.around}", f"        {call}"] if sides.around else [f"    {call}"]
    status = (
        'f"its process ends with status {process.exitcode}" if process.exitcode is not None else "it does not return"'
    )
    return [
        # Forked, because a pasted program has no file that a spawned process could import.
        'context = multiprocessing.get_context("fork")',
        "returned = context.Event()",
        "",
        "",
        "def attempt():",
        *around,
        "    returned.set()",
        "",
        "",
        # A daemon, because Python waits at its end for any other child, and this one may hang.
        "process = context.Process(target=attempt, daemon=True)",
        "process.start()",
        f"process.join({facts.timeout_s})  # waits for at most {facts.timeout_s} s",
        f"assert returned.is_set(), {status}  # {facts.mark}",
    ]


def _repeated(facts: Facts, sides: SnippetSides) -> list[str]:
    """Return the lines that compare many runs with the first; free memory is filled with numbers before each."""
    run = f"run({sides.reference if facts.of_reference else sides.candidate})"
    lines = [
        f"first = {run}",
        f"for number in range({_RUNS}):",
        "    dirt = [torch.full_like(first, number) for _ in range(8)]",
        "    del dirt  # uninitialized memory has these numbers now",
        f"    torch.testing.assert_close({run}, first, rtol=0, atol=0, equal_nan=True)  # {facts.mark}",
    ]
    return lines if facts.of_reference else _under(sides, lines)


def _accepted(facts: Facts, sides: SnippetSides) -> list[str]:
    """Return the lines that fail if the candidate does not raise."""
    lines = _under(sides, [f"run({sides.candidate})"])
    return [
        "try:",
        *(f"    {line}" for line in lines if line),
        "except (Exception, SystemExit):",
        "    pass",
        "else:",
        f'    raise AssertionError("the candidate accepts what the reference rejects")  # {facts.mark}',
    ]


def _raised(facts: Facts, sides: SnippetSides) -> list[str]:
    """Return the lines that fail if the candidate raises."""
    lines = _under(sides, [f"run({sides.candidate})"])
    message = 'f"the candidate raises {error!r}, and the reference returns"'
    return [
        "try:",
        *(f"    {line}" for line in lines if line),
        "except (Exception, SystemExit) as error:",
        f"    raise AssertionError({message}) from error  # {facts.mark}",
    ]


def _is_text(recording: Recording, facts: Facts) -> bool:
    """Whether a compared output is a string, which has no tolerance."""
    if facts.aspect not in {"value", "call"}:
        return False
    plain = (recording.facts.get(f"output_{i}") for i in range(len(output_refs(recording.program))))
    return bool(refused_outputs(recording.program)) or any(isinstance(value, str) for value in plain)


def _is_whole(recording: Recording, facts: Facts) -> bool:
    """Whether only integers and bools are compared, which must be equal."""
    specs = [spec for key, spec in recording.expected.items() if key.startswith("output_")]
    return facts.aspect == "value" and bool(specs) and not any(spec.dtype in DIFFERENTIABLE for spec in specs)
