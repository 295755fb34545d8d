"""The arguments of a test's call as text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ci_autotest.call_capture.call_groups import Number, Repeated
from ci_autotest.call_capture.layout_text import Bracketed, call, flat, keyword
from ci_autotest.program.ir import HOST_DEVICE, Constant, Device, DType, List, Mapping_, Ref, Slice

if TYPE_CHECKING:
    from collections.abc import Callable

    from ci_autotest.call_capture.columns import Columns
    from ci_autotest.call_capture.layout_text import Text


class Arguments:
    """The arguments of a test's call as text.

    Args:
        varying: Names of the tensors and of the numbers that vary.
    """

    def __init__(self, varying: Columns) -> None:
        self._varying = varying
        self._kinds: dict[type, Callable[..., Text]] = {
            Number: lambda value: varying.numbers[value.index],
            Ref: lambda value: varying.tensors[value.index],
            Repeated: lambda value: varying.tensors[value.ref.index],
            DType: lambda value: f"torch.{value.name}",
            Device: lambda value: "cpu_device()" if value.symbol == HOST_DEVICE else "gpu_device()",
            Constant: lambda value: value.target,
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
