"""Classes of modules that a candidate replaces by another: constructed alike, with the state of the reference's module.

The state is copied by name, or by a function of the user's for a module whose parameters have other names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

from ci_autotest.backends.framework.response import ResponseModule
from ci_autotest.backends.operators.identity import operator_of
from ci_autotest.errors import Unsupported, UnsupportedReason, by_user
from ci_autotest.program.ir import CALL_MODULE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

#: Attribute of a module whose state the user's function copied.
_OWN_NAMES: Final = "_ci_autotest_own_names"


class ReplacedClass:
    """The replacement of a class of modules; calling it constructs one.

    Args:
        target: Dotted path of the class that is replaced.
        replacement: The class that replaces it.
        copy_state: Takes the module and the reference's state; ``None`` to copy it by name.
        device: Where the module is put.

    Attributes:
        count: Counts a call of an operator in this run.
        unfit: Why the state of the reference's module could not be copied by name.
    """

    def __init__(
        self,
        target: str,
        replacement: type[torch.nn.Module],
        copy_state: Callable[..., object] | None,
        device: torch.device,
    ) -> None:
        self._target, self._class, self._copy_state, self._device = target, replacement, copy_state, device
        self.count: Callable[[str], None] = lambda _: None
        self.unfit: Unsupported | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> torch.nn.Module:
        """Construct a module that counts its calls and takes the reference's state."""
        module: torch.nn.Module = by_user(self._class, *args, **kwargs)
        if self._device.type != "cpu":
            module = module.to(self._device)
        set_past = object.__setattr__  # A module may refuse attributes that it does not know.
        set_past(module, "load_state_dict", lambda state, strict=True: self._load(module, state, strict=strict))
        set_past(module, _OWN_NAMES, self._copy_state is not None)
        module.register_forward_pre_hook(self._count)
        return module

    def _load(self, module: torch.nn.Module, state: Mapping[str, torch.Tensor], *, strict: bool) -> None:
        if self._copy_state is not None:
            with torch.no_grad():
                by_user(self._copy_state, module, dict(state))
            return
        own = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
        given = {name: tuple(tensor.shape) for name, tensor in state.items()}
        if own == given or (not strict and given.items() <= own.items()):
            type(module).load_state_dict(module, state, strict=strict)
            return
        name = type(module).__qualname__
        sides = [", ".join(sorted(key for key, _ in one.items() - other.items())) for one, other in
                 ((given, own), (own, given))]  # fmt: skip
        detail = (
            f"the state of {self._target} does not fit {name} by name: the reference has {sides[0] or 'nothing else'}, "
            f"{name} has {sides[1] or 'nothing else'}. Name a function in `state` that takes the module and the "
            "state_dict, and copies it"
        )
        self.unfit = Unsupported(UnsupportedReason.NO_COUNTERPART, detail)

    def _count(self, *_: object) -> None:
        self.count(operator_of(self._target, CALL_MODULE))


def has_own_names(module: object) -> bool:
    """Whether a module may have other parameters than the reference's: it is remote, or the user copies its state."""
    return isinstance(module, ResponseModule) or bool(getattr(module, _OWN_NAMES, False))
