"""Which module of the user's each step was recorded in, so that a pass over graphs gets the modules.

The rule of this module: a step is only marked where it is the whole forward of a class of torch's, or where it gets a
parameter or buffer by its place in a module; what the step does is unchanged.
"""

from __future__ import annotations

import inspect
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from ci_autotest.program.ir import PLACEHOLDER, ModuleCall, is_unpacking, step_refs
from ci_autotest.program.module_calls import READS, constants_of, is_module_path
from ci_autotest.record.values import RecordedTensor

if TYPE_CHECKING:
    from typing_extensions import Self

    from ci_autotest.program.ir import Argument
    from ci_autotest.record.recorder import Recorder

_PLAIN: Final = (bool, int, float, str, type(None))
#: Arguments of constructors that are no part of what a module computes.
_PLACES: Final = frozenset({"self", "device", "dtype"})


class ModuleCalls:
    """Marks the steps that are recorded inside of modules while a body runs.

    Args:
        recorder: The recorder of the attempt.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._running: list[tuple[torch.nn.Module, int]] = []
        self._whole: dict[int, torch.nn.Module] = {}
        self._roots: list[torch.nn.Module] = []

    def __enter__(self) -> Self:
        self._handles = (
            register_module_forward_pre_hook(self._before),
            register_module_forward_hook(self._after, always_call=True),
        )
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()

    def _before(self, module: torch.nn.Module, _args: object) -> None:
        self._running.append((module, len(self._recorder.steps)))

    def _after(self, module: torch.nn.Module, args: tuple[Any, ...], _result: object) -> None:
        steps = self._recorder.steps
        _, start = self._running.pop()
        calls = [i for i in range(start, len(steps)) if steps[i].op != PLACEHOLDER and not is_unpacking(steps[i])]
        if not calls:
            return
        whole = [i for i in calls if steps[i].target not in READS]
        if len(whole) == len(args) == 1 and isinstance(args[0], RecordedTensor) and _is_leaf(module):
            self._whole |= dict.fromkeys(calls, module)
        if not self._running:
            self._mark(module, calls)

    def _mark(self, root: torch.nn.Module, calls: list[int]) -> None:
        """Mark the calls inside of an outermost module."""
        if not any(root is other for other in self._roots):
            self._roots.append(root)
        number = next(i for i, other in enumerate(self._roots) if root is other)
        modules = {id(module): f"{number}.{name}".rstrip(".") for name, module in root.named_modules()}
        captured = self._recorder.outside.captured
        states = {
            captured[id(tensor)][1]._ref.index: f"{number}.{name}"
            for name, tensor in chain(root.named_parameters(), root.named_buffers()) if id(tensor) in captured
        }  # fmt: skip
        steps = self._recorder.steps
        for i in calls:
            whole = self._whole.pop(i, None)
            if whole is not None and id(whole) not in modules:
                whole = None  # It is called inside of the outermost module, and is no part of it.
            paths = tuple(states.get(ref.index, "") for ref in step_refs(steps[i]))
            kwargs = None if whole is None else constructor_arguments(whole)
            call = ModuleCall(str(number), states=paths, constants=constants_of(steps[i]))
            if whole is not None and kwargs is not None:
                target = "" if steps[i].target in READS else f"torch.nn.{type(whole).__name__}"
                call = call._replace(path=modules[id(whole)], target=target, kwargs=kwargs, training=whole.training)
            is_printable = all(map(is_module_path, (call.path, *filter(None, paths))))
            if is_printable and (whole is not None or any(paths)):
                steps[i] = steps[i]._replace(module=call)


def _is_leaf(module: torch.nn.Module) -> bool:
    """Whether torch.fx would call a module and not enter it, and its class alone says what it computes."""
    kind = type(module)
    if getattr(torch.nn, kind.__name__, None) is not kind or isinstance(module, torch.nn.Sequential):
        return False
    # Without a momentum, what a batch-norm does in training depends on its count of batches, which is not recorded.
    counts = module.training and getattr(module, "momentum", 0.0) is None
    return not (counts or "forward" in vars(module) or module._forward_hooks or module._forward_pre_hooks)


def constructor_arguments(module: torch.nn.Module) -> tuple[tuple[str, Argument], ...] | None:
    """Return the arguments that construct a module like one of torch's; ``None`` if its attributes do not say them."""
    found: list[tuple[str, Argument]] = []
    for name, parameter in inspect.signature(type(module).__init__).parameters.items():
        if name in _PLACES:
            continue
        value = getattr(module, name, parameter.default)
        if isinstance(parameter.default, bool):
            value = value is not None and (isinstance(value, torch.Tensor) or bool(value))
        if value is parameter.empty or parameter.kind is parameter.VAR_POSITIONAL or not _is_plain(value):
            return None
        found.append((name, tuple(value) if isinstance(value, list) else value))
    return tuple(found)


def _is_plain(value: object) -> bool:
    return all(isinstance(item, _PLAIN) for item in (value if isinstance(value, tuple | list) else (value,)))
