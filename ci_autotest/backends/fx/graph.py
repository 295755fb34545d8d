"""Convert programs to ``torch.fx`` graphs, so that a user's pass can transform them.

The body becomes the graph. A module of the setup is a submodule with its printed name, and what was recorded inside a
module of plain torch is a call of its layers again (``module_tree``), so that passes that look for ``call_module`` find
them. As in ``torch.fx.symbolic_trace``, a ``Sequential`` or a class of the user's is entered.

torch.fx has no modes, so calls around a node stand for them: gradients off and on, autocast's enter and exit, and a
seed before a random step. A pass that traces the graph again keeps these calls, because they depend on an input.
"""

from __future__ import annotations

import inspect
import operator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import fx
from torch.amp.autocast_mode import _enter_autocast, _exit_autocast
from torch.fx.node import has_side_effect

from ci_autotest.backends.torch_steps import own_result, resolve
from ci_autotest.backends.user_errors import FOREIGN, pass_interrupt
from ci_autotest.host.steps import PYTHON_TARGETS, materialize
from ci_autotest.program.codegen import names
from ci_autotest.program.ir import (
    CALL_FUNCTION,
    CALL_METHOD,
    CALL_MODULE,
    EXPECT,
    GET_ATTR,
    NO_GRAD,
    OUTPUT,
    OWN_DEVICE,
    PARAMETER,
    PLACEHOLDER,
    Device,
    autocast_dtype,
    is_without_grad,
    output_refs,
    refs,
)
from ci_autotest.program.module_calls import module_tree
from ci_autotest.program.random_calls import seeds_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ci_autotest.program.ir import Argument, ModuleCall, Program, Step
    from ci_autotest.program.module_calls import CalledModule, Tree

#: Python's functions by their own names, because torch.fx prints a target by its name.
_BUILTINS: Final[dict[str, Any]] = {f"builtins.{f.__name__}": f for f in (bool, int, float, len, getattr)}
_BUILTINS[EXPECT] = own_result

#: Key in a node's ``meta`` of the index of its step.
STEP: Final = "step"
_NUMBERS: Final = frozenset({"builtins.bool", "builtins.int", "builtins.float"})


def to_graph_module(program: Program, values: Sequence[Any], constant: Callable[[Argument], Any]) -> fx.GraphModule:
    """Return the body of a program as a module that takes its inputs in order and returns its outputs as a tuple.

    Args:
        program: Setup and body.
        values: Values of the setup and of the placeholders; those that are parameters and buffers of a module of the
            user's (``states_of``) become attributes of the result.
        constant: Converts an argument to a dtype, device or constant of torch.

    Raises:
        ProgramError: A target is not an operator of torch.
    """
    tree, root = module_tree(program), torch.nn.Module()
    modules = {path: values[index] for index, path in modules_of(program, values).items()}
    for call in tree.calls.values():
        if call.path not in modules:
            modules[call.path] = _constructed(call.module).to(constant(Device(OWN_DEVICE)))
    for path, module in modules.items():
        _add(root, path, module)
    for index, path in tree.states.items():
        spec, value = program.steps[index].spec, values[index]
        if spec is not None and spec.state == PARAMETER:
            value = torch.nn.Parameter(value.detach(), spec.requires_grad)
        _add(root, path, value)
    root.training = any(module.training for module in modules.values())
    return fx.GraphModule(root, _Converter(program, tree, modules, constant).graph, "Program")


def _constructed(call: ModuleCall) -> torch.nn.Module:
    """Return the module that steps were recorded in, without its state."""
    module: torch.nn.Module = function_of(call.target)(**dict(call.kwargs))
    return module.train(call.training)


def _add(root: torch.nn.Module, path: str, value: torch.nn.Module | torch.Tensor) -> None:
    """Set an attribute of a module or of a part of it, and add the parts on the way."""
    *parts, name = path.split(".")
    for part in parts:
        if part not in root._modules:
            root.add_module(part, torch.nn.Module())
        root = root.get_submodule(part)
    if type(value) is torch.Tensor and name not in root._buffers:
        root.register_buffer(name, value)
    else:
        setattr(root, name, value)


class _Converter:
    """The conversion of one program."""

    def __init__(
        self,
        program: Program,
        tree: Tree,
        modules: Mapping[str, torch.nn.Module],
        constant: Callable[[Argument], Any],
    ) -> None:
        for effect in (seed, enable_grad, enter_autocast, exit_autocast, setattr, torch.autograd.backward):
            has_side_effect(effect)  # Otherwise torch.fx's dead-code pass would drop them.
        self.graph = fx.Graph()
        self._constant, self._tree, self._modules = constant, tree, modules
        self._named, self._paths = names(program), module_paths(program)
        self._seeds = seeds_of(program)
        self._is_without_grad = is_without_grad(program)
        self._nodes: dict[int, fx.Node] = {}
        if any(step.target == "register_hook" for step in program.body):
            message = "torch.fx has no hooks"
            raise NotImplementedError(message)
        for index, step in program.numbered:
            self._add(index, step)
        # A program that is cut off returns what its last step takes.
        self.graph.output(tuple(self._value(ref.index) for ref in output_refs(program)))

    def _add(self, index: int, step: Step) -> None:
        graph, name = self.graph, self._named[index]
        if step.op == OUTPUT or index in self._tree.states or index in self._tree.absorbed:
            return  # A state is read where it is used.
        if step.op == PLACEHOLDER:
            self._nodes[index] = graph.create_node("placeholder", name, name=name)
        else:
            # With its own seed, a random step draws the same numbers whatever the pass does to steps before it.
            before = frozenset(graph.nodes)
            call = self._tree.calls.get(index)
            number = self._seeds.get(index) if call is None else call.seed
            if number is not None:
                self._mode(seed, number)
            with self._in_modes(step):
                if call is None:
                    self._nodes[index] = self._call(step, name)
                else:
                    self._called(call)
            for node in reversed(graph.nodes):
                if node in before:
                    break
                node.meta[STEP] = index if call is None else call.operator

    @contextmanager
    def _in_modes(self, step: Step) -> Iterator[None]:
        """Put the calls around a node that enter and leave its modes."""
        dtype = next(filter(None, map(autocast_dtype, step.modes)), None)
        is_off = NO_GRAD[0] in step.modes and not self._is_without_grad
        kind = self._constant(Device(OWN_DEVICE)).type
        entered = self._mode(enter_autocast, kind, getattr(torch, dtype)) if dtype else None
        if is_off:
            self._mode(enable_grad, False)  # noqa: FBT003 - as torch's function takes it
        yield
        if is_off:
            self._mode(enable_grad, True)  # noqa: FBT003
        if entered is not None:
            self._mode(exit_autocast, entered)

    def _mode(self, function: Callable[..., Any], *args: Any) -> fx.Node:
        """Add a call that changes a mode; tracing the graph again keeps a wrapped function that gets a value."""
        first = next((node for node in self.graph.nodes if node.op == "placeholder"), None)
        node = self.graph.call_function(function, (*args, first))
        node.meta["is_wrapped"] = True  # as `torch.fx.wrap` does
        return node

    def _call(self, step: Step, name: str) -> fx.Node:
        module = self._module(step)
        if step.op == GET_ATTR and module is not None:
            return self.graph.create_node("get_attr", f"{module}.{step.target}", name=name)
        kwargs = {key: self._argument(value) for key, value in step.kwargs}
        if step.op == CALL_MODULE and module is not None:
            args = tuple(self._argument(arg) for arg in step.args[1:])
            entered = self._entered(module, args, kwargs)
            return entered or self.graph.create_node("call_module", module, args, kwargs, name)
        args = tuple(self._argument(arg) for arg in step.args)
        if step.op == CALL_METHOD:
            return self.graph.create_node("call_method", step.target, args, kwargs, name)
        if step.op == GET_ATTR:
            return self.graph.create_node("call_function", getattr, (*args, step.target), {}, name)
        if step.target in _NUMBERS:
            args = (self.graph.call_method("detach", args),)  # Else torch warns if the tensor requires grad.
        return self.graph.create_node("call_function", function_of(step.target), args, kwargs, name)

    def _called(self, call: CalledModule) -> None:
        """Add the call of a module of the user's in the place of its recorded steps."""
        graph = self.graph
        args = tuple(map(self._argument, call.args))
        kwargs = {key: self._argument(value) for key, value in call.kwargs}
        whole = graph.create_node("call_module", call.path, args, kwargs, self._named[call.operator])
        for index, place in call.results.items():
            node = whole
            for number in filter(None, place.split(".")):
                node = graph.call_function(operator.getitem, (node, int(number)))
            self._nodes[index] = node

    def _entered(self, path: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Add what a module calls if torch.fx enters modules of its class; ``None`` if it does not, or cannot."""
        module, tracer = self._modules[path], fx.Tracer()
        if tracer.is_leaf_module(module, path):
            return None
        try:
            bound = inspect.signature(module.forward).bind(*args, **kwargs)
            traced = tracer.trace(module)
        except FOREIGN as error:
            pass_interrupt(error)
            return None
        bound.apply_defaults()
        given = [node for node in traced.nodes if node.op == "placeholder"]
        if len(given) != len(bound.arguments) or any(str(node.target).startswith("*") for node in given):
            return None
        copied = dict(zip(given, bound.arguments.values(), strict=True))
        result = self.graph.graph_copy(traced, copied)
        for old, new in copied.items():
            if old.op in {"call_module", "get_attr"}:
                new.target = f"{path}.{old.target}"
        return result

    def _module(self, step: Step) -> str | None:
        """Return the name of the submodule that a step is called on; ``None`` if there is none."""
        return self._paths.get(step.receiver) if step.receiver is not None else None

    def _argument(self, argument: Argument) -> Any:
        nodes = {ref.index: self._value(ref.index) for ref in refs(argument)}
        return materialize(argument, nodes, self._constant)  # type: ignore[arg-type]

    def _value(self, index: int) -> fx.Node:
        """Return the node of a value; for a module of the setup, a node that reads it from the root module."""
        found = self._nodes.get(index)
        path = self._tree.states.get(index) or self._paths.get(index) or self._named[index]
        return found if found is not None else self.graph.get_attr(path)


def seed(number: int, _after: object = None) -> None:
    """Seed torch's generator."""
    torch.manual_seed(number)


def enable_grad(is_on: bool, _after: object = None) -> None:  # noqa: FBT001 - torch's
    """Turn gradients on or off."""
    torch._C._set_grad_enabled(is_on)


def enter_autocast(kind: str, dtype: torch.dtype, _after: object = None) -> object:
    """Enter autocast on a kind of device."""
    return _enter_autocast(kind, dtype, True, False)  # type: ignore[no-untyped-call] # noqa: FBT003 - torch's


def exit_autocast(entered: object, _after: object = None) -> None:
    """Exit autocast."""
    _exit_autocast(entered)  # type: ignore[no-untyped-call]


def function_of(target: str) -> Callable[..., Any]:
    """Return the function that a ``call_function`` step calls, as an object that torch.fx can print.

    Raises:
        ProgramError: The target is not an operator of torch.
    """
    return _BUILTINS.get(target) or PYTHON_TARGETS.get(target) or resolve(target)


def printed(module: fx.GraphModule) -> tuple[str, str]:
    """Return a graph module as text: its code and its submodules."""
    return module.code, "\n".join(f"{name}: {part}" for name, part in module.named_children())


def module_paths(program: Program) -> dict[int, str]:
    """Return the path of each module of the setup, by the index of the step that returned it; a part's has its owner's.

    Values of the setup that are no modules are among them.
    """
    named = names(program)
    found: dict[int, str] = {}
    for index, step in enumerate(program.setup):
        if step.target == "get_submodule" and step.receiver in found:
            found[index] = f"{found[step.receiver]}.{step.args[1]}"
        elif step.op == CALL_FUNCTION:
            found[index] = named[index]
    return found


def modules_of(program: Program, values: Sequence[Any]) -> dict[int, str]:
    """Return the paths of the setup's live modules and submodules, by the index of the step that returned each."""
    paths = module_paths(program)
    return {index: path for index, path in paths.items() if isinstance(values[index], torch.nn.Module)}
