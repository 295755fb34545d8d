"""Hooks of modules: their effects are recorded as steps around the module's forward.

A forward hook runs with recorded values while the body is recorded, so its calls become steps like those of the body.
A full backward hook becomes two hooks on gradients: one on the output, which stores the gradient, and one on a view of
the input, which gets both gradients. So any candidate can replay them. If a module is called as a whole, a hook on one
of its parts is refused, because the call is a single step.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ci_autotest.errors import AuthorError
from ci_autotest.record.values import RecordedTensor, has_gradient

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Self

    from ci_autotest.record.modules import RecordedModule

BEFORE: Final = "register_forward_pre_hook"
AFTER: Final = "register_forward_hook"
BACKWARD: Final = "register_full_backward_hook"
BEFORE_BACKWARD: Final = "register_full_backward_pre_hook"
KINDS: Final = (BEFORE, AFTER, BACKWARD, BEFORE_BACKWARD)


def refuse_lost_hooks() -> None:
    """Turn a warning of torch into an error: a backward hook of a plain module is never called for recorded values.

    The pattern holds the name of our class, so no other warning becomes an error.
    """
    warnings.filterwarnings("error", r"For backward hooks to be called.*'ci_autotest\.", UserWarning)


class _Hook(NamedTuple):
    function: Callable[..., Any]
    with_kwargs: bool


class Hooks:
    """The hooks of one module by kind, in the order in which they are called."""

    __slots__ = ("_by_kind",)

    def __init__(self) -> None:
        self._by_kind: dict[str, list[_Hook]] = {kind: [] for kind in KINDS}

    def __bool__(self) -> bool:
        """Return true if the module has any hook."""
        return any(self._by_kind.values())

    def register(self, kind: str, function: Callable[..., Any], options: dict[str, Any]) -> ModuleHandle:
        """Add a hook and return its handle.

        Raises:
            AuthorError: An option cannot be recorded.
        """
        options = dict(options)
        prepend, with_kwargs = bool(options.pop("prepend", False)), bool(options.pop("with_kwargs", False))
        if any(options.values()):
            message = f"`.{kind}({next(iter(options))}=...)` is not recorded. Leave it out."
            raise AuthorError(message)
        held = self._by_kind[kind]
        hook = _Hook(function, with_kwargs)
        held.insert(0 if prepend else len(held), hook)
        return ModuleHandle(held, hook)

    def run(
        self,
        module: RecordedModule,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        forward: Callable[[tuple[Any, ...], dict[str, Any]], Any],
    ) -> Any:
        """Run a forward with its hooks, in torch's order, and return the result after the last hook."""
        for hook in list(self._by_kind[BEFORE]):
            args, kwargs = _before(hook, module, args, kwargs)
        # As in torch, forward hooks get the body's own arguments, not the views.
        given, args = args, self._viewed(args)
        result = forward(args, kwargs)
        for hook in list(self._by_kind[AFTER]):
            more = (kwargs,) if hook.with_kwargs else ()
            replaced = hook.function(module, given, *more, result)
            result = result if replaced is None else replaced
        self._watch(module, args, result)
        return result

    def _viewed(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Replace each argument that has a gradient by a view, because a view gets the gradient of this call only."""
        if not self._by_kind[BACKWARD]:
            return args
        return tuple(arg.view_as(arg) if has_gradient(arg) else arg for arg in args)

    def _watch(self, module: RecordedModule, args: tuple[Any, ...], result: object) -> None:
        """Register the backward hooks on the gradients of a call."""
        backward, before = self._by_kind[BACKWARD], self._by_kind[BEFORE_BACKWARD]
        if not (backward or before):
            return
        inputs = [arg for arg in args if has_gradient(arg)]
        if not has_gradient(result) or (backward and len(inputs) != 1):
            message = (
                "a full backward hook can be recorded if the module has one input and one output that require grad; "
                f"this one has {len(inputs)} and {_counted(result)}. Register a hook on the tensors instead."
            )
            raise AuthorError(message)
        assert isinstance(result, RecordedTensor)  # noqa: S101 - it has a gradient
        arrived: list[Any] = []
        result.register_hook(lambda gradient: _before_backward(before, module, gradient, arrived))
        for hook in backward:
            # As in torch, the gradients of all other arguments are None.
            at = next(i for i, arg in enumerate(args) if arg is inputs[0])
            inputs[0].register_hook(_BackwardHook(hook, module, (len(args), at), arrived))


class ModuleHandle:
    """Handle that removes a module's hook."""

    __slots__ = ("_held", "_hook")

    def __init__(self, held: list[_Hook], hook: _Hook) -> None:
        self._held, self._hook = held, hook

    def remove(self) -> None:
        """Remove the hook from later calls."""
        self._held[:] = [hook for hook in self._held if hook is not self._hook]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


class _BackwardHook:
    """A full backward hook as a hook on the gradient of the input."""

    def __init__(self, hook: _Hook, module: RecordedModule, place: tuple[int, int], arrived: list[Any]) -> None:
        self._hook, self._module, self._place, self._arrived = hook, module, place, arrived

    def __call__(self, gradient: Any) -> Any:
        count, at = self._place
        inputs = tuple(gradient if i == at else None for i in range(count))
        returned = self._hook.function(self._module, inputs, (self._arrived[0],))
        return _only(returned, count, at, BACKWARD)


def _before(
    hook: _Hook, module: RecordedModule, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if hook.with_kwargs:
        given = hook.function(module, args, kwargs)
        return (args, kwargs) if given is None else given
    replaced = hook.function(module, args)
    if replaced is None:
        return args, kwargs
    return (replaced if isinstance(replaced, tuple) else (replaced,)), kwargs


def _before_backward(
    hooks: list[_Hook],
    module: RecordedModule,
    gradient: Any,
    arrived: list[Any],
) -> Any:
    """Run the backward pre-hooks on the gradient of the output, and append the result to ``arrived``."""
    replaced = None
    for hook in hooks:
        found = _only(hook.function(module, (gradient if replaced is None else replaced,)), 1, 0, BEFORE_BACKWARD)
        replaced = replaced if found is None else found
    arrived.append(gradient if replaced is None else replaced)
    return replaced


def _only(returned: Any, count: int, at: int, kind: str) -> Any:
    if returned is None:
        return None
    values = returned if isinstance(returned, tuple) else (returned,)
    if len(values) != count:
        message = (
            f"a hook of `.{kind}()` returns {len(values)} of {count} gradients. Return a tuple of them all, or nothing."
        )
        raise AuthorError(message)
    return values[at]


def _counted(result: object) -> str:
    return str(len(result)) if isinstance(result, tuple | list) else str(int(has_gradient(result)))
