"""The scope of kernels, call by call: refuse what they do not take, and call forward-only kernels without a graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch
from torch.utils import _pytree as pytree
from torch.utils.weak import WeakIdKeyDictionary

from ci_autotest.backends.case_scope import is_contiguous
from ci_autotest.backends.operators.identity import operator_of
from ci_autotest.backends.substitute.written_inputs import WrittenInputs
from ci_autotest.backends.torch_constants import DTYPE_NAMES
from ci_autotest.errors import OutOfScopeError, by_user
from ci_autotest.program.ir import CALL_MODULE
from ci_autotest.values.kernel_scope import EVERYTHING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from typing import NoReturn

    from ci_autotest.values.kernel_scope import KernelScope

_Tensor: Final = torch.Tensor


class CallScope:
    """What a candidate's kernels take, asked before each call.

    Args:
        scope: What the configuration says.
        classes: The replaced classes of modules.
    """

    def __init__(self, scope: KernelScope = EVERYTHING, classes: Collection[str] = ()) -> None:
        own = {name for name in scope.forward_only if name in classes}
        self._of_classes = frozenset(operator_of(name, CALL_MODULE) for name in own)
        self._forward_only = self._of_classes.union(map(operator_of, {*scope.forward_only} - own))
        self._dtypes = frozenset(scope.dtypes)
        self._layouts = scope.layouts
        self._devices = frozenset(scope.devices)
        self.profiles = frozenset(scope.profiles)
        self._written = WrittenInputs(scope.writes) if scope.writes else None
        self._plain = WeakIdKeyDictionary()
        self._has_limits = bool(scope.dtypes or scope.layouts or scope.devices)

    @property
    def is_everything(self) -> bool:
        """Whether the kernels take everything that their operators take."""
        return not (self._has_limits or self.profiles or self._forward_only or self._written is not None)

    def is_forward_only(self, calls: Mapping[str, int]) -> bool:
        """Whether any of the operators that were answered has no backward pass."""
        return any(calls.get(operator) for operator in self._forward_only)

    def lacks_flags(self, calls: Mapping[str, int]) -> bool:
        """Whether any of the modules that were answered has no backward pass: its results may be without a graph."""
        return any(calls.get(operator) for operator in self._of_classes)

    def refuse(self, operator: str, given: tuple[Any, Any]) -> None:
        """Refuse a call that is outside the scope.

        Args:
            operator: The operator.
            given: Positional and keyword arguments.

        Raises:
            OutOfScopeError: A tensor has a dtype, a layout or a device that the kernel does not take.
        """
        if not self._has_limits:
            return
        tensors = [value for value in pytree.tree_leaves(given) if isinstance(value, _Tensor)]
        inexact = [value for value in tensors if value.is_floating_point() or value.is_complex()]
        # Indices and masks beside the data do not count, so integers are looked at only if there is nothing else.
        if self._dtypes:
            seen = {DTYPE_NAMES[value.dtype] for value in inexact or tensors}
            _refuse(operator, "dtype", seen - self._dtypes, self._dtypes)
        if self._devices:
            _refuse(operator, "device", {value.device.type for value in tensors} - self._devices, self._devices)
        if self._layouts and not all(is_contiguous(value) for value in tensors):
            message = f"{operator}: a tensor is not contiguous; the candidate's row has layouts: contiguous"
            raise OutOfScopeError(message)

    def call(
        self,
        operator: str,
        functions: tuple[Callable[..., Any], Callable[..., Any]],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> Any:
        """Call a kernel; one without a backward pass gets tensors without a graph, and its results raise in backward.

        The results require grad as the operator's would, so that the flags of later values can be compared.

        Args:
            operator: The operator.
            functions: The kernel, and the operator's own function.
            args: Positional arguments.
            kwargs: Keyword arguments.
        """
        function = functions[0]
        if self._written is not None:
            args, kwargs = self._written.copied(operator, functions, args, kwargs)
        if operator not in self._forward_only:
            return by_user(function, *args, **kwargs)
        leaves, spec = pytree.tree_flatten((args, dict(kwargs)))
        plain = [self._without_graph(value) if isinstance(value, _Tensor) else value for value in leaves]
        given, named = pytree.tree_unflatten(plain, spec)
        with torch.no_grad():
            found = by_user(function, *given, **named)
        # A kernel may return one of its inputs, and the caller expects its own tensor and not the detached one.
        own = {id(new): old for new, old in zip(plain, leaves, strict=True) if isinstance(old, _Tensor)}
        inputs = [value for value in leaves if isinstance(value, _Tensor) and value.requires_grad]
        if not inputs or not torch.is_grad_enabled():
            return pytree.tree_map(lambda value: own.get(id(value), value), found)
        return pytree.tree_map(lambda value: own.get(id(value)) if id(value) in own else _raising(value, inputs), found)

    def _without_graph(self, value: torch.Tensor) -> torch.Tensor:
        """Return a tensor over the same memory that has no graph: for one tensor always the same one, while it lives.

        A kernel may remember the identity of what it was given, which must not change from call to call.
        """
        if not value.requires_grad:
            return value
        found: torch.Tensor | None = self._plain.get(value)  # type: ignore[no-untyped-call]
        if found is None:
            found = self._plain[value] = value.detach()
        return found


def _raising(value: Any, inputs: list[torch.Tensor]) -> Any:
    """Return a kernel's result as one that depends on its inputs and has no gradient."""
    if not isinstance(value, _Tensor) or not (value.is_floating_point() or value.is_complex()):
        return value
    return _NoBackward.apply(value, *inputs)  # type: ignore[no-untyped-call]


class _NoBackward(torch.autograd.Function):
    """The identity, whose backward pass is outside the scope."""

    @staticmethod
    def forward(_: Any, value: torch.Tensor, *__: torch.Tensor) -> torch.Tensor:
        return value.detach()

    @staticmethod
    def backward(*_: Any) -> NoReturn:
        message = "a gradient is asked of a kernel without one; the candidate's row has forward_only"
        raise OutOfScopeError(message)


def _refuse(operator: str, what: str, outside: set[str], taken: frozenset[str]) -> None:
    if outside:
        names = ", ".join(sorted(outside))
        message = f"{operator}: {what} {names}; the candidate's row has {what}s: {', '.join(sorted(taken))}"
        raise OutOfScopeError(message)
