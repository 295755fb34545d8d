"""``torch.save`` and ``torch.load`` in a body: to memory and from it, never to a file.

Saving the tensors is one step, and loading them is another; each side loads the tensors that it has saved itself. The
containers around them, and their numbers and strings, stay in the body. Loading is always ``weights_only``.
"""

from __future__ import annotations

import io
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

import torch

from ci_autotest.backends.torch_steps import load, save
from ci_autotest.errors import AuthorError
from ci_autotest.program.ir import CALL_FUNCTION, LOAD, SAVE, List, Step, ref_to
from ci_autotest.record.arguments import one
from ci_autotest.record.context import CURRENT
from ci_autotest.record.function import Function
from ci_autotest.record.modules import RecordedModule
from ci_autotest.record.values import RecordedTensor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ci_autotest.record.recorder import Recorder

_PLAIN: Final = (str, int, float, bool, complex, type(None))
#: Options of torch's functions that change nothing here.
_NEUTRAL: Final = {"weights_only": True, "pickle_module": None, "mmap": None}


class _Place(NamedTuple):
    """Stands for a tensor in the saved containers: its position in the list of tensors."""

    position: int


class SaveFunction(Function):
    """``torch.save``."""

    __slots__ = ()

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """Record the call in a test; outside, call torch."""
        recorder = CURRENT.get()
        if recorder is None:
            self.real(*args, **kwargs)
            return
        _save(recorder, *args, **kwargs)


class LoadFunction(Function):
    """``torch.load``."""

    __slots__ = ()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Record the call in a test; outside, call torch."""
        recorder = CURRENT.get()
        return self.real(*args, **kwargs) if recorder is None else _load(recorder, *args, **kwargs)


def _save(recorder: Recorder, obj: Any, f: Any, **options: Any) -> None:
    memory = _memory("torch.save", f)
    if options:
        _refuse_option("torch.save", next(iter(options)))
    tensors: list[Any] = []
    layout = _layout(obj, tensors)
    pairs = [one(recorder, tensor) for tensor in tensors]
    step = Step(CALL_FUNCTION, SAVE, (List(tuple(recorded for _, recorded in pairs)),), (), "saved")
    recorder.run(step, save, [[real for real, _ in pairs]], {})
    index = len(recorder.steps) - 1
    # The user's memory gets torch's bytes as well, so that its size and position are as usual.
    begin = memory.tell()
    torch.save(_filled(layout, [real for real, _ in pairs]), memory)
    recorder.saved.setdefault(bytes(memory.getbuffer()[begin : memory.tell()]), []).append((memory, index, layout))


def _load(recorder: Recorder, f: Any, map_location: Any = None, **options: Any) -> Any:
    memory = _memory("torch.load", f)
    for name, value in options.items():
        if name not in _NEUTRAL or value not in {None, _NEUTRAL[name]}:
            _refuse_option("torch.load", name)
    content = memory.read()
    index, layout = _saved(recorder, memory, content)
    kwargs: dict[str, Any] = {}
    step_kwargs: tuple[tuple[str, Any], ...] = ()
    if map_location is not None:
        where = torch.device(map_location) if isinstance(map_location, str) else map_location
        kwargs["map_location"], device = one(recorder, where)
        step_kwargs = (("map_location", device),)
    step = Step(CALL_FUNCTION, LOAD, (ref_to(index),), step_kwargs, "loaded")
    tensors = recorder.run(step, load, [recorder.trace.values[index]], kwargs)
    return _filled(layout, tensors)


def _saved(recorder: Recorder, memory: io.BytesIO, content: bytes) -> tuple[int, Any]:
    """Return the index of the step that saved some bytes, and the containers around its tensors.

    Raises:
        AuthorError: No step saved them, or several did and none of them wrote to this memory.
    """
    found = recorder.saved.get(content, [])
    if not found:
        message = (
            f"torch.load found nothing in memory that torch.save of this body has written ({len(content)} bytes from "
            "its position to its end). Write memory.seek(0) before it."
        )
        raise AuthorError(message)
    here = [each for each in found if each[0] is memory]
    if not here and len(found) > 1:
        message = (
            f"torch.load found {len(content)} bytes that {len(found)} calls of torch.save have written, so that the "
            "tensors of any of them may be meant. Load from the memory that was saved to."
        )
        raise AuthorError(message)
    _, index, layout = (here or found)[-1]
    return index, layout


def _memory(target: str, f: Any) -> io.BytesIO:
    if isinstance(f, io.BytesIO):
        return f
    does = "write to" if target == "torch.save" else "read from"
    message = f"{target} in a test can only {does} memory, and got a {type(f).__name__}. Pass an io.BytesIO()."
    raise AuthorError(message)


def _refuse_option(target: str, name: str) -> NoReturn:
    reason = ": what a test loads is always weights_only" if name == "weights_only" else ""
    message = f"{target} with {name}= is not recorded{reason}. Leave it out."
    raise AuthorError(message)


def _layout(value: Any, tensors: list[Any]) -> Any:
    """Return the saved containers with a place for each tensor, and append the tensors to ``tensors``.

    Raises:
        AuthorError: ``torch.load`` with ``weights_only`` would refuse the value.
    """
    if isinstance(value, RecordedTensor | torch.Tensor):
        tensors.append(value)
        return _Place(len(tensors) - 1)
    if type(value) in {dict, OrderedDict}:
        return type(value)((key, _layout(item, tensors)) for key, item in value.items())
    if type(value) in {list, tuple}:
        return type(value)(_layout(item, tensors) for item in value)
    if isinstance(value, _PLAIN):
        return value
    hint = "its state_dict()" if isinstance(value, RecordedModule | torch.nn.Module) else "tensors, numbers and strings"
    name = type(value.real if isinstance(value, RecordedModule) else value).__name__
    message = f"torch.save of a {name} is not recorded, because torch.load refuses it. Save {hint}."
    raise AuthorError(message)


def _filled(layout: Any, tensors: Sequence[Any]) -> Any:
    """Return the saved containers with these tensors in their places."""
    if isinstance(layout, _Place):
        return tensors[layout.position]
    if isinstance(layout, dict):
        return type(layout)((key, _filled(item, tensors)) for key, item in layout.items())
    if isinstance(layout, list | tuple):
        fill: Callable[[Any], Any] = type(layout)
        return fill(_filled(item, tensors) for item in layout)
    return layout
