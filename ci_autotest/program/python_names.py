"""Strings that are Python names: no others are printed as code or looked up."""

from __future__ import annotations

import re
import sys
from keyword import iskeyword
from typing import Final

_MODULE: Final = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*", re.ASCII)

#: A parameter, buffer or part of a module by its path: ``0.weight``.
_IN_MODULE: Final = re.compile(r"[A-Za-z0-9]\w*(?:\.[A-Za-z0-9]\w*)*", re.ASCII)
#: Start of the name under which a test file is imported.
FILE_MODULE: Final = "autotest_file_"


def file_module(file: str) -> str:
    """Return the name under which a test file is imported."""
    return FILE_MODULE + "".join(c if c.isalnum() else "_" for c in file)


def is_in_module(text: object) -> bool:
    """Whether a text can be the path of a parameter, buffer or part in a module; nothing private is one."""
    return isinstance(text, str) and _IN_MODULE.fullmatch(text) is not None


def is_name(text: object) -> bool:
    """Whether a text is a single name, ``npu``."""
    return is_module(text) and "." not in str(text)


def is_module(text: object) -> bool:
    """Whether a text can be the name of a module, ``torch_npu`` or ``package.module``."""
    is_dotted = isinstance(text, str) and _MODULE.fullmatch(text) is not None
    return is_dotted and not any(map(iskeyword, str(text).split(".")))


def is_path(text: object) -> bool:
    """Whether a text can be the dotted path of something in a module, ``module.function``."""
    return is_module(text) and "." in str(text)


def is_pythons(module: str) -> bool:
    """Whether a module belongs to the standard library."""
    return module.partition(".")[0] in sys.stdlib_module_names
