"""The body of a test as one module, which a wrapper such as DistributedDataParallel takes.

Its submodules are the modules of torch that the body constructs. Parameters and buffers of a module class that is
written in Python are its own. A forward pass runs a part of the body; backward passes, and what follows from gradients,
for example the steps of an optimizer, run outside.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

from ci_autotest.host.steps import execute_step
from ci_autotest.program.ir import PARAMETER

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ci_autotest.program.ir import Program
    from ci_autotest.program.training_parts import TrainingPart

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
