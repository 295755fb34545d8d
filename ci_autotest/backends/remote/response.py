"""A host's response, strictly decoded: tensors are rebuilt from bytes and compared like any other.

A tensor that a host tells has the dtype, shape and elements that were told, requires grad and is a leaf where that was
told. Whether it was a view, what memory it shares and how often it was written to is not known here
(``Trace.is_told``).
"""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING, Any, Final

import msgspec
import torch

from ci_autotest.backends.snapshots import observed
from ci_autotest.backends.trace import Failure, Trace
from ci_autotest.errors import AutotestError, Unsupported
from ci_autotest.program.ir import COMPLEX, FLOATING, ITEM_SIZE
from ci_autotest.program.json_values import argument_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_DIFFERENTIABLE: Final = FLOATING | COMPLEX
#: Elements that a tuple may be told to have, and a dimension of a tensor.
_ITEMS: Final = 1 << 20
_SIZES: Final = 1 << 48
#: What is told of a tensor.
FIELDS: Final = 6
#: Bytes up to which a copy costs less than a view of them.
_SMALL_BYTES: Final = 1 << 14


class Answer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A host's answer to one job, as ``host/main.py`` writes it."""

    values: list[Any]
    copies: list[Any]
    gradients: list[tuple[int | tuple[int, str], Any]]
    failure: tuple[int, str, str] | None
    backward_failure: tuple[str, str] | None
    lacking: Unsupported | None
    written: list[tuple[int, Any]] = []
    has_kept: bool = False
    calls: dict[str, int] = {}
    left_out: list[str] = []


class About(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a host says of its framework: whether it has each of the targets asked for, and its devices."""

    has: list[bool]
    devices: list[str]


_DECODER: Final = msgspec.json.Decoder(list[Answer])


class ToldError(AutotestError):
    """Say that a host sent what is no answer."""


def about_of(head: bytes, count: int) -> About:
    """Return what a host says of its framework.

    Args:
        head: JSON.
        count: Of the targets that were asked for.

    Raises:
        ToldError: It is no answer to that.
    """
    try:
        found = msgspec.json.decode(head, type=About)
    except (ValueError, RecursionError) as error:  # the library's own errors, and text that is no UTF-8
        message = f"the host sent what is no answer ({error})."
        raise ToldError(message) from error
    if len(found.has) != count:
        message = f"the host was asked for {count} operators and told {len(found.has)}."
        raise ToldError(message)
    return found


class ResponseModule:
    """A module of another interpreter: its state after the run."""

    def __init__(self, state: dict[str, torch.Tensor]) -> None:
        self._state = state

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return the state by name."""
        return self._state


def readers_of(
    head: bytes, buffers: Sequence[memoryview], fetch: Callable[[list[int]], Sequence[bytes | memoryview]]
) -> list[Reader]:
    """Return a reader of each answer of a frame.

    Args:
        head: JSON.
        buffers: Tensors' elements of all of them.
        fetch: Returns the elements that the host keeps, by number.

    Raises:
        ToldError: They are no answers, or there is none.
    """
    try:
        answers = _DECODER.decode(head)
    except (ValueError, RecursionError) as error:  # the library's own errors, and text that is no UTF-8
        message = f"the host sent what is no answer ({error})."
        raise ToldError(message) from error
    if not answers:
        message = "the host sent what is no answer (there is none)."
        raise ToldError(message)
    return [Reader(answer, buffers, fetch) for answer in answers]


class Reader:
    """Read one answer.

    Args:
        answer: As it was decoded.
        buffers: Its tensors' elements.
        fetch: Returns the elements that the host keeps, by number.
    """

    def __init__(
        self, answer: Answer, buffers: Sequence[memoryview], fetch: Callable[[list[int]], Sequence[bytes | memoryview]]
    ) -> None:
        self.answer = answer
        self.buffers = buffers
        self._fetch = fetch

    def value(self, entry: Any, expected: object = None) -> Any:
        """Return what an entry tells.

        Args:
            entry: ``[kind, ...]``, or ``None``.
            expected: The reference's value, which a tensor with its digest is equal to.

        Raises:
            ToldError: It tells nothing.
        """
        if type(entry) is list and entry and entry[0] == "tensor":
            return self.tensor(entry, expected)
        match entry:
            case None:
                return None
            case ["array", dtype, shape, where]:
                return self.tensor(["tensor", dtype, shape, False, True, where]).numpy()
            case ["module", dict() as state]:
                return ResponseModule({name: self.tensor(each) for name, each in state.items()})
            case ["items", int(count)] if 0 <= count <= _ITEMS:
                return (None,) * count
            case ["plain", value]:
                return _plain(value)
            case ["other", str(name)]:
                return f"a {name}"
            case _:
                message = f"the host told {str(entry)[:100]} of a value."
                raise ToldError(message)

    def tensor(self, entry: Any, expected: object = None) -> torch.Tensor:
        """Return the tensor that an entry tells.

        Raises:
            ToldError: It tells none.
        """
        if not _is_tensor(entry):
            message = f"the host told {str(entry)[:100]} of a tensor."
            raise ToldError(message)
        _, name, shape, requires_grad, is_leaf, where = entry
        tensor = self._elements(where, getattr(torch, name), tuple(shape), expected)
        if requires_grad and name in _DIFFERENTIABLE:
            tensor.requires_grad_()
            return tensor if is_leaf else tensor.view(tensor.shape)
        return tensor

    def _elements(self, where: Any, dtype: torch.dtype, shape: tuple[int, ...], expected: object) -> torch.Tensor:
        data: bytes | memoryview
        if type(where) is int and 0 <= where < len(self.buffers):
            data = self.buffers[where]
        else:
            match where:
                case [str(digest), int(number)]:
                    same = _same(expected, digest, dtype, shape)
                    if same is not None:
                        return same
                    data = self._fetched(number)
                case _:
                    message = f"the host told {str(where)[:100]} of where a tensor is."
                    raise ToldError(message)
        size = math.prod(shape) * dtype.itemsize
        if len(data) != size:
            message = f"the host sent {len(data)} bytes of a tensor of {size}."
            raise ToldError(message)
        if not data:
            return torch.empty(shape, dtype=dtype)
        return torch.frombuffer(bytearray(data), dtype=dtype).reshape(shape)

    def _fetched(self, number: int) -> bytes | memoryview:
        sent = self._fetch([number])
        if len(sent) != 1:
            message = f"the host was asked for one tensor and sent {len(sent)}."
            raise ToldError(message)
        return sent[0]


def _is_tensor(entry: Any) -> bool:
    """Whether an entry tells a tensor: its kind, dtype, shape, flags, and where its elements are."""
    if type(entry) is not list or len(entry) != FIELDS:
        return False
    kind, name, shape, requires_grad, is_leaf, _ = entry
    return (
        kind == "tensor"
        and type(name) is str
        and name in ITEM_SIZE
        and type(shape) is list
        and all(type(size) is int and 0 <= size < _SIZES for size in shape)
        and type(requires_grad) is bool
        and type(is_leaf) is bool
    )


def _same(expected: object, digest: str, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor | None:
    """Return the reference's elements where their digest is the one told: equal elements need not be sent."""
    if not isinstance(expected, torch.Tensor) or expected.dtype is not dtype or tuple(expected.shape) != shape:
        return None
    value = expected.detach().cpu()
    data = elements_of(value)
    return value.view(value.shape) if hashlib.blake2b(data, digest_size=16).hexdigest() == digest else None


def elements_of(tensor: torch.Tensor) -> memoryview:
    """Return a tensor's elements in C order, as bytes."""
    value = tensor.detach().cpu().resolve_conj().resolve_neg()
    if value.nbytes <= _SMALL_BYTES and value.dtype is not torch.bfloat16:
        return memoryview(value.numpy().tobytes())
    value = value.contiguous()
    if not value.numel():
        return memoryview(b"")
    return memoryview(value.reshape(-1).view(torch.uint8).numpy())  # type: ignore[arg-type]


def _plain(value: Any) -> Any:
    try:
        return argument_of(value)
    except (ValueError, TypeError, IndexError, OverflowError, RecursionError) as error:
        message = f"the host told {str(value)[:100]} of a value."
        raise ToldError(message) from error


def fill(trace: Trace, reader: Reader, places: Sequence[int], expected: Trace | None) -> None:
    """Put what a host told of the values into a trace.

    Args:
        trace: With a place for each step of the program as it was recorded.
        reader: Of the answer.
        places: Where the value of each recorded step is among those told; -1 for nowhere.
        expected: The reference's trace.
    """
    answer = reader.answer
    for index, place in enumerate(places):
        if not 0 <= place < len(answer.values):
            continue
        right = expected.values[index] if expected is not None and index < len(expected.values) else None
        value = reader.value(answer.values[place], right)
        trace.values[index] = value
        if isinstance(value, torch.Tensor):
            trace.facts[index] = (value.requires_grad, value.is_leaf, value._version)
        if place < len(answer.copies) and trace.observations:
            trace.observations[index] = observed(reader.value(answer.copies[place], right))


def failure_of(answer: Answer, places: Sequence[int]) -> Failure | None:
    """Return the step that raised, as it was recorded."""
    if answer.failure is None:
        return None
    at, kind, message = answer.failure
    recorded = next((i for i, place in enumerate(places) if place >= at), len(places) - 1)
    return Failure(recorded, kind, message)
