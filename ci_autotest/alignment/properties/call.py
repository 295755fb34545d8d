"""Calls of operators whose outputs are not unique, and whether a call leaves a choice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

from ci_autotest.program.random_calls import draws

if TYPE_CHECKING:
    from collections.abc import Mapping

_DROPOUT: Final = (
    torch.nn.Dropout, torch.nn.Dropout1d, torch.nn.Dropout2d, torch.nn.Dropout3d, torch.nn.AlphaDropout,
    torch.nn.FeatureAlphaDropout,
)  # fmt: skip
#: Modules that draw where they pool, in training and in evaluation.
_POOLS: Final = (torch.nn.FractionalMaxPool2d, torch.nn.FractionalMaxPool3d)


class SideCall(NamedTuple):
    """One call with one side's values.

    Attributes:
        name: Of the operator, without its namespace.
        args: Positional arguments, tensors among them; for a module's call without the module.
        kwargs: Keyword arguments; for a module's call its attributes ``p`` and ``training``, and ``dropout_p``
            of one that has ``dropout``.
        outputs: Outputs by position; ``None`` for those that this side does not show.
        reference: The reference's outputs, by position.
    """

    name: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    outputs: tuple[torch.Tensor | None, ...]
    reference: tuple[torch.Tensor | None, ...]

    @property
    def input(self) -> torch.Tensor:
        """The first tensor."""
        return next(value for value in (*self.args, *self.kwargs.values()) if isinstance(value, torch.Tensor))

    def argument(self, position: int, name: str, default: Any) -> Any:
        """Return an argument by position or name."""
        if name in self.kwargs:
            return self.kwargs[name]
        return self.args[position] if len(self.args) > position else default

    def output(self, position: int) -> torch.Tensor | None:
        """Return an output, ``None`` if this side does not show it."""
        return self.outputs[position] if position < len(self.outputs) else None


def nothing(_call: SideCall) -> str:
    """Accept any elements; shape and dtype are compared elsewhere."""
    return ""


def is_unstable(call: SideCall) -> bool:
    """Whether a sort leaves the order of ties open."""
    return call.kwargs.get("stable") is not True


def is_unsorted(call: SideCall) -> bool:
    """Whether ``unique`` leaves the order open."""
    return call.argument(1, "sorted", True) is False  # noqa: FBT003 - the default of torch.unique


def draws_inside(module: object, *, training: bool | None = None) -> bool:
    """Whether a module or a part of it draws random numbers in its forward pass.

    Args:
        module: As it is at the end of the run.
        training: Its mode when it was called; ``None`` if the mode is still the same.
    """
    return isinstance(module, torch.nn.Module) and any(
        _draws(part, part.training if training is None else training) for part in module.modules()
    )


def _draws(part: torch.nn.Module, training: bool) -> bool:  # noqa: FBT001 - its mode
    if isinstance(part, _POOLS):
        return part._random_samples is None  # noqa: SLF001 - it has no other name
    if isinstance(part, torch.nn.RReLU):
        return training and part.lower != part.upper
    if isinstance(part, torch.nn.RNNBase) and part.num_layers == 1:
        return False
    share = part.p if isinstance(part, _DROPOUT) else getattr(part, "dropout", 0)  # attention and recurrent layers
    return training and isinstance(share, float) and 0 < share < 1


def is_drawn(call: SideCall) -> bool:
    """Whether the call draws at all: dropout outside training, or with a probability of 0 or 1, does not."""
    return draws(call.name, call.args, call.kwargs)
