"""Programs as Python text, for the readers of a finding, for repros and for compilers.

Every printed name is either generated here or on the allow list, and strings are printed by ``repr``, so that no text
of a program becomes code. Numbers are exact: the shortest text that reads back to the same bits.
"""

from __future__ import annotations

import keyword
import math
from types import EllipsisType
from typing import TYPE_CHECKING, Final

from ci_autotest.errors import ProgramError
from ci_autotest.program.edit import used_by
from ci_autotest.program.hook_names import handle_name, kept_names
from ci_autotest.program.ir import (
    CALL_FUNCTION,
    CALL_METHOD,
    CALL_MODULE,
    CANDIDATE_MODES,
    EXPECT,
    GET_ATTR,
    HOOK,
    LOAD,
    PLACEHOLDER,
    READS_OF_MODULES,
    REGISTERS,
    SAVE,
    UNHOOKED,
    UNPACK,
    Copy,
    Device,
    DType,
    FrameworkConstant,
    List,
    Mapping_,
    Ref,
    Slice,
    autocast_dtype,
    output_refs,
    step_refs,
)
from ci_autotest.program.python_names import is_in_module, is_name, is_path
from ci_autotest.program.random_calls import seeds_of
from ci_autotest.program.refusal import bare, refused_as
from ci_autotest.program.targets import is_function, is_own, makes_module

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ci_autotest.program.ir import Argument, Program, Step

#: Python's signs by the names of the ``operator`` module.
SIGNS: Final = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**", "matmul": "@",
    "and_": "&", "or_": "|", "xor": "^", "lshift": "<<", "rshift": ">>", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
    "eq": "==", "ne": "!=",
}  # fmt: skip
PREFIX_SIGNS: Final = {"neg": "-", "pos": "+", "invert": "~"}
_AUGMENTED: Final = {f"i{name.rstrip('_')}": f"{symbol}=" for name, symbol in SIGNS.items()}
#: The module whose names recorded programs use.
TORCH: Final = "torch"
_ADAPTERS: Final = "adapters."
_KEYWORDS: Final = frozenset({*keyword.kwlist, "torch", "device", "stored"})
#: How a graph check compiles a body: as one graph or not at all, with the compiler that needs only torch.
GRAPH_OPTIONS: Final = (("backend", "aot_eager"), ("fullgraph", True))
#: Builtins that printed code calls. A value of such a name would hide the builtin.
_CALLED: Final = frozenset({"abs", "bool", "int", "float", "len", "complex", "getattr", "setattr"})
#: Names that the scripts around it use: an input that its author calls so is printed as ``found_0``.
_OF_SCRIPTS: Final = frozenset({
    "all", "any", "bytearray", "bytes", "dict", "enumerate", "isinstance", "list", "map", "max", "min", "next",
    "open", "print", "range", "repr", "set", "sorted", "str", "sum", "tuple", "type", "zip", "torch", "np", "numpy",
    "json", "io", "os", "sys", "re", "math", "device", "found", "program", "candidate", "reference", "inputs",
    "outputs", "gradients", "function", "stored", "weights", "leaves", "run", "main", "shown", "kernel", "data", "fx",
    "ranks", "rank", "group", "mesh", "model", "module", "raised", "error", "status", "name", "side", "how", "given",
    "wanted", "differs",
})  # fmt: skip


def names(program: Program) -> tuple[str, ...]:
    """Return a unique, readable name for each step's value; not that of an adapter or of a module of the user's."""
    taken = {step.target.removeprefix(_ADAPTERS) for step in program.steps if step.target.startswith(_ADAPTERS)}
    taken |= {step.target.partition(".")[0] for step in program.steps if is_own(step.target)}
    found = []
    for step in program.steps:
        base = step.name if is_name(step.name) and step.name not in _KEYWORDS else "value"
        if base in _CALLED or (step.op == PLACEHOLDER and base in _OF_SCRIPTS):
            base = f"{base}_0"
        name, count = base, 1
        while name in taken:
            name, count = f"{base}_{count}", count + 1
        taken.add(name)
        found.append(name)
    return tuple(found)


def expression(
    step: Step, named: Sequence[str], rename: Callable[[str], str] | None = None, namespace: str = TORCH
) -> str:
    """Return the text of what a step computes.

    Args:
        step: A call.
        named: Each step's name, by index.
        rename: Returns how a target is spelled; used where a candidate's function replaces the call.
        namespace: The framework's module. If it is not torch, targets are that framework's own names.
    """
    args = [literal(arg, named, namespace) for arg in step.args]
    kwargs = [f"{_identifier(key)}={literal(value, named, namespace)}" for key, value in step.kwargs]
    # A replaced operator is printed as a call, because a kernel has no sign such as `+`.
    if step.op == CALL_FUNCTION and rename is not None and (other := rename(step.target)) != step.target:
        return f"{other}({', '.join(args + kwargs)})"
    if step.op == CALL_FUNCTION:
        return _function(step, args, kwargs, namespace)
    spelled = f"{TORCH}.Tensor.{step.target}"
    if step.op == CALL_METHOD and rename is not None and (other := rename(spelled)) != spelled:
        return f"{other}({', '.join(args + kwargs)})"
    if step.op == CALL_METHOD and step.target in READS_OF_MODULES and namespace != TORCH:
        return f"{args[0]}{_in_module(step.args[1])}"
    if step.op == CALL_METHOD:
        return f"{args[0]}.{_identifier(step.target)}({', '.join(args[1:] + kwargs)})"
    if step.op == CALL_MODULE:
        return f"{args[0]}({', '.join(args[1:] + kwargs)})"
    if step.op == GET_ATTR:
        return f"{args[0]}.{_identifier(step.target)}"
    message = f"a step with opcode {step.op!r} cannot be printed as code."
    raise ProgramError(message)


def _in_module(path: Argument) -> str:
    """Return the text after a module that reads a part or a tensor of it, ``[0].weight``."""
    if not isinstance(path, str) or not is_in_module(path):
        message = f"{str(path)[:60]!r} names nothing in a module and is never printed as code."
        raise ProgramError(message)
    return "".join(f"[{part}]" if part.isdecimal() else f".{_identifier(part)}" for part in path.split("."))


def _function(step: Step, args: list[str], kwargs: list[str], namespace: str) -> str:
    if step.target in {UNPACK, EXPECT}:
        return f"{args[0]}[{args[1]}]" if step.target == UNPACK else f"{args[0]}.detach().clone()"
    if step.target == "builtins.getattr" and isinstance(step.args[1], str):
        return f"{args[0]}.{_identifier(step.args[1])}"
    # Which names of another framework may be used is checked where its program is read; here only their form.
    if not (is_function(step.target) or is_own(step.target) if namespace == TORCH else is_path(step.target)):
        message = f"target {step.target[:60]!r} is not on the allow list and is never printed as code."
        raise ProgramError(message)
    package, _, name = step.target.rpartition(".")
    if package == "operator":
        if name in SIGNS:
            return f"{args[0]} {SIGNS[name]} {args[1]}"
        if name in PREFIX_SIGNS:
            return f"{PREFIX_SIGNS[name]}{args[0]}"
        if name == "getitem":
            return f"{args[0]}[{_index(args[1])}]"
        return f"{name}({', '.join(args)})"
    if package in {"builtins", "adapters"}:  # a script defines the adapters that it calls
        if package == "adapters":
            return f"{name}({', '.join(args + kwargs)})"
        return f"{name}({', '.join(args)})"
    return f"{step.target}({', '.join(args + kwargs)})"


def _index(text: str) -> str:
    # An empty tuple keeps its parentheses, because `x[]` is no Python.
    return text[1:-1].removesuffix(",") if text.startswith("(") and text.endswith(")") and text != "()" else text


def statement(
    index: int,
    step: Step,
    named: Sequence[str],
    rename: Callable[[str], str] | None = None,
    namespace: str = TORCH,
    *,
    is_bound: bool = True,
) -> list[str]:
    """Return the lines that execute a step; they bind its value if ``is_bound``."""
    if step.modes and refused_as(step) is not None:
        return _tried(index, step, named, rename, namespace)
    name = named[index]
    operator_name = step.target.removeprefix("operator.") if step.op == CALL_FUNCTION else ""
    if step.target.startswith("operator.") and operator_name in _AUGMENTED:
        target, other = (literal(arg, named, namespace) for arg in step.args)
        # The name is bound first, because `+=` is a statement: it has no value that could be bound.
        lines = [f"{name} = {target}", f"{name} {_AUGMENTED[operator_name]} {other}"]
    elif step.target == "builtins.setattr":
        target, _, other = (literal(arg, named, namespace) for arg in step.args)
        lines = [f"{target}.{_identifier(str(step.args[1]))} = {other}"]
    elif step.target == SAVE:
        (saved,) = (literal(arg, named, namespace) for arg in step.args)
        lines = [f"{name} = io.BytesIO()", f"{namespace}.save({saved}, {name})"]
    elif step.target == LOAD:
        lines = _loaded(step, named, name, namespace)
    elif operator_name == "setitem":
        target, at, other = (literal(arg, named, namespace) for arg in step.args)
        lines = [f"{target}[{_index(at)}] = {other}"]
    else:
        text = expression(step, named, rename, namespace)
        lines = [f"{name} = {text}" if is_bound else text]
    for mode in step.modes:
        # These say when a step runs, or are of a candidate alone, and are no blocks.
        if mode in {*HOOK, *REGISTERS} or mode in CANDIDATE_MODES:
            continue
        lines = [f"with {_block(mode, namespace)}:", *(f"    {line}" for line in lines)]
    return lines if step.seed is None else [f"{namespace}.manual_seed({step.seed})", *lines]


def _loaded(step: Step, named: Sequence[str], name: str, namespace: str) -> list[str]:
    """Return the lines that load what an earlier step has saved to memory."""
    (saved,) = (literal(arg, named, namespace) for arg in step.args)
    where = [f"{_identifier(key)}={literal(value, named, namespace)}" for key, value in step.kwargs]
    return [f"{saved}.seek(0)", f"{name} = {namespace}.load({', '.join([saved, *where, 'weights_only=True'])})"]


def _tried(
    index: int, step: Step, named: Sequence[str], rename: Callable[[str], str] | None, namespace: str
) -> list[str]:
    """Return the lines for a step that the reference refused; its value is the class of the exception."""
    name = named[index]
    lines = statement(index, bare(step), [*named[:index], "_", *named[index + 1 :]], rename, namespace)
    return [
        f"{name} = ''",
        "try:",
        *(f"    {line.removeprefix('_ = ') if len(lines) == 1 else line}" for line in lines),
        "except Exception as error:",
        f"    {name} = type(error).__name__",
    ]


def _block(mode: str, namespace: str) -> str:
    dtype = autocast_dtype(mode)
    if dtype is None:
        return f"{namespace}.no_grad()"
    return f"{namespace}.autocast(device.type, dtype={namespace}.{dtype}, cache_enabled=False)"


def body_lines(program: Program, *, rename: Callable[[str], str] | None = None, namespace: str = TORCH) -> list[str]:
    """Return the statements of the body, without placeholders and without the output."""
    return [line for _, lines in body_statements(program, rename=rename, namespace=namespace) for line in lines]


def body_statements(
    program: Program, *, rename: Callable[[str], str] | None = None, namespace: str = TORCH
) -> list[tuple[int, list[str]]]:
    """Return the index and the lines of each step of the body, without placeholders and without the output."""
    named, seeds = named_outside(program), seeds_of(program)
    found = []
    for index, step in program.numbered:
        if step.target == "register_hook":
            found.append((index, _hook(program, index, rename)))
        elif step.target == UNHOOKED:
            found.append((index, [f"{handle_name(program.steps, step.args[0], named)}.remove()"]))
        elif step.is_call and HOOK[0] not in step.modes:
            repeats = _repeats(program, index - program.start)
            seeded = step._replace(seed=seeds.get(index))
            lines = statement(index, seeded, named, rename, namespace, is_bound=repeats is None)
            if repeats is None:
                found.append((index, lines))
            elif repeats:
                found.append((index, [f"for _ in range({repeats}):", *(f"    {line}" for line in lines)]))
    return found


#: From this many consecutive identical calls on whose results are unused, a loop is printed.
_LOOP: Final = 4


def _repeats(program: Program, offset: int) -> int | None:
    """Return the length of the loop that starts at a step, 0 inside a loop, and ``None`` outside of any."""
    steps, start = program.body, program.start
    used = {ref.index - start for step in steps for ref in step_refs(step)}

    def is_alike(at: int) -> bool:
        return (
            0 <= at < len(steps)
            and at not in used
            and steps[at]._replace(name="") == steps[offset]._replace(name="")
            and steps[at].op == CALL_FUNCTION
            and not steps[at].modes
            and steps[at].seed is None
        )

    if not is_alike(offset):
        return None
    first = last = offset
    while is_alike(first - 1):
        first -= 1
    while is_alike(last + 1):
        last += 1
    count = last - first + 1
    if count < _LOOP:
        return None
    return count if offset == first else 0


def named_outside(program: Program) -> list[str]:
    """Return each step's name outside of hooks. A value that a hook keeps is the last item of its list."""
    named = list(names(program))
    for index, name in kept_names(program.steps, named).items():
        named[index] = f"{name}[-1]"
    return named


def _hook(program: Program, index: int, rename: Callable[[str], str] | None) -> list[str]:
    """Return the definition of a hook's function, and its registration."""
    steps, plain, named = program.steps, names(program), named_outside(program)
    kept = kept_names(steps, plain)
    begin = steps[index].args[1]
    assert isinstance(begin, Ref)  # noqa: S101 - checked when read
    own = range(begin.index, index)
    inside = [plain[i] if i in own else name for i, name in enumerate(named)]
    inner = []
    for i in own:
        inner += statement(i, steps[i], inside, rename) if i > begin.index else []
        inner += [f"{kept[i]}.append({plain[i]})"] if i in kept else []
    receiver, first, result = (literal(arg, inside) for arg in steps[index].args)
    handle = handle_name(steps, Ref(index), plain)
    return [
        *(f"{kept[i]} = []" for i in own if i in kept),
        f"def {plain[index]}({first}):",
        *(f"    {line}" for line in [*inner, f"return {result}"]),
        f"{f'{handle} = ' if handle else ''}{receiver}.register_hook({plain[index]})",
    ]


def setup_lines(program: Program, namespace: str = TORCH, *, rename: Callable[[str], str] | None = None) -> list[str]:
    """Return the statements of the setup; placeholders and unused results of methods are not bound."""
    named = names(program)
    used = used_by(program.steps)
    lines = []
    for index, step in enumerate(program.setup):
        if step.op != PLACEHOLDER:
            is_bound = step.op != CALL_METHOD or index in used
            lines += statement(index, step, named, rename, namespace, is_bound=is_bound)
    return lines


def output_text(program: Program) -> str:
    """Return the outputs as a tuple, ``(softmax, max_1)``."""
    named = named_outside(program)
    shown = [named[ref.index] for ref in output_refs(program)]
    return f"({', '.join(shown)}{',' if len(shown) == 1 else ''})"


def inputs(program: Program) -> tuple[tuple[str, int], ...]:
    """Return ``(name, index)`` of the body's inputs: modules and values of the setup, then its own placeholders."""
    named = names(program)
    found = [(named[i], i) for i in program.inputs]
    used = used_by(program.body)
    made = [(named[i], i) for i, step in enumerate(program.setup) if i in used or makes_module(step)]
    return tuple(made + found)


def function_text(program: Program, name: str = "program", *, rename: Callable[[str], str] | None = None) -> str:
    """Return a function that takes the body's inputs and returns its outputs."""
    takes = ", ".join(name for name, _ in inputs(program))
    lines = [*body_lines(program, rename=rename), f"return {output_text(program)}"]
    return "\n".join([f"def {name}({takes}):", *(f"    {line}" for line in lines)]) + "\n"


def literal(argument: Argument, named: Sequence[str], namespace: str = TORCH) -> str:  # noqa: C901, PLR0911 - one arm per kind of argument
    """Return the text of an argument."""
    match argument:
        case Ref(index):
            return named[index]
        case Copy(ref):
            return f"{named[ref.index]}.clone()"
        case bool() | None | str():
            return repr(argument)
        case int() | float():
            # In parentheses, because `-2 ** 2` is -4.
            return f"({number(argument)})" if argument < 0 else number(argument)
        case complex():
            return f"complex({number(argument.real)}, {number(argument.imag)})"
        case DType(name):
            return f"{namespace}.{_identifier(name)}"
        case Device(symbol):
            return "device" if symbol != "cpu" else "'cpu'"
        case FrameworkConstant(target):
            return f"{namespace}.{_identifier(target.removeprefix('torch.'))}"
        case tuple():
            inner = ", ".join(literal(item, named, namespace) for item in argument)
            return f"({inner}{',' if len(argument) == 1 else ''})"
        case List(items):
            return f"[{', '.join(literal(item, named, namespace) for item in items)}]"
        case Mapping_(items):
            return "{" + ", ".join(f"{key!r}: {literal(value, named, namespace)}" for key, value in items) + "}"
        case Slice(start, stop, step):
            shown = ["" if bound is None else literal(bound, named, namespace) for bound in (start, stop, step)]
            return f"{shown[0]}:{shown[1]}" + (f":{shown[2]}" if shown[2] else "")
        case EllipsisType():
            return "..."
        case _:
            message = f"a {type(argument).__name__} cannot be printed as code."
            raise ProgramError(message)


def number(value: float) -> str:
    """Return the exact text of a number."""
    if not isinstance(value, int) and not math.isfinite(value):  # isfinite fails for integers beyond float64
        return f"float({str(value)!r})"
    return repr(value)


def _identifier(name: str) -> str:
    if not is_name(name):
        message = f"{name[:60]!r} is not an identifier and is never printed as code."
        raise ProgramError(message)
    return name
