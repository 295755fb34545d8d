"""Lower modules to functions: each module call becomes the calls of its forward; parameters and buffers become inputs.

Torch constructs and runs the module once more on the data of the case, so that whatever depends on shapes, settings or
state is decided as it was on the reference. A program without modules stays unchanged.
"""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

import torch
from torch.overrides import TorchFunctionMode

from ci_autotest.backends.nest import holds_tensor
from ci_autotest.backends.operators.identity import operator_of, public_name
from ci_autotest.backends.torch_constants import argument_of
from ci_autotest.backends.torch_steps import TorchSteps
from ci_autotest.errors import UnsupportedError, error_text
from ci_autotest.host.steps import execute_step, materialize
from ci_autotest.program.edit import renumbered_step
from ci_autotest.program.ir import (
    CALL_FUNCTION,
    CALL_METHOD,
    CALL_MODULE,
    GET_ATTR,
    OUTPUT,
    OWN_DEVICE,
    PLACEHOLDER,
    PLAIN_TYPES,
    READS_OF_MODULES,
    UNPACK,
    Device,
    List,
    Program,
    Ref,
    Slice,
    Step,
    step_refs,
)
from ci_autotest.program.targets import is_function, is_member

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ci_autotest.program.ir import Argument


_COUNTER: Final = "num_batches_tracked"
#: Methods that change what a module's forward does but not its state, or that return a submodule.
_SETTINGS: Final = frozenset({"train", "eval", "get_submodule"})
_OF_MODULES: Final = frozenset({CALL_MODULE, GET_ATTR})


class Lowered(NamedTuple):
    """A program without modules.

    Attributes:
        program: It has a body and no setup.
        moved: Index of the step that has the value of each step of the original; -1 for modules, their state and
            their settings.
        parameters: Placeholder of each parameter, by the step that constructed its module and the parameter's name.
        buffers: The same for buffers, except ``num_batches_tracked``.
    """

    program: Program
    moved: list[int]
    parameters: dict[tuple[int, str], int]
    buffers: dict[tuple[int, str], int]


def has_modules(program: Program) -> bool:
    """Whether a program constructs a module."""
    return bool(program.setup)


def lowered(program: Program, is_answered: Callable[[str], bool], sources: Mapping[str, Any] | None = None) -> Lowered:
    """Return a program in which each module call is replaced by the calls of the module's forward.

    Args:
        program: Setup and body.
        is_answered: Whether the framework has an operator. If not, and the operator is written in Python, its own calls
            are recorded instead.
        sources: Data of each placeholder by key; zeros if omitted.

    Raises:
        UnsupportedError: A module is changed in a way, or calls something, that functions cannot express.
    """
    return _Lowering(program, is_answered, sources).done()


class _Lowering:
    """Lower one program: torch executes each step while its replacement is written."""

    def __init__(self, program: Program, is_answered: Callable[[str], bool], sources: Mapping[str, Any] | None) -> None:
        self._program = program
        self._binding = TorchSteps().binding(_zeros(program) if sources is None else sources)
        self._values: list[Any] = []
        self._moved: list[int] = []
        self._steps: list[Step] = []
        self._tracer = _ModuleTracer(self._steps, is_answered)
        self._held = _held(program)
        # Steps after the last use of a module need not be executed.
        self._last = max((i for i, step in enumerate(program.steps) if step.op in _OF_MODULES), default=-1)
        # Each tensor of a module's state with the placeholder of its data.
        self._state: list[tuple[torch.Tensor, int]] = []

    def done(self) -> Lowered:
        for index, step in enumerate(self._program.steps):
            self._values.append(None)
            self._moved.append(-1)
            self._lower(index, step)
        for tensor, place in self._state:
            self._steps[place] = self._steps[place].with_spec(requires_grad=tensor.requires_grad)
        program = Program((), tuple(self._steps), self._program.cotangents)
        return Lowered(program, self._moved, self._places("named_parameters"), self._places("named_buffers"))

    def _lower(self, index: int, step: Step) -> None:
        at = step.receiver
        receiver = self._values[at] if at is not None else None
        if step.op == PLACEHOLDER:
            self._values[index] = self._binding.placeholder(step)
            if index not in self._held:
                self._write(index, step)
        elif step.op == OUTPUT:
            self._write(index, step)
        elif step.op == CALL_FUNCTION and step.in_setup:
            self._values[index] = self._run(step)
            if not isinstance(self._values[index], torch.nn.Module):
                self._write(index, step)
        elif isinstance(receiver, torch.nn.Module):
            self._lower_use(index, step, receiver)
        elif step.target == UNPACK and at is not None and self._moved[at] < 0:
            self._take(index, self._run(step))
        else:
            if index < self._last:
                with suppress(Exception):  # The reference refused it too; what counts is what the framework does.
                    self._values[index] = execute_step(step, self._values, self._binding)
            self._write(index, step)

    def _lower_use(self, index: int, step: Step, module: torch.nn.Module) -> None:
        if step.op == CALL_MODULE:
            self._take(index, self._forward(step, module))
        elif (loaded := step.loaded_state) is not None:
            self._load(step, module, loaded[1])
        elif step.target in _SETTINGS or (step.target == "requires_grad_" and step.in_setup):
            self._values[index] = self._run(step)
        elif step.op == GET_ATTR or step.target in READS_OF_MODULES:
            self._take(index, self._run(step))
        elif not (step.target == "to" and all(isinstance(argument, Device) for argument in step.args[1:])):
            self._refuse(step, f"is changed by `{step.target}` after its construction")

    def _forward(self, step: Step, module: torch.nn.Module) -> Any:
        """Execute a forward and record the calls that it makes."""
        constant = self._binding.constant
        args = [materialize(argument, self._values, constant) for argument in step.args[1:]]
        kwargs = {key: materialize(value, self._values, constant) for key, value in step.kwargs}
        self._tracer.caller = step

        def forward() -> Any:
            with self._tracer:
                return module(*args, **kwargs)

        return self._tried(step, lambda: self._binding.in_mode(step, forward))

    def _take(self, index: int, value: Any) -> None:
        """Note a value that an earlier step of the lowered program returned; parts of a tuple follow one by one."""
        self._values[index] = value
        if isinstance(value, torch.Tensor):
            ref = self._tracer.ref(value)
            if ref is None:
                self._refuse(self._program.steps[index], "returns a tensor that none of its calls returned")
            self._moved[index] = ref.index

    def _load(self, step: Step, module: torch.nn.Module, state: Mapping[str, int]) -> None:
        """Make a snapshot's placeholders stand for the tensors of a module's state."""
        self._run(step)
        tensors = module.state_dict(keep_vars=True)
        for name, index in state.items():
            tensor = tensors[name]
            self._steps.append(self._program.steps[index]._replace(in_setup=False))
            self._tracer.know(tensor, Ref(len(self._steps) - 1))
            self._state.append((tensor, len(self._steps) - 1))
            if name.endswith(_COUNTER):
                self._tracer.count(tensor)

    def _places(self, named: str) -> dict[tuple[int, str], int]:
        """Return the placeholders of all modules' parameters or buffers; for a tensor loaded twice, the last one."""
        places = {id(tensor): place for tensor, place in self._state}
        return {
            (index, name): places[id(tensor)]
            for index, module in enumerate(self._values)
            if isinstance(module, torch.nn.Module) and self._program.steps[index].op == CALL_FUNCTION
            for name, tensor in getattr(module, named)()
            if id(tensor) in places and not name.endswith(_COUNTER)
        }

    def _write(self, index: int, step: Step) -> None:
        """Write a step unchanged except for its references."""
        places = {i: place for i, place in enumerate(self._moved) if place >= 0}
        lost = [ref for ref in step_refs(step) if ref.index not in places]
        if lost:
            self._refuse(step, f"takes step {lost[0].index}, which is a module or a module's whole output")
        self._steps.append(renumbered_step(step, places)._replace(in_setup=False))
        self._moved[index] = len(self._steps) - 1
        self._tracer.know(self._values[index], Ref(self._moved[index]))

    def _run(self, step: Step) -> Any:
        return self._tried(step, lambda: execute_step(step, self._values, self._binding))

    def _tried(self, step: Step, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except UnsupportedError:
            raise
        except Exception as error:  # noqa: BLE001 - foreign code: the reference refused it too
            return self._refuse(step, f"raises {type(error).__name__} ({error_text(error)})")

    def _refuse(self, step: Step, fault: str) -> NoReturn:
        message = f"{step.target} cannot be lowered to functions: it {fault}."
        raise UnsupportedError(message, step.target)


def _held(program: Program) -> frozenset[int]:
    """Return the placeholders that hold a module's state and nothing else."""
    loads = [loaded for step in program.setup if (loaded := step.loaded_state) is not None]
    return frozenset(index for _, state in loads for index in state.values())


def _zeros(program: Program) -> dict[str, torch.Tensor]:
    """Return zeros for each placeholder, for a program without data: what most forwards call depends only on shapes."""
    return {
        step.target: torch.zeros(
            spec.shape if spec.is_contiguous else (spec.storage_size,), dtype=getattr(torch, spec.dtype)
        )
        for step in program.steps
        if (spec := step.spec) is not None
    }


# Trace a module's forward: record the functions that it calls while torch runs it.
#
# A function with a row in the table is one step. If a function has no row and is written in Python, the calls inside it
# are recorded instead: ``multi_head_attention_forward``, for example, becomes projections, products and a softmax. A
# function built into torch is always a step, so that the message names it if the table has no row.


#: Result of tracing the inside of a function that calls something that is not an operator.
_OPAQUE: Final = object()
#: Modules in which torch writes operators as calls of other operators.
_ENTERED: Final = frozenset({"torch.nn.functional", "torch.functional"})
_CHECKS: Final = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")


class _ModuleTracer(TorchFunctionMode):
    """Record the calls that torch makes while this mode is active.

    Args:
        steps: The list that they are appended to.
        is_answered: Whether the table has a row for an operator.

    Attributes:
        caller: The step whose forward is traced; the recorded steps get its name, modes and seed.
    """

    def __init__(self, steps: list[Step], is_answered: Callable[[str], bool]) -> None:
        super().__init__()
        self._steps = steps
        self._is_answered = is_answered
        # The step of each tensor, by `id`. The tensor is kept too, so that no other one gets its id.
        self._known: dict[int, tuple[Any, Ref]] = {}
        # Batch counters of modules. Writing to one is not recorded, because no output depends on it.
        self._counters: set[int] = set()
        self.caller: Step | None = None

    def know(self, value: object, ref: Ref) -> None:
        """Note which step returned a tensor."""
        if isinstance(value, torch.Tensor):
            self._known[id(value)] = (value, ref)

    def count(self, counter: torch.Tensor) -> None:
        """Note that a tensor is a batch counter."""
        self._counters.add(id(counter))

    def ref(self, value: torch.Tensor) -> Ref | None:
        """Return the step that returned a tensor; ``None`` if none did."""
        found = self._known.get(id(value))
        return found[1] if found is not None else None

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Execute a call, and record it if it returns a tensor."""
        given = kwargs or {}
        name = (public_name(func) or "").replace("torch.functional.", "torch.")
        inner = _enterable(func) if not self._is_answered(operator_of(name)) else None
        if inner is not None:
            found = self._entered(inner, args, given)
            if found is not _OPAQUE:
                return found
        result = func(*args, **given)
        if holds_tensor(result) and not (args and id(args[0]) in self._counters):
            self._write(name, args, given, result)
        return result

    def _entered(self, inner: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record the calls inside a function; if that fails, record nothing, and the function is one step after all."""
        count, known = len(self._steps), dict(self._known)
        versions = [value._version for value in args if isinstance(value, torch.Tensor)]
        try:
            with self:
                return inner(*args, **kwargs)
        except UnsupportedError:
            if versions != [value._version for value in args if isinstance(value, torch.Tensor)]:
                raise  # It wrote to an argument, and would do so again if it were executed again.
            del self._steps[count:]
            self._known = known
            return _OPAQUE

    def _write(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        op, target, arguments = self._spelled(name, args)
        caller = self.caller
        assert caller is not None  # noqa: S101 - set before a forward is entered
        written = tuple((key, self._argument(value, name)) for key, value in kwargs.items())
        self._steps.append(
            Step(op, target, arguments, written, caller.name, caller.modes, caller.seed, in_setup=False)  # type: ignore[arg-type]
        )
        self._keep(result, len(self._steps) - 1, caller)

    def _keep(self, result: Any, index: int, caller: Step) -> None:
        if isinstance(result, torch.Tensor):
            self.know(result, Ref(index))
        elif isinstance(result, tuple | list):
            for position, item in enumerate(result):
                if holds_tensor(item):
                    taken = Step(CALL_FUNCTION, UNPACK, (Ref(index), position), (), caller.name)
                    self._steps.append(taken)
                    self._keep(item, len(self._steps) - 1, caller)

    def _spelled(self, name: str, args: tuple[Any, ...]) -> tuple[str, str, tuple[Argument, ...]]:
        """Return the opcode, target and arguments of a call in a program."""
        arguments = tuple(self._argument(value, name) for value in args)
        bare = name.rpartition(".")[2]
        if name.endswith(".__get__"):
            return CALL_FUNCTION, "builtins.getattr", (arguments[0], name.split(".")[-2])
        if bare in {"__getitem__", "__setitem__"}:
            return CALL_FUNCTION, f"operator.{bare.strip('_')}", arguments
        if name.startswith("torch.Tensor.") and is_member(bare):
            return CALL_METHOD, bare, arguments
        if not name.startswith("torch.") or not is_function(name):
            self._refuse(f"calls {name or 'a function without a public name'}, which is not an operator of torch.")
        return CALL_FUNCTION, name, arguments

    def _argument(self, value: Any, name: str) -> Argument:
        kind = type(value)
        if kind in PLAIN_TYPES:
            return value  # type: ignore[no-any-return]
        if isinstance(value, torch.Tensor):
            found = self.ref(value)
            if found is None:
                self._refuse(f"passes {name} a tensor that is neither an input nor part of its state.")
            return found
        if isinstance(value, list):
            return List(tuple(self._argument(item, name) for item in value))
        if isinstance(value, tuple):
            return tuple(self._argument(item, name) for item in value)
        if isinstance(value, slice):
            return Slice(*(self._argument(bound, name) for bound in (value.start, value.stop, value.step)))
        constant = argument_of(value)
        if constant is None:
            self._refuse(f"passes {name} a {kind.__name__}, which cannot be an argument in a program.")
        # A module's forward names the device that its tensors lie on.
        return Device(OWN_DEVICE) if isinstance(constant, Device) else constant

    def _refuse(self, fault: str) -> NoReturn:
        target = self.caller.target if self.caller is not None else "a module"
        message = f"{target} cannot be lowered to functions: its forward {fault}"
        raise UnsupportedError(message, target)


def _has_no_override(*_: object) -> bool:
    return False


@lru_cache(maxsize=512)
def _enterable(func: Callable[..., Any]) -> Callable[..., Any] | None:
    """Return a copy of one of torch's Python functions that does not dispatch itself to the mode again.

    Such a function first calls ``has_torch_function``; in the copy, that returns ``False``.
    """
    if not isinstance(func, FunctionType) or func.__module__ not in _ENTERED:
        return None
    patched: dict[str, Any] = {name: _has_no_override for name in _CHECKS if name in func.__globals__}
    if not patched:
        return None
    entered = FunctionType(
        func.__code__, {**func.__globals__, **patched}, func.__name__, func.__defaults__, func.__closure__
    )
    entered.__kwdefaults__ = func.__kwdefaults__
    return entered
