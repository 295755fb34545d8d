"""Convert programs to ``torch.fx`` graphs, so that a user's pass can transform them.

The body becomes the graph, and a module of the setup a submodule with its printed name, so that passes that look for
``call_module`` find it. torch.fx has no modes, so calls around a node stand for them: ``torch._C._set_grad_enabled``
before and after a step without gradients, autocast's enter and exit, and a seed before a random step.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import fx
from torch.amp.autocast_mode import _enter_autocast, _exit_autocast
from torch.fx.node import has_side_effect

from ci_autotest.backends.torch_steps import own_result, resolve
from ci_autotest.host.steps import PYTHON_TARGETS, materialize
from ci_autotest.program.codegen import names, needs_seed
from ci_autotest.program.ir import (
    CALL_FUNCTION,
    CALL_METHOD,
    CALL_MODULE,
    EXPECT,
    GET_ATTR,
    NO_GRAD,
    OUTPUT,
    OWN_DEVICE,
    PLACEHOLDER,
    Device,
    Ref,
    autocast_dtype,
    output_refs,
    refs,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ci_autotest.program.ir import Argument, Program, Step

#: Python's functions by their own names, because torch.fx prints a target by its name.
_BUILTINS: Final[dict[str, Any]] = {f"builtins.{f.__name__}": f for f in (bool, int, float, len, getattr)}
_BUILTINS[EXPECT] = own_result

_NUMBERS: Final = frozenset({"builtins.bool", "builtins.int", "builtins.float"})


def to_graph(program: Program, constant: Callable[[Argument], Any]) -> fx.Graph:
    """Return the body of a program as a graph: its placeholders, its steps, and its outputs as a tuple.

    Args:
        program: Setup and body.
        constant: Converts an argument to a dtype, device or constant of torch.

    Raises:
        ProgramError: A target is not an operator of torch.
    """
    return _Converter(program, constant).graph


def to_graph_module(
    program: Program, modules: Mapping[int, torch.nn.Module], constant: Callable[[Argument], Any]
) -> fx.GraphModule:
    """Return the body of a program as a module that takes its placeholders in order and returns its outputs.

    Args:
        program: Setup and body.
        modules: The setup's modules by the index of the step that constructed each.
        constant: Converts an argument to a dtype, device or constant of torch.
    """
    named = names(program)
    root = torch.nn.Module()
    for index, module in modules.items():
        root.add_module(named[index], module)
    root.training = any(module.training for module in modules.values())
    return fx.GraphModule(root, to_graph(program, constant), "Program")


class _Converter:
    """The conversion of one program."""

    def __init__(self, program: Program, constant: Callable[[Argument], Any]) -> None:
        for effect in (torch.manual_seed, setattr, torch.autograd.backward):
            has_side_effect(effect)  # Otherwise torch.fx's dead-code pass would drop them.
        self.graph = fx.Graph()
        self._constant = constant
        self._named = names(program)
        self._count = len(program.setup)
        self._nodes: dict[int, fx.Node] = {}
        if any(step.target == "register_hook" for step in program.body):
            message = "torch.fx has no hooks"
            raise NotImplementedError(message)
        for offset, step in enumerate(program.body):
            self._add(self._count + offset, step, program)

    def _add(self, index: int, step: Step, program: Program) -> None:
        graph, name = self.graph, self._named[index]
        if step.op == OUTPUT:
            graph.output(tuple(self._value(ref.index) for ref in output_refs(program)))
        elif step.op == PLACEHOLDER:
            self._nodes[index] = graph.create_node("placeholder", name, name=name)
        else:
            # With its own seed, a random step draws the same numbers whatever the pass does to steps before it.
            with_seed = step.seed is not None and needs_seed(step)
            if with_seed:
                graph.call_function(torch.manual_seed, (step.seed,))
            with self._in_modes(step):
                self._nodes[index] = self._call(step, name)

    @contextmanager
    def _in_modes(self, step: Step) -> Iterator[None]:
        """Put the calls around a node that enter and leave its modes."""
        graph = self.graph
        dtype = next(filter(None, map(autocast_dtype, step.modes)), None)
        is_off = NO_GRAD[0] in step.modes
        kind = self._constant(Device(OWN_DEVICE)).type
        entered = graph.call_function(_enter_autocast, (kind, getattr(torch, dtype), True, False)) if dtype else None
        if is_off:
            graph.call_function(torch._C._set_grad_enabled, (False,))
        yield
        if is_off:
            graph.call_function(torch._C._set_grad_enabled, (True,))
        if entered is not None:
            graph.call_function(_exit_autocast, (entered,))

    def _call(self, step: Step, name: str) -> fx.Node:
        module = self._module(step)
        if step.op == GET_ATTR and module is not None:
            return self.graph.create_node("get_attr", f"{module}.{step.target}", name=name)
        kwargs = {key: self._argument(value) for key, value in step.kwargs}
        if step.op == CALL_MODULE and module is not None:
            args = tuple(self._argument(arg) for arg in step.args[1:])
            return self.graph.create_node("call_module", module, args, kwargs, name)
        args = tuple(self._argument(arg) for arg in step.args)
        if step.op == CALL_METHOD:
            return self.graph.create_node("call_method", step.target, args, kwargs, name)
        if step.op == GET_ATTR:
            return self.graph.create_node("call_function", getattr, (*args, step.target), {}, name)
        if step.target in _NUMBERS:
            args = (self.graph.call_method("detach", args),)  # Else torch warns if the tensor requires grad.
        return self.graph.create_node("call_function", function_of(step.target), args, kwargs, name)

    def _module(self, step: Step) -> str | None:
        """Return the name of the submodule that a step is called on; ``None`` if there is none."""
        receiver = step.args[0] if step.args else None
        return self._named[receiver.index] if isinstance(receiver, Ref) and receiver.index < self._count else None

    def _argument(self, argument: Argument) -> Any:
        nodes = {ref.index: self._value(ref.index) for ref in refs(argument)}
        return materialize(argument, nodes, self._constant)  # type: ignore[arg-type]

    def _value(self, index: int) -> fx.Node:
        """Return the node of a value; for a module of the setup, a node that reads it from the root module."""
        found = self._nodes.get(index)
        return found if found is not None else self.graph.get_attr(self._named[index])


def function_of(target: str) -> Callable[..., Any]:
    """Return the function that a ``call_function`` step calls, as an object that torch.fx can print.

    Raises:
        ProgramError: The target is not an operator of torch.
    """
    return _BUILTINS.get(target) or PYTHON_TARGETS.get(target) or resolve(target)


def printed(module: fx.GraphModule) -> tuple[str, str]:
    """Return a graph module as text: its code and its submodules."""
    return module.code, "\n".join(f"{name}: {part}" for name, part in module.named_children())


def modules_of(program: Program, values: Sequence[Any]) -> dict[int, torch.nn.Module]:
    """Return the setup's live modules and submodules, by the index of the step that returned each."""
    return {
        index: values[index]
        for index, step in enumerate(program.setup)
        if (step.op == CALL_FUNCTION or step.target == "get_submodule") and isinstance(values[index], torch.nn.Module)
    }
