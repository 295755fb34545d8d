"""Recorded values, which a body uses in place of tensors. Every use of one is a step.

A value is a ``torch.Tensor`` for ``isinstance`` and for torch's own checks, with a size, dtype and device but without
memory. Its attributes and methods are defined below, and functions of plain ``torch`` reach it through
``__torch_function__``. Code in C++ that computes with it or reads its memory is refused.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

from ci_autotest.errors import AuthorError
from ci_autotest.host.steps import PYTHON_TARGETS
from ci_autotest.program.roles import BINARY, COMPARISONS, UNARY
from ci_autotest.program.targets import STEP_ATTRIBUTES
from ci_autotest.record.context import CURRENT, asking_module
from ci_autotest.record.draw.generators import may_be_nothing
from ci_autotest.record.unsupported_uses import refuse_in_cpp, refuse_ranks, stale

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray
    from typing_extensions import Self

    from ci_autotest.program.ir import Ref
    from ci_autotest.record.recorder import Recorder

_empty: Final = torch.Tensor._make_wrapper_subclass
_protect: Final = torch._C._set_throw_on_mutable_data_ptr
_META: Final = torch.device("meta")
_DEVICE: Final = torch.ops.prim.device.default
_get: Final = object.__getattribute__
_set: Final = object.__setattr__
#: Methods by which torch's own Python code asks for the kind of a tensor before it computes. These calls are no steps,
#: because the kind of each value is compared at the step that computed it, and a framework may lack the methods.
KINDS: Final = frozenset({"is_complex", "is_floating_point", "dim"})
#: Attributes that are refused, and why.
_REFUSED: Final = {
    "data_ptr": "an address means nothing for a candidate. Compare values instead.",
    "share_memory_": "a test may not share memory with other processes. Leave it out.",
}
_PARAMETER: Final = (
    "torch.nn.Parameter of a recorded tensor is not recorded: a module would keep it beyond the test. Write "
    "x.detach().requires_grad_(), and call the function that the module calls."
)
_SCALER: Final = (
    "GradScaler.scale of a recorded tensor: the operations of a scaler on gradients are not recorded. Multiply the "
    "loss and divide the gradients by a number of your own, or pass enabled=False."
)


def _settable(name: str) -> Any:
    """Return a property whose assignments are steps."""
    return property(
        lambda self: self._attribute(name),
        lambda self, given: self._recorder.call_python("builtins.setattr", setattr, (self, name, given), f"set_{name}"),
    )


class Method:
    """A method of a recorded value or module; a call is recorded.

    Args:
        owner: The value or module.
        name: Name of the method.
        call: Records a call.
    """

    __slots__ = ("_call", "_name", "_owner")

    def __init__(self, owner: object, name: str, call: Callable[[tuple[Any, ...], dict[str, Any]], Any]) -> None:
        self._owner, self._name, self._call = owner, name, call

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Record the call."""
        return self._call(args, kwargs)

    def __repr__(self) -> str:
        return f"<recorded method {self._name} of {self._owner!r}>"


class GradFn:
    """``grad_fn`` of a recorded value: a name to print. It is not compared, because it names an implementation.

    Args:
        name: Name of torch's node.
    """

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def name(self) -> str:
        """Return the node's name, as torch's does."""
        return self._name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        message = (
            f"`.grad_fn.{name}` of a recorded tensor: a grad_fn depends on the implementation and can only be printed. "
            "Compare requires_grad, is_leaf and gradients."
        )
        raise AuthorError(message)

    def __repr__(self) -> str:
        return f"<{self._name}>"


def _name_of(node: torch.autograd.graph.Node | None) -> GradFn | None:
    """Return the name of an autograd node, to be printed; ``None`` if there is none."""
    return None if node is None else GradFn(node.name())


#: ``RecordedTensor`` does not define it: a tensor would be a sequence for C, and ``torch.tensor([x.mean(), 1.0])``
#: would ask for its length.
_GETITEM: Final = torch.Tensor.__getitem__


class RecordedTensor(torch.Tensor):
    """A tensor of the reference, as the body sees it."""

    __slots__ = ("_recorder", "_ref", "_tensor")
    _recorder: Recorder
    _ref: Ref
    _tensor: torch.Tensor
    # Tells numpy's scalars to leave arithmetic with a value to the value.
    __array_ufunc__ = None

    def __new__(cls, tensor: torch.Tensor, ref: Ref, recorder: Recorder) -> Self:
        """Return a value of a step."""
        # On `meta`, because on its own device, C++ would let a plain tensor share the value's memory, which is none.
        value = _empty(cls, tensor.shape, dtype=tensor.dtype, device=_META, dispatch_device=True)
        _protect(value)
        _set(value, "_tensor", tensor)
        _set(value, "_ref", ref)
        _set(value, "_recorder", recorder)
        return value

    def __getattribute__(self, name: str) -> Any:
        return _get(self, name) if name in _OWN else _get(self, "_forwarded")(name)

    grad = _settable("grad")
    data = _settable("data")
    grad_fn: Any = property(lambda self: _name_of(self._tensor.grad_fn))
    requires_grad = _settable("requires_grad")

    def __setattr__(self, name: str, value: object) -> None:
        if name == "_is_param":
            raise AuthorError(_PARAMETER)
        if name not in _OWN and hasattr(torch.Tensor, name):
            message = f"`.{name} = ...` of a recorded tensor is not recorded: only .grad, .data and .requires_grad are."
            raise AuthorError(message)
        _set(self, name, value)

    def _forwarded(self, name: str) -> Any:
        """Return an attribute as the body sees it: set by the body, or the recording version of a tensor's."""
        own: dict[str, Any] = _get(self, "__dict__")
        if name in own:
            return own[name]
        if name == _GETITEM.__name__:  # Torch asks for it where an index is a tensor.
            return self._item
        if (name.startswith("_") and name != "_version") or name in _REFUSED:
            return self._refuse(name)
        found = getattr(torch.Tensor, name, None)
        if found is None:
            refuse_ranks(name)
            message = f"torch.Tensor has no attribute {name!r}."
            raise AttributeError(message, name=name, obj=self)
        if not callable(found):
            return self._attribute(name)
        if name in KINDS and asking_module().partition(".")[0] == "torch":
            return getattr(self._tensor, name)
        return Method(self, name, lambda args, kwargs: self._recorder.call_method(self, name, args, kwargs))

    def _attribute(self, name: str) -> Any:
        if name == "device" and asking_module() == torch.amp.GradScaler.__module__:
            raise AuthorError(_SCALER)
        if name in STEP_ATTRIBUTES:
            # A compiler finds the gradient of a leaf on the leaf only, not on the result of a later write to it.
            owner = self._recorder.first(self) if name == "grad" else self
            return self._recorder.call_python("builtins.getattr", getattr, (owner, name), name)
        return self._recorder.read(self, name)

    @property
    def oneflow(self) -> RecordedTensor:
        """The value itself. OneFlow's AutoTest has one tensor for each side here; a recorded value stands for both."""
        return self

    @oneflow.setter
    def oneflow(self, given: RecordedTensor) -> None:
        # From now on, this value stands for the assigned one, on every side.
        self._tensor, self._ref = given._tensor, given._ref

    pytorch = oneflow

    def register_hook(self, hook: Callable[[Any], Any]) -> Any:
        """Record a hook on the gradient."""
        return self._recorder.register_hook(self, hook)

    def numpy(self, **kwargs: Any) -> NDArray[Any]:
        """Record the conversion to an array; it is read-only and shares the reference's memory."""
        return self._recorder.array(self, kwargs)

    def _refuse(self, name: str) -> Any:
        if name in _REFUSED:
            message = f"`.{name}` of a recorded tensor: {_REFUSED[name]}"
            raise AuthorError(message)
        raise AttributeError(name)

    def __bool__(self) -> bool:
        return bool(self._recorder.call_python("builtins.bool", PYTHON_TARGETS["builtins.bool"], (self,), "bool"))

    def __int__(self) -> int:
        return int(self._recorder.call_python("builtins.int", PYTHON_TARGETS["builtins.int"], (self,), "int"))

    def __float__(self) -> float:
        return float(self._recorder.call_python("builtins.float", PYTHON_TARGETS["builtins.float"], (self,), "float"))

    def __complex__(self) -> complex:
        return complex(self.item())

    def __index__(self) -> int:
        return int(self)

    def __len__(self) -> int:
        return int(self._recorder.call_python("builtins.len", len, (self,), "len"))

    def __iter__(self) -> Iterator[Any]:
        # The length is a separate step, because the candidate's may differ.
        return iter([self[i] for i in range(len(self))])

    def __setitem__(self, index: object, value: object) -> None:
        self._recorder.call_python("operator.setitem", operator.setitem, (self, index, value), "setitem")

    def _item(self, index: object) -> Any:
        return self._recorder.call_python("operator.getitem", operator.getitem, (self, index), "getitem")

    def __reduce_ex__(self, protocol: object) -> Any:
        message = "a recorded tensor cannot be copied or pickled. Write x.clone(), or x.detach().clone()."
        raise AuthorError(message)

    def __or__(self, other: object) -> Any:
        if may_be_nothing(other):
            return NotImplemented  # `random_tensor(...) | nothing()` is a choice, which the generator's `__ror__` makes
        return self._recorder.call_python("operator.or_", operator.or_, (self, other), "or")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:  # noqa: FBT001 - numpy's
        array = self.numpy()
        return np.array(array, dtype) if copy else np.asarray(array, dtype)

    def __contains__(self, element: object) -> bool:
        is_equal: Any = self == element
        return bool(is_equal.any())

    def __reversed__(self) -> Any:
        return self.flip(0) if self._tensor.dim() else self

    def __dir__(self) -> list[str]:
        return dir(torch.Tensor)

    def __hash__(self) -> int:
        return id(self)

    def __format__(self, spec: str) -> str:
        return format(self._tensor, spec) if self._is_known() else repr(self)

    def _is_known(self) -> bool:
        """Return true if the elements are the reference's, not ones in place of a gradient that is not known yet."""
        if not self._recorder.is_in_hook:
            return True
        gradients = self._recorder.hook_gradients
        gradients.are_read = True
        return gradients.is_last_known

    def __repr__(self) -> str:  # type: ignore[override]
        if not self._is_known():
            return f"<{self._tensor.dtype} of shape {tuple(self._tensor.shape)}, known in the backward pass only>"
        return repr(self._tensor)

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Record a call of a plain ``torch`` function with a recorded value."""
        recorder = CURRENT.get()
        if recorder is None:
            stale()
        if func is _GETITEM and isinstance(args[0], RecordedTensor):
            return args[0]._item(args[1])
        return recorder.call_plain(func, args, kwargs or {})

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: object, _types: object, args: Any = (), _kwargs: object = None
    ) -> torch.device:
        """Return the device, and refuse an operator that code in C++ calls, for example a function transform."""
        if func is not _DEVICE:
            refuse_in_cpp(str(func))
        device: torch.device = args[0]._tensor.device
        return device


def has_gradient(value: object) -> bool:
    """Return true if a value is recorded and requires grad."""
    return isinstance(value, RecordedTensor) and value._tensor.requires_grad


def identity(value: object) -> int:
    """Return the ``id`` of the real tensor, because each read of ``x.grad`` records a new value of the same tensor."""
    return id(value._tensor if isinstance(value, RecordedTensor) else value)


def _operators() -> None:
    """Define Python's operators on a ``RecordedTensor``: binary, reflected, in-place, unary. Each use is a step."""

    def binary(name: str, call: Callable[..., Any], *, reflected: bool = False) -> Callable[..., Any]:
        target = f"operator.{name}"
        label = name.strip("_")
        if reflected:
            return lambda self, other: self._recorder.call_python(target, call, (other, self), label)
        return lambda self, *others: self._recorder.call_python(target, call, (self, *others), label)

    for name in BINARY:
        bare = name.strip("_")
        if name != "or_":  # is defined above, because of `nothing()`
            setattr(RecordedTensor, f"__{bare}__", binary(name, getattr(operator, name)))
        setattr(RecordedTensor, f"__r{bare}__", binary(name, getattr(operator, name), reflected=True))
        if name != "matmul":
            setattr(RecordedTensor, f"__i{bare}__", binary(f"i{bare}", getattr(operator, f"i{bare}")))
    for name in (*COMPARISONS, *UNARY):
        setattr(RecordedTensor, f"__{name}__", binary(name, getattr(operator, name)))


_operators()
#: Attributes of a value itself; the use of any other attribute is recorded.
_OWN: Final = frozenset({*vars(RecordedTensor), *dir(object)})
