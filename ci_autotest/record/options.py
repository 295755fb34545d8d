"""The options of ``@autotest``, checked once, when the decorator is called; each message says how to correct them.

Examples are named draws that a test's first cases use instead of random ones.
"""

from __future__ import annotations

import difflib
import math
import re
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import torch

from ci_autotest.errors import AuthorError
from ci_autotest.record.declaration import FORMS, Declaration
from ci_autotest.record.draw.covering import ROWS
from ci_autotest.record.draw.dtypes import GROUPS
from ci_autotest.record.draw.profiles import PROFILES, TURNS
from ci_autotest.values.case import made_by_name
from ci_autotest.values.dtypes import DTYPES, FLOATING, OF_PYTHON

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ci_autotest.values.case import Draw, DrawnValue

    Example: TypeAlias = Mapping[str, DrawnValue]

#: Our name for options that other tools spell differently.
_OTHER_NAMES: Final = {
    "cases": "n", "count": "n", "repeat": "n", "max_examples": "n", "seed": "--seed", "tolerance": "rtol and atol",
    "name": "id", "dtype": "dtypes", "profile": "profiles", "backward": "auto_backward", "check_grad": "auto_backward",
}  # fmt: skip
_KNOWN: Final = (
    "n", "auto_backward", "rtol", "atol", "check_dtype", "check_allclose", "check_grad_use_random_data", "check_graph",
    "include_complex", "profiles", "dtypes", "id", "raises", "match",
    "examples", "batch", "forms",
)  # fmt: skip
_SWITCHES: Final = ("check_dtype", "check_allclose", "check_grad_use_random_data", "include_complex")
#: Values of the switches that take more than true and false. OneFlow's ``ValidatedFalse`` means: known not to compile.
_CHOICES: Final[dict[str, tuple[object, ...]]] = {
    "auto_backward": (True, False, "auto"),
    "check_graph": (True, False, "ValidatedFalse"),
}
_COMPLEX_TOO: Final = (OF_PYTHON[float], OF_PYTHON[complex])


def declared(body: Callable[..., Any], given: Mapping[str, Any]) -> Declaration:
    """Return the declaration of a test.

    Args:
        body: The function as written.
        given: The options of ``autotest()`` by name, including unknown ones.

    Raises:
        AuthorError: An option is unknown, has a value that it does not take, or contradicts another option.
    """
    _refuse_unknown(given)
    _check_count(given["n"])
    for name in _SWITCHES:
        _one_of(name, given[name], (True, False))
    for name, values in _CHOICES.items():
        _one_of(name, given[name], values)
    _check_tolerances(given["rtol"], given["atol"])
    if given["id"] is not None and not (isinstance(given["id"], str) and given["id"].strip()):
        message = f"autotest(id={given['id']!r}) names no test. Write a text that no other test has."
        raise AuthorError(message)
    return Declaration(
        body=body, n=given["n"], auto_backward=bool(given["auto_backward"]), rtol=given["rtol"], atol=given["atol"],
        check_dtype=given["check_dtype"], profiles=_profiles(given["profiles"]), id=given["id"],
        check_allclose=given["check_allclose"], check_grad_use_random_data=given["check_grad_use_random_data"],
        check_graph=given["check_graph"] is True, forms=_forms(given["forms"]) if given["raises"] is None else (),
        dtypes=_dtypes(given["dtypes"], include_complex=given["include_complex"]),
        raises=_raises(given["raises"]), match=_match(given["match"], given["raises"]),
        examples=_checked_examples(given["examples"]), batch=_batch(given["batch"]),
    )  # fmt: skip


def dtype_of(case: int, dtypes: tuple[str, ...] | None) -> torch.dtype | None:
    """Return the dtype of a case for tensors without one; ``None`` if the test does not vary dtypes.

    Pairs of cases, one ordinary and one with a profile, go through the dtypes in turn. After each round of profiles the
    turn is shifted by one, so that every profile is combined with every dtype.
    """
    if dtypes is None:
        return None
    pair = case // 2
    found: torch.dtype = getattr(torch, dtypes[(pair + pair // TURNS) % len(dtypes)])
    return found


def turns_of(dtypes: tuple[str, ...]) -> tuple[int, ...]:
    """Return the index of the dtype in each of the first ``ROWS`` cases; later cases have a rotation of these."""
    return tuple(dtypes.index(dtypes[case // 2 % len(dtypes)]) for case in range(ROWS))


def _refuse_unknown(given: Mapping[str, Any]) -> None:
    for name in given:
        if name not in _KNOWN:
            # No suggestion is better than a wrong one: 'case' is 0.6 similar to 'raises'.
            nearest = difflib.get_close_matches(name, (*_KNOWN, *_OTHER_NAMES), 1, 0.75)
            hint = f"Did you mean {_OTHER_NAMES.get(nearest[0], nearest[0])}? " if nearest else ""
            message = f"autotest() has no option {name!r}. {hint}It has {', '.join(_KNOWN)}."
            raise AuthorError(message)


def _check_count(count: object) -> None:
    if callable(count):
        message = "@autotest was given the function itself. Write @autotest() with parentheses."
        raise AuthorError(message)
    if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 1):
        message = (
            f"autotest(n={count!r}) is not a number of cases. Write 1 or more, or nothing for the configuration's."
        )
        raise AuthorError(message)


def _one_of(name: str, value: object, allowed: tuple[object, ...]) -> None:
    # Compared by identity, because `1 == True` and 1 is not allowed.
    if not any(value is item or (isinstance(item, str) and value == item) for item in allowed):
        words = [repr(item) for item in allowed]
        message = f"autotest({name}={value!r}) is none of its values. Write {', '.join(words[:-1])} or {words[-1]}."
        raise AuthorError(message)


def _check_tolerances(rtol: object, atol: object) -> None:
    for name, bound in (("rtol", rtol), ("atol", atol)):
        is_number = isinstance(bound, int | float) and not isinstance(bound, bool) and 0 <= bound < math.inf
        if bound is not None and not is_number:
            message = (
                f"autotest({name}={bound!r}) is not a tolerance. Write a number that is 0 or more; "
                "check_allclose=False compares no elements."
            )
            raise AuthorError(message)


def _raises(given: object) -> tuple[type[Exception], ...]:
    kinds = given if isinstance(given, tuple) else () if given is None else (given,)
    if (given is not None and not kinds) or not all(isinstance(k, type) and issubclass(k, Exception) for k in kinds):
        message = (
            f"autotest(raises={given!r}) is not an exception class. Write raises=RuntimeError, or a tuple of some."
        )
        raise AuthorError(message)
    return kinds


def _match(given: object, raises: object) -> str | None:
    if given is None:
        return None
    if raises is None:
        message = f"autotest(match={given!r}) needs raises= too. Write for example raises=RuntimeError."
        raise AuthorError(message)
    try:
        re.compile(given)  # type: ignore[call-overload]
    except (TypeError, re.error) as error:
        message = (
            f"autotest(match={given!r}) is not a regular expression: {error}. Write a part of the message, escaped."
        )
        raise AuthorError(message) from error
    return str(given)


def _batch(given: object) -> Mapping[int, int] | None:
    """Return the batch dimension of each tensor that has one, by its number; ``None`` if the option is not given."""
    if given is None:
        return None
    numbers = [*given, *given.values()] if isinstance(given, dict) else []
    if not numbers or not all(type(number) is int and number >= 0 for number in numbers):
        message = (
            f"autotest(batch={given!r}) does not say where the batch is. Write batch={{0: 0, 1: 1}}: the number of a "
            "tensor in the order in which the body draws them, and its dimension."
        )
        raise AuthorError(message)
    return dict(given)  # type: ignore[call-overload, no-any-return]


def _profiles(given: object) -> tuple[str, ...] | None:
    if given is None:
        return None
    if isinstance(given, str) or not isinstance(given, tuple | list):
        message = (
            f"autotest(profiles={given!r}) is not a list. Write profiles=({given!r},), or () for ordinary cases only."
        )
        raise AuthorError(message)
    unknown = [name for name in given if name not in PROFILES]
    if unknown:
        message = f"autotest(profiles=...) has no profile {unknown[0]!r}. Use {', '.join(PROFILES)}."
        raise AuthorError(message)
    return tuple(given)


def _forms(given: object) -> tuple[str, ...]:
    if given is None:
        return ()
    if isinstance(given, str) or not isinstance(given, tuple | list):
        message = f"autotest(forms={given!r}) is not a list. Write forms=({given!r},)."
        raise AuthorError(message)
    unknown = [name for name in given if name not in FORMS]
    if unknown:
        message = f"autotest(forms=...) has no form {unknown[0]!r}. Use {', '.join(FORMS)}."
        raise AuthorError(message)
    return tuple(dict.fromkeys(given))


def _dtypes(given: object, *, include_complex: bool) -> tuple[str, ...] | None:
    """Return the names of the dtypes that a test varies; ``None`` if it does not."""
    if given is None:
        return _COMPLEX_TOO if include_complex else None
    if not isinstance(given, tuple | list) or not given:
        message = f"autotest(dtypes={given!r}) is not a list of dtypes. Write dtypes=(torch.float32, torch.float64)."
        raise AuthorError(message)
    names = [name for item in given for name in (GROUPS[item] if _is_group(item) else (_dtype(item),))]
    # Repeats are kept: a dtype that is named twice is drawn twice as often.
    return (*names, *([OF_PYTHON[complex]] if include_complex and OF_PYTHON[complex] not in names else []))


def _is_group(given: object) -> bool:
    """Return true if this names a group of dtypes, as in ``random_dtype``; ``float`` without quotes is only float32."""
    return isinstance(given, str) and given in GROUPS and given not in DTYPES


def _dtype(given: object) -> str:
    name = OF_PYTHON.get(given, "") if isinstance(given, type) else str(given).removeprefix("torch.")
    if name not in DTYPES:
        examples = ", ".join(sorted(FLOATING))
        message = f"autotest(dtypes=...) has {given!r}, but data cannot be drawn for that. Use {examples}, …"
        raise AuthorError(message)
    return name


def _checked_examples(given: Any) -> tuple[Example, ...]:
    """Return the examples of a declaration.

    Raises:
        AuthorError: They are not a list of dictionaries of names and numbers.
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
        AuthorError: The case does not make one of the draws, a value is outside the draw's range, or one draw has two
            values, by its site and by its name.
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
