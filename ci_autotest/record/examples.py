"""Examples of a test: named draws that its first cases have, instead of random ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from ci_autotest.errors import AuthorError
from ci_autotest.values.case import made_by_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ci_autotest.values.case import Draw, DrawnValue

    Example: TypeAlias = Mapping[str, DrawnValue]


def checked_examples(given: Any) -> tuple[Example, ...]:
    """Return the examples of a declaration.

    Raises:
        AuthorError: They are no list of dictionaries of names and numbers.
    """
    if given is None:
        return ()
    if not isinstance(given, list | tuple) or not all(map(_is_example, given)):
        message = (
            f"autotest(examples={given!r}) is not a list of draws. Write examples=[{{'x.dim0': 3}}], with the names "
            "that `ci-autotest draws TEST` prints."
        )
        raise AuthorError(message)
    return tuple(map(dict, given))


def _is_example(item: object) -> bool:
    if not isinstance(item, dict) or not item:
        return False
    return all(isinstance(site, str) and isinstance(value, bool | int | float) for site, value in item.items())


def check_example(number: int, example: Example, draws: Sequence[Draw]) -> None:
    """Refuse an example that its case did not follow.

    Raises:
        AuthorError: The case does not make one of the draws, or the value is outside of the draw's range.
    """
    made = made_by_name(draws)
    for site, value in example.items():
        if site not in made:
            names = ", ".join(sorted(draw.label for draw in draws)) or "none"
            message = f"examples[{number}] names the draw {site!r}, which its case does not make. It has {names}."
            raise AuthorError(message)
        draw = made[site]
        if draw.value != value and example.get(draw.site, value) != example.get(draw.name, value):
            message = f"examples[{number}] gives one draw two values, as {draw.site!r} and as {draw.name!r}. Keep one."
            raise AuthorError(message)
        if draw.value != value:
            bounds = f"{draw.kind} of [{draw.low:g}, {draw.high:g})"
            message = f"examples[{number}] has {site!r} = {value!r}, which is outside its range: {bounds}."
            raise AuthorError(message)
