"""Which values a step writes to, told by its spelling: ``exp_``, ``operator.iadd``, ``inplace=True`` and ``out=``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ci_autotest.program.ir import CALL_FUNCTION, CALL_METHOD, CALL_MODULE, Ref, refs, step_refs
from ci_autotest.program.roles import DROPOUT_LAYERS, DROPOUTS, IN_PLACE
from ci_autotest.program.targets import DISPATCHER, OPS, last_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ci_autotest.program.ir import Step

#: What writes to its receiver by its name in Python: ``operator.iadd``, and the method ``__iadd__``.
_WRITING: Final = frozenset({*IN_PLACE, "imatmul", "setitem"})
#: Methods that end with an underscore and change a flag only.
_FLAGS: Final = frozenset({"requires_grad_"})
#: Place of ``inplace`` in a signature, by function and by layer. Source: PyTorch 2.13, ``torch/nn/functional.py`` and
#: ``torch/nn/modules``.
IN_PLACE_AT: Final[dict[str, int]] = {
    **dict.fromkeys(("relu", "relu6", "selu", "hardswish", "hardsigmoid", "silu", "mish"), 1),
    **dict.fromkeys(("elu", "celu", "leaky_relu"), 2),
    **dict.fromkeys(("hardtanh", "threshold"), 3),
    **dict.fromkeys(DROPOUTS, 3),
    "rrelu": 4,
    **dict.fromkeys(("ReLU", "ReLU6", "SELU", "Hardswish", "Hardsigmoid", "SiLU", "Mish"), 0),
    **dict.fromkeys(("ELU", "CELU", "LeakyReLU"), 1),
    **dict.fromkeys(("Hardtanh", "Threshold", "RReLU"), 2),
    **dict.fromkeys(DROPOUT_LAYERS, 1),
}
#: Layers that return their input or a view of it, so that the next layer of a ``Sequential`` writes to the same memory.
_PASSING: Final = frozenset({"Identity", "Flatten", "Unflatten"})


def is_in_place(target: str) -> bool:
    """Whether a call writes to its first argument, judged by its name: ``exp_``, ``torch.relu_``, ``operator.iadd``.

    The name of an operator of the user's says nothing.
    """
    name = last_name(target)
    # The underscore of `operator.and_` only tells it from a keyword.
    if target.startswith("operator.") or name.endswith("__"):
        return name.strip("_") in _WRITING
    is_users = target.startswith(OPS) and not target.startswith(DISPATCHER)
    is_torchs = "." not in target or target.startswith("torch.")
    return is_torchs and not is_users and name.endswith("_")


def written_values(step: Step, steps: Sequence[Step]) -> tuple[Ref, ...]:
    """Return the values that a step writes to: the tensor that it changes in place, and those that ``out=`` names.

    Args:
        step: A step of the body or the setup.
        steps: Of the program; of a module's call, they have its constructor.
    """
    receiver = written_receiver(step, steps)
    return outputs_of(step) if receiver is None else (receiver, *outputs_of(step))


def outputs_of(step: Step) -> tuple[Ref, ...]:
    """Return the values that ``out=`` names."""
    return tuple(refs(dict(step.kwargs).get("out"))) if step.kwargs else ()


def written_receiver(step: Step, steps: Sequence[Step]) -> Ref | None:
    """Return the tensor that a step changes in place; ``None`` if it changes none."""
    if step.op == CALL_MODULE:
        module = step.args[0]
        is_writing = isinstance(module, Ref) and _is_layer_in_place(module.index, steps)
        args = step.args[1:]
    elif step.op in {CALL_FUNCTION, CALL_METHOD}:
        # A constructor has `inplace`, too, and writes to nothing.
        is_named_so = is_in_place(step.target) and step.target not in _FLAGS
        is_writing = is_named_so or (not step.in_setup and _asks_for_it(step))
        args = step.args
    else:
        return None
    receiver = args[0] if args else dict(step.kwargs).get("input")
    return receiver if is_writing and isinstance(receiver, Ref) else None


def may_share_input(step: Step) -> bool:
    """Whether a module's call may return its input or a view of it."""
    return last_name(step.target) in {"Sequential", *_PASSING, *DROPOUT_LAYERS}


def is_passed_on(step: Step, steps: Sequence[Step]) -> bool:
    """Whether a step calls a module that returns its input as it is."""
    if step.op != CALL_MODULE or step.receiver is None:
        return False
    layers = [step.receiver]
    while layers:
        layer = steps[layers.pop()]
        name = last_name(layer.target)
        if name == "Sequential":
            layers += [ref.index for ref in step_refs(layer)]
        elif name != "Identity":
            return False
    return True


def _asks_for_it(step: Step) -> bool:
    """Whether ``inplace`` is true among the arguments of a function or of a constructor."""
    at = IN_PLACE_AT.get(last_name(step.target)) if step.target.startswith("torch.nn.") else None
    given = step.args[at] if at is not None and len(step.args) > at else False
    return dict(step.kwargs).get("inplace", given) is True


def _is_layer_in_place(index: int, steps: Sequence[Step]) -> bool:
    """Whether a module writes to its input; a ``Sequential`` does if its first layer with memory of its own does."""
    # A layer of dropout passes its input on outside of training; that of parts is set by what holds them.
    passing = {*_PASSING, *DROPOUT_LAYERS} if any(step.sets_training is False for step in steps) else _PASSING
    layers = [index]
    while layers:
        layer = steps[layers.pop()]
        name = last_name(layer.target)
        if name == "Sequential":
            layers += [ref.index for ref in reversed(step_refs(layer))]
        elif name not in passing:
            return _asks_for_it(layer)
    return False
