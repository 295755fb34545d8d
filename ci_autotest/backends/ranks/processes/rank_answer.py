"""What a rank in a process of its own runs on DTensors, and how it answers: a JSON head and raw elements."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

import msgspec
import torch

from ci_autotest.backends.ranks.processes.rank_process import OneRank, RankProcess
from ci_autotest.backends.ranks.rank_run import RankRun
from ci_autotest.backends.ranks.ranks import RankError
from ci_autotest.backends.ranks.refusals import refusal_of_ranks
from ci_autotest.backends.ranks.wholes import Gathered, gathered, plain_value
from ci_autotest.backends.sameness import byte_view
from ci_autotest.backends.torch_constants import DTYPE_NAMES
from ci_autotest.backends.torch_steps import TorchSteps
from ci_autotest.backends.user_errors import FOREIGN, pass_interrupt
from ci_autotest.errors import Unsupported, error_text
from ci_autotest.program.distribution import Distribution
from ci_autotest.program.ir import PLACEHOLDER, TensorSpec, cotangent_key
from ci_autotest.program.json_values import plain_result
from ci_autotest.program.serialize import decode
from ci_autotest.program.targets import is_own

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ci_autotest.backends.trace import GradientKey, Trace
    from ci_autotest.program.ir import Program
    from ci_autotest.program.recording import Recording

_DIGEST_BYTES: Final = 16


class RankQuestion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A program to run; it and its tensors are the two buffers.

    Attributes:
        mesh: Sizes of the mesh.
        snapshots: Whether each value is also gathered at its step.
        has_backward: Whether to run the backward pass too.
    """

    mesh: tuple[int, ...]
    snapshots: bool
    has_backward: bool


class Whole(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True, tag="whole"):
    """A gathered tensor: the first rank also sends its elements.

    Attributes:
        dtype: Name without the framework.
        shape: Sizes in elements.
        requires_grad: Whether it requires grad.
        is_leaf: Whether it is a leaf.
        digest: Of its elements, which all ranks must agree on.
        buffer: Number of the buffer with its elements; -1 for none.
        mesh: Sizes of the mesh on which it lay; empty if that cannot be named.
        placements: How it lay there.
    """

    dtype: str
    shape: tuple[int, ...]
    requires_grad: bool
    is_leaf: bool
    digest: bytes
    buffer: int
    mesh: tuple[int, ...]
    placements: tuple[str, ...]


class Plain(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True, tag="plain"):
    """A value that is no tensor, as JSON values."""

    value: Any


class Module(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True, tag="module"):
    """The state of a module."""

    state: dict[str, Whole]


class Raise(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An error of a rank.

    Attributes:
        step: Index of its step.
        kind: Name of its class.
        message: Its text.
        lacking: Set if DTensor says that it cannot do this.
        seen: If this rank's part has another shape than its placement says: what it holds.
        expected: What it should hold.
    """

    step: int
    kind: str
    message: str
    lacking: Unsupported | None = None
    seen: str = ""
    expected: str = ""


class RankAnswer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one rank has.

    Attributes:
        values: Each value by the index of its step, as it is at the end.
        observations: Each value as it was at its step.
        gradients: Each gradient by its key; ``None`` for none.
        failure: The error of the forward pass.
        backward_failure: The error of the backward pass.
    """

    values: dict[int, Whole | Plain | Module] = {}
    observations: dict[int, Whole | Plain | Module] = {}
    gradients: list[tuple[int | tuple[int, str], Whole | None]] = []
    failure: Raise | None = None
    backward_failure: Raise | None = None


_QUESTIONS: Final = msgspec.json.Decoder(RankQuestion)


class DTensorRank:
    """Answers messages with programs on DTensors.

    Args:
        process: The rank's process.
    """

    def __init__(self, process: RankProcess) -> None:
        self._process, self._is_first = process, process.rank == 0
        self._steps = TorchSteps(str(process.device))
        self._ranks: dict[tuple[int, ...], OneRank] = {}

    def answer(self, head: bytes, buffers: Sequence[memoryview]) -> tuple[bytes, list[bytes | memoryview]]:
        """Run a program and return what this rank has of it."""
        question = _QUESTIONS.decode(head)
        recording = decode(bytes(buffers[0]), bytes(buffers[1]), is_own)
        if question.mesh not in self._ranks:
            self._ranks[question.mesh] = OneRank(self._process, question.mesh)
        job = _ProgramJob(self._ranks[question.mesh], self._steps, self._process, is_first=self._is_first)
        return msgspec.json.encode(job.run(recording, question)), job.buffers


class _ProgramJob:
    """One program on one rank."""

    def __init__(self, ranks: OneRank, steps: TorchSteps, process: RankProcess, *, is_first: bool) -> None:
        self._ranks, self._steps, self._process, self._is_first = ranks, steps, process, is_first
        self.buffers: list[bytes | memoryview] = []
        self._seen: dict[int, Whole | Plain | Module] = {}

    def run(self, recording: Recording, question: RankQuestion) -> RankAnswer:
        program = recording.program
        specs = {step.target: spec for step in program.steps if (spec := step.spec) is not None}
        sources = {key: source_tensor(recording, key, spec) for key, spec in specs.items()}

        def see(index: int, value: Any) -> None:
            self._seen[index] = self._described(value)

        run = RankRun(self._ranks, self._steps, self._process.enter, see if question.snapshots else None)
        live = run.forward(program, sources, keeps_edges=question.snapshots)
        if live.failure is not None:
            step, kind, message, lacking = live.failure
            fault = next((one for one in run.faults if not one.is_call), None)
            raised = Raise(step, kind, message, lacking, *((fault.seen, fault.expected) if fault else ()))
            return RankAnswer(observations=self._seen, failure=raised)
        values, raised_late = self._values(live)
        if raised_late is not None:
            return RankAnswer(observations=self._seen, failure=raised_late)
        found = RankAnswer(values=values, observations=self._seen)
        if not question.has_backward:
            return found
        cotangents = {
            position: source_tensor(recording, cotangent_key(position), spec)
            for position, spec in program.cotangent_specs.items()
        }
        run.backward(program, live, cotangents)
        if live.backward_failure is not None:
            raised = Raise(len(program.steps) - 1, *live.backward_failure, live.backward_lacking)
            return msgspec.structs.replace(found, backward_failure=raised)
        return self._with_gradients(found, program, live, is_whole=question.snapshots)

    def _values(self, live: Trace) -> tuple[dict[int, Whole | Plain | Module], Raise | None]:
        found: dict[int, Whole | Plain | Module] = {}
        with self._ranks.active():
            for index, value in enumerate(live.values):
                self._process.enter(index)
                try:
                    found[index] = self._described(value)
                except FOREIGN as error:
                    pass_interrupt(error)
                    return found, _raised(error, index)
        return found, None

    def _with_gradients(self, found: RankAnswer, program: Program, live: Trace, *, is_whole: bool) -> RankAnswer:
        gradients: list[tuple[GradientKey, Whole | None]] = []
        with self._ranks.active():
            for key, gradient in live.gradients.items():
                is_leaf = not isinstance(key, int) or program.steps[key].op == PLACEHOLDER
                if not is_leaf and not is_whole:
                    continue  # Only an examination compares the gradients of intermediates.
                try:
                    gradients.append((key, None if gradient is None else self._whole(gathered(gradient, self._ranks))))
                except FOREIGN as error:
                    pass_interrupt(error)
                    raised = _raised(error, key if isinstance(key, int) else key[0])
                    return msgspec.structs.replace(found, backward_failure=raised)
        return msgspec.structs.replace(found, gradients=gradients)

    def _described(self, value: Any) -> Whole | Plain | Module:
        """Return a value with its tensors gathered; called by all ranks at once."""
        if isinstance(value, torch.Tensor):
            return self._whole(gathered(value, self._ranks))
        if isinstance(value, torch.nn.Module):
            return Module({name: self._whole(gathered(each, self._ranks)) for name, each in value.state_dict().items()})
        try:
            return Plain(plain_result(plain_value(value)))
        except TypeError:
            return Plain(f"a {type(value).__name__}")

    def _whole(self, value: Gathered) -> Whole:
        data = byte_view(value.whole)
        if self._is_first:
            self.buffers.append(bytes(data))
        on = value.distribution
        return Whole(
            DTYPE_NAMES[value.whole.dtype], tuple(value.whole.shape), value.requires_grad, value.is_leaf,
            hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest(), len(self.buffers) - 1 if self._is_first else -1,
            on.mesh if on else (), on.placements if on else (),
        )  # fmt: skip


def _raised(error: BaseException, index: int) -> Raise:
    sides = (error.seen, error.expected) if isinstance(error, RankError) else ()
    return Raise(index, type(error).__name__, error_text(error), refusal_of_ranks(error), *sides)


def source_tensor(recording: Recording, key: str, spec: TensorSpec) -> torch.Tensor:
    """Return the data of a key: in its shape if contiguous, else the elements of its storage."""
    dtype, data = getattr(torch, spec.dtype), recording.tensors[key]
    flat = torch.frombuffer(bytearray(data), dtype=dtype).clone() if data else torch.empty(0, dtype=dtype)
    return flat.reshape(spec.shape) if spec.is_contiguous else flat


def distribution_in(whole: Whole) -> Distribution | None:
    """Return how a tensor lay on the ranks; ``None`` if that cannot be named."""
    return Distribution(whole.mesh, whole.placements) if whole.mesh else None
