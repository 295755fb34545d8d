"""The declaration of any test: an attribute of the decorated function. There is no global registry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

if TYPE_CHECKING:
    from collections.abc import Callable

#: Attribute of a decorated function that holds its declaration.
ATTRIBUTE: Final = "__ci_autotest__"


@dataclass(frozen=True, slots=True)
class DeclaredTest:
    """The declaration of any test.

    Args:
        body: The function as written.
        n: Number of cases; ``None``: the configuration's.
        id: A name that the test keeps when it moves.

    Attributes:
        candidate: The one candidate of such tests; empty: those of the configuration.
        subject: What they test.
    """

    candidate: ClassVar[str] = ""
    subject: ClassVar[str] = "operators"
    body: Callable[..., Any]
    n: int | None = None
    id: str | None = None


def declared_test_of(value: object) -> DeclaredTest | None:
    """Return the declaration that a decorated function carries."""
    found = getattr(value, ATTRIBUTE, None)
    return found if isinstance(found, DeclaredTest) else None
