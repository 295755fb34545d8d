"""Operators of the user: functions, classes of modules and entries of torch.ops for which torch has no name of its own.

An operator is found in the modules that this process has imported and is never imported by its name, because a program
may come from outside. Only the row of a candidate names libraries to load and modules to import.
"""

from __future__ import annotations

import functools
import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.overrides import handle_torch_function, has_torch_function

from ci_autotest.errors import AuthorError, ProgramError, UnavailableError, error_text, import_failure
from ci_autotest.program.targets import OPS, is_own, is_path_of_own

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ci_autotest.kinds import WorkerCandidate


#: Prefix of the names under which a worker imports test files.
TEST_MODULE: Final = "autotest_file_"


class UserOperator:
    """A function of the user as one operator: modes of torch see its call, and not the calls that it makes.

    Args:
        target: The operator's dotted path.
        body: The function as written.
        ties: The output that holds indices of equal elements in any order; ``None`` if all outputs are unique.
    """

    def __init__(self, target: str, body: Callable[..., Any], ties: int | None = None) -> None:
        functools.update_wrapper(self, body)
        self.target = target
        self.body = body
        self.ties = ties

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function, or let a mode answer the call."""
        if not torch.compiler.is_compiling() and has_torch_function((self, *args)):
            return handle_torch_function(self, args, *args, **kwargs)
        return self.body(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<operator {self.target}>"


def path_of(function: Any) -> str:
    """Return the dotted path of a function or class; a test file's module has the file's name."""
    module = sys.modules.get(function.__module__)
    return f"{_name_of(module) if module is not None else function.__module__}.{function.__qualname__}"


def find(target: str) -> Callable[..., Any]:
    """Return the operator that a target names: a class of modules as it was written.

    Raises:
        ProgramError: No imported module has such an operator.
    """
    found = _of_torch(target) if target.startswith(OPS) else _of_modules(target)
    if found is None:
        message = (
            f"operator {target!r} is not known here. Name it in `replace`, or its module in `import`, of a candidate."
        )
        raise ProgramError(message)
    return found


def is_module_class(target: str) -> bool:
    """Whether a target names a class of modules, of torch's or of the user's."""
    if target.startswith(OPS) or not (target.startswith("torch.nn.") or is_own(target)):
        return False
    found: Any = find(target) if is_own(target) else getattr(torch.nn, target.removeprefix("torch.nn."), None)
    return isinstance(found, type) and issubclass(found, torch.nn.Module)


def lacks_gradient(target: str) -> bool:
    """Whether a target names an operator whose reference has no gradient; then a candidate need not have one."""
    if target.startswith(OPS) or not is_own(target):
        return False
    body = getattr(_of_modules(target), "body", None)
    return bool(getattr(body, "lacks_gradient", False))


def ties_of(target: str) -> int | None:
    """Return the output of an operator that is equal up to the order of ties; ``None`` if it declares none."""
    found = _of_modules(target) if is_path_of_own(target) else None
    return found.ties if isinstance(found, UserOperator) else None


def _of_torch(target: str) -> Callable[..., Any] | None:
    found: Any = torch.ops
    for part in target.removeprefix(OPS).split("."):
        found = getattr(found, part, None)
    is_operator = isinstance(found, torch._ops.OpOverloadPacket | torch._ops.OpOverload)
    return found if is_operator else None


def _of_modules(target: str) -> Callable[..., Any] | None:
    """Return the operator or class of modules of a dotted path.

    Raises:
        AuthorError: Files of one name have different ones, so that one would be held against the other's body.
    """
    module, _, name = target.rpartition(".")
    named = {getattr(one, "__file__", None) or one.__name__: _operator_in(one, name) for one in _modules(module)}
    found = {where: each for where, each in named.items() if each is not None}
    if len({id(each) for each in found.values()}) > 1:
        message = f"{target} is defined in {' and in '.join(sorted(found))}. Give one of the files another name."
        raise AuthorError(message)
    return next(iter(found.values()), None)


def _operator_in(module: ModuleType, name: str) -> Callable[..., Any] | None:
    found = vars(module).get(name)
    # A plain function is never returned, because the program that names it may come from outside.
    return found if isinstance(found, UserOperator) else getattr(found, "user_class", None)


def _modules(name: str) -> Iterator[ModuleType]:
    if isinstance(found := sys.modules.get(name), ModuleType):
        yield found
    yield from (one for key, one in list(sys.modules.items()) if key.startswith(TEST_MODULE) and _name_of(one) == name)


def _name_of(module: ModuleType) -> str:
    is_file = module.__name__.startswith(TEST_MODULE) or module.__name__ == "__main__"
    return Path(module.__file__).stem if is_file and module.__file__ else module.__name__


# What registers a candidate's own operators with torch: its libraries and its modules.


def register(candidate: WorkerCandidate) -> None:
    """Load the libraries and import the modules with which a candidate registers operators.

    Raises:
        UnavailableError: One cannot be loaded or imported.
    """
    for path in candidate.load:
        try:
            torch.ops.load_library(path)  # type: ignore[no-untyped-call]
        except Exception as error:
            message = (
                f"library {path!r} of `load` cannot be loaded: {error_text(error)}. Build it, or correct the path."
            )
            raise UnavailableError(message) from error
    for name in candidate.imports:
        try:
            importlib.import_module(name)
        except Exception as error:
            message = f"module {name!r} of `import` cannot be imported: {import_failure(error, name)}"
            raise UnavailableError(message) from error
