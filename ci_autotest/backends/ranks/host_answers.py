"""What the hosts of a group answered to one job: the answer that all of them agree on, and where they do not."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from ci_autotest.backends.framework.response import HostAnswer, ResponseError
from ci_autotest.backends.ranks.ranks import ALL_AGREE, numbered, other_bits
from ci_autotest.backends.trace import RankFault
from ci_autotest.host.loop import IN_BACKWARD

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from ci_autotest.backends.trace import GradientKey

_SAME_BITS: Final = "the same bits on all ranks"
#: In place of a gradient's key: the backward pass as a whole.
WHOLE_PASS: Final = -1
_DECODER: Final = msgspec.json.Decoder(list[HostAnswer])


class Frame(NamedTuple):
    """One rank's answer as it was sent.

    Attributes:
        head: In JSON.
        buffers: Elements of its tensors.
    """

    head: bytes
    buffers: list[memoryview]


class InvalidAnswerError(ResponseError):
    """A rank sent something that is no answer.

    Args:
        rank: The rank.
        fault: What is wrong with it.
    """

    def __init__(self, rank: int, fault: str) -> None:
        super().__init__(f"{numbered([rank])} sent an invalid answer ({fault}).")
        self.rank, self.fault = rank, fault


class _Stop(NamedTuple):
    """What ended the run of a rank.

    Attributes:
        step: Index of its step; -2 for the backward pass, -1 if it is unknown.
        kind: Class of the error, or the feature that is missing.
        text: The error with its message.
    """

    step: int
    kind: str
    text: str


def agreed(frames: Sequence[Frame]) -> tuple[Frame, list[RankFault]]:
    """Return the answer of a group, and where its ranks disagree, with steps of the translated program.

    Args:
        frames: Answer of each rank, in the order of ranks.

    Raises:
        InvalidAnswerError: A rank's answer is invalid.
    """
    first = frames[0]
    if all(frame.head == first.head and frame.buffers == first.buffers for frame in frames[1:]):
        return first, []
    answers = [_decoded(frame, rank) for rank, frame in enumerate(frames)]
    stops = [_stop(answer) for answer in answers]
    stopped = {rank: stop for rank, stop in enumerate(stops) if stop is not None}
    if not stopped:
        return first, _disagreements(answers, frames)
    # An error's text may hold an address, or the shape of one rank's part.
    kinds = {(stop.step, stop.kind) for stop in stopped.values()}
    if len(stopped) == len(frames) and len(kinds) == 1:
        return first, []
    stop = next(iter(stopped.values()))
    parts = [f"{numbered([rank])} raised {stop.kind}" for rank, stop in stopped.items()]
    rest = [rank for rank, stop in enumerate(stops) if stop is None]
    seen = ", ".join([*parts, *([f"{numbered(rest)} went on"] if rest else ())])
    return _failed(seen, stop.step, stop.text)


def of_lost(
    frames: Mapping[int, Frame], ended: Mapping[int, tuple[str, int]], waiting: Mapping[int, int]
) -> tuple[Frame, list[RankFault]]:
    """Return the answer of a group that was ended because a rank ended alone, or waits for ever.

    Args:
        frames: Answer of each rank that gave one.
        ended: How each rank ended that is gone, and at which step, in the order in which they ended.
        waiting: Step at which each other rank waits.

    Raises:
        InvalidAnswerError: A rank's answer is invalid.
    """
    stops = {rank: _stop(_decoded(frame, rank)) for rank, frame in frames.items()}
    stopped = {rank: stop for rank, stop in stops.items() if stop is not None}
    # First of all, because others may have raised for it.
    parts = [f"{numbered([rank])} {text}" for rank, (text, _) in ended.items()]
    parts += [f"{numbered([rank])} raised {stop.kind}" for rank, stop in stopped.items()]
    done = [rank for rank in frames if rank not in stopped]
    parts += [f"{numbered(done)} went on"] if done else []
    parts += [f"{numbered(waiting)} {'waits' if len(waiting) == 1 else 'wait'} for ever"] if waiting else []
    steps = [
        *(step for _, step in ended.values()), *(stop.step for stop in stopped.values()), *waiting.values(),
    ]  # fmt: skip
    return _failed(", ".join(parts), steps[0] if steps else -1, next((one.text for one in stopped.values()), ""))


def of_invalid(error: InvalidAnswerError, others: Collection[int]) -> tuple[Frame, list[RankFault]]:
    """Return the answer of a group that was ended because a rank sent something that is no answer.

    Args:
        error: Which rank, and what is wrong.
        others: Ranks that have answered too.
    """
    done = f", {numbered(others)} went on" if others else ""
    return _failed(f"{numbered([error.rank])} sent an invalid answer ({error.fault}) and was ended{done}", -1, "")


def _failed(seen: str, step: int, detail: str) -> tuple[Frame, list[RankFault]]:
    """Return the answer of a group of which some ranks stopped."""
    is_backward = step == IN_BACKWARD
    error = "RankError", detail or seen
    answer = HostAnswer(
        values=[], copies=[], gradients=[], lacking=None,
        failure=None if is_backward else (max(step, 0), *error), backward_failure=error if is_backward else None,
    )  # fmt: skip
    key = WHOLE_PASS if is_backward else None
    fault = RankFault(step, key, is_call=True, seen=seen, expected=ALL_AGREE, detail=detail)
    return Frame(msgspec.json.encode([answer]), []), [fault]


def _decoded(frame: Frame, rank: int) -> HostAnswer:
    try:
        [found] = _DECODER.decode(frame.head)
    except (ValueError, RecursionError) as error:
        raise InvalidAnswerError(rank, str(error)) from error
    return found


def _stop(answer: HostAnswer) -> _Stop | None:
    if answer.lacking is not None:
        return _Stop(-1, "NotImplementedError", answer.lacking.detail)
    if answer.failure is not None:
        step, kind, message = answer.failure
        return _Stop(step, kind, f"{kind}: {message}")
    if answer.backward_failure is not None:
        kind, message = answer.backward_failure
        return _Stop(IN_BACKWARD, kind, f"{kind}: {message}")
    return None


def _disagreements(answers: Sequence[HostAnswer], frames: Sequence[Frame]) -> list[RankFault]:
    found: dict[tuple[int, GradientKey | None], RankFault] = {}
    lists = (
        [*zip_longest(*(answer.copies for answer in answers))],
        [*zip_longest(*(answer.values for answer in answers))],
    )
    for entries in lists:
        for index, own in enumerate(entries):
            _note(found, index, None, [_plain(entry, frame) for entry, frame in zip(own, frames, strict=True)])
    gradients = [dict(answer.gradients) for answer in answers]
    for key in dict.fromkeys(key for each in gradients for key in each):
        values = [_plain(each.get(key), frame) for each, frame in zip(gradients, frames, strict=True)]
        _note(found, key if isinstance(key, int) else key[0], key, values)
    return list(found.values())


def _note(
    found: dict[tuple[int, GradientKey | None], RankFault], step: int, key: GradientKey | None, values: Sequence[Any]
) -> None:
    """Note a fault if not all ranks have the same value, once for each place."""
    others = [rank for rank, value in enumerate(values) if value != values[0]]
    if not others or (step, key) in found:
        return
    texts: dict[str, list[int]] = {}
    for rank, value in enumerate(values):
        texts.setdefault(_described(value), []).append(rank)
    seen = other_bits(others, [rank for rank in range(len(values)) if rank not in others])
    if len(texts) > 1:
        seen = ", ".join(
            f"{numbered(ranks)} {'has' if len(ranks) == 1 else 'have'} {text}" for text, ranks in texts.items()
        )
    found[step, key] = RankFault(step, key, is_call=False, seen=seen, expected=_SAME_BITS)


def _plain(entry: Any, frame: Frame) -> Any:
    """Return an entry with the elements of its tensor, or their digest, in place of where they are."""
    if type(entry) is not list or not entry:
        return entry
    if entry[0] == "module" and isinstance(entry[1], dict):
        return ["module", {name: _plain(each, frame) for name, each in entry[1].items()}]
    if entry[0] not in {"tensor", "array"}:
        return entry
    at = entry[-1]
    is_buffer = type(at) is int and 0 <= at < len(frame.buffers)
    return [*entry[:-1], bytes(frame.buffers[at]) if is_buffer else at[:1] if type(at) is list else at]


def _described(value: Any) -> str:
    match value:
        case ["tensor", dtype, shape, requires_grad, is_leaf, _]:
            flags = f"{' that requires grad' if requires_grad else ''}{' (a leaf)' if is_leaf else ''}"
            return f"{dtype}{shape}{flags}"
        case ["array", dtype, shape, _]:
            return f"an array {dtype}{shape}"
        case ["module", _]:
            return "a module"
        case None:
            return "nothing"
        case [_, plain]:
            return str(plain)[:40]
        case _:
            return str(value)[:40]
