"""Which parts of a repro a finding needs: its functions, and the lines of ``main``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ci_autotest.program.ir import ARRAY, output_refs
from ci_autotest.program.refusal import refused_outputs
from ci_autotest.program.repro import torch_template as template
from ci_autotest.program.repro.candidates import is_exported

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ci_autotest.program.ir import Recording


class Needs(NamedTuple):
    """Say which parts of a repro its finding needs, besides the values."""

    backward: bool
    flags: bool
    after: bool
    memory: bool
    refused: bool
    indices: bool
    plain: bool
    arrays: bool


def needs_of(recording: Recording, told: Mapping[str, Any]) -> Needs:
    """Return what a repro carries: of a kind that is seen at once, no more than that."""
    kind, program = told["kind"], recording.program
    is_forward = kind in {"value", "shape", "dtype", "aliasing", "metadata"} and not told["has_backward"]
    is_compiled = recording.note.get("backend") == "torch.compile"
    has_after = kind in {"mutation", "state", "stateful"}
    return Needs(
        backward=any(program.cotangents) and not is_forward and not is_exported(recording.note),
        flags=kind == "metadata" or has_after or is_compiled,
        after=has_after and not is_exported(recording.note),
        memory=kind == "aliasing",
        refused=bool(refused_outputs(program)),
        indices=is_compiled,
        plain=any(f"output_{i}" not in recording.expected for i in range(len(output_refs(program)))),
        arrays=any(step.target == ARRAY for _, step in program.calls),
    )


def parts_of(told: Mapping[str, Any], needs: Needs) -> dict[str, str]:
    """Return the functions and the lines of ``main`` that the finding needs."""
    run = [
        template.RUN,
        *([template.ARRAYS] if needs.arrays else ()),
        template.SEEN,
        *([template.BACKWARD] if needs.backward else ()),
        *([template.STATES] if needs.after else ()),
        *([template.PUT_IN] if needs.after and needs.backward else ()),
        *([template.MEMORY] if needs.memory else ()),
        template.RETURN,
    ]
    compare = template.COMPARE % {
        "unlike": "unlike(found, expected)" if needs.plain else "found != expected",
        "dtype": " or found.dtype != expected.dtype" if told["check_dtype"] else "",
        "strict": template.TOLERANT if told["strictness"] == "tolerance" else template.STRICT,
    }
    other = "found != expected" if told["kind"] == "error" else "False"
    functions = [
        compare,
        *([template.UNLIKE] if needs.plain else ()),
        *([template.FLAGS] if needs.flags else ()),
        *([template.SHARE] if needs.memory else ()),
        *([template.REFUSALS % {"other": other}] if needs.refused else ()),
    ]
    sources = [("outputs[i], OUTPUTS[i]", "i in OUTPUTS")]
    sources += [("gradients.get(i), GRADIENTS[i]", "i in GRADIENTS")] if needs.backward else []
    sources += [("after.get(i), AFTER[i]", "i in AFTER")] if needs.after else []
    apart = " + ".join(f"[apart({pair}) for {each}]" for pair, each in sources)
    skipped = (template.INDICES if needs.indices else "") + (template.REFUSED if needs.refused else "")
    checks = [
        template.VALUES % {"skipped": skipped},
        *([template.OUTPUT_FLAGS] if needs.flags else ()),
        *([template.GRADIENTS] if needs.backward else ()),
        *([template.AFTERWARDS] if needs.after else ()),
        *([template.SHARED] if needs.memory else ()),
        *(["    ablation(outputs, gradients)\n"] if needs.indices else ()),
    ]
    return {
        "run": "\n".join(run),
        "compare": "\n\n\n".join(functions),
        "agrees": template.AGREES % {"apart": apart},
        "checks": "".join(checks),
    }
