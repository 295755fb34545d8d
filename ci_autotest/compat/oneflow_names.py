"""The names of OneFlow's AutoTest 0.9.0 with OneFlow's meaning, which tests written for it rely on.

It differs from that of our own names in defaults: ``dim0`` is 1 unless given, sizes beyond ``ndim`` are dropped, dtypes
are not compared, and ``random_tensor`` may draw from [0, 1), the only range that OneFlow has. Source: the wheel
oneflow 0.9.0, ``oneflow/test_utils/automated_test_util``.
"""

from __future__ import annotations

import functools
import math
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ci_autotest.compat.global_tensors import NAMES as GLOBAL_TENSORS
from ci_autotest.errors import AuthorError
from ci_autotest.record.context import CURRENT, recorder_for
from ci_autotest.record.dependent_tensors import choice_tensor as own_choice_tensor
from ci_autotest.record.draw.draws import Drawer
from ci_autotest.record.draw.dtypes import GROUPS
from ci_autotest.record.draw.dtypes import random_dtype as own_random_dtype
from ci_autotest.record.draw.generators import (
    DEFAULT_HIGH,
    DEFAULT_LOW,
    Either,
    Generator,
    RandomBool,
    RandomNumber,
    constant,
    cpu_device,
    gpu_device,
    nothing,
    random_device,
    settle,
)
from ci_autotest.record.draw.profiles import ORDINARY
from ci_autotest.record.draw.streams import Streams
from ci_autotest.record.options import declared
from ci_autotest.record.tensors import NDIM, draw_tensor
from ci_autotest.record.values import RecordedTensor
from ci_autotest.values.declared_test import ATTRIBUTE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ci_autotest.record.torch_namespace import Namespace

    F = TypeVar("F", bound=Callable[..., Any])


# Generators of OneFlow's AutoTest that a file makes or uses by itself: derived classes, and values at import.


class BaseGenerator(Generator):
    """``generator``, from which a file derives its own: its value is what ``_calc_value`` returns.

    Args:
        children: Generators that the value is made of.
    """

    def __init__(self, children: Iterable[object] = ()) -> None:
        self.children = list(children)

    def _calc_value(self) -> object:
        raise NotImplementedError

    def draw(self, drawer: Drawer, wanted: object, site: str) -> object:  # noqa: ARG002 - the file's own class draws
        """Return the value that the file's class computes."""
        return self._calc_value()

    def parts(self) -> tuple[object, ...]:
        """Return the generators that the value is made of."""
        return tuple(self.children)


class GeneratorValues:
    """What ``.value()`` gives in a file; outside of a test no case draws it, so it is the same in every run."""

    def __init__(self) -> None:
        self._drawer: Drawer | None = None

    def value(self, owner: Any) -> Any:
        """Return ``owner.value()``; a recorded tensor is its own value, because earlier versions drew tensors too."""
        if isinstance(owner, RecordedTensor):
            return owner
        if not isinstance(owner, Generator) or CURRENT.get() is not None:
            return owner.value()
        if self._drawer is None:
            self._drawer = Drawer(Streams(), (0, 0), None)
        return owner.value(self._drawer)


#: Where OneFlow draws elements that have no range. Half of our attempts draw them from our own, signed ranges.
_OWN_RANGE: Final = Either((True, False), 0.5)
_RANGE: Final = (0, 1)
#: Options that OneFlow's decorator does not have.
_OURS: Final[dict[str, Any]] = dict.fromkeys(
    ("profiles", "dtypes", "forms", "id", "raises", "match", "examples", "batch")
)
#: Groups of dtypes that have no group of that name here.
_GROUPS: Final = {
    "unsigned": GROUPS["uint"], "signed": GROUPS["int"], "pod": (*GROUPS["arithmetic"], *GROUPS["bool"]),
}  # fmt: skip


def autotest(
    n: Any = None,
    auto_backward: Any = True,
    rtol: Any = None,
    atol: Any = None,
    check_graph: Any = True,
    check_allclose: Any = True,
    check_dtype: Any = False,
    check_grad_use_random_data: Any = True,
    include_complex: Any = False,
    **options: Any,
) -> Callable[[F], F]:
    """Declare a test, with OneFlow's options, order and defaults; further options are ours.

    ``check_graph`` is not obeyed, whatever its value: a candidate has graphs where its row says ``mode: graph``.
    """
    del check_graph
    given = {
        "n": n, "auto_backward": auto_backward, "rtol": rtol, "atol": atol, "check_dtype": check_dtype,
        "check_graph": False, "check_allclose": check_allclose,
        "check_grad_use_random_data": check_grad_use_random_data, "include_complex": include_complex,
        **_OURS, **options,
    }  # fmt: skip
    declared(lambda: None, given)  # reports a wrong option at the line of the decorator

    def decorate(body: F) -> F:
        @functools.wraps(body)
        def test(*called: Any, **named: Any) -> Any:
            if CURRENT.get() is None:
                message = f"{body.__name__}() was called outside a test. `ci-autotest run --compat oneflow` runs it."
                raise AuthorError(message)
            return body(*called, **named)

        setattr(test, ATTRIBUTE, replace(declared(body, given), is_foreign=True))
        return test  # type: ignore[return-value]

    return decorate


class NumberOrList(RandomNumber):
    """``random(low, high)``; where a tuple is wanted, its value is a list."""

    __slots__ = ()

    def draw(self, drawer: Drawer, wanted: object, site: str) -> object:
        """Draw by type: one member of a union, every member of a tuple."""
        found = super().draw(drawer, wanted, site)
        return [*found] if isinstance(found, tuple) else found


class Choice(Either):
    """``oneof(...)``; in a condition it is drawn, where OneFlow takes it for true."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return bool(self.value())


class Truth(RandomBool):
    """``random_bool()``; in a condition it is drawn."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return bool(self.value())


def random(low: Any = DEFAULT_LOW, high: Any = DEFAULT_HIGH) -> Any:
    """Draw a number in ``[low, high)``."""
    return NumberOrList(low, high)


def random_or_nothing(low: Any, high: Any) -> Any:
    """Draw a number in ``[low, high)``, or leave the argument out in one of three cases."""
    return Choice((nothing(), random(low, high)), 1 / 3)


def oneof(*alternatives: Any, possibility: float | None = None) -> Any:
    """Draw one of several alternatives."""
    return Choice(alternatives, possibility)


def random_bool() -> Any:
    """Draw a boolean."""
    return Truth()


def random_dtype(names: Sequence[str]) -> Any:
    """Draw a dtype of the given groups, in OneFlow's names for them."""
    return own_random_dtype([one for name in names for one in _GROUPS.get(name, (name,))])


def profile(_operator: object) -> Callable[[F], F]:
    """Return the function unchanged: OneFlow times it, ``--speed`` is our way to do that."""
    return lambda function: function


def random_tensor(
    ndim: Any = None,
    dim0: Any = 1,
    dim1: Any = None,
    dim2: Any = None,
    dim3: Any = None,
    dim4: Any = None,
    low: Any = None,
    high: Any = None,
    dtype: Any = float,
    requires_grad: Any = True,
    pin_memory: bool = False,
) -> Any:
    """Return a recorded tensor with drawn shape and data.

    Args:
        ndim: Number of dimensions; 1 to 5 by default. Sizes beyond it are dropped.
        dim0: Size in elements; ``None`` is free, that is, drawn from 1 to 7. ``dim1`` to ``dim4`` work the same way.
        dim1: See ``dim0``.
        dim2: See ``dim0``.
        dim3: See ``dim0``.
        dim4: See ``dim0``.
        low: Lowest value, in the unit of the elements (default: 0, or that of our own ``random_tensor``).
        high: Upper bound, exclusive (default: 1, or that of our own).
        dtype: ``float``, ``int``, a dtype, or a generator of one.
        requires_grad: Whether the tensor requires grad.
        pin_memory: Without effect: it changes no element.
    """
    del pin_memory
    recorder = recorder_for("random_tensor")
    drawer = recorder.drawer
    # A number of dimensions that is drawn is drawn first, because it decides which sizes are drawn.
    chosen = RandomNumber(*NDIM) if ndim is None else ndim
    count = int(settle(drawer, chosen, int))
    is_own = low is None and high is None and settle(drawer, _OWN_RANGE)
    if not is_own:
        low, high = (_RANGE[0] if low is None else low), (_RANGE[1] if high is None else high)
    recorder.notes.is_widened |= is_own or drawer.profile != ORDINARY
    if isinstance(low, int | float) and low == high:
        high = math.nextafter(low, math.inf)  # OneFlow then has this one value
    if isinstance(requires_grad, Generator):
        requires_grad = bool(settle(drawer, requires_grad, bool))
    return draw_tensor(count, (dim0, dim1, dim2, dim3, dim4)[:count], low, high, dtype, requires_grad)


def random_pytorch_tensor(*args: Any, **kwargs: Any) -> Any:
    """Return what ``random_tensor`` returns."""
    return random_tensor(*args, **kwargs)


def choice_tensor(
    a: Any, size: Any = None, replace: bool = True, p: Any = None, dtype: Any = int, requires_grad: bool = False
) -> Any:
    """Return a recorded tensor with elements chosen from a list; without a size it has no dimension."""
    return own_choice_tensor(a, () if size is None else size, replace, p, dtype, requires_grad)


#: What ``from oneflow.test_utils.automated_test_util import *`` gives, and names of other versions of it.
NAMES: Final[dict[str, Any]] = {
    "autotest": autotest, "profile": profile,
    "random_tensor": random_tensor, "random_pytorch_tensor": random_pytorch_tensor,
    "choice_tensor": choice_tensor, "choice_pytorch_tensor": choice_tensor,
    "random": random, "random_bool": random_bool, "random_device": random_device, "random_dtype": random_dtype,
    "random_pytorch_dtype": random_dtype, "random_or_nothing": random_or_nothing, "oneof": oneof, "constant": constant,
    "nothing": nothing, "generator": BaseGenerator, "cpu_device": cpu_device, "gpu_device": gpu_device, "os": os,
    **GLOBAL_TENSORS,
}  # fmt: skip


def names(recording: Namespace) -> dict[str, Any]:
    """Return the names of the star import, with the recording ``torch``."""
    return {**NAMES, "torch": recording}
