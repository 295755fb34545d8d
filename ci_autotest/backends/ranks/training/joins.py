"""How the values of ranks make one value: rows, one value on all ranks, a mean or a sum, or one row for each rank."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import torch

from ci_autotest.backends.sameness import is_near, is_same

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Allowed ratio to the greatest element where a slice is held against the whole batch, by dtype: the order of a sum.
_RATIOS: Final = {
    torch.float64: 1e-9, torch.complex128: 1e-9, torch.float32: 1e-4, torch.complex64: 1e-4, torch.float16: 2e-2,
    torch.bfloat16: 1e-1,
}  # fmt: skip


class Join(NamedTuple):
    """How the values of ranks are joined.

    Attributes:
        kind: ``rows`` are put one after the other; ``same`` is on every rank; ``mean`` and ``sum`` are over the batch;
            of ``each`` rank is a value of its own, so that the first dimension is the rank.
        dimension: Of the rows.
    """

    kind: Literal["rows", "same", "mean", "sum", "each"]
    dimension: int = 0

    def weights(self, shares: Sequence[float]) -> list[float]:
        """Return the part that the value of each rank has in the value of the whole batch.

        Args:
            shares: The part of the batch that each rank has.
        """
        return [1.0] * len(shares) if self.kind in {"rows", "sum"} else list(shares)


SAME: Final = Join("same")
EACH: Final = Join("each")


def joined(parts: Sequence[torch.Tensor], join: Join, shares: Sequence[float]) -> torch.Tensor:
    """Return the value of the whole batch."""
    if join.kind == "rows":
        return torch.cat([part.detach() for part in parts], join.dimension)
    if join.kind == "same":
        return parts[0].detach()
    if join.kind == "each":
        return torch.stack([part.detach() for part in parts])
    return total(parts, join.weights(shares))


def total(parts: Sequence[torch.Tensor], weights: Sequence[float] = ()) -> torch.Tensor:
    """Return the sum of tensors of one dtype, each times its weight, in 64 bits until the end."""
    dtype = parts[0].dtype
    wide = torch.complex128 if dtype.is_complex else torch.float64 if dtype.is_floating_point else dtype
    shares = weights or [1.0] * len(parts)
    # A weight of 1 is an integer here, which leaves integers what they are.
    first, *others = (
        part.detach().to(wide) * (share if share != 1.0 else 1) for part, share in zip(parts, shares, strict=True)
    )
    return sum(others, first).to(dtype)


def joins_of(parts: Sequence[torch.Tensor], whole: torch.Tensor, shares: Sequence[float]) -> list[Join]:
    """Return every way in which parts make the whole; empty if there is none."""
    possible = [SAME, Join("mean"), Join("sum")] if whole.is_floating_point() or whole.is_complex() else [SAME]
    possible = [*([Join("rows", at)] if (at := _rows_at(parts, whole)) is not None else ()), *possible]
    return [join for join in possible if _fits(parts, whole, join, shares)]


def slices_join(parts: Sequence[torch.Tensor], whole: torch.Tensor) -> Join | None:
    """Return how values are joined that are those of slices, by their shapes; ``None`` if they cannot be.

    A value without rows, such as a loss, is the mean: a wrapper may average it over ranks, or make rows independent.

    Args:
        parts: The value of each slice.
        whole: That of the whole batch, which they do not make.
    """
    rows = rows_join(parts, whole)
    if rows is not None or any(part.shape != whole.shape for part in parts):
        return rows
    return Join("mean") if whole.is_floating_point() or whole.is_complex() else EACH


def rows_join(parts: Sequence[torch.Tensor], whole: torch.Tensor) -> Join | None:
    """Return the rows that parts would be of a whole by their shapes."""
    at = _rows_at(parts, whole)
    return None if at is None else Join("rows", at)


def _rows_at(parts: Sequence[torch.Tensor], whole: torch.Tensor) -> int | None:
    for at in range(whole.dim()):
        rest = [(*part.shape[:at], *part.shape[at + 1 :]) for part in parts if part.dim() == whole.dim()]
        is_rest = len(rest) == len(parts) and set(rest) == {(*whole.shape[:at], *whole.shape[at + 1 :])}
        if is_rest and sum(part.shape[at] for part in parts) == whole.shape[at]:
            return at
    return None


def _fits(parts: Sequence[torch.Tensor], whole: torch.Tensor, join: Join, shares: Sequence[float]) -> bool:
    if join.kind != "rows" and any(part.shape != whole.shape for part in parts):
        return False
    if join.kind == "same":
        # Slices that are only close to each other are a mean of their own, whose ranks need not hold the same bits.
        return all(is_same(part, parts[0]) for part in parts[1:]) and is_close(parts[0], whole)
    return is_close(joined(parts, join, shares), whole)


def is_close(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether two tensors are the same up to the order in which sums were added."""
    if left.dtype is not right.dtype or left.shape != right.shape:
        return False
    return is_near(left, right, _RATIOS.get(right.dtype, 0.0))
