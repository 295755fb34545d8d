"""For nondeterminism: run the candidate again and again on the same inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ci_autotest.repro_functions.tensors import apart

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

run: Callable[[Callable[..., Any]], dict[str, Any]]
candidate: Callable[..., Any]


def repeated() -> int:
    """Run the candidate fifty times on the same inputs; return 1 if a run differs from the first."""
    print(f"found before: {(__doc__ or '').strip().splitlines()[0]}")
    seen: list[dict[str, Any]] = []  # kept: freed memory would hold the right numbers even where nothing is written
    for number in range(50):
        if seen:
            written_to(seen[0].values(), number)
        try:
            seen.append(run(candidate))
        except Exception as error:
            seen.append({"error": f"{type(error).__name__}: {error}"})
        if any(apart(seen[-1].get(name), seen[0].get(name)) for name in {**seen[0], **seen[-1]}):
            print(f"misaligned: run {len(seen)} of the candidate differs from its first on the same inputs")
            return 1
    print("aligned: fifty runs of the candidate are the same")
    return 0


def written_to(results: Iterable[Any], number: int) -> None:
    """Write a number to memory of the results' sizes and free it: a kernel that leaves memory unwritten shows it."""
    tensors = [t for t in results if isinstance(t, torch.Tensor) and t.layout == torch.strided and t.numel()]
    room = (1 << 25) // max(len(tensors), 1)  # bytes
    blocks = [item for item in tensors for _ in range(max(1, min(8, room // item.nbytes)))]
    _ = [torch.full_like(item, number, requires_grad=False) for item in blocks]  # all of them before any is freed
