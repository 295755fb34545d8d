"""The recorder: runs each call on the reference and writes down the step.

The rule kept here: a step is appended only with its value, and only an exception that a *reference
step* raises rejects the attempt; it is remembered even when the body swallows it.
"""

from __future__ import annotations

from collections import namedtuple
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NoReturn

import torch

from ci_autotest.backends.operators import is_random
from ci_autotest.backends.torch_eager import contiguous_spec, keep_copy, place
from ci_autotest.backends.trace import Failure, Trace
from ci_autotest.errors import AuthorError, said
from ci_autotest.program.ir import (
    ARRAY,
    CALL_FUNCTION,
    CALL_METHOD,
    CALL_MODULE,
    GET_ATTR,
    OUTPUT,
    PLACEHOLDER,
    UNPACK,
    Mapping_,
    Ref,
    Step,
    TensorSpec,
    ref_to,
    refs,
    step_refs,
)
from ci_autotest.record.arguments import one, split
from ci_autotest.record.arrays import read_only
from ci_autotest.record.function import plain_function
from ci_autotest.record.gradients import ends_the_graph, unread
from ci_autotest.record.hooks import Handle, register_hook
from ci_autotest.record.modes import modes as modes_in_force
from ci_autotest.record.modules import RecordedModule
from ci_autotest.record.refusals import refuse, stale
from ci_autotest.record.values import Value

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from numpy.typing import NDArray

    from ci_autotest.record.draws import Drawer
    from ci_autotest.record.function import Function

_new_step: Final = tuple.__new__
#: Key and name of the first inputs.
_PLACEHOLDERS: Final = tuple((f"t{i}", name) for i, name in enumerate(("x", "y", "z", "w", *["tensor"] * 12)))
_Tensor: Final = torch.Tensor
_NUMBERS: Final = frozenset({int, float, bool, str, type(None)})
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
    """Hold one attempt while its body runs.

    Attributes:
        steps: What was done, in order; setup and body together.
        trace: The reference's side of it.
        shared: Arrays of numpy that became inputs, each with its bytes then.
        sources: Data of each placeholder by key, given to no one; every side gets its own copy.
        rejection: The step that the reference refused, with what it raised.
        dtype: Of tensors whose dtype the test leaves open; ``None`` for float32.
        has_setup: Whether a module was constructed.
        keeps_graph: Whether an automatic backward pass is still possible: no step has run one of its own.
        hook_values: Recorded while a hook's function is run.
        modules: Modules that were constructed, not their parts.
        captured: Tensors of plain torch that are inputs by now, by identity, held so that it stays theirs.
        outputs: What the body returned, flattened.
        profile_applied: Whether the attempt's profile changed anything.
        watched: Indices of values to copy at their step, because later steps write to them in other cases of the test.
    """

    __slots__ = (
        "captured",
        "device",
        "drawer",
        "dtype",
        "has_setup",
        "hook_values",
        "keeps_graph",
        "modules",
        "outputs",
        "profile_applied",
        "rejection",
        "shared",
        "sources",
        "steps",
        "trace",
        "watched",
    )

    def __init__(self, drawer: Drawer, device: torch.device) -> None:
        """Begin with no step."""
        self.drawer = drawer
        self.device = device
        self.steps: list[Step] = []
        self.trace = Trace()
        self.watched: Collection[int] = ()
        self.sources: dict[str, torch.Tensor] = {}
        self.shared: list[tuple[NDArray[Any], bytes]] = []
        self.rejection: tuple[Step, Failure] | None = None
        self.dtype: torch.dtype | None = None
        self.has_setup = False
        self.hook_values: list[Any] = []
        self.keeps_graph = True
        self.modules: list[RecordedModule] = []
        self.captured: dict[int, tuple[torch.Tensor, Value, int]] = {}
        self.outputs: tuple[Ref, ...] = ()
        self.profile_applied = False

    def tensor(self, source: torch.Tensor, spec: TensorSpec, name: str | None = None) -> Value:
        """Record a placeholder over ``source``: the storage's elements, or the tensor where it is contiguous."""
        count, index = len(self.sources), len(self.steps)
        key, usual_name = _PLACEHOLDERS[count] if count < len(_PLACEHOLDERS) else (f"t{count}", "tensor")
        self.sources[key] = source
        value = place(source, spec, self.device)
        self.steps.append(_new_step(Step, (PLACEHOLDER, key, (spec,), (), name or usual_name, (), None, False)))
        self.trace.values.append(value)
        self.trace.facts.append((spec.requires_grad, True, 0))
        if self.watched and index in self.watched:
            keep_copy(self.trace, index, value)
        return Value(value, ref_to(index), self)

    def call_function(self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401
        """Record a call of a function, or the construction of a module."""
        if function.is_module_class:
            return self._construct(function, args, kwargs)
        if not function.is_operator:
            refuse(function.target)
        if function.is_autograd:
            self.keeps_graph = self.keeps_graph and not ends_the_graph(function.target, kwargs)
        real_args, step_args, real_kwargs, step_kwargs = split(self, args, kwargs, function)
        seed = self._seed() if function.is_random else None
        step = (CALL_FUNCTION, function.target, step_args, step_kwargs, function.name, modes_in_force(), seed, False)
        return self._run(_new_step(Step, step), function.real, real_args, real_kwargs)

    def call_plain(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401
        """Record what plain torch was asked to do with a recorded value."""
        form, function = plain_function(func)
        if form == "getattr":
            return getattr(args[0], function.name)
        if form == "method" and isinstance(args[0], Value):
            return args[0]._recorder.call_method(args[0], function.name, args[1:], kwargs)
        return self.call_function(function, args, kwargs)

    def call_python(self, target: str, call: Callable[..., Any], args: tuple[Any, ...], name: str) -> Any:  # noqa: ANN401
        """Record one of Python's operators or functions."""
        real_args, step_args, _, _ = split(self, args, {}, None, target)
        modes = modes_in_force()
        return self._run(Step(CALL_FUNCTION, target, step_args, (), name, modes), call, real_args, {})

    def call_method(self, receiver: Value, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401
        """Record a method of a tensor."""
        call = getattr(receiver._tensor, target)
        if target == "backward":
            self.keeps_graph = False
        real_args, step_args, real_kwargs, step_kwargs = split(self, args, kwargs, None, target)
        step = Step(
            CALL_METHOD, target, (receiver._ref, *step_args), step_kwargs, target.strip("_"),
            modes_in_force(), self._seed() if is_random(target) else None,
        )  # fmt: skip
        return self._run(step, call, real_args, real_kwargs)

    def array(self, receiver: Value, kwargs: dict[str, Any]) -> NDArray[Any]:
        """Record the taking of a tensor's elements as an array of numpy."""
        real_args, _, real_kwargs, step_kwargs = split(self, (receiver,), kwargs, None, ARRAY)
        step = Step(CALL_METHOD, ARRAY, (receiver._ref,), step_kwargs, "array", modes_in_force())
        self._run(step, lambda tensor, **given: tensor.numpy(**given).copy(), real_args, real_kwargs)
        return read_only(receiver._tensor, real_kwargs)

    def call_module(self, module: RecordedModule, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401
        """Record a module's forward; its seed makes dropout inside repeat."""
        real_args, step_args, real_kwargs, step_kwargs = split(self, args, kwargs, None, module.target)
        modes = modes_in_force()
        step = Step(
            CALL_MODULE,
            module.target,
            (module.ref, *step_args),
            step_kwargs,
            module.label,
            modes,
            self._seed(),
        )
        return self._run(step, module.real, real_args, real_kwargs)

    def module_method(self, module: RecordedModule, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Record a method that changes a module; part of the setup until the module is first called."""
        call = getattr(module.real, target)
        real_args, step_args, real_kwargs, step_kwargs = split(self, args, kwargs, call, target)
        step = Step(
            CALL_METHOD,
            target,
            (module.ref, *step_args),
            step_kwargs,
            target,
            in_setup=not module.root.was_called,
        )
        self._run(step, call, real_args, real_kwargs)

    def get_attr(self, module: RecordedModule, name: str) -> Any:  # noqa: ANN401 - a parameter, a buffer
        """Record the reading of a module's parameter or buffer."""
        modes = modes_in_force()
        step = Step(GET_ATTR, name, (module.ref,), (), name, modes)
        return self._run(step, lambda: getattr(module.real, name), [], {})

    def output(self, returned: object) -> None:
        """Record what the body returned; nothing returned stands for every value that no step used.

        Raises:
            AuthorError: Something that is not a recorded tensor was returned.
        """
        found = self._unused() if returned is None else tuple(self._returned(returned))
        if not self.keeps_graph:
            found += tuple(gradient._ref for leaf in unread(self) if isinstance(gradient := leaf.grad, Value))
        self.outputs = found
        self.steps.append(Step(OUTPUT, "output", found, (), "output"))
        self.trace.values.append(None)
        self.trace.facts.append(None)

    def _returned(self, value: object) -> list[Ref]:
        if isinstance(value, Value):
            return [value._ref]
        if value is None:
            return []
        if isinstance(value, dict):
            value = tuple(value.values())
        if isinstance(value, tuple | list):
            return [ref for item in value for ref in self._returned(item)]
        message = f"the body returns {_kind(value)}. Return a recorded tensor, a tuple of them, or nothing."
        raise AuthorError(message)

    def _unused(self) -> tuple[Ref, ...]:
        used = {ref.index for step in self.steps for ref in step_refs(step)}
        return tuple(
            Ref(i)
            for i, step in enumerate(self.steps)
            if i not in used and not step.in_setup and step.op != PLACEHOLDER and self.trace.facts[i] is not None
        )

    def _run(self, step: Step, call: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401
        if step.seed is not None:
            torch.default_generator.manual_seed(step.seed)
        try:
            result = call(*args, **kwargs) if kwargs else call(*args)
        except Exception as error:
            if self.rejection is None:
                self.rejection = step, Failure(len(self.steps), type(error).__name__, said(error))
            raise
        return self._keep(step, result)

    def _keep(self, step: Step, result: Any) -> Any:  # noqa: ANN401 - whatever the reference returned
        steps, trace = self.steps, self.trace
        index = len(steps)
        steps.append(step)
        trace.values.append(result)
        if isinstance(result, _Tensor):
            trace.facts.append((result.requires_grad, result.is_leaf, result._version))
            if self.watched and index in self.watched:
                keep_copy(trace, index, result)
            return Value(result, ref_to(index), self)
        trace.facts.append(None)
        if isinstance(result, _SCALARS):
            return result
        if isinstance(result, tuple | list):
            items = [self._unpacked(step, index, i, item) for i, item in enumerate(result)]
            if hasattr(result, "n_fields"):
                return _named(type(result))(*items)
            return items if type(result) is list else tuple(items)
        return result

    def _unpacked(self, step: Step, index: int, position: int, item: Any) -> Any:  # noqa: ANN401
        taken = Step(CALL_FUNCTION, UNPACK, (Ref(index), position), (), step.name)
        return self._keep(taken, item)

    def _construct(self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> RecordedModule:
        real_args, step_args, real_kwargs, step_kwargs = split(self, args, kwargs, function)
        self._hoist(step_args, step_kwargs)
        step = Step(CALL_FUNCTION, function.target, step_args, step_kwargs, "module", in_setup=True)
        self._run(step, function.real, real_args, real_kwargs)
        index = len(self.steps) - 1
        module = self.trace.values[index]
        if self.device.type != "cpu":
            module.to(self.device)
        self.has_setup = True
        recorded = RecordedModule(module, Ref(index), self, function.target)
        self.modules.append(recorded)
        self.snapshot(module, recorded.ref)
        return recorded

    def snapshot(self, module: torch.nn.Module, ref: Ref) -> None:
        """Store the state that the module has before its first forward."""
        items = []
        for name, tensor in module.state_dict().items():
            key = f"t{len(self.sources)}"
            source = tensor.detach().clone()
            self.sources[key] = source
            label = name.replace(".", "_")
            self._keep(Step(PLACEHOLDER, key, (contiguous_spec(source),), (), label, in_setup=True), source)
            items.append((name, Ref(len(self.steps) - 1)))
        if items:
            self.steps.append(Step(CALL_METHOD, "load_state_dict", (ref, Mapping_(tuple(items))), in_setup=True))
            self.trace.values.append(None)
            self.trace.facts.append(None)

    def _hoist(self, args: tuple[Any, ...], kwargs: tuple[tuple[str, Any], ...]) -> None:
        """Move to the setup what a module is constructed with: a tensor, and all that it was made of."""
        held = [argument for argument in (*args, *(value for _, value in kwargs)) if type(argument) not in _NUMBERS]
        wanted = [ref.index for argument in held for ref in refs(argument)]
        while wanted:
            index = wanted.pop()
            step = self.steps[index]
            if not step.in_setup:
                self.steps[index] = step._replace(in_setup=True)
                wanted += [ref.index for ref in step_refs(step)]

    def capture(self, tensor: torch.Tensor) -> Value:
        """Record a tensor that plain torch made as an input, once for each version that plain torch gives it.

        One that requires grad is a leaf that does: a parameter of the user's, or what plain torch computed from some;
        the gradient that reaches it is compared.
        """
        held = self.captured.get(id(tensor))
        if held is not None and held[2] == tensor._version:
            return held[1]
        source = tensor.detach().clone(memory_format=torch.contiguous_format)
        spec = replace(contiguous_spec(source), requires_grad=tensor.requires_grad)
        value = self.tensor(source, spec, "parameter" if isinstance(tensor, torch.nn.Parameter) else "captured")
        self.captured[id(tensor)] = (tensor, value, tensor._version)
        return value

    def part(self, module: RecordedModule, path: str) -> RecordedModule:
        """Record the taking of a part out of a module; it belongs to the setup, as the module does."""
        real = module.real.get_submodule(path)
        step = Step(CALL_METHOD, "get_submodule", (module.ref, path), (), "module", in_setup=True)
        self._run(step, lambda: real, [], {})
        target = f"torch.nn.{type(real).__name__}"
        return RecordedModule(real, Ref(len(self.steps) - 1), self, target, module.root)

    def read_path(self, module: RecordedModule, target: str, path: str) -> Any:  # noqa: ANN401 - a parameter, a buffer
        """Record the reading of a parameter or buffer by its path."""
        step = Step(CALL_METHOD, target, (module.ref, path), (), path.replace(".", "_"), modes_in_force())
        return self._run(step, lambda: getattr(module.real, target)(path), [], {})

    def set_attribute(self, module: RecordedModule, name: str, value: object) -> None:
        """Record the assignment of a parameter, a buffer or a setting of a module."""
        real, said = one(self, value)
        step = Step(CALL_FUNCTION, "builtins.setattr", (module.ref, name, said), (), f"set_{name}", modes_in_force())
        self._run(step, lambda: setattr(module.real, name, real), [], {})

    def load_state(self, module: RecordedModule, state: dict[str, Any], *, strict: bool) -> None:
        """Record the loading of a state in the body."""
        real, said = one(self, state)
        step = Step(CALL_METHOD, "load_state_dict", (module.ref, said), (("strict", strict),), "loaded")
        self._run(step, lambda: module.real.load_state_dict(real, strict=strict), [], {})

    def register_hook(self, receiver: Value, function: Callable[[Any], Any]) -> Handle:
        """Record a hook on a value's gradient."""
        return register_hook(self, receiver, function)

    def begin_hook(self) -> list[Any]:
        """Begin to remember every value; return the list."""
        self.__class__ = Hooking
        self.hook_values = []
        return self.hook_values

    def end_hook(self) -> None:
        """Remember values no more."""
        self.__class__ = Recorder

    def keep(self, step: Step, result: Any) -> Any:  # noqa: ANN401 - whatever the reference returned
        """Write down a step with its value."""
        return self._keep(step, result)

    def _seed(self) -> int:
        return (self.drawer.seed + 7919 * len(self.steps)) & 0xFFFF_FFFF


class Hooking(Recorder):
    """What a recorder is while a hook's function is run: the values that it makes are remembered."""

    __slots__ = ()

    def _keep(self, step: Step, result: Any) -> Any:  # noqa: ANN401 - whatever the reference returned
        value = Recorder._keep(self, step, result)
        self.hook_values.append(value)
        return value


class Ended(Recorder):
    """What a recorder becomes when its attempt is over: a value that outlived its test records nothing."""

    __slots__ = ()

    def _run(self, *_: object) -> NoReturn:
        stale()


def _kind(value: object) -> str:
    shown = f" {value!r}" if isinstance(value, int | float | str) and len(str(value)) < 80 else ""  # noqa: PLR2004
    return f"{type(value).__name__}{shown}"


@lru_cache(maxsize=256)
def _named(kind: type) -> Callable[..., tuple[Any, ...]]:
    """Return a named tuple with the fields of one of torch's own, ``values`` and ``indices``."""
    fields: tuple[str, ...] = kind.__match_args__  # type: ignore[attr-defined]
    return namedtuple(kind.__name__, fields)  # noqa: PYI024 - fields are known when it is made
