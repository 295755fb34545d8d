"""A pass over a body's graph as code of a repro: the body as a module with the user's modules, traced by torch.fx."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ci_autotest.program.codegen import body_statements, inputs, literal, named_outside, output_text
from ci_autotest.program.ir import is_without_grad
from ci_autotest.program.module_calls import module_tree

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ci_autotest.program.ir import ModuleCall, Program
    from ci_autotest.program.module_calls import CalledModule
    from ci_autotest.program.note import FxNote

#: A state is put there as it is, not as a new parameter, so that its gradient is compared.
_PATHS: Final = """    def put(self, path, value):
        *parts, name = path.split(".")
        for part in parts:
            if part not in self._modules:
                self.add_module(part, torch.nn.Module())
            self = self._modules[part]
        if isinstance(value, torch.nn.Module):
            self.add_module(name, value)
        elif name in self._parameters or value.requires_grad:
            self._parameters[name] = value
        else:
            self._buffers[name] = value

    def at(self, path):
        for name in path.split("."):
            self = getattr(self, name)
        return self
"""


def fx_body(program: Program, function: str, side: FxNote, name: str = "transformed") -> list[str]:
    """Return the lines of a function that traces the body by torch.fx and runs the result of the candidate's pass.

    Args:
        program: The body.
        function: Name of the body's function.
        side: What is known of the pass.
        name: Name of the function.
    """
    states, start, path = module_tree(program).states, program.start, side.transform
    # Modules become attributes of `Body`, because torch.fx traces calls of submodules only.
    held = [taken for taken, index in inputs(program) if index < start or index in states]
    values = ", ".join(taken for taken, index in inputs(program) if index >= start and index not in states)
    graph = f"torch.fx.symbolic_trace(Body({', '.join(held)}))"
    if side.takes_inputs:
        graph += f", [each.detach().clone().requires_grad_(each.requires_grad) for each in ({values},)]"
    head = "    with torch.no_grad():\n        " if is_without_grad(program) else "    "
    return [
        "class Body(torch.nn.Module):",
        f"    def __init__({', '.join(['self', *held])}):",
        "        super().__init__()",
        *(f"        {line}" for line in _attributes(program)),
        "",
        *(_PATHS.splitlines() if states or module_tree(program).calls else ()),
        f"    def forward({', '.join(filter(None, ['self', values]))}):",
        *(f"        {line}" for line in _forward(program, function)),
        "",
        "",
        f"def {name}({', '.join(taken for taken, _ in inputs(program))}):",
        f"{head}return {path}({graph})({values})",
    ]


def _attributes(program: Program) -> Iterator[str]:
    """Yield the lines that give the body its modules, parameters and buffers."""
    tree = module_tree(program)
    yield from (f"self.{name} = {name}" for name, index in inputs(program) if index < program.start)
    modules = {call.path: call.module for call in tree.calls.values()}
    yield from (f"self.put({path!r}, {_constructed(module)})" for path, module in modules.items())
    yield from (f"self.put({tree.states[i]!r}, {name})" for name, i in inputs(program) if i in tree.states)


def _constructed(module: ModuleCall) -> str:
    kwargs = ", ".join(f"{key}={literal(value, ())}" for key, value in module.kwargs)
    return f"{module.target}({kwargs}).train({module.training})"


def _call(call: CalledModule, named: Sequence[str]) -> Iterator[str]:
    """Yield the call of a module, and the names of its results."""
    given = (*(literal(arg, named) for arg in call.args), *(f"{key}={literal(arg, named)}" for key, arg in call.kwargs))
    name = named[call.operator]
    yield f"{name} = self.at({call.path!r})({', '.join(given)})"
    # That name comes last, because it may be the one of a result.
    for index, place in sorted(call.results.items(), key=lambda item: item[0] == call.operator):
        if place or index != call.operator:
            yield f"{named[index]} = {name}{''.join(f'[{number}]' for number in place.split('.') if number)}"


def _forward(program: Program, function: str) -> Iterator[str]:
    """Yield the lines of the forward: a call of the body's function, or the body with the user's modules."""
    tree, named = module_tree(program), named_outside(program)
    if not (tree.calls or tree.states):
        held = (f"self.{name}" if index < program.start else name for name, index in inputs(program))
        yield f"return {function}({', '.join(held)})"
        return
    yield from (f"{name} = self.{name}" for name, index in inputs(program) if index < program.start)
    yield from (f"{name} = self.at({tree.states[i]!r})" for name, i in inputs(program) if i in tree.states)
    for index, lines in body_statements(program):
        if index in tree.calls:
            yield from _call(tree.calls[index], named)
        elif index not in tree.absorbed:
            yield from lines
    yield f"return {output_text(program)}"
