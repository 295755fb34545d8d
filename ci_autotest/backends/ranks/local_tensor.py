"""All ranks simulated in this process. This is the only module that uses PyTorch's private ``LocalTensorMode``.

Every operator runs once for each rank, one rank after the other, and a collective becomes a computation over the parts
of all ranks. If an operator raises on some ranks alone, a real group would go on without them: ``OneRankError`` says
which.
"""

from __future__ import annotations

import logging
import threading
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor
from torch.utils import _pytree

from ci_autotest.backends.ranks.ranks import OneRankError
from ci_autotest.errors import UnavailableError, error_text
from ci_autotest.program.distribution import RANKS_AT_MOST

if TYPE_CHECKING:
    from collections.abc import Sequence

#: The release whose private interface this module was written for.
_TORCH: Final = "2.13."
#: Operators of these namespaces are collectives: they have no counterpart on one rank.
_COLLECTIVES: Final = frozenset({"c10d", "_c10d_functional", "_dtensor", "_c10d_functional_autograd"})
_LOCK: Final = threading.Lock()


def refuse_other_torch() -> None:
    """Refuse a PyTorch whose simulation of ranks may be another.

    Raises:
        UnavailableError: This is not the release that is known.
    """
    if not str(torch.__version__).startswith(_TORCH):
        message = (
            f"ranks are simulated with a private interface of torch {_TORCH}x, and this is torch {torch.__version__}. "
            f"Install torch {_TORCH}x, or write processes: true."
        )
        raise UnavailableError(message)


def begin_simulation() -> None:
    """Make a process group that communicates with nobody the default one of this process.

    It has as many ranks as any candidate may have, so that one group serves all meshes.

    Raises:
        UnavailableError: Another module has begun a process group.
    """
    refuse_other_torch()
    with _LOCK:
        if dist.is_initialized():
            if dist.get_backend() == "fake" and dist.get_world_size() == RANKS_AT_MOST:
                return
            message = (
                "ranks cannot be simulated in a process that has a process group already. Remove "
                "`torch.distributed.init_process_group` from the tests, or write processes: true."
            )
            raise UnavailableError(message)
        try:
            from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: PLC0415 - it registers a backend

            # A warning about slow collectives for each of them says nothing about a test.
            logging.getLogger("torch.distributed.tensor._redistribute").setLevel(logging.ERROR)
            dist.init_process_group("fake", rank=0, world_size=RANKS_AT_MOST, store=FakeStore())
        except Exception as error:
            message = f"ranks cannot be simulated by torch {torch.__version__}: {error_text(error)[:300]}."
            raise UnavailableError(message) from error


def simulated(ranks: int) -> Any:
    """Return the context in which every operator runs on all ranks."""
    return _mode_class()(ranks)


def joined(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the parts of all ranks as one simulated tensor."""
    from torch.distributed import _local_tensor  # noqa: PLC0415 - a second of imports

    tensor_class: Any = _local_tensor.LocalTensor
    found: torch.Tensor = tensor_class(dict(enumerate(parts)))
    return found


def by_rank(value: torch.Tensor, ranks: int) -> list[torch.Tensor]:
    """Return what each rank holds of a simulated tensor; of a plain tensor, each rank holds the same."""
    parts = getattr(value, "_local_tensors", None)
    return [parts[rank] for rank in sorted(parts)] if isinstance(parts, dict) else [value] * ranks


def numbers_by_rank(value: object) -> list[int] | None:
    """Return the number of each rank if a plain value is a different one on each, else ``None``."""
    node = getattr(value, "node", None)
    numbers = getattr(node, "_local_ints", None)
    return [numbers[rank] for rank in sorted(numbers)] if isinstance(numbers, dict) else None


def seed_ranks(mode: Any, state: torch.Tensor) -> None:
    """Give the generator of each rank the same state, as each process of a group would have it."""
    for rank, (_, others) in list(mode._per_rank_rng_states.items()):
        mode._per_rank_rng_states[rank] = (state.clone(), others)


@lru_cache(maxsize=1)
def _mode_class() -> Any:
    """Return the mode that says which ranks an error belongs to; its base takes a second to import."""
    from torch.distributed import _local_tensor  # noqa: PLC0415

    class RanksMode(_local_tensor.LocalTensorMode):  # type: ignore[no-untyped-call]
        def __init__(self, ranks: int) -> None:
            super().__init__(ranks)
            self.raised: list[BaseException] = []
            self.is_mixed = False

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if DTensor in types:
                self.is_mixed = _local_tensor.LocalTensor in types
            try:
                return super().__torch_dispatch__(func, types, args, kwargs)
            except OneRankError:
                raise
            except Exception as error:
                self.raised.append(error)
                raised = {} if func.namespace in _COLLECTIVES else _raised_by_rank(func, args, kwargs or {}, self.ranks)
                if raised and len(raised) < len(self.ranks):
                    raise OneRankError(raised, len(self.ranks)) from error
                raise

    return RanksMode


def _raised_by_rank(func: Any, args: Any, kwargs: Any, ranks: frozenset[int]) -> dict[int, Exception]:
    """Run an operator on each rank's parts alone, and return the error of each rank that raises."""
    from torch.distributed import _local_tensor  # noqa: PLC0415 - imported by the mode already

    flat, spec = _pytree.tree_flatten((args, kwargs))
    if not any(isinstance(arg, _local_tensor.LocalTensor) for arg in flat):
        return {}
    found = {}
    for rank in sorted(ranks):
        own, named = _pytree.tree_unflatten([_local_tensor._map_to_rank_local_val(a, rank) for a in flat], spec)
        try:
            func(*own, **named)
        except Exception as error:  # noqa: BLE001 - the candidate's operators
            found[rank] = error
    return found
