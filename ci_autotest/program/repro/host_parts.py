"""The parts of a framework's repro that a finding needs: functions, and lines of ``main``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ci_autotest.program.ir import ARRAY, PLACEHOLDER, TensorSpec, output_refs
from ci_autotest.program.refusal import refused_outputs
from ci_autotest.program.repro import host_template as template
from ci_autotest.program.repro.framework_code import code_of
from ci_autotest.program.repro.rank_processes import rank_code, ranks_of
from ci_autotest.program.repro.torch_template import SAID, SAID_BY_WATCHER, SAID_IF_RUN
from ci_autotest.values.dtypes import FLOATING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ci_autotest.program.ir import Recording

#: Kinds that the forward pass shows, unless the finding itself is about the backward pass.
_FORWARD: Final = frozenset({"value", "shape", "dtype", "metadata", "nondeterminism"})
#: The exit status if the candidate raises, for kinds where that says something about the finding.
_STATUS_OF_RAISING: Final = {"leniency": 0, "error": 1, "crash": 1, "timeout": 1, "shape": 1, "rank": 1}


class HostNeeds(NamedTuple):
    """The parts of a framework's repro that its finding needs, besides the values of the outputs.

    Attributes:
        kind: Of the finding.
        graph: The body as one graph.
        backward: The backward pass.
        flags: What is compared of outputs besides their elements.
        after: What inputs and states are after the run.
        refused: How steps were refused.
        plain: Values that are no tensors.
        mixed: Values of other than one floating-point dtype on both sides.
        views: Inputs whose layout is not that of their shape.
        ranks: Number of ranks of the candidate; 0 if it is no group.
    """

    kind: str
    graph: bool
    backward: bool
    flags: bool
    after: bool
    refused: bool
    plain: bool
    mixed: bool
    views: bool
    ranks: int = 0

    @property
    def observed(self) -> list[str]:
        """The names of what ``observed`` returns."""
        return [
            "outputs",
            *(("gradients",) if self.backward else ()),
            *(("output_flags",) if self.flags else ()),
            *(("after", "after_flags") if self.after else ()),
        ]


def host_needs_of(recording: Recording, details: Mapping[str, Any], host: Mapping[str, Any]) -> HostNeeds:
    """Return the parts that a repro needs for its finding; ``host`` is the candidate's part of the note."""
    kind, program, module = details["kind"], recording.program, host["module"]
    is_graph = kind == "graph" or host.get("graph") is True
    # Without code for graphs the script says that it cannot show the finding.
    has_graph = is_graph and bool(code_of(module).graph)
    # A finding in the forward pass needs no gradients, which keeps the script short.
    is_forward = (kind in _FORWARD and not details["has_backward"]) or (
        is_graph and not code_of(module).has_graph_gradients
    )
    has_backward = any(program.cotangents) and not is_forward
    has_after = kind in {"mutation", "state"}
    is_plain = any(f"output_{i}" not in recording.expected for i in range(len(output_refs(program))))
    inputs = [step.args[0] for step in program.steps if step.op == PLACEHOLDER]
    specs = [*recording.expected.values(), *(inputs if has_after else ())]
    is_float = all(isinstance(spec, TensorSpec) and spec.dtype in FLOATING for spec in specs)
    is_array = any(step.target == ARRAY for _, step in program.calls)
    return HostNeeds(
        kind=kind,
        graph=has_graph,
        backward=has_backward,
        flags=kind == "metadata",
        after=has_after,
        # A translation ends without the mark if the last step is the refused one: its exception ends the candidate.
        refused=bool(refused_outputs(host["program"])),
        plain=is_plain or is_array or has_backward or has_after or kind == "nondeterminism" or has_graph,
        mixed=not is_float or is_plain or is_array or not details["check_dtype"] or (has_after and bool(program.setup)),
        ranks=ranks_of(host),
        views=any(isinstance(spec, TensorSpec) and not spec.is_contiguous for spec in [*inputs, *program.cotangents]),
    )


def framework_texts(needs: HostNeeds, module: str) -> list[str]:
    """Return the functions that make, read and differentiate tensors."""
    code = rank_code() if needs.ranks else code_of(module)
    texts = [
        (needs.views and code.tensor_of_view) or code.tensor,
        template.ELEMENTS % {
            "otherwise": ", any other value as it is compared" if needs.plain else "",
            "tensor_class": code.tensor_class,
            "other": "plain(value)" if needs.plain else template.NO_TENSOR,
            "elements": code.elements,
        },
        *([code.flags] if needs.flags or needs.after else ()),
        *([code.run] if needs.backward or (needs.graph and code.has_graph_gradients) else ()),
        *([code.graph] if needs.graph else ()),
    ]  # fmt: skip
    return [text.replace("%(module)s", module) for text in texts]


def observed_text(needs: HostNeeds, takes: list[str], given: list[str]) -> str:
    """Return the function that runs the candidate.

    Args:
        needs: What it returns.
        takes: Names of what the program takes, in order.
        given: Names of what ``inputs`` returns: those, then leaves that the program does not take.
    """
    words = {
        "outputs": "its outputs",
        "gradients": "gradients",
        "output_flags": "the flags of outputs",
        "after": "what inputs and states are afterwards",
        "after_flags": "their flags",
    }
    source = "given" if needs.after else "inputs()"
    called = f"**{source}" if takes == given else f"**{{name: {source}[name] for name in TAKES}}"
    weights = "{i: elements(weight) for i, weight in weights.items()}" if needs.backward else "{}"
    forward = template.AS_GRAPH if needs.graph else template.FORWARD % {"given": called}
    lines = [
        template.OBSERVED % {"described": ", ".join(words[name] for name in needs.observed)},
        *([template.BACKWARD] if needs.backward else [*([template.GIVEN] if needs.after else ()), forward]),
        *([template.OUTPUT_FLAGS] if needs.flags else ()),
        *([template.AFTER % {"weights": weights}] if needs.after else ()),
        template.OUTPUTS,
    ]  # fmt: skip
    return f"{''.join(lines)}    return {', '.join(needs.observed)}"


def host_comparison_texts(details: Mapping[str, Any], needs: HostNeeds) -> list[str]:
    """Return the functions that compare."""
    is_tolerant = details["strictness"] == "tolerance"
    strict = template.TOLERANT if is_tolerant else template.STRICT
    limits = {"rtol": "RTOL", "atol": "ATOL"} if is_tolerant else {"rtol": "0", "atol": "0"}
    differs = template.DIFFERS % {
        "plain": template.PLAIN if needs.plain else "",
        "dtype": " or dtype != wanted" if details["check_dtype"] else "",
        "unequal": (template.MIXED if needs.mixed else template.FLOATS) % {"strict": strict},
    }
    return [
        *([differs] if needs.kind != "nondeterminism" else ()),
        *([template.SHOWN_PLAIN if needs.plain else template.SHOWN] if needs.kind != "nondeterminism" else ()),
        *([template.PLAIN_VALUES % limits] if needs.plain else ()),
        *([template.FLAGS_DIFFER] if needs.flags or needs.after else ()),
        *([template.MEMBERS] if needs.after else ()),
        *([template.IS_OWN] if needs.kind in _STATUS_OF_RAISING else ()),
    ]


def host_main_text(needs: HostNeeds, module: str) -> str:
    """Return the function that runs the candidate and compares it with what the reference gave."""
    if needs.kind == "graph":
        return "" if needs.graph else template.NO_GRAPH
    if needs.kind == "nondeterminism":
        results = "[*outputs, *gradients.values()]" if needs.backward else "outputs"
        return template.REPEATED % {"observed": ", ".join(needs.observed), "results": results}
    names = ", ".join(needs.observed)
    status = _STATUS_OF_RAISING.get(needs.kind)
    observe = template.OBSERVE if status is None else template.OBSERVE_RAISING
    return template.MAIN % {
        "module": module,
        "observe": observe % {"observed": names, "status": status},
        "checks": "".join(_checks(needs)),
    }


def _checks(needs: HostNeeds) -> list[str]:
    is_accepted = needs.kind == "leniency" and not needs.refused
    weights = "COTANGENTS" if needs.backward else "{}"
    # The reference raised, so that there are no values to compare with.
    if is_accepted and not needs.backward:
        return [template.ACCEPTED]
    return [
        *([template.ACCEPTED_BACKWARD] if is_accepted else ()),
        template.VALUES % {"refused": template.REFUSED if needs.refused else ""},
        *([template.FLAGS] if needs.flags else ()),
        *([template.GRADIENTS] if needs.backward else ()),
        *([template.AFTERWARDS % {"weights": weights}] if needs.after else ()),
    ]


def host_entry(needs: HostNeeds) -> str:
    """Return the name of the function that the script begins with."""
    if needs.ranks and needs.kind in {"crash", "timeout"}:
        return "main"  # The process that starts the ranks watches them.
    entries = {"crash": "watched", "timeout": "watched", "nondeterminism": "repeated"}
    return "graphed" if needs.kind == "graph" and needs.graph else entries.get(needs.kind, "main")


def host_last_line(needs: HostNeeds) -> str:
    """Return the line that prints what the exit status means."""
    if host_entry(needs) == "watched":
        return SAID_BY_WATCHER
    return SAID_IF_RUN if needs.kind in {*_STATUS_OF_RAISING, "graph"} else SAID
