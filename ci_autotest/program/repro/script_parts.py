"""The parts of a repro that a finding needs: functions, and lines of ``main``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ci_autotest.program.expectations import expected_outputs
from ci_autotest.program.ir import ARRAY, PLACEHOLDER, output_refs
from ci_autotest.program.note import CompileNote, DTensorNote, TrainingNote
from ci_autotest.program.refusal import refused_outputs
from ci_autotest.program.repro import torch_template as template
from ci_autotest.program.repro.candidates import is_exported, is_trained
from ci_autotest.program.repro.ranks import starts_ranks
from ci_autotest.program.repro.replaced_classes import classes_of
from ci_autotest.values.dtypes import FLOATING

if TYPE_CHECKING:
    from ci_autotest.program.recording import Recording
    from ci_autotest.program.repro.script_facts import ScriptFacts

#: Kinds that the forward pass shows, unless the finding itself is about the backward pass.
_FORWARD: Final = frozenset({"value", "shape", "dtype", "aliasing", "metadata", "nondeterminism"})


class Needs(NamedTuple):
    """The parts of a repro that its finding needs, besides the values of the outputs.

    Attributes:
        backward: The backward pass.
        flags: What is compared of a tensor besides its elements.
        after: What inputs and states are after the run.
        memory: Which outputs share memory with an input.
        refused: How steps were refused.
        indices: A compiler's layers, and outputs that are the indices of extremes.
        plain: Outputs that are no tensors.
        arrays: Outputs that are arrays of numpy.
        modules: Modules that the setup makes.
        devices: A device other than the CPU on either side.
        classes: Classes of modules that the candidate replaces.
        mixed: Values of other than one floating-point dtype on both sides.
        layouts: Gradients to put in that are not contiguous.
        ranks: A candidate that is a group of ranks on which tensors lie.
        sharing: A candidate whose ranks share the batch of a module.
        processes: A process for each rank, which the script starts.
        expected: Positions of outputs that the test expects to have a value, which the reference need not give.
    """

    backward: bool
    flags: bool
    after: bool
    memory: bool
    refused: bool
    indices: bool
    plain: bool
    arrays: bool
    modules: bool
    devices: bool
    classes: bool
    mixed: bool
    layouts: bool
    ranks: bool = False
    sharing: bool = False
    processes: bool = False
    expected: tuple[int, ...] = ()

    @property
    def observed(self) -> list[str]:
        """The names of what ``run`` returns."""
        return [
            "outputs",
            *(("gradients", "raised") if self.backward else ()),
            *(("after",) if self.after else ()),
            *(("memory",) if self.memory else ()),
        ]


def needs_of(recording: Recording, facts: ScriptFacts) -> Needs:
    """Return the parts that a repro needs for its finding."""
    kind, program, note = facts.kind, recording.program, recording.note
    is_forward = kind in _FORWARD and not facts.has_backward
    # Without gradients, the flags of a compiled body are its own.
    is_compiled = isinstance(note.side, CompileNote) and is_trained(note)
    has_after = kind in {"mutation", "state", "stateful"} and not is_exported(note)
    is_plain = any(f"output_{i}" not in recording.expected for i in range(len(output_refs(program))))
    is_float = is_floating(recording, with_inputs=has_after)
    has_backward = any(program.cotangents) and not is_forward and not is_exported(note) and is_trained(note)
    return Needs(
        backward=has_backward,
        # The search for a compiler's layer compares flags too.
        flags=kind == "metadata" or has_after or is_compiled,
        after=has_after,
        memory=kind == "aliasing",
        refused=bool(refused_outputs(program)),
        indices=is_compiled,
        plain=is_plain,
        arrays=any(step.target == ARRAY for _, step in program.calls),
        modules=any(step.op != PLACEHOLDER for step in program.setup),
        devices=not {note.device, note.reference_device} <= {"cpu", "auto"},
        classes=bool(classes_of(recording)),
        # A module's state may have integers, for example the number of batches that a `BatchNorm` has seen.
        mixed=not is_float or is_plain or not facts.check_dtype or (has_after and bool(program.setup)),
        layouts=has_backward and not all(spec is None or spec.is_contiguous for spec in program.cotangents),
        ranks=isinstance(note.side, DTensorNote),
        sharing=isinstance(note.side, TrainingNote),
        processes=isinstance(note.side, TrainingNote) or starts_ranks(note),
        expected=expected_outputs(program),
    )


def is_floating(recording: Recording, *, with_inputs: bool) -> bool:
    """Whether the results that a recording carries are floating-point, with its inputs and states if asked."""
    inputs = [step.spec for step in recording.program.steps if step.spec is not None] if with_inputs else []
    return all(spec.dtype in FLOATING for spec in [*recording.expected.values(), *inputs])


def run_text(needs: Needs, takes: list[str], given: list[str]) -> str:
    """Return the function that runs one side.

    Args:
        needs: What it returns.
        takes: Names of what the program takes, in order.
        given: Names of what ``inputs`` returns: those, then leaves that the program does not take.
    """
    named = "*given.values()" if takes == given else ", ".join(f"given[{name!r}]" for name in takes)
    if needs.observed == ["outputs"] and not (needs.devices or needs.arrays or takes != given):
        return _on_ranks(_of_side(template.RUN_ALONE, needs), needs)
    has_tensors = needs.backward or needs.after or needs.memory
    words = {
        "outputs": "outputs",
        "gradients": "gradients",
        "raised": "what the backward pass raises",
        "after": "what inputs and states are afterwards",
        "memory": "which inputs share memory with each output",
    }
    lines = [
        template.RUN % {"described": "its " + ", ".join(words[name] for name in needs.observed)},
        *([template.ON_DEVICE] if needs.devices else ()),
        _of_side(template.GIVEN, needs),
        *([template.MOVED] if needs.devices and needs.modules else ()),
        f"    outputs = list(function({named}))\n",
        *([template.ARRAYS] if needs.arrays else ()),
        *([template.TENSORS] if has_tensors else ()),
        *([template.MODULES] if needs.modules and (needs.backward or needs.after) else ()),
        *(["    leaves = dict(tensors)\n"] if needs.backward else ()),
        *([template.PARAMETERS] if needs.backward and needs.modules else ()),
        *([template.BACKWARD % {"copy": _copy_text(needs)}] if needs.backward else ()),
        *(["    after = dict(tensors)\n"] if needs.after else ()),
        *([template.STATES] if needs.after and needs.modules else ()),
        *([template.PUT_IN] if needs.after and needs.backward else ()),
        *([template.MEMORY] if needs.memory else ()),
    ]  # fmt: skip
    return _on_ranks(f"{''.join(lines)}    return {', '.join(needs.observed)}", needs)


def _on_ranks(text: str, needs: Needs) -> str:
    """Return the function that runs a side, on all ranks if the candidate is a group."""
    return f"@on_ranks\n{text}" if needs.ranks or needs.sharing else text


def _copy_text(needs: Needs) -> str:
    """Return how a gradient is copied that is put in; what goes into the backward pass of a group lies on the ranks."""
    return "weight(w, o)" if needs.ranks else template.COPIES[needs.layouts]


def _of_side(text: str, needs: Needs) -> str:
    """Return a text in which the inputs are those of the side that runs."""
    if needs.ranks:
        return text.replace("inputs()", "given_to(function)")
    return text.replace("inputs()", "inputs(function is candidate)") if needs.classes else text


def comparison_texts(facts: ScriptFacts, needs: Needs) -> list[str]:
    """Return the functions that compare."""
    is_strict = facts.strictness != "tolerance"
    # A side may have no gradient, or none of a state's entries.
    may_lack = needs.plain or needs.backward or needs.after or facts.kind == "nondeterminism"
    dtype = " or found.dtype != expected.dtype" if facts.check_dtype else ""
    differ = "unlike(found, expected)" if needs.plain else "found != expected"
    floats = template.FLOATS % {"strict": template.STRICT_FLOATS if is_strict else template.TOLERANT}
    apart = template.APART % {
        "unlike": (template.PLAIN if may_lack else template.NO_TENSOR) % {"dtype": dtype, "differ": differ},
        "unequal": template.MIXED if needs.mixed else floats,
        "greatest": "greatest if isinstance(greatest, int) else f'{greatest:.3g}'" if needs.mixed else "greatest:.3g",
    }
    # A candidate may choose its strides, so that they count only where every bit does.
    strides = template.STRIDES if facts.strictness == "bitwise" else template.NO_STRIDES
    other = "found != expected" if facts.kind == "error" else "False"
    return [
        apart,
        *([template.ELEMENTS % {"strict": template.STRICT if is_strict else template.TOLERANT}] if needs.mixed else ()),
        template.SHOWN,
        *([template.DIFFERS] if facts.kind != "nondeterminism" else ()),
        *([template.UNLIKE] if needs.plain else ()),
        *([template.FLAGS % {"strides": strides}] if needs.flags else ()),
        *([template.SHARE] if needs.memory else ()),
        *([template.REFUSALS % {"other": other}] if needs.refused else ()),
    ]  # fmt: skip


def main_text(needs: Needs) -> str:
    """Return the function that runs both sides and compares them."""
    recomputed = f"i in OUTPUTS if i not in {needs.expected}" if needs.expected else "i in OUTPUTS"
    sources = [("outputs[i], OUTPUTS[i]", recomputed)]
    sources += [("gradients.get(i), GRADIENTS[i]", "i in GRADIENTS")] if needs.backward else []
    sources += [("after.get(i), AFTER[i]", "i in AFTER")] if needs.after else []
    skipped = (template.INDICES if needs.indices else "") + (template.REFUSED if needs.refused else "")
    checks = [
        template.VALUES % {"skipped": skipped},
        *([template.OUTPUT_FLAGS] if needs.flags else ()),
        *([template.GRADIENTS] if needs.backward else ()),
        *([template.AFTERWARDS] if needs.after else ()),
        *([template.SHARED] if needs.memory else ()),
        *([f"    ablation({layer_arguments(needs)})\n"] if needs.indices else ()),
    ]
    return template.MAIN % {
        "on_device": " on {DEVICE}" if needs.devices else "",
        "reference": ", ".join(needs.observed),
        "candidate": ", ".join(["found", *(f"found_{name}" for name in needs.observed[1:])]),
        "changed": " + ".join(f"[apart({pair}) for {each}]" for pair, each in sources),
        "checks": "".join(checks),
    }


def layer_arguments(needs: Needs) -> str:
    """Return the arguments of the function that looks for a compiler's layer at fault."""
    return "outputs, gradients" if needs.backward else "outputs"
