"""One rank in a process of its own: it joins the group, answers messages, and writes down where it is.

What it answers is made by the caller, so that every kind of group has the same processes. A collective that a rank
enters is written to shared memory first: the worker reads it there if the rank never comes back.
"""

from __future__ import annotations

import logging
import os
import struct
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import torch
import torch.distributed as dist
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ci_autotest.backends.devices import seed
from ci_autotest.backends.input_copies import CPU
from ci_autotest.backends.ranks.parts import parts_of
from ci_autotest.backends.ranks.processes.rank_device import device_of_rank, finish, group_of, is_usable
from ci_autotest.errors import NotCarriedError, error_text
from ci_autotest.host.wire import GoneError, Wire

if TYPE_CHECKING:
    import mmap
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from ci_autotest.program.distribution import Distribution

#: Step, number of moves, bytes of the collective's name; then the name.
_PLACE: Final = struct.Struct("<qqq")
_NAME_BYTES: Final = 104
PLACE_BYTES: Final = _PLACE.size + _NAME_BYTES
#: Operators of these namespaces are collectives.
_COLLECTIVES: Final = frozenset({"c10d", "_c10d_functional", "_c10d_functional_autograd", "_dtensor"})
#: Operators of these namespaces that communicate with nobody.
_NO_COLLECTIVES: Final = frozenset({"_wrap_tensor_autograd"})
#: The operator that waits for a functional collective, which is the one to name.
_WAIT: Final = "wait_tensor"
#: Operators of this namespace, which DTensor has on GPUs alone, wait for their collective themselves.
_WAITS_INSIDE: Final = "_dtensor"
#: The first message of a rank: it has joined, or why it has not.
READY: Final = b"ready"
#: An answer begins with whether the rank's device is usable: after an error of a GPU every later call fails too.
USABLE: Final = b"+"
SPOILED: Final = b"-"
_TEXT: Final = 500
#: The worker ends a group that waits: gloo or nccl must not do that first.
_GROUP_TIMEOUT: Final = timedelta(hours=1)


class Place(NamedTuple):
    """Where a rank is.

    Attributes:
        step: Index of the step; -1 before the first one, -2 in the backward pass.
        moves: Grows with every change.
        collective: Name of the collective that it has entered; empty if it is in none.
    """

    step: int
    moves: int
    collective: str


def read_place(place: mmap.mmap) -> Place:
    """Return where a rank is."""
    step, moves, size = _PLACE.unpack(place[: _PLACE.size])
    name = place[_PLACE.size : _PLACE.size + max(0, min(size, _NAME_BYTES))]
    return Place(step, moves, name.decode(errors="replace"))


class RankAnswering(Protocol):
    """Answers the messages of a worker in a rank's process."""

    def answer(self, head: bytes, buffers: Sequence[memoryview]) -> tuple[bytes, list[bytes | memoryview]]:
        """Return the answer to a message."""


class RankProcess:
    """The process of one rank.

    Args:
        wire: Frames to the worker and from it.
        place: Shared memory in which the rank writes where it is.
        rank: Its number.
        count: Number of ranks.
        local: Its number among the ranks of its machine; ``None`` if all ranks are there.
        device: Kind of the device of all ranks.

    Attributes:
        device: Its own device.
    """

    def __init__(
        self, wire: Wire, place: mmap.mmap, rank: int, count: int, local: int | None = None, device: str = "cpu"
    ) -> None:
        self.rank, self.count, self.device = rank, count, CPU
        self._local, self._kind = rank if local is None else local, device
        self._wire, self._place = wire, place
        self._step, self._moves, self._name = -1, 0, b""
        self._meshes: dict[tuple[int, ...], DeviceMesh] = {}

    def serve(self, store: Any, answering: Any) -> None:
        """Join the group and answer messages until the worker is gone.

        Args:
            store: Where the ranks find each other.
            answering: Makes what answers, from this process.
        """
        torch.set_num_threads(1)
        # Every rank would log a warning about slow collectives, which says nothing about a test.
        logging.disable(logging.WARNING)
        # Another candidate of the worker may simulate ranks, with a group that communicates with nobody.
        if dist.is_initialized():
            dist.destroy_process_group()
        # As a launcher sets them, for kernels that ask for their rank there.
        os.environ.update(RANK=str(self.rank), LOCAL_RANK=str(self._local), WORLD_SIZE=str(self.count))
        try:
            self.device = device_of_rank(self._kind, self._local)
            dist.init_process_group(
                group_of(self.device), store=store, rank=self.rank, world_size=self.count, timeout=_GROUP_TIMEOUT,
                device_id=None if self.device is CPU else self.device,
            )  # fmt: skip
        except Exception as error:
            self._wire.send(f"rank {self.rank}: {error_text(error)[:_TEXT]}".encode())
            raise
        own = answering(self)
        self._wire.send(READY)
        while True:
            try:
                head, buffers = self._wire.receive()
            except GoneError:
                os._exit(0)
            self._step, self._name = -1, b""
            self._write()
            head, answered = own.answer(head, buffers)
            self._wire.send((USABLE if is_usable(self.device) else SPOILED) + head, answered)

    def mesh(self, sizes: tuple[int, ...]) -> DeviceMesh:
        """Return a mesh of all ranks; all of them ask for it at the same time."""
        if sizes not in self._meshes:
            self._meshes[sizes] = DeviceMesh(self.device.type, torch.arange(self.count).view(sizes))
        return self._meshes[sizes]

    def enter(self, step: int) -> None:
        """Write down the step that begins."""
        self._step = step
        self._write()

    def enter_collective(self, name: str) -> None:
        """Write down the collective that begins; empty for none, once the last one is done."""
        if not name and self._name:
            finish(self.device)
        self._name = name.encode()[:_NAME_BYTES]
        self._write()

    def _write(self) -> None:
        self._moves += 1
        head = _PLACE.pack(self._step, self._moves, len(self._name))
        self._place[: len(head) + len(self._name)] = head + self._name


class OneRank:
    """The ranks that this process runs: one.

    Args:
        process: The rank's process.
        sizes: Sizes of the mesh.
    """

    def __init__(self, process: RankProcess, sizes: tuple[int, ...]) -> None:
        self._process = process
        self.sizes, self.device = sizes, process.device
        self.mesh = process.mesh(sizes)
        self._mode = RankWatch(process)

    def own_part(self, tensor: torch.Tensor, distribution: Distribution) -> torch.Tensor:
        """Return the part of this rank."""
        return parts_of(tensor, distribution)[self._process.rank]

    def active(self) -> AbstractContextManager[object]:
        """Return the context in which collectives are written down."""
        return self._mode

    def seed(self, number: int) -> None:
        """Seed the generator of this rank."""
        torch.default_generator.manual_seed(number)
        if self.device is not CPU:
            seed(self.device, number)

    def shapes(self, part: torch.Tensor) -> dict[int, tuple[int, ...]]:
        """Return the shape of this rank's part."""
        return {self._process.rank: tuple(part.shape)}

    def is_of_kernel(self, error: BaseException) -> bool:
        """Whether an operator on this rank's part raised an error, and not DTensor itself."""
        return any(error is each for each in self._mode.raised)

    def is_mixed(self) -> bool:
        """Whether the last operator that DTensor got took a plain tensor too."""
        return self._mode.is_mixed


class RankWatch(TorchDispatchMode):
    """Writes down each collective that this process enters, and which errors come from operators on plain tensors.

    Args:
        process: The rank's process.
        returns_early: Whether collectives of ``c10d`` return before they are done, so that the rank waits later: the
            one that began last is then the one to name until the process says otherwise.
    """

    def __init__(self, process: RankProcess, *, returns_early: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._process, self._returns_early = process, returns_early
        self.raised: list[BaseException] = []
        self.is_mixed = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # DTensor calls its operators on plain tensors, which come here again.
        if any(issubclass(each, DTensor) for each in types):
            given = [*args, *(kwargs or {}).values()]
            self.is_mixed = any(isinstance(each, torch.Tensor) and not isinstance(each, DTensor) for each in given)
            return NotImplemented
        is_collective = func.namespace in _COLLECTIVES and func.overloadpacket.__name__ not in _NO_COLLECTIVES
        name = func.overloadpacket.__name__
        if is_collective and name != _WAIT:
            self._process.enter_collective(name.strip("_"))
        try:
            found = func(*args, **(kwargs or {}))
        except Exception as error:
            self.raised.append(error)
            # That is how nccl refuses a dtype that it does not carry.
            if is_collective and isinstance(error, TypeError) and self._process.device is not CPU:
                raise NotCarriedError(error_text(error)[:300]) from None
            raise
        # An operator on the result of a collective that has begun waits for it inside.
        is_pending = any(issubclass(each, AsyncCollectiveTensor) for each in types)
        has_waited = is_pending and not any(isinstance(each, AsyncCollectiveTensor) for each in tree_leaves(found))
        is_done = name == _WAIT or func.namespace == _WAITS_INSIDE
        if has_waited or (is_collective and (is_done or (func.namespace == "c10d" and not self._returns_early))):
            self._process.enter_collective("")
        return found
