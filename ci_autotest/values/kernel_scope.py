"""The scope of a candidate's kernels: what its row in the configuration says that they take.

The module uses the standard library only, because the host of isolated kernels reads it too.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, TypeAlias, get_args

Layout: TypeAlias = Literal["contiguous"]
#: How bodies are run: with gradients, within ``torch.no_grad()``, or within ``torch.inference_mode()``.
RunMode: TypeAlias = Literal["training", "forward_only", "inference"]
LAYOUTS: Final[tuple[str, ...]] = get_args(Layout)


class KernelScope(NamedTuple):
    """What kernels take; an empty tuple means no limit.

    Attributes:
        forward_only: Operators, as ``replace`` spells them, whose kernels have no backward pass.
        dtypes: Names of dtypes.
        profiles: Profiles of cases.
        layouts: Layouts of the tensors that a kernel gets.
        devices: Kinds of devices of the tensors that a kernel gets.
        writes: Parameters that a kernel may write to; here an empty tuple means none.
    """

    forward_only: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    profiles: tuple[str, ...] = ()
    layouts: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()


#: The scope of kernels that take everything that the operator takes.
EVERYTHING: Final = KernelScope()
