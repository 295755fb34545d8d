"""The names that a test gives its tensors and generators, so that findings, programs and draws can use them too.

A tensor is named after the variable to which the author's code is about to bind the result of the running call. This
variable is read from the bytecode. A generator has been bound before it is drawn, so it is looked up among the
variables.
"""

from __future__ import annotations

import dis
import sys
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType

#: Modules whose frames lie between the recorder and the author's code.
_OWN: Final = ("ci_autotest.record", "ci_autotest.testing", "ci_autotest.compat")
#: Instructions that bind a variable; newer interpreters join two in one.
_STORES: Final = ("STORE_FAST", "STORE_NAME", "STORE_DEREF", "STORE_GLOBAL")
#: Instructions that end a statement or an expression, so that later ones no longer concern the result.
_ENDS: Final = ("RETURN", "YIELD", "RAISE", "RERAISE", "POP_TOP", "STORE", "FOR_ITER", "SEND")
_UNPACK: Final = "UNPACK_SEQUENCE"
_COMPREHENSIONS: Final = ("<genexpr>", "<listcomp>")
_ATTRIBUTES: Final = ("LOAD_ATTR", "LOAD_METHOD")


def author_name(is_taken: Callable[[str], bool]) -> str | None:
    """Return the variable that the author's running statement binds to the value being made; ``None`` without one.

    Args:
        is_taken: Returns true if an earlier value has a name. It is called if a statement binds several variables: in
            ``q, k, v = (random_tensor(2) for _ in range(3))``, the value gets the next free one.
    """
    frame = _author_frame()
    while frame is not None and frame.f_code.co_name in _COMPREHENSIONS:
        frame = frame.f_back
    if frame is None:
        return None
    names = _bound(frame.f_code, frame.f_lasti)
    return next((name for name in names[:-1] if not is_taken(name)), names[-1] if names else None)


def variable_of(is_held: Callable[[object], bool]) -> str | None:
    """Return the first variable of the author's running function, or of its module, for which ``is_held`` is true."""
    frame = _author_frame()
    scopes = () if frame is None else (frame.f_locals, frame.f_globals)
    return next((name for scope in scopes for name, value in scope.items() if is_held(value)), None)


def _author_frame() -> FrameType | None:
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_globals.get("__name__", "").startswith(_OWN):
        frame = frame.f_back
    return frame


@lru_cache(maxsize=256)
def _instructions(code: CodeType) -> list[dis.Instruction]:
    return [each for each in dis.get_instructions(code) if each.opname not in {"NOP", "EXTENDED_ARG", "CACHE"}]


@lru_cache(maxsize=4096)
def _bound(code: CodeType, offset: int) -> tuple[str, ...]:
    """Return the variable that an instruction's result is bound to, or several if the result is unpacked.

    The result's place on the stack is tracked, so that both calls of ``x, weight = first(), second()`` get a name.
    """
    every = _instructions(code)
    after = [each for each in every if each.offset > offset]
    if any(each.offset == offset and each.opname == _UNPACK for each in every):  # It runs a generator expression.
        return _stored(after)
    place = 0  # From the top of the stack.
    for index, each in enumerate(after):
        if each.opname.startswith(_STORES):
            variables = _variables(each)
            if place < len(variables):
                return (variables[place],)
            place -= len(variables)
        elif each.opname == _UNPACK and (index == 0 or after[index - 1].opname != "BUILD_TUPLE"):
            return _stored(after[index + 1 :]) if place == 0 else ()
        elif each.opname != _UNPACK:
            moved = _place_after(after[index : index + 2], place)
            if moved is None:
                break
            place = moved
    return ()


def _place_after(instructions: list[dis.Instruction], place: int) -> int | None:
    """Return the result's place on the stack after the first of two instructions; ``None`` if it has been used."""
    each = instructions[0]
    name, count = each.opname, each.arg or 0
    if name == "ROT_THREE":  # The top goes below the next two.
        return {0: 2, 1: 0, 2: 1}.get(place, place)
    if (name, count) == ("COPY", place + 1) or (name == "DUP_TOP" and place == 0):
        return 0  # `x := value` and `x = y = value` bind a copy of it.
    if name in {"SWAP", "ROT_TWO"}:
        distance = count - 1 if name == "SWAP" else 1
        return {0: distance, distance: 0}.get(place, place)
    if name == "BUILD_TUPLE" and place < count:
        is_unpacked = [(_UNPACK, count)] == [(each.opname, each.arg) for each in instructions[1:]]
        return count - 1 - place if is_unpacked else None
    if name.startswith(_ENDS) or each.opcode in dis.hasjrel or each.opcode in dis.hasjabs:
        return None
    effect = dis.stack_effect(each.opcode, each.arg)
    taken = 1 if name in _ATTRIBUTES else 1 - effect
    return place + effect if taken <= place else None


def _stored(rest: list[dis.Instruction]) -> tuple[str, ...]:
    """Return the variables that the next instructions bind."""
    names: list[str] = []
    for each in rest:
        if not each.opname.startswith(_STORES):
            break
        names += _variables(each)
        if "LOAD" in each.opname:
            break
    return tuple(names)


def _variables(instruction: dis.Instruction) -> tuple[str, ...]:
    """Return the variables that an instruction binds, the one for the top of the stack first."""
    if "LOAD" in instruction.opname:  # STORE_FAST_LOAD_FAST
        return (instruction.argval[0],)
    return instruction.argval if isinstance(instruction.argval, tuple) else (instruction.argval,)
