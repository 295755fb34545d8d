"""Steps of a module: its construction and initial state belong to the setup, calls and later changes to the body."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ci_autotest.backends.input_copies import contiguous_spec
from ci_autotest.errors import AuthorError
from ci_autotest.program.edit import follows_from
from ci_autotest.program.ir import (
    CALL_FUNCTION,
    CALL_METHOD,
    CALL_MODULE,
    GET_ATTR,
    LOADS_STATE,
    PLACEHOLDER,
    Mapping_,
    Ref,
    Step,
    refs,
)
from ci_autotest.program.targets import is_own
from ci_autotest.record.arguments import one, split
from ci_autotest.record.context import outside
from ci_autotest.record.modes import modes as modes_in_force
from ci_autotest.record.module_hooks import Hooks
from ci_autotest.record.modules import RecordedModule

if TYPE_CHECKING:
    import torch

    from ci_autotest.record.function import Function
    from ci_autotest.record.recorder import Recorder

_NUMBERS: Final = frozenset({int, float, bool, str, type(None)})


def construct(recorder: Recorder, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> RecordedModule:
    """Record the construction of a module, and its initial state."""
    real_args, step_args, real_kwargs, step_kwargs = split(recorder, args, kwargs, function)
    _hoist(recorder, step_args, step_kwargs)
    step = Step(CALL_FUNCTION, function.target, step_args, step_kwargs, "module", in_setup=True)
    recorder.run(step, function.real, real_args, real_kwargs)
    index = len(recorder.steps) - 1
    module = recorder.trace.values[index]
    if recorder.device.type != "cpu":
        # torch constructs modules on the CPU unless an argument names a device.
        module.to(recorder.device)
    recorder.has_setup = True
    steps = recorder.module_steps = recorder.module_steps or ModuleSteps(recorder)
    recorded = RecordedModule(module, Ref(index), steps, function.target)
    recorder.modules.append(recorded)
    steps.snapshot(recorded)
    return recorded


def _hoist(recorder: Recorder, args: tuple[Any, ...], kwargs: tuple[tuple[str, Any], ...]) -> None:
    """Move the tensors that a module is constructed with to the setup, with all steps that they depend on."""
    given = [argument for argument in (*args, *(value for _, value in kwargs)) if type(argument) not in _NUMBERS]
    for index in follows_from(recorder.steps, *(ref.index for argument in given for ref in refs(argument))):
        recorder.steps[index] = recorder.steps[index]._replace(in_setup=True)


class ModuleSteps:
    """Recorder of the steps of all modules of an attempt.

    Args:
        recorder: The recorder of the attempt.
    """

    __slots__ = ("_hooks", "_ran", "_recorder")

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._ran: set[int] = set()
        self._hooks: dict[int, tuple[torch.nn.Module, Hooks]] = {}

    def mark(self, module: RecordedModule) -> None:
        """Note that the body has run or changed a module and its parts; later changes belong to the body."""
        self._ran.update(map(id, module.real.modules()))

    def has_run(self, module: RecordedModule) -> bool:
        """Return true if a module, or a part of it, was marked."""
        return not self._ran.isdisjoint(map(id, module.real.modules()))

    def hooks_of(self, module: RecordedModule) -> Hooks:
        """Return the hooks of a module or part, by torch's module, because each access to a part makes a new object."""
        # The entry keeps the module alive, because Python may give the id of a deleted object to a new one.
        return self._hooks.setdefault(id(module.real), (module.real, Hooks()))[1]

    def call(self, module: RecordedModule, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record a forward with the module's hooks around it.

        Raises:
            AuthorError: A part of the module has hooks. They cannot run, because the forward is a single step.
        """
        if not self._hooks:
            return self.forward(module, args, kwargs)
        for part in module.real.modules():
            if part is not module.real and id(part) in self._hooks and self._hooks[id(part)][1]:
                message = (
                    f"a {type(part).__name__} inside a {type(module.real).__name__} has a hook, but calling the whole "
                    "is one step. Call its parts one by one, or construct it with plain torch: import torch as plain."
                )
                raise AuthorError(message)
        hooks = self.hooks_of(module)
        return hooks.run(module, args, kwargs, lambda given, named: self.forward(module, given, named))

    def forward(self, module: RecordedModule, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record a forward; its seed makes dropout inside it repeatable."""
        recorder = self._recorder
        real_args, step_args, real_kwargs, step_kwargs = split(recorder, args, kwargs, None, module.target)
        modes = modes_in_force()
        step = Step(
            CALL_MODULE, module.target, (module.ref, *step_args), step_kwargs, module.label, modes, recorder.seed()
        )
        # The forward is one step, so the calls inside a user's class are not recorded.
        call = outside(module.real) if is_own(module.target) else module.real
        return recorder.run(step, call, real_args, real_kwargs)

    def method(self, module: RecordedModule, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Record a method that changes a module; it belongs to the setup until the body runs or sets the module."""
        call = getattr(module.real, target)
        real_args, step_args, real_kwargs, step_kwargs = split(self._recorder, args, kwargs, call, target)
        step = Step(CALL_METHOD, target, (module.ref, *step_args), step_kwargs, target, in_setup=not module.was_called)
        self._recorder.run(step, call, real_args, real_kwargs)

    def read(self, module: RecordedModule, name: str) -> Any:
        """Record a read of a module's parameter or buffer."""
        step = Step(GET_ATTR, name, (module.ref,), (), name, modes_in_force())
        return self._recorder.run(step, lambda: getattr(module.real, name), [], {})

    def read_path(self, module: RecordedModule, target: str, path: str) -> Any:
        """Record a read of a parameter or buffer by its path."""
        step = Step(CALL_METHOD, target, (module.ref, path), (), path.replace(".", "_"), modes_in_force())
        return self._recorder.run(step, lambda: getattr(module.real, target)(path), [], {})

    def part(self, module: RecordedModule, path: str) -> RecordedModule:
        """Record an access to a part of a module; it belongs to the setup, as the module does."""
        real = module.real.get_submodule(path)
        step = Step(CALL_METHOD, "get_submodule", (module.ref, path), (), "module", in_setup=True)
        self._recorder.run(step, lambda: real, [], {})
        target = f"torch.nn.{type(real).__name__}"
        return RecordedModule(real, Ref(len(self._recorder.steps) - 1), self, target, module.root)

    def set_attribute(self, module: RecordedModule, name: str, value: object) -> None:
        """Record the assignment of a parameter, a buffer or a setting of a module."""
        real, argument = one(self._recorder, value)
        step = Step(
            CALL_FUNCTION, "builtins.setattr", (module.ref, name, argument), (), f"set_{name}", modes_in_force()
        )
        self._recorder.run(step, lambda: setattr(module.real, name, real), [], {})

    def load_state(self, module: RecordedModule, state: dict[str, Any], *, strict: bool) -> None:
        """Record a call of ``load_state_dict`` in the body."""
        real, argument = one(self._recorder, state)
        step = Step(CALL_METHOD, "load_state_dict", (module.ref, argument), (("strict", strict),), "loaded")
        self._recorder.run(step, lambda: module.real.load_state_dict(real, strict=strict), [], {})

    def snapshot(self, module: RecordedModule) -> None:
        """Store the state of a module before its first forward.

        Expanded tensors are skipped. Nothing can write to them, and the constructor gets them again in a replay.
        """
        recorder, items = self._recorder, []
        for name, tensor in module.real.state_dict().items():
            if any(stride == 0 and size > 1 for size, stride in zip(tensor.shape, tensor.stride(), strict=True)):
                continue
            key = f"t{len(recorder.sources)}"
            source: torch.Tensor = tensor.detach().clone()
            recorder.sources[key] = source
            label = name.replace(".", "_")
            recorder.keep(Step(PLACEHOLDER, key, (contiguous_spec(source),), (), label, in_setup=True), source)
            items.append((name, Ref(len(recorder.steps) - 1)))
        if items:
            state = Mapping_(tuple(items))
            is_whole = len(items) == len(module.real.state_dict())
            # A strict load refuses a state that lacks entries.
            partly = () if is_whole else (("strict", False),)
            recorder.silent(Step(CALL_METHOD, LOADS_STATE, (module.ref, state), partly, in_setup=True))
