"""The tree of the user's modules behind a program's steps, as a pass over graphs gets it.

A recorded program has the steps inside of a module. Steps that are the whole forward of a class of torch's can be a
call of that module again, and a parameter is an attribute of its module.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from ci_autotest.program.edit import renumbered_step, used_by
from ci_autotest.program.ir import CALL_FUNCTION, CALL_METHOD, PLACEHOLDER, Ref, is_unpacking, step_refs
from ci_autotest.program.python_names import is_name
from ci_autotest.program.refusal import refused_as

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ci_autotest.program.ir import Argument, ModuleCall, Program, Step

#: Methods with which a layer of torch's checks its input.
READS: Final = frozenset({"dim", "size"})
#: Name of the outermost module where a graph has more than one.
_ROOT: Final = "model"
_PLACE: Final = re.compile(r"(?:\d{1,3}|[A-Za-z]\w{0,60})(?:\.\d{1,3})*|#\d{1,4}", re.ASCII)


class CalledModule(NamedTuple):
    """A call of a module of torch's in the place of the steps of its forward.

    Attributes:
        path: The module.
        module: What its first step says of the call.
        args: Positional arguments.
        kwargs: Keyword arguments.
        results: Place in the result (``ModuleCall``) of each step whose value the forward returns, by its index.
        seed: Seed of the one step that draws random numbers; ``None`` if none does.
        operator: Index of the step that a fault of the module is named by.
    """

    path: str
    module: ModuleCall
    args: tuple[Argument, ...]
    kwargs: tuple[tuple[str, Argument], ...]
    results: Mapping[int, str]
    seed: int | None
    operator: int


class Tree(NamedTuple):
    """The modules of a program.

    Attributes:
        calls: The calls of modules, by the index of their last step: their arguments may be recorded in between.
        states: Path of the parameter or buffer that a placeholder is, by its index.
        absorbed: The other steps of the calls.
    """

    calls: Mapping[int, CalledModule]
    states: Mapping[int, str]
    absorbed: frozenset[int]


def is_module_path(path: str) -> bool:
    """Whether a text is the path of a module, parameter or buffer (``ModuleCall.path``) that is printed as code."""
    number, *names = path.split(".")
    return number.isdecimal() and all(
        name.isdecimal() or (is_name(name) and not name.startswith("__")) for name in names
    )


def is_place(text: str) -> bool:
    """Whether a text is empty or a place (``ModuleCall``) of an argument or result."""
    return not text or _PLACE.fullmatch(text) is not None


def constants_of(step: Step) -> str:
    """Return the text of a step's arguments without its references."""
    bare = renumbered_step(step, dict.fromkeys((ref.index for ref in step_refs(step)), 0))
    return repr((bare.target, bare.args, bare.kwargs))


def module_tree(program: Program) -> Tree:
    """Return the modules of a program that its steps still call as they were recorded."""
    steps = program.steps
    within = {i: step.module for i, step in enumerate(steps) if step.module is not None and not _is_edited(step)}
    known: dict[int, str] = {}
    for index, module in within.items():
        known |= {
            ref.index: path for ref, path in zip(step_refs(steps[index]), module.states, strict=True)
            if path and steps[ref.index].op == PLACEHOLDER
        }  # fmt: skip
    # Two placeholders for one parameter are its values before and after a write, which no module has at once.
    known = {index: path for index, path in known.items() if list(known.values()).count(path) == 1}
    roots = dict.fromkeys(
        path.partition(".")[0] for path in (*known.values(), *(each.path for each in within.values()))
    )
    is_leaf = any(module.target and "." not in module.path for module in within.values())
    is_named = len(roots) > 1 or is_leaf or bool(program.setup)
    prefixes = {root: f"{_ROOT}_{i}" if i else _ROOT for i, root in enumerate(roots)} if is_named else {}
    members: dict[int, list[int]] = {}
    for index, module in within.items():
        if module.call:
            members.setdefault(module.call, []).append(index)
    calls: dict[int, CalledModule] = {}
    absorbed: set[int] = set()
    for *others, last in members.values():
        found = _called(steps, [*others, last], known, prefixes)
        if found is not None:
            calls[last] = found
            absorbed |= {*others}
    return Tree(calls, {index: _path(path, prefixes) for index, path in known.items()}, frozenset(absorbed))


def _is_edited(step: Step) -> bool:
    module = step.module
    return module is None or len(module.states) != len(step_refs(step)) or module.constants != constants_of(step)


def _called(
    steps: Sequence[Step], members: list[int], known: Mapping[int, str], prefixes: Mapping[str, str]
) -> CalledModule | None:
    """Return the call that some steps were recorded in; ``None`` if they are no longer all that its forward does."""
    head = steps[members[0]].module
    assert head is not None  # noqa: S101 - each member is marked
    between = [i for i in range(members[0], members[-1] + 1) if steps[i].op != PLACEHOLDER]
    if not head.target or head.parts != len(members) or between != members:
        return None
    if any(steps[i].modes != steps[members[0]].modes for i in members):
        return None
    given: dict[str, Argument] = dict(head.given)
    for i in members:
        places = _places(steps[i], head.path, members, known)
        if places is None or any(given.setdefault(place, ref) != ref for place, ref in places):
            return None
    results = {i: each.result for i in members if (each := steps[i].module) is not None and each.result is not None}
    taken = used_by(step for i, step in enumerate(steps) if i not in members)
    if (taken & {*members}) - {*results}:
        return None
    seeds = [steps[i].seed for i in members if steps[i].seed is not None]
    operators = [i for i in members if steps[i].target not in READS and not is_unpacking(steps[i])]
    args, kwargs = _arguments(given)
    with_states = [i for i in operators if any(ref.index in known for ref in step_refs(steps[i]))]
    return CalledModule(
        _path(head.path, prefixes), head, args, kwargs, results,
        seed=seeds[0] if seeds else None, operator=(with_states or operators or members)[-1],
    )  # fmt: skip


def _places(step: Step, path: str, members: Sequence[int], known: Mapping[int, str]) -> list[tuple[str, Ref]] | None:
    """Return the arguments of the forward that a step takes; ``None`` if it takes anything else from outside."""
    module = step.module
    is_call = step.op in {CALL_FUNCTION, CALL_METHOD} and refused_as(step) is None
    if module is None or not is_call or len(module.sources) != len(module.states):
        return None
    found: list[tuple[str, Ref]] = []
    for ref, state, source in zip(step_refs(step), module.states, module.sources, strict=True):
        if state:
            if known.get(ref.index) != state or not state.startswith(f"{path}."):
                return None
        elif source.startswith("#"):
            number = int(source[1:])
            if number >= len(members) or members[number] != ref.index:
                return None
        elif source:
            found += [(place, ref) for place in source.split(" ")]
        else:
            return None
    return found


def _arguments(given: Mapping[str, Argument]) -> tuple[tuple[Argument, ...], tuple[tuple[str, Argument], ...]]:
    """Return arguments by their places as those of a call."""
    items = [(place.split("."), value) for place, value in given.items()]
    names = dict.fromkeys(place[0] for place, _ in items)
    values = {name: _nested((place[1:], value) for place, value in items if place[0] == name) for name in names}
    args = tuple(values[name] for name in sorted(filter(str.isdecimal, names), key=int))
    return args, tuple((name, value) for name, value in values.items() if not name.isdecimal())


def _nested(items: Iterable[tuple[list[str], Argument]]) -> Argument:
    known = list(items)
    if not known[0][0]:
        return known[0][1]
    names = sorted({place[0] for place, _ in known if place}, key=int)
    return tuple(_nested((place[1:], value) for place, value in known if place[:1] == [name]) for name in names)


def _path(path: str, prefixes: Mapping[str, str]) -> str:
    root, _, inner = path.partition(".")
    return ".".join(filter(None, (prefixes.get(root, ""), inner))) or _ROOT
