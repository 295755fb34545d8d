"""Evidence for a finding: program text, graph and tensors, made from its saved program and not from the report.

Somebody else may have written the report, so the program is decoded strictly, its targets are checked against the
allow list, and the text is printed from the decoded values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ci_autotest.errors import ProgramError
from ci_autotest.program.check import wanted_specs
from ci_autotest.program.codegen import names
from ci_autotest.program.ir import PLACEHOLDER, cotangent_key
from ci_autotest.program.literals import short_text
from ci_autotest.program.repro.permissions import Permissions
from ci_autotest.program.serialize import decode, decode_program
from ci_autotest.program.tensor_values import digest
from ci_autotest.report.finding_program import culprit_of, has_backward, reason_of_run, shown_program
from ci_autotest.report.program_graph import Node, graph_of, graph_text
from ci_autotest.values.dtypes import ITEM_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable

    from ci_autotest.program.ir import TensorSpec
    from ci_autotest.program.recording import Recording
    from ci_autotest.values.finding import Finding

    #: Finds the evidence for a finding; ``None`` if nothing was saved.
    Source = Callable[[Finding], "Evidence | None"]

#: Largest program that is shown, in bytes; a shrunk one has a few hundred.
MOST_PROGRAM_BYTES: Final = 1 << 20
#: Most steps of a program that is shown.
MOST_STEPS: Final = 200


#: What reading a damaged program may raise besides ``ProgramError``.
_DAMAGED: Final = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorFact:
    """A tensor that is too large for the program's text.

    Attributes:
        sha256: Hash of its bytes; from ``program.json`` if the bytes were not read, empty if that has none.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    size_bytes: int
    sha256: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What a page shows of a saved program.

    Attributes:
        program: Python text.
        graph: Mermaid graph; empty if it would not help.
        nodes: The graph's steps, for a page that draws them itself; empty for a program of too many.
        values: Small input tensors as text, by name.
        tensors: Tensors that the text names but does not contain.
        refusal: Why nothing is shown.
    """

    program: str = ""
    graph: str = ""
    nodes: tuple[Node, ...] = ()
    values: tuple[tuple[str, str], ...] = ()
    tensors: tuple[TensorFact, ...] = ()
    refusal: str = ""


def evidence_of(
    finding: Finding, program: bytes, tensors: bytes | None, permissions: Permissions | None = None
) -> Evidence:
    """Return the evidence in the files of a finding.

    Args:
        finding: Used to find the culprit; none of its text is shown.
        program: Content of ``program.json``.
        tensors: Content of ``tensors.safetensors``; ``None`` if it must not be loaded: then small tensors and the
            hashes of large ones come from ``program.json``.
        permissions: What the program may name, by the configuration of this machine; ``None``: nothing of the user's.
    """
    if len(program) > MOST_PROGRAM_BYTES:
        return Evidence(refusal=f"program.json has {len(program):,} bytes; at most {MOST_PROGRAM_BYTES:,} are shown.")
    is_named = (permissions or Permissions()).is_named
    try:
        recording = decode_program(program, is_named) if tensors is None else decode(program, tensors, is_named)
        if len(recording.program.steps) > MOST_STEPS:
            return Evidence(refusal=f"The program has {len(recording.program.steps):,} steps: it is in the artifact.")
        culprit = culprit_of(recording.program, finding)
        return Evidence(
            program=shown_program(recording, finding, permissions or Permissions(), reason_of_run(finding)).text,
            graph=graph_text(recording.program, culprit, is_gradient=has_backward(finding)),
            nodes=graph_of(recording.program, culprit),
            values=_values(recording),
            tensors=_facts(recording),
        )
    except ProgramError as error:
        return Evidence(refusal=f"The program is not shown: {error}")
    except _DAMAGED as error:  # One damaged program must not hide the other findings.
        return Evidence(refusal=f"The program is not shown: its file is damaged ({type(error).__name__}).")


def _is_inline(recording: Recording, key: str, spec: TensorSpec) -> bool:
    return key in recording.tensors and bool(short_text(recording.tensors[key], spec.dtype, (spec.storage_size,)))


def _digest(recording: Recording, key: str) -> str:
    data = recording.tensors.get(key)
    return recording.digests.get(key, "") if data is None else digest(data)


def _values(recording: Recording) -> tuple[tuple[str, str], ...]:
    """Return the small inputs, and what the reference gives for them, as text that reads back exactly."""
    program = recording.program
    named = zip(program.steps, names(program), strict=True)
    printed = {step.target: name for step, name in named if step.op == PLACEHOLDER}
    printed |= {cotangent_key(i): f"gradient put into output {i}" for i in range(len(program.cotangents))}
    return tuple(
        (printed.get(key, f"the reference's {key}"), short_text(recording.tensors[key], spec.dtype, spec.shape))
        for key, spec in wanted_specs(recording).items()
        if _is_inline(recording, key, spec) and spec.is_contiguous
    )


def _facts(recording: Recording) -> tuple[TensorFact, ...]:
    """Return the input tensors that are not literals; the reference's results are not part of the text."""
    wanted = wanted_specs(recording)
    return tuple(
        TensorFact(
            name=key,
            dtype=spec.dtype,
            shape=spec.shape,
            size_bytes=spec.storage_size * ITEM_SIZE[spec.dtype],
            sha256=_digest(recording, key),
        )
        for key, spec in wanted.items()
        if key not in recording.expected and not _is_inline(recording, key, spec)
    )
