"""Result bands: memory that a kernel allocates lies between guard bands, and a write into one is an error of its call.

A dispatch mode sees every allocation that goes through torch's dispatcher: in Python, in an extension in C++ and in the
kernels of ``torch.library``. The tensor gets memory of its own in the middle of a larger block. Its storage begins and
ends where the tensor does, so that a kernel sees no difference, whatever it asks of the tensor.

Repros carry the text of this module, so it uses the standard library and torch alone.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.dlpack import from_dlpack


class OutOfBoundsError(RuntimeError):
    """A kernel has written beside memory that it allocates."""


class ResultBands(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Run a call with guard bands around what it allocates; raise ``OutOfBoundsError`` if it writes into one.

    Args:
        has_zeros: Whether the bands hold zeros; otherwise they hold NaN, or large integers.
    """

    #: Elements of a band: a multiple of 64, so that the first element is as aligned as in a block of its own.
    BAND = 64

    def __init__(self, *, has_zeros: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._has_zeros = has_zeros
        self._blocks: list[tuple[str, torch.Tensor, torch.Tensor, int]] = []
        self._depth = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Whether torch wraps the method below, which would import the compiler at the first call."""
        return False

    def __enter__(self) -> Any:
        self._depth += 1
        return super().__enter__()  # type: ignore[no-untyped-call]

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        super().__exit__(kind, error, trace)  # type: ignore[no-untyped-call]
        self._depth -= 1
        # An operator of a library enters the mode once more, while its caller is still at work.
        if not self._depth and kind is None and (writes := self._writes()):
            raise OutOfBoundsError("; ".join(writes[:3]))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.namespace not in {"aten", "prim", "prims"}:
            return self._called(func, args, kwargs)
        found = func(*args, **kwargs)
        returns = func._schema.returns
        # The schema of a view and of a call that writes to its argument says that their result shares memory.
        is_new = len(returns) == 1 and (returns[0].alias_info is None or func._schema.name == "aten::lift_fresh")
        return self._banded(func, found) if is_new and not kwargs.get("pin_memory") else found

    def _called(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Call an operator of a library, below this mode, and with this mode for what it allocates itself."""
        tensors = [value for value in pytree.tree_leaves((args, kwargs)) if isinstance(value, torch.Tensor)]
        if not tensors:
            return func(*args, **kwargs)
        keys = torch._C._dispatch_keys(tensors[0])
        for tensor in tensors[1:]:
            keys = keys | torch._C._dispatch_keys(tensor)
        with self:
            return func.redispatch(keys & torch._C._after_ADInplaceOrView_keyset, *args, **kwargs)

    def _banded(self, func: Any, found: Any) -> Any:
        """Return a tensor with the same elements between guard bands; the tensor itself if it cannot lie so."""
        is_plain = type(found) is torch.Tensor and found.layout is torch.strided and found.device.type != "meta"
        if not is_plain or not found.numel() or found.is_quantized or found._is_zerotensor():
            return found
        # A mode of torch functions would see these calls too, and answer them by kernels.
        with torch._C.DisableTorchFunction():
            try:
                size = 1 + sum((n - 1) * stride for n, stride in zip(found.shape, found.stride(), strict=True))
                band = self.BAND * found.element_size()
                block = torch.full((size * found.element_size() + 2 * band,), self._byte(found), dtype=torch.uint8,
                                   device=found.device)  # fmt: skip
                # With what the allocator left there, because a kernel may read what it never wrote.
                block[band:-band] = found.as_strided((size,), (1,)).view(torch.uint8)
                # By DLPack, because its tensors have a storage that begins at their first element.
                own = from_dlpack(block[band:-band]).view(found.dtype).as_strided(found.shape, found.stride())
            except (RuntimeError, BufferError):  # Some dtypes and devices cannot be passed on so.
                return found
        name = func._schema.name.removeprefix("aten::")
        self._blocks.append(("tensor" if name == "lift_fresh" else name, block, own, band))
        return own

    def _byte(self, tensor: torch.Tensor) -> int:
        if self._has_zeros:
            return 0
        if tensor.dtype is torch.bool:
            return 1
        return 0xFF if tensor.is_floating_point() or tensor.is_complex() else 0x7F

    def _writes(self) -> list[str]:
        """Return each write into a band, in words."""
        found = []
        for name, block, own, band in self._blocks:
            for where, side in (("before", block[:band]), ("behind", block[-band:])):
                with torch._C.DisableTorchFunction():
                    is_written = side != self._byte(own)
                    count = int(is_written.view(self.BAND, -1).any(1).sum()) if is_written.any() else 0
                if count:
                    form = f"{str(own.dtype).removeprefix('torch.')}{list(own.shape)}"
                    elements = f"{count} element{'' if count == 1 else 's'}"
                    found.append(f"writes {elements} {where} the {form} that it gets from torch.{name}")
        return found
