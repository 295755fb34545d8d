"""The user's module in which each step was recorded, so that a pass over graphs gets the modules.

The rule of this module: a step is marked only if it is part of a whole forward of one of torch's classes, or if it gets
a parameter or buffer by its place in a module. The mark does not change the step's effect.
"""

from __future__ import annotations

import inspect
import warnings
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from ci_autotest.program.ir import PLACEHOLDER, ModuleCall, Ref, refs, step_refs
from ci_autotest.program.module_calls import constants_of, is_module_path, is_place
from ci_autotest.program.random_calls import RECURRENT
from ci_autotest.record.values import RecordedTensor

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from typing_extensions import Self

    from ci_autotest.program.ir import Argument, Step
    from ci_autotest.record.recorder import Recorder

_PLAIN: Final = (bool, int, float, str, type(None))
#: Arguments of constructors that do not affect the values that a module computes.
_PLACES: Final = frozenset({"self", "device", "dtype"})
_RECURRENT: Final = (torch.nn.RNN, torch.nn.LSTM, torch.nn.GRU)


#: Targets of the steps that these modules record.
_RECURRENT_TARGETS: Final = frozenset(f"torch.{name}" for name in RECURRENT)


class _Forward(NamedTuple):
    """One forward of one of torch's classes: its steps, and the places of its arguments and results.

    Attributes:
        module: The module.
        members: Indices of its steps.
        places: Places of each recorded value among the arguments, by the index of its step.
        given: The other arguments, each with its place.
        results: Place of each value among the results, by the index of its step.
    """

    module: torch.nn.Module
    members: list[int]
    places: dict[int, list[str]]
    given: list[tuple[str, Argument]]
    results: dict[int, str]


class ModuleCalls:
    """Marks the steps that are recorded inside modules while a body runs.

    Args:
        recorder: The recorder of the attempt.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._running: list[tuple[torch.nn.Module, int]] = []
        self._forwards: list[_Forward] = []
        self._roots: list[torch.nn.Module] = []
        self._count = 0

    def __enter__(self) -> Self:
        self._handles = (
            register_module_forward_pre_hook(self._before),
            register_module_forward_hook(self._after, with_kwargs=True, always_call=True),
        )
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()

    def _before(self, module: torch.nn.Module, _args: object) -> None:
        self._running.append((module, len(self._recorder.steps)))

    def _after(self, module: torch.nn.Module, args: tuple[Any, ...], *others: Any) -> None:
        # If the forward raised, torch passes no keywords, and no result.
        kwargs, result = others if len(others) == 2 else ({}, None)  # noqa: PLR2004
        steps = self._recorder.steps
        _, start = self._running.pop()
        members = [i for i in range(start, len(steps)) if steps[i].op != PLACEHOLDER]
        if not members:
            return
        if _is_leaf(module) and all(map(_is_leaf, module.modules())):
            forward = self._forward(module, args, kwargs, result, members)
            if forward is not None:
                self._forwards.append(forward)
        if not self._running:
            self._mark(module, members)

    def _forward(
        self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], result: object, members: list[int]
    ) -> _Forward | None:
        """Return a forward; ``None`` if it has other arguments than tensors and plain values, or other results."""
        found = _Forward(module, members, {}, [], {})
        for place, value in chain(enumerate(args), kwargs.items()):
            for inner, leaf in _leaves(value, str(place)):
                index = self._index(leaf)
                if index is not None:
                    found.places.setdefault(index, []).append(inner)
                elif isinstance(leaf, _PLAIN):
                    found.given.append((inner, leaf))
                else:
                    return None
        for place, leaf in _leaves(result, ""):
            index = self._index(leaf)
            if index in members:
                found.results.setdefault(index, place.lstrip("."))
            elif leaf is not None:
                return None
        is_whole = bool(found.results) and self._finds_state(found, is_alone=len(args) == 1 and not kwargs)
        return found if is_whole else None

    def _finds_state(self, forward: _Forward, *, is_alone: bool) -> bool:
        """Add the initial state that a recurrent module made itself; return whether that can be an argument."""
        if not (is_alone and isinstance(forward.module, _RECURRENT)):
            return True
        steps = self._recorder.steps
        main = next(steps[i] for i in forward.members if steps[i].target in _RECURRENT_TARGETS)
        given, state = main.args[0], main.args[1]
        for i, ref in enumerate(refs(state)):
            forward.places[ref.index] = [f"1.{i}" if isinstance(state, tuple) else "1"]
        # Without a batch, the module adds one to its input, and the state has one more dimension than an argument.
        return isinstance(given, Ref) and given.index in forward.places

    def _index(self, value: object) -> int | None:
        """Return the index of the step that gave a tensor; ``None`` for any other value."""
        if isinstance(value, RecordedTensor):
            return value._ref.index
        captured = self._recorder.outside.captured.get(id(value))
        return None if captured is None else captured[1]._ref.index

    def _mark(self, root: torch.nn.Module, members: list[int]) -> None:
        """Mark the steps inside an outermost module."""
        if not any(root is other for other in self._roots):
            self._roots.append(root)
        number = next(i for i, other in enumerate(self._roots) if root is other)
        modules = {id(module): f"{number}.{name}".rstrip(".") for name, module in root.named_modules()}
        captured = self._recorder.outside.captured
        states = {
            captured[id(tensor)][1]._ref.index: f"{number}.{name}"
            for name, tensor in chain(root.named_parameters(), root.named_buffers())
            if id(tensor) in captured and is_module_path(name if name[0].isdecimal() else f"0.{name}")
        }  # fmt: skip
        steps = self._recorder.steps
        for i in members:
            paths = tuple(states.get(ref.index, "") for ref in step_refs(steps[i]))
            if any(paths):
                call = ModuleCall(str(number), states=paths, constants=constants_of(steps[i]))
                steps[i] = steps[i]._replace(module=call)
        taken: set[int] = set()
        # The outermost modules come last. A module that is called inside the root but is no part of it has no path.
        for forward in reversed(self._forwards):
            if id(forward.module) in modules and not taken & {*forward.members}:
                taken |= self._mark_forward(forward, modules[id(forward.module)], states)
        self._forwards.clear()

    def _mark_forward(self, forward: _Forward, path: str, states: dict[int, str]) -> set[int]:
        """Mark the steps of a forward and return their indices; none if a call of the module would not be the same."""
        steps, members = self._recorder.steps, forward.members
        kwargs = constructor_arguments(forward.module)
        sources = _sources(steps, forward, states)
        is_printable = is_module_path(path) and all(
            is_place(place) for places in forward.places.values() for place in places
        )
        if kwargs is None or sources is None or not is_printable or sum(steps[i].seed is not None for i in members) > 1:
            return set()
        self._count += 1
        for i in members:
            step = steps[i]
            call = ModuleCall(
                path, states=tuple(states.get(ref.index, "") for ref in step_refs(step)), constants=constants_of(step),
                call=self._count, sources=sources[i], result=forward.results.get(i),
            )  # fmt: skip
            if i == members[0]:
                call = call._replace(
                    target=f"torch.nn.{type(forward.module).__name__}", kwargs=kwargs,
                    training=forward.module.training, parts=len(members), given=tuple(forward.given),
                )  # fmt: skip
            steps[i] = step._replace(module=call)
        return {*members}


def _leaves(value: object, place: str) -> Iterator[tuple[str, object]]:
    """Yield the parts of nested tuples and the place of each."""
    if type(value) is tuple:
        for i, item in enumerate(value):
            yield from _leaves(item, f"{place}.{i}")
    else:
        yield place, value


def _sources(steps: Sequence[Step], forward: _Forward, states: dict[int, str]) -> dict[int, tuple[str, ...]] | None:
    """Return ``ModuleCall.sources`` of each step; ``None`` if a step uses another value, or an argument is unused."""
    numbers = {index: number for number, index in enumerate(forward.members)}
    used: set[int] = set()
    found: dict[int, tuple[str, ...]] = {}
    for i in forward.members:
        sources = []
        for ref in step_refs(steps[i]):
            if ref.index in states:
                sources.append("")
            elif ref.index in numbers:
                sources.append(f"#{numbers[ref.index]}")
            elif ref.index in forward.places:
                sources.append(" ".join(forward.places[ref.index]))
                used.add(ref.index)
            else:
                return None
        found[i] = tuple(sources)
    return found if used == {*forward.places} else None


def _is_leaf(module: torch.nn.Module) -> bool:
    """Return true if torch.fx would call a module without entering it, and its class determines its results."""
    kind = type(module)
    is_torchs = kind.__module__.startswith("torch.nn.modules.") and not isinstance(module, torch.nn.Sequential)
    # Without a momentum, a batch-norm in training depends on its count of batches, which is not recorded.
    counts = module.training and getattr(module, "momentum", 0.0) is None
    return is_torchs and not (counts or "forward" in vars(module) or module._forward_hooks or module._forward_pre_hooks)


def constructor_arguments(module: torch.nn.Module) -> tuple[tuple[str, Argument], ...] | None:
    """Return the arguments that construct an equal module of torch; ``None`` if its attributes do not tell them."""
    kind = type(module)
    if getattr(torch.nn, kind.__name__, None) is not kind:
        return None
    attributes = _composed(module)
    if attributes is None:
        found: list[tuple[str, Argument]] = []
        for name, parameter in inspect.signature(kind.__init__).parameters.items():
            if name in _PLACES:
                continue
            value = getattr(module, name, parameter.default)
            if isinstance(parameter.default, bool):
                value = value is not None and (isinstance(value, torch.Tensor) or bool(value))
            if value is parameter.empty or parameter.kind is parameter.VAR_POSITIONAL or not _is_plain(value):
                return None
            found.append((name, tuple(value) if isinstance(value, list) else value))
        return tuple(found)
    arguments = tuple(attributes.items())
    if not all(isinstance(value, _PLAIN) for _, value in arguments):
        return None
    return arguments if _description_of(kind, arguments, module.training) == _description(module) else None


@lru_cache(maxsize=256)
def _description_of(kind: type[torch.nn.Module], arguments: tuple[tuple[str, Any], ...], training: bool) -> object:  # noqa: FBT001
    """Return the description of a class's module with these arguments; ``None`` if the class refuses them."""
    with warnings.catch_warnings(), torch.device("meta"):
        warnings.simplefilter("ignore")  # The author's own construction has already given these warnings.
        try:
            return _description(kind(**dict(arguments)).train(training))
        except Exception:  # noqa: BLE001 - whatever a class has against attributes that were changed
            return None


def _composed(module: Any) -> dict[str, Any] | None:
    """Return the arguments of a class that stores them under other names; ``None`` for any other class."""
    if isinstance(module, _RECURRENT):
        names = ["input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional"]
        more = {torch.nn.RNN: ["nonlinearity"], torch.nn.LSTM: ["proj_size"]}.get(type(module), [])
        return {name: getattr(module, name) for name in (*names, *more)}
    if type(module) is torch.nn.MultiheadAttention:
        return {
            **{name: getattr(module, name) for name in ("embed_dim", "num_heads", "dropout")},
            "bias": module.in_proj_bias is not None, "add_bias_kv": module.bias_k is not None,
            **{name: getattr(module, name) for name in ("add_zero_attn", "kdim", "vdim", "batch_first")},
        }  # fmt: skip
    if type(module) in {torch.nn.TransformerEncoderLayer, torch.nn.TransformerDecoderLayer}:
        activations = {torch.nn.functional.relu: "relu", torch.nn.functional.gelu: "gelu"}
        return {
            "d_model": module.self_attn.embed_dim, "nhead": module.self_attn.num_heads,
            "dim_feedforward": module.linear1.out_features, "dropout": module.dropout.p,
            "activation": activations.get(module.activation, ""), "layer_norm_eps": module.norm1.eps,
            "batch_first": module.self_attn.batch_first, "norm_first": module.norm_first,
            "bias": module.linear1.bias is not None,
        } if module.activation in activations else None  # fmt: skip
    return None


def _description(module: torch.nn.Module) -> object:
    """Return all properties that distinguish a module from another, except the values of its state."""
    shapes = [(name, tuple(value.shape)) for name, value in module.state_dict().items()]
    attention = [
        (part.dropout, part.add_zero_attn) for part in module.modules() if isinstance(part, torch.nn.MultiheadAttention)
    ]
    return str(module), shapes, attention, [part.training for part in module.modules()]


def _is_plain(value: object) -> bool:
    return all(isinstance(item, _PLAIN) for item in (value if isinstance(value, tuple | list) else (value,)))
