"""Functions of the user that a candidate's row names by dotted paths: they are imported, or looked up in a library."""

from __future__ import annotations

import difflib
import importlib
from typing import TYPE_CHECKING, Any, Final

from ci_autotest.backends.operators.numpy_functions import NumpyFunction, takes_arrays
from ci_autotest.backends.operators.user_operators import UserOperator, find
from ci_autotest.errors import MissingNameError, ProgramError, UnavailableError, import_failure
from ci_autotest.program.targets import OPS

if TYPE_CHECKING:
    from collections.abc import Callable

#: Functions of a module that a message lists.
_NAMED: Final = 20


def load_function(path: str, role: str = "replacement") -> Callable[..., Any]:
    """Return the function that a dotted path names.

    Raises:
        UnavailableError: The module cannot be imported.
        MissingNameError: It has no such function.
    """
    if path.startswith(OPS):
        return _registered(path, role)
    module_name, _, name = path.rpartition(".")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        message = f"{role} {path!r} cannot be imported: {import_failure(error, module_name)}"
        raise UnavailableError(message) from error
    function = getattr(module, name, None)
    if isinstance(function, UserOperator):
        return function.body
    if callable(function) and takes_arrays(function, path):
        return NumpyFunction(function)
    function = getattr(function, "user_class", function)  # a class that another row replaces
    if not callable(function):
        known = _public(module)
        nearest = difflib.get_close_matches(name, known, 1, 0.6)
        hint = f"Did you mean {nearest[0]!r}?" if nearest else f"It has {', '.join(known[:_NAMED]) or 'none'}."
        message = f"module {module_name!r} has no function {name!r}. {hint}"
        raise MissingNameError(message)
    return function  # type: ignore[no-any-return]


def _registered(path: str, role: str) -> Callable[..., Any]:
    try:
        return find(path)
    except ProgramError as error:
        name = path.removeprefix(OPS)
        message = (
            f"{role} {path!r} is not registered with torch: no library defines {name.replace('.', '::')}. Name the "
            "library in `load`, or the module that registers it in `import`, of the candidate."
        )
        raise UnavailableError(message) from error


def _public(module: Any) -> list[str]:
    return sorted(name for name, value in vars(module).items() if callable(value) and not name.startswith("_"))
