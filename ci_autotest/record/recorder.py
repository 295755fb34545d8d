"""The recorder: runs each call of a body on the reference and records it as a step.

The rule of this module: a step is appended only together with its value. If a reference step raises, the exception is
the value of that step, whether the body catches it or not.
"""

from __future__ import annotations

from collections import namedtuple
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.nn.utils.rnn import PackedSequence

from ci_autotest.backends.input_copies import contiguous_spec, place
from ci_autotest.backends.snapshots import keep_copy
from ci_autotest.backends.trace import Trace
from ci_autotest.errors import AuthorError
from ci_autotest.program.ir import (
    ARRAY,
    BUFFER,
    CALL_FUNCTION,
    CALL_METHOD,
    PARAMETER,
    PLACEHOLDER,
    UNPACK,
    Ref,
    Step,
    TensorSpec,
    ref_to,
    usual_name,
)
from ci_autotest.program.random_calls import draws, is_random
from ci_autotest.program.refusal import refusal_of, refused
from ci_autotest.record.arguments import packed, split
from ci_autotest.record.arrays import read_only
from ci_autotest.record.author_names import author_name
from ci_autotest.record.context import asking_module
from ci_autotest.record.function import plain_function
from ci_autotest.record.gradient_calls import ends_the_graph
from ci_autotest.record.hooks import READING, HookGradients, HookHandle, register_hook
from ci_autotest.record.modes import modes as modes_in_force
from ci_autotest.record.module_steps import construct
from ci_autotest.record.notes import CaseNotes
from ci_autotest.record.outside import Outside
from ci_autotest.record.plain_tensors import copy_written, watch
from ci_autotest.record.unsupported_uses import refuse, refuse_nested, stale
from ci_autotest.record.values import KINDS, RecordedTensor
from ci_autotest.record.write_guard import clear_gradients, give_gradients, holds_source, unrecorded, unrecorded_write

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from io import BytesIO

    from numpy.typing import NDArray

    from ci_autotest.program.refusal import Refusal
    from ci_autotest.record.draw.draws import Drawer
    from ci_autotest.record.function import Function
    from ci_autotest.record.module_steps import ModuleSteps
    from ci_autotest.record.modules import RecordedModule

# Faster than the constructor of a named tuple; one step is made for each call of each case.
_new_step: Final = tuple.__new__
#: Key and name of the first inputs.
_PLACEHOLDERS: Final = tuple((f"t{i}", usual_name(i)) for i in range(16))
_Tensor: Final = torch.Tensor
_SCALARS: Final = (
    bool,
    int,
    float,
    complex,
    str,
    type(None),
    torch.Size,
    torch.dtype,
    torch.device,
    torch.layout,
)


class Recorder:
    """The recording of one attempt, while its body runs.

    Attributes:
        outside: The objects that came from outside the recorder.
        notes: Notes about the case.
        steps: The steps in order, setup and body together.
        trace: The values and flags of the steps on the reference.
        saved: The calls of ``torch.save``, by the bytes that they wrote: each memory, the index of the step, and the
            containers around the tensors.
        sources: Data of each placeholder by key; every side gets its own copy.
        refusal: Index and exception of the last step that the reference refused.
        dtype: Dtype of tensors without one; ``None`` for float32.
        has_setup: True if a module was constructed.
        keeps_graph: True if an automatic backward pass is still possible (``gradient_calls``).
        modules: The constructed modules, without their parts.
        module_steps: Recorder of the modules' steps; ``None`` before the first module.
        reads: Attributes that the body read and that are no tensors, by tensor and name.
        outputs: The outputs of the body, flattened.
        marks_modules: True if steps are marked with the modules that they are recorded in.
        hook_gradients: The gradients that the hooks got in the previous recording of the body, and get now.
        hook_values: Values that the function of a hook has created so far; ``None`` outside of hooks.
        is_ended: True if the attempt is over. Values that outlive it cannot record anything.
        watched: Indices of values to copy at their step, because later steps write to them in other cases of the test.
    """

    __slots__ = (
        "device",
        "drawer",
        "dtype",
        "has_setup",
        "hook_gradients",
        "hook_values",
        "is_ended",
        "keeps_graph",
        "marks_modules",
        "module_steps",
        "modules",
        "notes",
        "outputs",
        "outside",
        "reads",
        "refusal",
        "saved",
        "sources",
        "steps",
        "trace",
        "watched",
    )

    def __init__(self, drawer: Drawer, device: torch.device) -> None:
        self.drawer = drawer
        self.device = device
        self.outside = Outside()
        self.notes = CaseNotes()
        self.steps: list[Step] = []
        self.trace = Trace()
        self.watched: Collection[int] = ()
        self.sources: dict[str, torch.Tensor] = {}
        self.saved: dict[bytes, list[tuple[BytesIO, int, Any]]] = {}
        self.refusal: tuple[int, Exception] | None = None
        self.dtype: torch.dtype | None = None
        self.has_setup = False
        self.hook_gradients = HookGradients()
        self.hook_values: list[RecordedTensor] | None = None
        self.is_ended = False
        self.keeps_graph = True
        self.modules: list[RecordedModule] = []
        self.module_steps: ModuleSteps | None = None
        self.marks_modules = False
        self.reads: dict[tuple[Ref, str], object] = {}
        self.outputs: tuple[Ref, ...] = ()

    @property
    def is_in_hook(self) -> bool:
        """True while the function of a hook runs."""
        return self.hook_values is not None

    def tensor(self, source: torch.Tensor, spec: TensorSpec, name: str | None = None) -> RecordedTensor:
        """Record a placeholder; ``source`` is the tensor if it is contiguous, else all elements of its storage."""
        count, index = len(self.sources), len(self.steps)
        key, unnamed = _PLACEHOLDERS[count] if count < len(_PLACEHOLDERS) else (f"t{count}", usual_name(count))
        self.sources[key] = source
        value = place(source, spec, self.device)
        name = name or author_name(self._is_name) or unnamed
        self.steps.append(_new_step(Step, (PLACEHOLDER, key, (spec,), (), name, (), None, False, None)))
        self.trace.values.append(value)
        self.trace.facts.append((spec.requires_grad, True, 0))
        if self.watched and index in self.watched:
            keep_copy(self.trace, index, value)
        return RecordedTensor(value, ref_to(index), self)

    def _is_name(self, name: str) -> bool:
        return any(step.name == name for step in self.steps)

    def call_function(self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record a call of a function, or the construction of a module."""
        if function.is_module_class:
            return construct(self, function, args, kwargs)
        if not function.is_operator:
            refuse(function.target)
        if function.is_autograd:
            self.keeps_graph = self.keeps_graph and not ends_the_graph(function.target, args, kwargs)
        real_args, step_args, real_kwargs, step_kwargs = split(self, args, kwargs, function)
        seed = self.seed() if function.is_random and draws(function.target, real_args, real_kwargs) else None
        modes = modes_in_force()
        step = (CALL_FUNCTION, function.target, step_args, step_kwargs, function.name, modes, seed, False, None)
        if function.target != "torch.autograd.backward":
            return self.run(_new_step(Step, step), function.real, real_args, real_kwargs)
        return self._run_backward(_new_step(Step, step), function.real, real_args, real_kwargs)

    def _run_backward(self, step: Step, call: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Run a backward pass as a step, and give the plain parameters of the body their gradients."""
        clear_gradients(self)
        found = self.run(step, call, args, kwargs)
        give_gradients(self)
        if self.outside.given_gradients:
            watch(self)
        return found

    def call_plain(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record a call of a plain torch function with a recorded value."""
        form, function = plain_function(func)
        if function.name in KINDS and asking_module().partition(".")[0] == "torch":
            return func(args[0]._tensor)
        if form == "getattr":
            return getattr(args[0], function.name)
        if form == "method" and isinstance(args[0], RecordedTensor):
            return args[0]._recorder.call_method(args[0], function.name, args[1:], kwargs)
        found = self.call_function(function, args, kwargs)
        if self.outside.captured:
            copy_written(self, (*args, *kwargs.values()))
        return found

    def call_python(self, target: str, call: Callable[..., Any], args: tuple[Any, ...], name: str) -> Any:
        """Record a call of one of Python's operators or functions."""
        real_args, step_args, _, _ = split(self, args, {}, None, target)
        modes = modes_in_force()
        return self.run(Step(CALL_FUNCTION, target, step_args, (), name, modes), call, real_args, {})

    def first(self, value: RecordedTensor) -> RecordedTensor:
        """Return the first recorded value of a tensor; in-place writes to the tensor give later ones."""
        indices = (i for i, found in enumerate(self.trace.values) if found is value._tensor)
        return RecordedTensor(value._tensor, Ref(next(indices, value._ref.index)), self)

    def read(self, receiver: RecordedTensor, name: str) -> Any:
        """Return an attribute that is no tensor. It is no step, because a comparison of the tensors compares it too."""
        found = getattr(receiver._tensor, name)
        self.reads[receiver._ref, name] = found
        return found

    def call_method(self, receiver: RecordedTensor, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record a call of a tensor's method."""
        call = getattr(receiver._tensor, target)
        if target == "backward":
            self.keeps_graph = False
        real_args, step_args, real_kwargs, step_kwargs = split(self, args, kwargs, None, target)
        is_drawn = is_random(target) and draws(target, (receiver, *real_args), real_kwargs)
        step = Step(
            CALL_METHOD, target, (receiver._ref, *step_args), step_kwargs, target.strip("_"),
            modes_in_force(), self.seed() if is_drawn else None,
        )  # fmt: skip
        run = self._run_backward if target == "backward" else self.run
        return run(step, call, real_args, real_kwargs)

    def array(self, receiver: RecordedTensor, kwargs: dict[str, Any]) -> NDArray[Any]:
        """Record ``tensor.numpy()``."""
        real_args, _, real_kwargs, step_kwargs = split(self, (receiver,), kwargs, None, ARRAY)
        step = Step(CALL_METHOD, ARRAY, (receiver._ref,), step_kwargs, "array", modes_in_force())
        self.run(step, lambda tensor, **given: tensor.numpy(**given).copy(), real_args, real_kwargs)
        self.outside.has_left = True
        return read_only(receiver._tensor, real_kwargs)

    def run(self, step: Step, call: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Run a step on the reference and record it, even if the reference refuses it."""
        if self.is_ended:
            stale()
        if self.hook_values is not None and step.target in READING:
            self.hook_gradients.read_number()
            return call(*args, **kwargs)
        if step.seed is not None:
            torch.default_generator.manual_seed(step.seed)
        try:
            if self.outside.plain_tensors is None:
                result = call(*args, **kwargs) if kwargs else call(*args)
            else:
                with self.outside.plain_tensors.paused():
                    result = call(*args, **kwargs)
        except AuthorError:
            raise  # It is from our own code, for example inside a hook; the reference refused nothing.
        except Exception as error:
            self.refusal = len(self.steps), error
            refusal = refusal_of(error)
            self.silent(refused(step, refusal), refusal)
            raise
        return self.keep(step, result)

    def demand(self, error: BaseException | None) -> None:
        """Mark the last refused step as expected by the author, if ``error`` is the exception of that step."""
        if self.refusal is not None and error is self.refusal[1]:
            index = self.refusal[0]
            self.steps[index] = refused(self.steps[index], self.trace.values[index], is_demanded=True)

    def keep(self, step: Step, result: Any) -> Any:
        """Record a step with its value, and return the value for the body."""
        steps, trace = self.steps, self.trace
        index = len(steps)
        steps.append(step)
        trace.values.append(result)
        if isinstance(result, _Tensor):
            if result.is_nested:
                refuse_nested()
            trace.facts.append((result.requires_grad, result.is_leaf, result._version))
            if self.watched and index in self.watched:
                keep_copy(trace, index, result)
            value = RecordedTensor(result, ref_to(index), self)
            if self.hook_values is not None:
                self.hook_values.append(value)
            return value
        trace.facts.append(None)
        if isinstance(result, _SCALARS):
            return result
        if isinstance(result, tuple | list):
            items = [self._unpacked(step, index, i, item) for i, item in enumerate(result)]
            if isinstance(result, PackedSequence):
                return packed(result, ref_to(index), items)
            if hasattr(result, "n_fields"):
                return _named(type(result))(*items)
            return items if type(result) is list else tuple(items)
        return result

    def _unpacked(self, step: Step, index: int, position: int, item: Any) -> Any:
        taken = Step(CALL_FUNCTION, UNPACK, (Ref(index), position), (), step.name)
        return self.keep(taken, item)

    def silent(self, step: Step, value: Refusal | None = None) -> None:
        """Record a step that gives the body no value."""
        self.steps.append(step)
        self.trace.values.append(value)
        self.trace.facts.append(None)

    def capture(self, tensor: torch.Tensor) -> RecordedTensor:
        """Record a plain tensor as an input, once for each version of it; return a recorded tensor unchanged.

        A tensor that requires grad, for example a parameter of the user, becomes a leaf, and its gradient is compared.

        Raises:
            AuthorError: The tensor was changed by a write that was not recorded.
        """
        if isinstance(tensor, RecordedTensor):
            return tensor
        held = self.outside.captured.get(id(tensor))
        if held is not None and held[2] == tensor._version and holds_source(self, tensor, held[1]._ref.index):
            return held[1]
        if held is not None and (id(tensor) in self.outside.given or (tensor.requires_grad and tensor.is_leaf)):
            raise AuthorError(unrecorded_write(tensor))
        if tensor.is_nested:
            refuse_nested()
        with unrecorded():
            source = tensor.detach().clone(memory_format=torch.contiguous_format)
        is_parameter = isinstance(tensor, torch.nn.Parameter)
        state = PARAMETER if is_parameter else "" if tensor.requires_grad else BUFFER
        spec = replace(contiguous_spec(source), requires_grad=tensor.requires_grad, state=state)
        value = self.tensor(source, spec, "parameter" if is_parameter else "captured")
        self.outside.captured[id(tensor)] = (tensor, value, tensor._version)
        if self.outside.has_left and not tensor.requires_grad:  # It may have been computed from an array.
            self.outside.keys.add(self.steps[value._ref.index].target)
        return value

    def register_hook(self, receiver: RecordedTensor, function: Callable[[Any], Any]) -> HookHandle:
        """Record a hook on a value's gradient."""
        return register_hook(self, receiver, function)

    def seed(self) -> int:
        """Return the seed for the framework's generator before the next step; only random steps use it."""
        return (self.drawer.seed + 7919 * len(self.steps)) & 0xFFFF_FFFF


@lru_cache(maxsize=256)
def _named(kind: type) -> Callable[..., tuple[Any, ...]]:
    """Return a named tuple class with the fields of a result type of torch, such as ``values`` and ``indices``."""
    fields: tuple[str, ...] = kind.__match_args__  # type: ignore[attr-defined]
    return namedtuple(kind.__name__, fields)  # noqa: PYI024 - the fields are known only at run time
