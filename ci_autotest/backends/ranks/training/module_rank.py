"""What a rank in a process of its own runs of a module that ranks share, and how it answers."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

import msgspec
import torch
from torch.distributed.tensor import DTensor
from torch.nn.modules import batchnorm
from torch.nn.parallel import distributed

from ci_autotest.backends.devices import lacking
from ci_autotest.backends.input_copies import CPU, place
from ci_autotest.backends.protocol import IN_BACKWARD
from ci_autotest.backends.ranks.processes.rank_answer import Raise, source_tensor
from ci_autotest.backends.ranks.processes.rank_process import RankWatch
from ci_autotest.backends.ranks.training.batch_plan import weighted_backward
from ci_autotest.backends.sameness import byte_view
from ci_autotest.backends.torch_constants import DTYPE_NAMES
from ci_autotest.backends.torch_steps import TorchSteps
from ci_autotest.backends.user_errors import FOREIGN, pass_interrupt
from ci_autotest.errors import ProgramError, Unsupported, UnsupportedReason, error_text, user_frame_text
from ci_autotest.host.steps import execute_step
from ci_autotest.program.ir import PARAMETER, cotangent_key, output_refs
from ci_autotest.program.json_values import plain_result
from ci_autotest.program.serialize import decode
from ci_autotest.program.targets import is_own
from ci_autotest.program.training_parts import BACKWARD, parts_of_body

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ci_autotest.backends.ranks.processes.rank_process import RankProcess
    from ci_autotest.backends.trace import GradientKey
    from ci_autotest.program.ir import Program
    from ci_autotest.program.recording import Recording
    from ci_autotest.program.training_parts import TrainingPart


FSDP: Final = "fsdp"
_Tensor: Final = torch.Tensor
_NO_SYNC: Final = "the wrapper converts to SyncBatchNorm, which needs a GPU, and the ranks are on the CPU"


class BodyQuestion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A body to run; the rank's own program and its tensors are the two buffers.

    Attributes:
        backend: ``ddp`` or ``fsdp``.
        wrap: The user's function; empty for PyTorch's own wrapper.
        has_unused: Whether a parameter has no gradient.
        weights: For each backward pass of the body: the weight of each rank's loss, by the index of the pass.
        shown: Steps whose values are sent.
        states: Modules whose state is sent.
        keys: Leaves and parameters whose gradients are sent.
        has_backward: Whether to run the automatic backward pass too.
    """

    backend: str
    wrap: str
    has_unused: bool
    weights: dict[int, list[float]]
    shown: list[int]
    states: list[int]
    keys: list[int | tuple[int, str]]
    has_backward: bool


class TensorPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True, tag="tensor"):
    """A tensor of one rank.

    Attributes:
        dtype: Name without the framework.
        shape: Sizes in elements.
        requires_grad: Whether it requires grad.
        is_leaf: Whether it is a leaf.
        buffer: Number of the buffer with its elements.
    """

    dtype: str
    shape: tuple[int, ...]
    requires_grad: bool
    is_leaf: bool
    buffer: int


class PlainPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True, tag="plain"):
    """A value that is no tensor, as JSON values."""

    value: Any


class BodyAnswer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one rank has.

    Attributes:
        values: Each shown value by the index of its step, as it is at the end.
        states: The state of each module by the index of its step.
        gradients: Each gradient by its key; ``None`` for none.
        failure: The error of the forward pass.
        backward_failure: The error of the backward pass.
    """

    values: dict[int, TensorPart | PlainPart] = {}
    states: dict[int, dict[str, TensorPart]] = {}
    gradients: list[tuple[int | tuple[int, str], TensorPart | None]] = []
    failure: Raise | None = None
    backward_failure: Raise | None = None


_QUESTIONS: Final = msgspec.json.Decoder(BodyQuestion)


def wrapper_of(path: str) -> Any:
    """Return what a row names as the user's wrapper; ``module:function``."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


def _is_of_synchronisation(error: BaseException, modules: Iterable[torch.nn.Module]) -> bool:
    """Whether torch raised an error because a SyncBatchNorm is on the CPU.

    Its class refuses that in training, and DistributedDataParallel always.
    """
    found = [each for each in modules if isinstance(each, torch.nn.SyncBatchNorm)]
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    raised_in = "" if at is None else at.tb_frame.f_code.co_filename
    return (raised_in == distributed.__file__ and bool(found)) or (
        raised_in == batchnorm.__file__ and any(each.training for each in found)
    )


class ModuleRank:
    """Answers messages with bodies that ranks share.

    Args:
        process: The rank's process.
    """

    def __init__(self, process: RankProcess) -> None:
        self._process = process
        self._steps = TorchSteps(str(process.device), is_candidate=True)

    def answer(self, head: bytes, buffers: Sequence[memoryview]) -> tuple[bytes, list[bytes | memoryview]]:
        """Run a body and return what this rank has of it."""
        question = _QUESTIONS.decode(head)
        own = 2 * self._process.rank
        recording = decode(bytes(buffers[own]), bytes(buffers[own + 1]), is_own)
        job = _BodyJob(recording, question, self._steps, self._process)
        return msgspec.json.encode(job.run()), job.buffers


class _BodyJob:
    """One body on one rank."""

    def __init__(self, recording: Recording, question: BodyQuestion, steps: TorchSteps, process: RankProcess) -> None:
        self._recording, self._question, self._process = recording, question, process
        self._program: Program = recording.program
        self._binding = steps.binding(
            {step.target: source_tensor(recording, step.target, spec)
             for step in self._program.steps if (spec := step.spec) is not None}
        )  # fmt: skip
        self._values: list[Any] = [None] * len(self._program.steps)
        self._at = self._program.start
        self._body: BodyModule | None = None
        self.buffers: list[bytes | memoryview] = []

    def run(self) -> BodyAnswer:
        try:
            with RankWatch(self._process, returns_early=True):
                body, wrapped = self._wrapped()
                for part in parts_of_body(self._program):
                    self._run_part(body, wrapped, part)
        except FOREIGN as error:
            pass_interrupt(error)
            return BodyAnswer(failure=self._raised(error))
        try:
            with RankWatch(self._process, returns_early=True):
                self._enter(IN_BACKWARD)
                if self._question.has_backward:
                    self._backward()
                    self._process.enter_collective("")
                if next(body.buffers(), None) is not None:
                    body.look(wrapped)
                return self._answer(body)
        except FOREIGN as error:
            pass_interrupt(error)
            return BodyAnswer(backward_failure=self._raised(error))

    def _raised(self, error: BaseException) -> Raise:
        message = error_text(error) + user_frame_text(error)
        # A rank imports no test files, so that it lacks operators that are defined there.
        is_unknown = isinstance(error, ProgramError)
        why = Unsupported(UnsupportedReason.NO_COUNTERPART, message) if is_unknown else lacking(error)
        is_on_cpu = self._process.device is CPU
        if is_on_cpu and isinstance(error, ValueError) and _is_of_synchronisation(error, self._modules()):
            why = Unsupported(UnsupportedReason.NO_KERNEL, _NO_SYNC)
        return Raise(self._at, type(error).__name__, message, why)

    def _modules(self) -> Iterable[torch.nn.Module]:
        return () if self._body is None else self._body.modules()

    def _enter(self, index: int) -> None:
        self._at = index if index >= 0 else len(self._program.steps) - 1
        # A step begins where no collective is waited for any more.
        self._process.enter_collective("")
        self._process.enter(index)

    def _wrapped(self) -> tuple[BodyModule, Callable[..., Any]]:
        """Return the body as a module, and as it is wrapped."""
        program, values = self._program, self._values
        for index, step in enumerate(program.steps):
            spec = step.spec
            if spec is not None:
                values[index] = place(self._binding.sources[step.target], spec, self._process.device)
                if spec.requires_grad and not spec.state and not step.in_setup:
                    # The loss of a rank counts once for each rank, because the wrapper takes the mean over ranks.
                    values[index].register_hook(lambda gradient: gradient / self._process.count)
            elif step.in_setup:
                values[index] = execute_step(step, values, self._binding)
        self._enter(next((index for index, _ in program.calls), program.start))
        body = self._body = BodyModule(program, values, self._binding, self._enter)
        wrapped = self._with_wrapper(body)
        body.hold()
        return body, wrapped

    def _with_wrapper(self, body: BodyModule) -> Any:
        question, count = self._question, self._process.count
        if question.wrap:
            wrapped = wrapper_of(question.wrap)(body, count)
            if not callable(wrapped):
                message = f"{question.wrap} returned {wrapped!r}. Return the wrapped module."
                raise TypeError(message)
            return wrapped
        if question.backend == FSDP:
            from torch.distributed.fsdp import fully_shard  # noqa: PLC0415 - only this backend waits for it

            return fully_shard(body, mesh=self._process.mesh((count,)))
        return torch.nn.parallel.DistributedDataParallel(body, find_unused_parameters=question.has_unused)

    def _run_part(self, body: BodyModule, wrapped: Callable[..., Any], part: TrainingPart) -> None:
        if part.is_forward:
            body.run(wrapped, part)
            return
        for index in part.indices:
            step = self._program.steps[index]
            self._enter(index)
            if step.target == BACKWARD:
                weight = self._question.weights[index][self._process.rank]
                weighted_backward(step, self._values, weight, self._binding)
            else:
                self._values[index] = execute_step(step, self._values, self._binding)

    def _backward(self) -> None:
        refs = output_refs(self._program)
        pairs = [
            (self._values[refs[position].index], source_tensor(self._recording, cotangent_key(position), spec))
            for position, spec in enumerate(self._program.cotangents)
            if spec is not None
        ]
        pairs = [
            (value, weight.to(self._process.device))
            for value, weight in pairs
            if isinstance(value, _Tensor) and value.requires_grad
        ]
        if pairs:
            torch.autograd.backward([value for value, _ in pairs], [weight for _, weight in pairs])

    def _answer(self, body: BodyModule) -> BodyAnswer:
        body.release()
        seen, held = body.buffers_seen, body.parameters_held
        values = {index: self._described(seen.get((index, ""), self._values[index])) for index in self._question.shown}
        states = {
            index: {
                name: self._tensor(seen.get((index, name), held.get((index, name), tensor)))
                for name, tensor in body.state_of(index).items()
            }
            for index in self._question.states
        }
        gradients: list[tuple[GradientKey, TensorPart | None]] = []
        for key in self._question.keys if self._question.has_backward else ():
            owner = held.get(key, None) if isinstance(key, tuple) else self._values[key]
            gradient = None if owner is None else owner.grad
            gradients.append((key, None if gradient is None else self._tensor(gradient)))
        return BodyAnswer(values=values, states=states, gradients=gradients)

    def _described(self, value: Any) -> TensorPart | PlainPart:
        if isinstance(value, _Tensor):
            return self._tensor(value)
        try:
            return PlainPart(plain_result(value))
        except TypeError:
            return PlainPart(f"a {type(value).__name__}")

    def _tensor(self, value: torch.Tensor) -> TensorPart:
        flags = value.requires_grad, value.is_leaf
        whole = value.full_tensor() if isinstance(value, DTensor) else value
        self.buffers.append(bytes(byte_view(whole)))
        dtype = DTYPE_NAMES[whole.dtype]
        return TensorPart(dtype, tuple(whole.shape), *flags, len(self.buffers) - 1)


# The body of a test as one module, which a wrapper such as DistributedDataParallel takes.
#
# Its submodules are the modules of torch that the body constructs. Parameters and buffers of a module class that is
# written in Python are its own. A forward pass runs a part of the body; backward passes, and what follows from
# gradients, for example the steps of an optimizer, run outside.


_Module: Final = torch.nn.Module


class BodyModule(torch.nn.Module):
    """The body of a test.

    Args:
        program: The program.
        values: The value of each step: those of the setup and of the inputs are there.
        binding: What steps mean in torch.
        enter: Called with each step that begins.
    """

    _run: tuple[Program, list[Any], Any, Callable[[int], None]]

    def __init__(self, program: Program, values: list[Any], binding: Any, enter: Callable[[int], None]) -> None:
        super().__init__()
        object.__setattr__(self, "_run", (program, values, binding, enter))
        self._part: TrainingPart | None = None
        self._given: tuple[Any, ...] = ()
        self.buffers_seen: dict[tuple[int, str], torch.Tensor] = {}
        self.parameters_held: dict[tuple[int, str], torch.Tensor] = {}
        self._own: dict[int, str] = {}
        self._modules_at: list[int] = []
        for index, step in enumerate(program.steps):
            spec, value = step.spec, values[index]
            if spec is not None and spec.state and not step.in_setup:
                self._take_state(index, value, is_parameter=spec.state == PARAMETER)
            elif isinstance(value, _Module):
                self._modules_at.append(index)
        inner = {id(part) for index in self._modules_at for part in list(values[index].modules())[1:]}
        for index in self._modules_at:
            # A module that another one holds is a part of that one.
            if id(values[index]) not in inner and not any(values[index] is each for each in self.children()):
                self.add_module(f"{program.steps[index].target.rpartition('.')[2].lower()}_{index}", values[index])
        paths = {id(module): path for path, module in self.named_modules(remove_duplicate=False)}
        self._parts = {
            index: {path: (part, paths[id(part)]) for path, part in values[index].named_modules()}
            for index in self._modules_at
        }

    def _take_state(self, index: int, value: torch.Tensor, *, is_parameter: bool) -> None:
        name = self._own[index] = f"{'parameter' if is_parameter else 'buffer'}_{index}"
        if is_parameter:
            self.register_parameter(name, torch.nn.Parameter(value.detach(), requires_grad=value.requires_grad))
        else:
            self.register_buffer(name, value)

    def run(self, wrapped: Callable[..., Any], part: TrainingPart) -> None:
        """Run a forward pass through the wrapper."""
        values = self._run[1]
        self._part = part
        given = [values[index] for index in part.takes]
        self._given = tuple(value.detach() if isinstance(value, torch.Tensor) else value for value in given)
        found = wrapped(*given)
        # A wrapper may pass on and return other tensors, so that gradients pass through it; the leaves stay the leaves.
        for index, value in (*zip(part.takes, given, strict=True), *zip(part.gives, found, strict=True)):
            values[index] = value
        self.release()

    def hold(self) -> None:
        """Take the parameters as an optimizer has them: a wrapper may put others in their place in a forward pass."""
        values = self._run[1]
        present = {id(module) for module in self.modules()}
        for index, parts in self._parts.items():
            values[index] = self._now_at(*parts[""])
            # What a module around a part has, has the names of that part; what took its place has its own.
            self._parts[index] = {
                path: (part if id(part) in present else self._now_at(part, place), place)
                for path, (part, place) in parts.items()
            }
        for index, name in self._own.items():
            self.parameters_held[index, ""] = getattr(self, name)
        for index in self._modules_at:
            for path, (part, _) in self._parts[index].items():
                for name, parameter in part.named_parameters(recurse=False):
                    self.parameters_held[index, _named(path, name)] = parameter
        self.release()

    def _now_at(self, part: torch.nn.Module, place: str) -> torch.nn.Module:
        """Return what a wrapper has put in the place of a module, as the conversion to SyncBatchNorm does."""
        try:
            return self.get_submodule(place)
        except AttributeError:
            return part  # Within a module that was put around it, there are other names.

    def state_of(self, index: int) -> dict[str, torch.Tensor]:
        """Return the state of a module by the names that it has in the program."""
        return {
            _named(path, name): value
            for path, (part, _) in self._parts[index].items()
            for name, value in part.state_dict().items() if "." not in name
        }  # fmt: skip

    def release(self) -> None:
        """Let the program's values be the parameters and buffers as they are outside of a forward pass."""
        values = self._run[1]
        for index in self._own:
            values[index] = self.parameters_held[index, ""]

    def look(self, wrapped: Callable[..., Any]) -> None:
        """Read the buffers where the next forward pass would begin, because wrappers make them equal there."""
        self._part = None
        with torch.no_grad():
            wrapped(*self._given)  # A wrapper may say how many inputs it takes.

    def _bind(self) -> None:
        """Let the program's values be the parameters and buffers that the module has in its forward pass."""
        values = self._run[1]
        for index, name in self._own.items():
            values[index] = getattr(self, name)

    def forward(self, *given: Any) -> tuple[Any, ...]:
        """Run a part of the body."""
        program, values, binding, enter = self._run
        self._bind()
        if self._part is None:
            self._see_buffers(values)
            return ()
        for index, value in zip(self._part.takes, given, strict=True):
            values[index] = value
        for index in self._part.indices:
            enter(index)
            values[index] = execute_step(program.steps[index], values, binding)
        return tuple(values[index] for index in self._part.gives)

    def _see_buffers(self, values: Sequence[Any]) -> None:
        for index in self._modules_at:
            for path, (part, _) in self._parts[index].items():
                for name, buffer in part.named_buffers(recurse=False):
                    self.buffers_seen[index, _named(path, name)] = buffer.detach().clone()
        for index, name in self._own.items():
            if name in dict(self.named_buffers(recurse=False)):
                self.buffers_seen[index, ""] = values[index].detach().clone()


def _named(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
