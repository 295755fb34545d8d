"""One test as Python text: the columns in which its rows differ, what varies, its tensors, and the call."""

from __future__ import annotations

import builtins
import keyword as python_keywords
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from ci_autotest.call_capture.call_groups import NumberPlace, Repeated, written_tensor
from ci_autotest.call_capture.layout_text import WIDTH, Bracketed, bounds_of, call, flat, keyword, laid_out, number_text
from ci_autotest.call_capture.layouts import PLAIN
from ci_autotest.call_capture.observation import Elements
from ci_autotest.call_capture.stored_data import key_of
from ci_autotest.errors import ProgramError
from ci_autotest.program.codegen import PREFIX_SIGNS, SIGNS
from ci_autotest.program.ir import (
    CALL_METHOD,
    GET_ATTR,
    HOST_DEVICE,
    Device,
    DType,
    FrameworkConstant,
    List,
    Mapping_,
    Ref,
    Slice,
    autocast_dtype,
)
from ci_autotest.program.python_names import is_name
from ci_autotest.program.roles import VIEW_ATTRIBUTES
from ci_autotest.program.targets import is_attribute, is_function, is_method, is_own, last_name
from ci_autotest.program.written_values import written_receiver
from ci_autotest.values.dtypes import DIFFERENTIABLE, INTEGERS

if TYPE_CHECKING:
    from collections.abc import Callable

    from ci_autotest.call_capture.call_groups import CallGroup
    from ci_autotest.call_capture.layout_text import Text
    from ci_autotest.program.ir import Step

#: Names of a file's tests must not hide these.
_TAKEN: Final = frozenset({
    *dir(builtins), *python_keywords.kwlist, "torch", "autotest", "oneof", "random_tensor", "choice_tensor",
    "permutation_tensor", "symmetric_tensor", "positive_definite_tensor", "stored_tensor", "cpu_device", "gpu_device",
    "load_file",
})  # fmt: skip

#: Name of the column with the number of the call whose elements a row has. No argument of torch has this name.
_DATA_ROW: Final = "row"
_NAMES: Final = ("x", "y", "z", "w")
_DEFAULT_DTYPE: Final = "float32"
_EXTRA_CASES: Final = 2
#: Variable of a loop over a list of tensors whose elements are stored.
_ITEM: Final = "item"


class Columns:
    """The columns in which the rows of a test differ, each with a name.

    Args:
        group: The test.

    Attributes:
        tensors: Name of each tensor.
        columns: Names of the columns, each with its value in each row.
        data_row: The number of the call whose stored elements a row has, or the name of its column.
    """

    def __init__(self, group: CallGroup) -> None:
        self._rows = group.rows
        self.tensors = _tensor_names(group.step, len(group.slots))
        self.columns: dict[str, list[Text]] = {}
        self.data_row = self._data_row(group)
        self._dims: list[Text] = []
        for index, name in enumerate(self.tensors):
            sizes: list[Text] = [] if group.is_stored(index) else [_sizes(row.dims[index]) for row in group.rows]
            self._dims.append(self._column(f"{name}_dims", sizes) if sizes else "")
        names = _number_names(group.step, len(group.rows[0].numbers), {*self.tensors, *self.columns})
        self.numbers = [
            self._column(name, [number_text(row.numbers[at]) for row in group.rows]) for at, name in enumerate(names)
        ]
        self.ranges = [self._range(group, index, name) for index, name in enumerate(self.tensors)]

    def dims(self, index: int) -> Text:
        """Return the sizes of a tensor, or the name of their column."""
        return self._dims[index]

    def lines(self) -> list[str]:
        """Return the statement that chooses a row."""
        if not self.columns:
            return []
        columns = list(self.columns.values())
        if len(columns) == 1:
            rows: list[Text] = columns[0]
        else:
            rows = [Bracketed("(", tuple(column[at] for column in columns)) for at in range(len(self._rows))]
        return laid_out(f"{', '.join(self.columns)} = ", call("oneof", rows), ".value()")

    def _data_row(self, group: CallGroup) -> str:
        """Return the number of the call whose elements a row has; empty if the test takes none from a file."""
        if not any(map(group.is_stored, range(len(group.slots)))):
            return ""
        numbers = {row.places(): str(number) for number, row in enumerate(group.data_rows())}
        return flat(self._column(_DATA_ROW, [numbers[row.places()] for row in group.rows]))

    def _column(self, name: str, values: list[Text]) -> Text:
        if all(value == values[0] for value in values):
            return values[0]
        self.columns[name] = values
        return name

    def _range(self, group: CallGroup, index: int, name: str) -> tuple[Text, Text]:
        """Return the bounds of a tensor's elements: of integers those of each row, because indices depend on sizes."""
        slot = group.slots[index]
        seen = [row.elements[index] for row in group.rows]
        if slot.members or slot.dtype == "bool" or group.is_stored(index):
            return "", ""
        if slot.dtype in INTEGERS:
            bounds = [bounds_of(one.low, one.high, slot.dtype) for one in seen]
            return (
                self._column(f"{name}_low", [str(low) for low, _ in bounds]),
                self._column(f"{name}_high", [str(high) for _, high in bounds]),
            )
        whole = Elements(min(one.low for one in seen), max(one.high for one in seen))
        low, high = bounds_of(whole.low, whole.high, slot.dtype)
        return number_text(low), number_text(high)


def _sizes(dims: tuple[int, ...]) -> Bracketed:
    return Bracketed("(", tuple(map(str, dims)))


def _tensor_names(step: Step, count: int) -> list[str]:
    """Return a name for each tensor: its keyword, else a letter."""
    found = [_NAMES[i] if i < len(_NAMES) else f"tensor_{i}" for i in range(count)]
    for key, value in step.kwargs:
        if isinstance(value, Ref) and is_name(key) and key not in _TAKEN and key not in found:
            found[value.index] = key
    return found


def _number_names(step: Step, count: int, taken: set[str]) -> list[str]:
    """Return a name for each number: its keyword, else ``number``."""
    found = ["number" if count == 1 else f"number_{at}" for at in range(count)]
    kwargs: tuple[tuple[str, Any], ...] = step.kwargs
    for key, value in kwargs:
        if isinstance(value, NumberPlace) and is_name(key) and key not in _TAKEN | taken:
            found[value.index] = key
    return found


def function_name(group: CallGroup, taken: set[str]) -> str:
    """Return a name for a test, and take it."""
    step = group.step
    name = last_name(step.target).strip("_")
    base = f"{name}_in_place" if written_receiver(step, ()) and not name.endswith("setitem") else name
    base = f"{base}_" if base in _TAKEN else base
    found, count = base, 1
    while found in taken:
        count += 1
        found = f"{base.rstrip('_')}_{count}"
    taken.add(found)
    return found


def function_lines(group: CallGroup, name: str, data_file: str) -> list[str]:
    """Return the lines of a test, with its comment and decorator.

    Args:
        group: The test.
        name: Its name.
        data_file: Name of the file with the elements that are stored.
    """
    varying = Columns(group)
    count = len(group.rows)
    cases = f"n={_EXTRA_CASES * count + _EXTRA_CASES}"
    decorator = f"@autotest({cases})"
    if count > 1:
        decorator = f'@autotest({cases}, examples=[{{"0.pick": k}} for k in range({count})])'
    lines = [*_comment(group, varying), decorator, f"def {name}():", *varying.lines()]
    for index, own in enumerate(varying.tensors):
        lines += _tensor_lines(group, index, own, _Source(name, data_file, varying))
    return lines + _call_lines(group, varying)


@dataclass(frozen=True, slots=True)
class _Source:
    """Where a test has its tensors from.

    Args:
        test: Name of the test.
        data_file: Name of the file with the elements that are stored.
        varying: The columns in which its rows differ.
    """

    test: str
    data_file: str
    varying: Columns


def _comment(group: CallGroup, varying: Columns) -> list[str]:
    calls = "1 call" if group.count == 1 else f"{group.count:,} calls, the first"
    # A line break in the name of a file would end the comment.
    place = "".join(char if char.isprintable() else " " for char in group.place)
    lines = [f"# {calls} at {place}"]
    if group.kinds > len(group.rows):
        lines.append(f"# {len(group.rows)} of its {group.kinds} kinds of calls are here.")
    drawn = [index for index in range(len(group.slots)) if not group.is_stored(index)]
    left_out = [varying.tensors[index] for index in drawn if group.is_left_out(index)]
    if left_out:
        are = "is" if len(left_out) == 1 else "are"
        lines.append(f"# {', '.join(left_out)} {are} drawn, because the elements were too many to be stored.")
    seen = [row.elements[index] for row in group.rows for index in drawn]
    if any(not one.is_finite for one in seen if not one.members):
        lines.append("# NaN or infinities were seen too; they are not drawn.")
    if any(slot.is_approximate for slot in group.slots):
        lines.append("# A tensor had strides that no view of a dense tensor has; here it is contiguous.")
    return lines


def _tensor_lines(group: CallGroup, index: int, name: str, source: _Source) -> list[str]:
    is_stored = group.is_stored(index)
    made = _stored(group, index, name, source) if is_stored else _generator(group, index, source.varying)
    suffixes = group.slots[index].layout.suffixes()
    repeated = group.repeated(index)
    if repeated is not None:
        # A loop, because the lines of a comprehension would have to be broken by hand.
        return [
            f"    {name} = []",
            f"    for {_ITEM if is_stored else '_'} in range({repeated.count}):",
            *laid_out("", call(f"{name}.append", [replace(made, closing=made.closing + "".join(suffixes))]), "", 8),
        ]
    if group.grads[index] and index == written_tensor(group):
        suffixes.append(".clone()")  # torch refuses to write to a leaf
    whole = f"    {name} = {flat(made)}{''.join(suffixes)}"
    if not suffixes or len(whole) <= WIDTH:
        return laid_out(f"{name} = ", made, "".join(suffixes))
    return [*laid_out(f"{name} = ", made), f"    {name} = {name}{''.join(suffixes)}"]


def _stored(group: CallGroup, index: int, name: str, source: _Source) -> Bracketed:
    """Return the expression that takes a tensor from the file, without its layout."""
    row = source.varying.data_row
    shown = row if row.isdecimal() else f"{{{row}}}"
    key = key_of(source.test, shown, name, f"{{{_ITEM}}}" if group.is_repeated(index) else "")
    dtype = group.slots[index].dtype
    no_grad = dtype in DIFFERENTIABLE and not group.grads[index]
    items = [f'"{source.data_file}"', f'{"f" if "{" in key else ""}"{key}"']
    return call("stored_tensor", [*items, *(["requires_grad=False"] if no_grad else [])])


def _generator(group: CallGroup, index: int, varying: Columns) -> Bracketed:
    """Return the expression that draws a tensor, without its layout."""
    slot, dims = group.slots[index], varying.dims(index)
    low, high = varying.ranges[index]
    dtype = [] if slot.dtype == _DEFAULT_DTYPE else [f"dtype=torch.{slot.dtype}"]
    has_grad = group.grads[index] and slot.dtype in DIFFERENTIABLE
    grads = [] if has_grad or slot.dtype not in DIFFERENTIABLE else ["requires_grad=False"]
    if slot.members:
        return _of_members(group, index, dims, has_grad=has_grad)
    if slot.property and slot.layout == PLAIN:
        made = _of_property(slot.property, dims, (low, high), dtype, grads)
        if made is not None:
            return made
    if slot.dtype == "bool":
        return call("random_tensor", [keyword("dims", dims), "dtype=torch.bool"])
    return call("random_tensor", [keyword("dims", dims), keyword("low", low), keyword("high", high), *dtype, *grads])


def _of_members(group: CallGroup, index: int, dims: Text, *, has_grad: bool) -> Bracketed:
    slot = group.slots[index]
    seen = max((row for row in group.rows), key=lambda row: row.count).elements[index]
    members = [member if slot.dtype == "bool" else number_text(float(member)) for member in slot.members]
    shares = seen.shares if len(members) > 1 and len(seen.shares) == len(members) else ()
    if members == ["False", "True"] and min(shares, default=0.0) > 0.25:  # noqa: PLR2004 - about as many of both
        return call("random_tensor", [keyword("dims", dims), "dtype=torch.bool"])
    items: list[Text] = [Bracketed("[", tuple(members), "]"), keyword("size", dims)]
    if shares:
        rest = round(1 - sum(shares[1:]), 2)
        items.append(keyword("p", Bracketed("[", tuple(map(str, (rest, *shares[1:]))), "]")))
    if slot.dtype != "bool":
        items.append(f"dtype=torch.{slot.dtype}")
    return call("choice_tensor", [*items, *(["requires_grad=True"] if has_grad else [])])


def _of_property(
    kind: str, dims: Text, bounds: tuple[Text, Text], dtype: list[str], grads: list[str]
) -> Bracketed | None:
    """Return the expression that draws elements with a property; ``None``: their range is enough."""
    size = dims.items[0] if isinstance(dims, Bracketed) else f"{dims}[0]"
    name = dtype[0].removeprefix("dtype=") if dtype else ""
    match kind:
        case "arange":
            return call("torch.arange", [size, *([] if name == "torch.int64" else dtype)])
        case "permutation" if name == "torch.int64":
            return call("permutation_tensor", [size])
        case "distinct" if name == "torch.int64":
            return call("choice_tensor", [bounds[1], keyword("size", dims), "replace=False"])
        case "sorted":
            drawn = call(
                "random_tensor",
                [keyword("dims", dims), keyword("low", bounds[0]), keyword("high", bounds[1]), *dtype, *grads],
            )
            return Bracketed("torch.sort(", (drawn,), ").values")
        case "symmetric" | "positive_definite":
            return call(f"{kind}_tensor", [size, *dtype, *grads])
        case _:
            return None


def _call_lines(group: CallGroup, varying: Columns) -> list[str]:
    """Return the lines of the call, under autocast if it was."""
    step = group.step
    shown = Arguments(varying)
    args = [shown.text(value) for value in step.args]
    kwargs = [keyword(key, shown.text(value)) for key, value in step.kwargs if _checked_name(key)]
    if step.target == "operator.setitem":
        lines = [f"    {flat(args[0])}[{_index(args[1])}] = {flat(args[2])}", f"    return {flat(args[0])}"]
    else:
        lines = laid_out("return ", _expression(step, args, kwargs))
    for mode in step.modes:
        dtype = autocast_dtype(mode)
        if dtype is not None:
            lines = [
                f'    with torch.autocast("cpu", dtype=torch.{dtype}):', *(f"    {line}" for line in lines),
            ]  # fmt: skip
    return lines


def _expression(step: Step, args: list[Text], kwargs: list[Text]) -> Text:
    name = last_name(step.target)
    if step.op == GET_ATTR and (is_attribute(name) or name in VIEW_ATTRIBUTES):
        return f"{flat(args[0])}.{name}"
    if step.op == CALL_METHOD and is_method(name):
        return call(f"{flat(args[0])}.{name}", [*args[1:], *kwargs])
    if step.target == "operator.getitem":
        return f"{flat(args[0])}[{_index(args[1])}]"
    if step.target.startswith("operator.") and name in SIGNS:
        return f"{flat(args[0])} {SIGNS[name]} {flat(args[1])}"
    if step.target.startswith("operator.") and name in PREFIX_SIGNS:
        return f"{PREFIX_SIGNS[name]}{flat(args[0])}"
    if is_function(step.target) or is_own(step.target):
        return call("abs" if step.target == "operator.abs" else step.target, [*args, *kwargs])
    message = f"target {step.target[:60]!r} is not on the allow list and is never printed as code."
    raise ProgramError(message)


def _index(text: Text) -> str:
    """Return an index: a tuple without its brackets."""
    if isinstance(text, Bracketed) and text.opening == "(" and len(text.items) > 1:
        return ", ".join(map(flat, text.items))
    return flat(text)


def _checked_name(name: str) -> bool:
    if not is_name(name):
        message = f"{name[:60]!r} is not an identifier and is never printed as code."
        raise ProgramError(message)
    return True


class Arguments:
    """The arguments of a test's call as text.

    Args:
        varying: Names of the tensors and of the numbers that vary.
    """

    def __init__(self, varying: Columns) -> None:
        self._varying = varying
        self._kinds: dict[type, Callable[..., Text]] = {
            NumberPlace: lambda value: varying.numbers[value.index],
            Ref: lambda value: varying.tensors[value.index],
            Repeated: lambda value: varying.tensors[value.ref.index],
            DType: lambda value: f"torch.{value.name}",
            Device: lambda value: "cpu_device()" if value.symbol == HOST_DEVICE else "gpu_device()",
            FrameworkConstant: lambda value: value.target,
            tuple: lambda value: Bracketed("(", tuple(map(self.text, value))),
            List: lambda value: Bracketed("[", tuple(map(self.text, value.items)), "]"),
            Slice: self._slice,
            Mapping_: lambda value: call("dict", [keyword(key, self.text(item)) for key, item in value.items]),
            str: _quoted,
            type(...): lambda _: "...",
        }

    def text(self, value: Any) -> Text:
        """Return an argument as text."""
        written = self._kinds.get(type(value))
        return repr(value) if written is None else written(value)

    def _slice(self, value: Slice) -> Text:
        bounds = ["" if one is None else flat(self.text(one)) for one in (value.start, value.stop, value.step)]
        return f"{bounds[0]}:{bounds[1]}" + (f":{bounds[2]}" if bounds[2] else "")


def _quoted(value: str) -> str:
    """Return a text as ruff writes it: in double quotes."""
    text = repr(value)
    return f'"{text[1:-1]}"' if re.fullmatch(r"'[^\"\\]*'", text) else text
