"""A host's response, strictly decoded: tensors are rebuilt from bytes and compared like any other.

A rebuilt tensor has the dtype, shape, elements, ``requires_grad`` and ``is_leaf`` that the host reports. Whether it was
a view, which memory it shared and how often it was written to is unknown here (``Trace.is_remote``).
"""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING, Any, Final

import msgspec
import torch

from ci_autotest.backends.sameness import byte_view
from ci_autotest.backends.snapshots import observed
from ci_autotest.backends.trace import Failure, Trace
from ci_autotest.errors import AutotestError, Unsupported
from ci_autotest.program.json_values import result_of
from ci_autotest.values.dtypes import DIFFERENTIABLE, DTYPES, FLOAT8

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: Limits on what is believed of a broken host: elements of a tuple, and the size of a dimension.
_ITEMS: Final = 1 << 20
_SIZES: Final = 1 << 48
#: Number of fields in a tensor's entry.
FIELDS: Final = 6


class HostAnswer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A host's answer to one job, as ``host/response.py`` writes it."""

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
    placements: dict[int, str] = {}


class HostDescription(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A host's description of its framework: whether it has each of the requested targets, and its devices."""

    has: list[bool]
    devices: list[str]


_DECODER: Final = msgspec.json.Decoder(list[HostAnswer])


class ResponseError(AutotestError):
    """The host sent an invalid answer."""


def about_of(head: bytes, count: int) -> HostDescription:
    """Return a host's description of its framework.

    Args:
        head: The answer, in JSON.
        count: Number of the requested targets.

    Raises:
        ResponseError: The answer is invalid.
    """
    try:
        found = msgspec.json.decode(head, type=HostDescription)
    except (ValueError, RecursionError) as error:  # ValueError: not JSON, not an `HostDescription`, or not UTF-8
        message = f"the host sent an invalid answer ({error})."
        raise ResponseError(message) from error
    if len(found.has) != count:
        message = f"the host was asked about {count} operators and answered for {len(found.has)}."
        raise ResponseError(message)
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
    """Return a reader for each answer of a frame.

    Args:
        head: The answers, in JSON.
        buffers: Elements of the tensors of all answers.
        fetch: Returns the elements of tensors that the host keeps, by number.

    Raises:
        ResponseError: An answer is invalid, or there is none.
    """
    try:
        answers = _DECODER.decode(head)
    except (ValueError, RecursionError) as error:  # ValueError: not JSON, not an `HostAnswer`, or not UTF-8
        message = f"the host sent an invalid answer ({error})."
        raise ResponseError(message) from error
    if not answers:
        message = "the host sent an invalid answer (an empty list)."
        raise ResponseError(message)
    return [Reader(answer, buffers, fetch) for answer in answers]


class Reader:
    """Read one answer.

    Args:
        answer: The decoded answer.
        buffers: Elements of its tensors.
        fetch: Returns the elements of tensors that the host keeps, by number.
    """

    def __init__(
        self,
        answer: HostAnswer,
        buffers: Sequence[memoryview],
        fetch: Callable[[list[int]], Sequence[bytes | memoryview]],
    ) -> None:
        self.answer = answer
        self.buffers = buffers
        self._fetch = fetch

    def value(self, entry: Any, expected: object = None) -> Any:
        """Return the value that an entry describes.

        Args:
            entry: ``[kind, ...]``, or ``None``.
            expected: The reference's value; a tensor with the same digest equals it.

        Raises:
            ResponseError: The entry is invalid.
        """
        if type(entry) is list and entry and entry[0] == "tensor":
            return self.tensor(entry, expected)
        match entry:
            case None:
                return None
            case ["array", dtype, shape, place]:
                return self.tensor(["tensor", dtype, shape, False, True, place]).numpy()
            case ["module", dict() as state]:
                return ResponseModule({name: self.tensor(each) for name, each in state.items()})
            case ["items", int(count)] if 0 <= count <= _ITEMS:
                return (None,) * count
            case ["plain", value]:
                return _plain(value)
            case ["other", str(name)]:
                return f"a {name}"
            case _:
                message = f"the host described a value as {str(entry)[:100]}, which is invalid."
                raise ResponseError(message)

    def tensor(self, entry: Any, expected: object = None) -> torch.Tensor:
        """Return the tensor that an entry describes.

        Raises:
            ResponseError: The entry is invalid.
        """
        if not _is_tensor(entry):
            message = f"the host described a tensor as {str(entry)[:100]}, which is invalid."
            raise ResponseError(message)
        _, name, shape, requires_grad, is_leaf, place = entry
        tensor = self._elements(place, getattr(torch, name), tuple(shape), expected)
        if requires_grad and name in DIFFERENTIABLE | FLOAT8:
            tensor.requires_grad_()
            # The view of a leaf that requires grad is not a leaf.
            return tensor if is_leaf else tensor.view(tensor.shape)
        return tensor

    def _elements(self, place: Any, dtype: torch.dtype, shape: tuple[int, ...], expected: object) -> torch.Tensor:
        data: bytes | memoryview
        if type(place) is int and 0 <= place < len(self.buffers):
            data = self.buffers[place]
        else:
            match place:
                case [str(digest), int(number)]:
                    same = _same(expected, digest, dtype, shape)
                    if same is not None:
                        return same
                    data = self._fetched(number)
                    if hashlib.blake2b(data, digest_size=16).hexdigest() != digest:
                        message = "the host sent other elements than those that it had described."
                        raise ResponseError(message)
                case _:
                    message = f"the host described the place of a tensor as {str(place)[:100]}, which is invalid."
                    raise ResponseError(message)
        size = math.prod(shape) * dtype.itemsize
        if len(data) != size:
            message = f"the host sent {len(data)} bytes for a tensor of {size} bytes."
            raise ResponseError(message)
        if not data:
            return torch.empty(shape, dtype=dtype)
        # A copy, because torch warns about memory that cannot be written.
        return torch.frombuffer(bytearray(data), dtype=dtype).reshape(shape)

    def _fetched(self, number: int) -> bytes | memoryview:
        sent = self._fetch([number])
        if len(sent) != 1:
            message = f"the host was asked for one tensor and sent {len(sent)}."
            raise ResponseError(message)
        return sent[0]


def _is_tensor(entry: Any) -> bool:
    """Whether an entry describes a tensor: kind, dtype, shape, flags, and the place of its elements."""
    if type(entry) is not list or len(entry) != FIELDS:
        return False
    kind, name, shape, requires_grad, is_leaf, _ = entry
    return (
        kind == "tensor"
        and type(name) is str
        and name in DTYPES
        and type(shape) is list
        and all(type(size) is int and 0 <= size < _SIZES for size in shape)
        and type(requires_grad) is bool
        and type(is_leaf) is bool
    )


def _same(expected: object, digest: str, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor | None:
    """Return the reference's elements if they have the host's digest: then the host need not send its own."""
    if not isinstance(expected, torch.Tensor) or expected.dtype is not dtype or tuple(expected.shape) != shape:
        return None
    value = expected.detach().cpu()
    data = byte_view(value)
    return value.view(value.shape) if hashlib.blake2b(data, digest_size=16).hexdigest() == digest else None


def _plain(value: Any) -> Any:
    try:
        return result_of(value)
    except (ValueError, TypeError, IndexError, OverflowError, RecursionError) as error:
        message = f"the host described a value as {str(value)[:100]}, which is invalid."
        raise ResponseError(message) from error


def fill(trace: Trace, reader: Reader, places: Sequence[int], expected: Trace | None) -> None:
    """Put the values of a host's answer into a trace.

    Args:
        trace: It has a place for each step of the recorded program.
        reader: Reader of the answer.
        places: Index among the answer's values of each recorded step's value; -1 if it has none.
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


def failure_of(answer: HostAnswer, places: Sequence[int]) -> Failure | None:
    """Return the failure of a run, with the index of its step in the recorded program."""
    if answer.failure is None:
        return None
    at, kind, message = answer.failure
    return Failure(recorded_step(at, places), kind, message)


def recorded_step(step: int, places: Sequence[int]) -> int:
    """Return the index in the recorded program of a step of the translated one.

    A recorded step may have become several; the last of them has its value.
    """
    return next((i for i, place in enumerate(places) if place >= step), len(places) - 1)
