"""The declaration of a test, kept on the decorated function. Nothing is registered globally."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

#: Attribute of a decorated function that holds its ``Declaration``.
ATTRIBUTE: Final = "__ci_autotest__"


@dataclass(frozen=True, slots=True)
class Declaration:
    """Say how a test wants to be run.

    Args:
        body: The function as written.
        n: Cases; ``None`` takes the configuration's.
        auto_backward: Whether a backward pass is run for every output that requires grad.
        rtol: Ratio, with ``atol``; ``None`` takes the default per dtype.
        atol: In the unit of the elements.
        check_dtype: Whether another dtype is a misalignment.
        profiles: Profiles besides ordinary; ``None`` takes all.
        id: Name that stays when the test moves.
        check_allclose: Whether elements are compared; shapes, dtypes and flags always are.
        check_grad_use_random_data: Whether the gradients put in are random and signed, else ones.
        check_graph: Whether the body is run as one compiled graph too.
        dtypes: What ``random_tensor()`` is swept over where a test leaves its dtype open; ``None``: float32.
        raises: What the body ends with on every side, because a step of it must be refused; empty: it ends.
        match: A regular expression that is found in what the reference says then.
    """

    body: Callable[..., Any]
    n: int | None = None
    auto_backward: bool = True
    rtol: float | None = None
    atol: float | None = None
    check_dtype: bool = True
    profiles: tuple[str, ...] | None = None
    id: str | None = None
    check_allclose: bool = True
    check_grad_use_random_data: bool = True
    check_graph: bool = False
    dtypes: tuple[str, ...] | None = None
    raises: tuple[type[Exception], ...] = ()
    match: str | None = None


def declaration_of(value: object) -> Declaration | None:
    """Return the declaration that a decorated function carries."""
    found = getattr(value, ATTRIBUTE, None)
    return found if isinstance(found, Declaration) else None
