"""The servers of ranks on the nodes of a cluster, as an executor names them to its workers: in a variable."""

from __future__ import annotations

from typing import Final

import msgspec

#: What DTensor imports with its first operator: each rank of each group would do so.
RANK_IMPORTS: Final = ("torch._dynamo", "torch.distributed.tensor", "torch.distributed._functional_collectives")
#: The environment variable of a worker that holds them, as JSON.
RANK_SERVERS: Final = "CI_AUTOTEST_RANK_SERVERS"


class RankServers(msgspec.Struct, frozen=True):
    """The servers of a worker's ranks.

    Attributes:
        addresses: Host and port of each; ranks are dealt to them in this order.
        secret: What a worker says first, because the ports are open to the whole network.
        memory_bytes: Resident memory above which a rank is ended; 0: no limit.
        gpus: Number of GPUs that the ranks of each have; zeros if ranks are on the CPU.
        first: Which of all places the first rank of a group gets, so that groups of several workers share no GPU.
    """

    addresses: list[tuple[str, int]]
    secret: str
    memory_bytes: int = 0
    gpus: list[int] = []
    first: int = 0
