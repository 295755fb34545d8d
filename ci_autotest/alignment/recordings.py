"""Recordings: convert programs with live tensors to programs with bytes, and back."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import torch

from ci_autotest.alignment.fast_path import has_state
from ci_autotest.alignment.single_step import Live
from ci_autotest.backends.input_copies import contiguous_spec, laid_out, source_of
from ci_autotest.backends.repro_notes import repro_note
from ci_autotest.backends.sameness import byte_view, is_same
from ci_autotest.backends.snapshots import metadata
from ci_autotest.program.ir import OUTPUT, PLACEHOLDER, Mapping_, Step, TensorSpec, cotangent_key, output_refs
from ci_autotest.program.note import Note, ReplayRules, TrainingNote
from ci_autotest.program.recording import Recording

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ci_autotest.alignment.tolerance_rules import Rules
    from ci_autotest.alignment.verdict import Judged
    from ci_autotest.backends.protocol import Backend
    from ci_autotest.backends.trace import ReferenceBackend, Trace
    from ci_autotest.kinds import AnyCandidate
    from ci_autotest.program.ir import Argument


def to_recording(live: Live, note: Note | None = None) -> Recording:
    """Return a program with the bytes of its data."""
    tensors = {
        step.target: bytes(byte_view(live.sources[step.target]))
        for step in live.program.steps
        if step.op == PLACEHOLDER
    }
    count = max(live.cotangents, default=-1) + 1
    specs: list[TensorSpec | None] = [None] * count
    for position, source in live.cotangents.items():
        flat, specs[position] = source_of(source)
        tensors[cotangent_key(position)] = bytes(byte_view(flat))
    return Recording(replace(live.program, cotangents=tuple(specs)), tensors, note or Note())


def to_live(recording: Recording) -> Live:
    """Return a recording with its data as tensors."""
    program = recording.program
    specs = ((step.target, step.spec) for step in program.steps)
    sources = {key: from_bytes(recording.tensors[key], spec) for key, spec in specs if spec is not None}
    cotangents = {
        position: laid_out(from_bytes(recording.tensors[cotangent_key(position)], spec), spec)
        for position, spec in program.cotangent_specs.items()
    }
    return Live(program, sources, cotangents)


def shown_recording(
    judged: Judged, candidate: AnyCandidate, rules: Rules, sides: tuple[Backend, ReferenceBackend], device: str
) -> Recording:
    """Return the program of a verdict with what a repro needs: the candidate, the rules and the reference's results.

    Args:
        judged: The verdict with its program.
        candidate: The row of the candidate.
        rules: How its results are compared.
        sides: The candidate's backend and the reference.
        device: The reference's device.
    """
    backend, reference = sides
    live, expectation = judged.live, judged.expectation
    note = repro_note(candidate, live.program.steps, device)
    # A replay compares by these rules, without the test's file.
    check_dtype = rules.check_dtype and not rules.sets_aside(judged.verdict.operator, "dtype")
    plan = backend.plan_note(live.program, live.sources, live.cotangents)
    if plan is not None and isinstance(note.side, TrainingNote):
        side = msgspec.structs.replace(note.side, plan=msgspec.structs.replace(plan, slices=expectation is not None))
        note = msgspec.structs.replace(note, side=side)
    note = msgspec.structs.replace(
        note,
        rules=ReplayRules(rules.rtol, rules.atol, check_dtype),
        # A repro holds the elements against the numbers that the finding's message states.
        strictness="tolerance" if rules.is_tolerant else rules.strictness,
        # A replay must run the whole sequence, and only once.
        kind="stateful" if judged.verdict.kind == "stateful" else "",
        host=backend.repro_note(live.program, live.sources),
    )
    return with_expected(to_recording(live, note), live, reference if expectation is None else expectation.reference)


def with_expected(recording: Recording, live: Live, reference: ReferenceBackend) -> Recording:
    """Return a recording with the reference's results.

    These are the outputs with their flags, the gradients of inputs and parameters, and inputs and states that changed.
    """
    trace = reference.run(live.program, live.sources)
    # Where the reference raises there are no results to carry.
    if trace.failure is not None or live.program.body[-1].op != OUTPUT:
        return recording
    reference.backward(live.program, trace, live.cotangents)
    found = {f"output_{i}": trace.values[ref.index] for i, ref in enumerate(output_refs(live.program))}
    facts = {key: _facts(value) for key, value in found.items() if _has_facts(value)}
    for key, gradient in trace.gradients.items():
        index = key if isinstance(key, int) else key[0]
        if isinstance(key, tuple) or live.program.steps[index].op == PLACEHOLDER:
            label = str(key) if isinstance(key, int) else f"{key[0]}.{key[1]}"
            found[f"gradient_{label}"] = gradient
            facts.update({f"gradient_{label}": None} if gradient is None else {})
    for label, before, after in _ends(live, trace, reference):
        if _facts(before) != _facts(after):
            facts[f"after_{label}"] = _facts(after)
        if not is_same(before.detach(), after.detach()):
            found[f"after_{label}"] = after
    specs = {}
    tensors = dict(recording.tensors)
    for label, value in found.items():
        tensor = torch.from_numpy(value) if isinstance(value, np.ndarray) else value
        if isinstance(tensor, torch.Tensor):
            specs[label] = contiguous_spec(tensor)
            tensors[label] = bytes(byte_view(tensor))
    return Recording(recording.program, tensors, recording.note, specs, facts)


def _has_facts(value: object) -> bool:
    """Whether a value has facts besides its elements; a dtype or a module, for example, has none."""
    if isinstance(value, tuple | list):
        return all(isinstance(item, int) for item in value)
    return value is None or isinstance(value, bool | int | float | complex | str | torch.Tensor)


def _facts(value: Any) -> Argument:
    """Return the flags of a tensor, a shape as a tuple, and any other plain value itself."""
    if isinstance(value, tuple | list):
        return tuple(int(item) for item in value)
    if not isinstance(value, torch.Tensor):
        return value  # type: ignore[no-any-return]
    seen = metadata(value)
    names = ("requires_grad", "is_leaf", "layout", "strides")
    return Mapping_(tuple((name, getattr(seen, name)) for name in names))


def _ends(live: Live, trace: Trace, reference: ReferenceBackend) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    """Yield each input, parameter and buffer with its label, before and after the run."""
    program = live.program
    given = [i for i, step in enumerate(program.steps) if step.in_setup or step.op == PLACEHOLDER]
    # The same inputs and modules once more, before any step has changed them.
    body = (*(program.steps[i] for i in program.inputs), Step(OUTPUT, "output", ()))
    values = reference.run(program.with_body(body), live.sources).values
    seen: set[int] = set()
    for place, index in enumerate(given):
        before, after = values[place], trace.values[index]
        if has_state(before):
            if id(before) in seen:  # `module.train()` returns the module
                continue
            seen.add(id(before))
            state = after.state_dict()
            for name, old in before.state_dict().items():
                yield f"{index}.{name}", old, state.get(name, old)
        elif isinstance(before, torch.Tensor) and not program.steps[index].in_setup:
            yield str(index), before, after


def from_bytes(data: bytes, spec: TensorSpec) -> torch.Tensor:
    """Return the data of a placeholder: in its shape if contiguous, else the storage's elements."""
    dtype = getattr(torch, spec.dtype)
    flat = torch.frombuffer(bytearray(data), dtype=dtype).clone() if data else torch.empty(0, dtype=dtype)
    return flat.reshape(spec.shape) if spec.is_contiguous else flat
