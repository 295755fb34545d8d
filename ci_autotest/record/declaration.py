"""The declaration of a test of operators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ci_autotest.values.declared_test import DeclaredTest, declared_test_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ci_autotest.values.case import DrawnValue

#: Forms that a test may ask for.
FORMS: Final = ("autocast", "out", "second_derivatives")


@dataclass(frozen=True, slots=True)
class Declaration(DeclaredTest):
    """The checked options of ``@autotest`` for one test.

    Args:
        auto_backward: True to run a backward pass from every output that requires grad.
        rtol: Ratio; ``None``: the default per dtype.
        atol: In the unit of the elements; ``None``: the default per dtype.
        check_dtype: True if a different dtype is a misalignment.
        profiles: Profiles besides ordinary; ``None``: all.
        check_allclose: True to compare elements; shapes, dtypes and flags are always compared.
        check_grad_use_random_data: True if the backward pass starts from random signed gradients; ones otherwise.
        check_graph: True if the body also runs as one compiled graph.
        dtypes: Dtypes of ``random_tensor()`` calls without a dtype, in turn; ``None``: float32.
        forms: Forms in which some cases make their calls, as in ``call_forms``.
        raises: The exceptions that must end the body on every side, because a step must be refused; empty: none.
        match: A regular expression for the reference's error message.
        examples: Draws of the first cases, by site.
        batch: The batch dimension of each tensor that has one, by its number in the body; ``None``: the first dimension
            of every tensor.
        grid: Number of points of its grid, 0 without one; ``None`` if they were not counted.
        is_foreign: True if the test was written for another harness, whose tensors may have more attributes.
    """

    auto_backward: bool = True
    rtol: float | None = None
    atol: float | None = None
    check_dtype: bool = True
    profiles: tuple[str, ...] | None = None
    check_allclose: bool = True
    check_grad_use_random_data: bool = True
    check_graph: bool = False
    dtypes: tuple[str, ...] | None = None
    raises: tuple[type[Exception], ...] = ()
    match: str | None = None
    examples: tuple[Mapping[str, DrawnValue], ...] = ()
    batch: Mapping[int, int] | None = None
    grid: int | None = None
    is_foreign: bool = False
    forms: tuple[str, ...] = ()


def declaration_of(value: object) -> Declaration | None:
    """Return the declaration of ``@autotest`` on a decorated function; ``None`` if it has none."""
    found = declared_test_of(value)
    return found if isinstance(found, Declaration) else None
