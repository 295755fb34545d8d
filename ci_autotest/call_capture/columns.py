"""The columns in which the rows of a test differ, and the statement that chooses a row."""

from __future__ import annotations

import builtins
import keyword as python_keywords
from typing import TYPE_CHECKING, Any, Final

from ci_autotest.call_capture.call_groups import NumberPlace
from ci_autotest.call_capture.layout_text import Bracketed, bounds_of, call, flat, laid_out, number_text
from ci_autotest.call_capture.observation import Elements
from ci_autotest.program.ir import Ref
from ci_autotest.program.python_names import is_name
from ci_autotest.values.dtypes import INTEGERS

if TYPE_CHECKING:
    from ci_autotest.call_capture.call_groups import CallGroup
    from ci_autotest.call_capture.layout_text import Text
    from ci_autotest.program.ir import Step

#: Names of a file's tests must not hide these.
TAKEN: Final = frozenset({
    *dir(builtins), *python_keywords.kwlist, "torch", "autotest", "oneof", "random_tensor", "choice_tensor",
    "permutation_tensor", "symmetric_tensor", "positive_definite_tensor", "stored_tensor", "cpu_device", "gpu_device",
    "load_file",
})  # fmt: skip

#: Name of the column with the number of the call whose elements a row has. No argument of torch has this name.
_DATA_ROW: Final = "row"
_NAMES: Final = ("x", "y", "z", "w")


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
        if isinstance(value, Ref) and is_name(key) and key not in TAKEN and key not in found:
            found[value.index] = key
    return found


def _number_names(step: Step, count: int, taken: set[str]) -> list[str]:
    """Return a name for each number: its keyword, else ``number``."""
    found = ["number" if count == 1 else f"number_{at}" for at in range(count)]
    kwargs: tuple[tuple[str, Any], ...] = step.kwargs
    for key, value in kwargs:
        if isinstance(value, NumberPlace) and is_name(key) and key not in TAKEN | taken:
            found[value.index] = key
    return found
