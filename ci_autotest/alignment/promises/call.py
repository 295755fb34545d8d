"""One call of an operator whose outputs are not unique, as one side saw it, and whether it leaves a choice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping

_DROPOUT: Final = (
    torch.nn.Dropout, torch.nn.Dropout1d, torch.nn.Dropout2d, torch.nn.Dropout3d, torch.nn.AlphaDropout,
    torch.nn.FeatureAlphaDropout,
)  # fmt: skip
#: Modules that draw in training whatever they are given.
_ALWAYS: Final = (torch.nn.RReLU, torch.nn.FractionalMaxPool2d, torch.nn.FractionalMaxPool3d)


class Call(NamedTuple):
    """One call as one side saw it.

    Attributes:
        name: Of the operator, without its namespace.
        args: Positional arguments, tensors among them; for a module's call without the module.
        kwargs: Keyword arguments; for a module's call its attributes ``p`` and ``training``.
        outputs: What it gave, by position; ``None`` for what this side does not show.
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

    def argument(self, position: int, name: str, default: Any) -> Any:  # noqa: ANN401 - an argument
        """Return an argument by position or name."""
        if name in self.kwargs:
            return self.kwargs[name]
        return self.args[position] if len(self.args) > position else default

    def output(self, position: int) -> torch.Tensor | None:
        """Return an output, ``None`` where it is not shown."""
        return self.outputs[position] if position < len(self.outputs) else None


def nothing(_call: Call) -> str:
    """Nothing of the elements is defined: shape and dtype are compared anyway."""
    return ""


def is_unstable(call: Call) -> bool:
    """Whether a sort leaves the order of ties open."""
    return call.kwargs.get("stable") is not True


def is_unsorted(call: Call) -> bool:
    """Whether ``unique`` leaves the order open."""
    return call.argument(1, "sorted", True) is False  # noqa: FBT003 - the default of torch.unique


def draws_inside(module: object) -> bool:
    """Whether a module, or a part of it, draws in its forward: it drops elements, and is in training."""
    return isinstance(module, torch.nn.Module) and any(part.training and _drops(part) for part in module.modules())


def _drops(part: torch.nn.Module) -> bool:
    if isinstance(part, _ALWAYS):
        return True
    if isinstance(part, torch.nn.RNNBase):
        return part.dropout > 0 and part.num_layers > 1
    share = part.p if isinstance(part, _DROPOUT) else getattr(part, "dropout", 0)  # of attention
    return isinstance(share, float) and share > 0


def is_drawn(call: Call) -> bool:
    """Whether the call really draws: dropout outside training, or with a probability of 0, does not."""
    if call.name == "scaled_dot_product_attention":
        return bool(call.argument(4, "dropout_p", 0.0))
    if "dropout" in call.name or call.name == "rrelu":
        position = 3 if call.name == "rrelu" else 2
        default = call.name != "rrelu"
        is_training = bool(call.argument(position, "training", default))
        return is_training and (call.name == "rrelu" or call.argument(1, "p", 0.5) != 0)
    return True
