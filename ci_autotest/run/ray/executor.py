"""Workers on a Ray cluster: an agent on each worker's machine watches it and relays its messages as bytes.

The messages, and the inquiry after a loss, are the same as on one machine. A lost node counts as a lost worker whose
position is unknown: its unanswered cases run again elsewhere. If the cluster has fewer cores than workers, some workers
wait until others have nothing left to do.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import selectors
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from ci_autotest.errors import UnavailableError
from ci_autotest.run.frames import decode_from_worker, decode_reply, encode
from ci_autotest.run.progress_beacon import NOWHERE, Spot
from ci_autotest.run.ray.agent import Agent
from ci_autotest.run.ray.rank_nodes import RankNodes
from ci_autotest.run.worker_loss import OutOfTimeError, WorkerLostError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ci_autotest.run.messages import FromWorker, Gone, Message

_CLOSE_S: Final = 5.0
_POLL_S: Final = 0.05
#: Seconds between two checks of the cluster's nodes.
_LOOK_S: Final = 2.0
#: Seconds that a cluster may lack a node with enough room before the run ends.
_REPLACED_S: Final = 20.0
#: Share of a core, or of a GPU, that the worker of a slot takes: the rest is for the worker beside the slots.
_SHARE: Final = 0.9
#: A node's GPUs are those of its ranks, which no worker could book beside them.
_BOTH: Final = (
    "ranks on cuda take all GPUs of a Ray cluster, and another candidate or the reference is on cuda too. "
    "Run them one after the other, with --candidate."
)
_NOWHERE: Final = Spot(NOWHERE, NOWHERE, NOWHERE, NOWHERE, 0)


class RankNeeds(NamedTuple):
    """What the candidates of a run need that are groups of ranks.

    Attributes:
        gpus: GPUs of the largest group whose ranks have one each; 0 if ranks are on the CPU, as they are for ``auto``.
    """

    gpus: int


class RayExecutor:
    """Start workers as actors of a Ray cluster, each with a core, or with a GPU.

    Args:
        environ: ``RAY_ADDRESS`` names the cluster; without it, a cluster starts on this machine.
        silence_s: Seconds without progress after which a worker is ended.
        memory_bytes: Resident memory that each may hold; ``None`` or 0: no limit but the cluster's own.
        workers: Number of workers; ``None`` for one per core, or per GPU.
        needs_gpu: Whether each takes a GPU; ``None`` if the cluster has any.
        ranks: What candidates need that are groups of ranks, which are spread over the nodes; ``None`` if there are
            none.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        silence_s: float,
        memory_bytes: int | None,
        workers: int | None,
        needs_gpu: bool | None,  # noqa: FBT001 - three answers
        ranks: RankNeeds | None = None,
    ) -> None:
        """Connect to the cluster.

        Raises:
            UnavailableError: Ray is not installed, the cluster cannot be reached, it has no GPU, or both ranks and
                workers need its GPUs.
        """
        try:
            import ray  # noqa: PLC0415 - an extra
        except ImportError as error:
            message = "--executor ray needs Ray, which is not installed here. Run pip install 'ci-autotest[ray]'."
            raise UnavailableError(message) from error
        self._ray: Any = ray
        self._own = not self._ray.is_initialized()
        if self._own:
            try:
                self._ray.init(
                    address=environ.get("RAY_ADDRESS") or None, include_dashboard=False, log_to_driver=False,
                    logging_level=logging.ERROR,
                )  # fmt: skip
            except Exception as error:
                message = f"the Ray cluster cannot be reached: {error}. Set RAY_ADDRESS, or start one."
                raise UnavailableError(message) from error
        room = self._ray.cluster_resources()
        gpus = int(room.get("GPU", 0))
        group_gpus = 0 if ranks is None else ranks.gpus
        if (needs_gpu or group_gpus) and not gpus:
            message = "the run needs a GPU, and the Ray cluster has none. Add a node that has one, or select cpu."
            raise UnavailableError(message)
        if needs_gpu and group_gpus:
            raise UnavailableError(_BOTH)
        takes_gpu = bool(gpus) and needs_gpu is not False and not group_gpus
        most = max(1, int(room.get("CPU", 1)))
        if takes_gpu:
            most = gpus
        elif group_gpus:
            most = min(most, max(1, gpus // group_gpus))
        self.slots: int = workers or most
        # Ray hides no GPU from an actor that has booked none.
        self._added = {} if takes_gpu else {"CUDA_VISIBLE_DEVICES": ""}
        own = {"num_cpus": _SHARE * min(1.0, room.get("CPU", 1.0) / self.slots)}
        beside = {"num_cpus": 0.0}
        if takes_gpu:
            own["num_gpus"] = _SHARE * min(1.0, gpus / self.slots)
            beside["num_gpus"] = 1 - _SHARE
        agent = self._ray.remote(Agent)
        self._slot, self._beside = (_Kind(self._ray, agent, wanted) for wanted in (own, beside))
        self._limits = silence_s, memory_bytes or 0
        self._rank_nodes = RankNodes(ray, memory_bytes or 0, group_gpus) if ranks is not None else None

    @property
    def notes(self) -> list[str]:
        """Sentences about nodes that could not be used, so far."""
        return self._rank_nodes.notes if self._rank_nodes is not None else []

    def start(self, slot: int | None) -> RayWorker:
        """Start the worker of a slot, or one beside the slots, wherever there is room."""
        kind = self._beside if slot is None else self._slot
        added = self._rank_nodes.variables() if self._rank_nodes is not None else {}
        return RayWorker(self._ray, kind.start(*self._limits, {**self._added, **added}), kind.check_room)

    def close(self) -> None:
        """End the servers of ranks, and disconnect from the cluster if this process connected to it."""
        if self._rank_nodes is not None:
            self._rank_nodes.close()
        if self._own:
            self._ray.shutdown()


class _Kind:
    """Workers that take the same resources of a node.

    Args:
        ray: The module.
        agent: The actor's class.
        wanted: The resources that each takes.
    """

    def __init__(self, ray: Any, agent: Any, wanted: Mapping[str, float]) -> None:
        self._ray = ray
        # Ray must not start an agent again: the pool replaces a lost worker, and knows which cases it had.
        self._actor = agent.options(max_restarts=0, **wanted)
        self._wanted = {"CPU": wanted["num_cpus"], "GPU": wanted.get("num_gpus", 0.0)}
        self._looked_at = self._had_room_at = -math.inf

    def start(self, silence_s: float, memory_bytes: int, added: Mapping[str, str]) -> Any:
        """Return the agent of a new worker; it starts as soon as a node has room for it."""
        return self._actor.remote(silence_s, memory_bytes, added)

    def check_room(self) -> None:
        """Check from time to time whether any live node could hold a worker if it were idle.

        Raises:
            UnavailableError: No node could for a while. A cluster gets that time to replace a lost node.
        """
        now = time.monotonic()
        if now - self._looked_at < _LOOK_S:
            return
        is_first, self._looked_at = self._looked_at == -math.inf, now
        if is_first or any(self._fits(node) for node in self._ray.nodes()):
            self._had_room_at = now
        elif now - self._had_room_at > _REPLACED_S:
            message = (
                "the Ray cluster has no node left that is large enough for a worker, and none has joined for "
                f"{_REPLACED_S:.0f} s: the run cannot go on. Add a node, and run again."
            )
            raise UnavailableError(message)

    def _fits(self, node: Mapping[str, Any]) -> bool:
        has = node.get("Resources", {})
        return bool(node.get("Alive")) and all(has.get(name, 0.0) >= need for name, need in self._wanted.items())


class RayWorker:
    """A worker on the cluster, reached through its agent.

    Args:
        ray: The module.
        agent: The actor.
        check_room: Raises an error if the cluster has lost every node that could run the agent.
    """

    def __init__(self, ray: Any, agent: Any, check_room: Callable[[], None]) -> None:
        self._ray = ray
        self._agent = agent
        self._check_room = check_room
        self._is_placed = False
        self._bell = _Bell()
        self._replies: deque[Any] = deque()
        self._received: deque[FromWorker] = deque()
        self._gone: Gone | None = None
        self._begins = False

    @property
    def fd(self) -> int:
        """The descriptor to wait on: each reply writes a byte to it."""
        return self._bell.fd

    def begin(self) -> None:
        """Mark the next message as the beginning of a task."""
        self._begins = True

    def send(self, message: Message) -> None:
        """Send a message; its reply makes ``fd`` ready."""
        reference = self._agent.tell.remote(encode(message), begins=self._begins)
        self._begins = False
        self._replies.append(reference)
        reference.future().add_done_callback(self._bell.ring)

    def receive(self) -> FromWorker | None:
        """Return the first message of the reply that has arrived.

        Raises:
            WorkerLostError: The worker, its agent or its node is gone.
        """
        os.read(self._bell.fd, 1)
        try:
            reply = decode_reply(self._ray.get(self._replies.popleft()))
            self._is_placed = True
            self._received.extend(decode_from_worker(body) for body in reply.bodies)
            self._gone = reply.gone
        except msgspec.DecodeError as error:
            reason = f"sent a message that cannot be decoded ({error})"
            raise self.fail(reason) from error
        except self._ray.exceptions.RayError as error:
            reason = f"was lost with its agent or its node ({type(error).__name__})"
            raise WorkerLostError(reason, _NOWHERE, "", is_killed=True) from error
        return self.buffered()

    def buffered(self) -> FromWorker | None:
        """Return the next message of the reply, or ``None``.

        Raises:
            WorkerLostError: The reply says that the worker was lost.
        """
        if self._received:
            return self._received.popleft()
        if self._gone is not None:
            gone, self._gone = self._gone, None
            raise WorkerLostError(
                gone.reason,
                Spot(*gone.spot),
                gone.output,
                limit=gone.limit,
                is_killed=gone.is_killed,
                calls=gone.calls,
            )
        return None

    def printed(self) -> str:
        """Return nothing: output stays on its node, except that of a lost worker."""
        return ""

    def check(self) -> None:
        """Check whether a worker that waits for a node can still get one.

        Once it has started, its agent watches the worker, and the cluster watches the agent.

        Raises:
            UnavailableError: No node is left.
        """
        if not self._is_placed:
            self._check_room()

    def ask(self, message: Message, until: float | None = None) -> FromWorker:
        """Send a message and return the answer; ``until`` is in monotonic seconds.

        Raises:
            WorkerLostError: The worker, its agent or its node is gone.
            OutOfTimeError: There was no answer by ``until``.
            UnavailableError: No node is left.
        """
        self.send(message)
        with selectors.DefaultSelector() as selector:
            selector.register(self._bell.fd, selectors.EVENT_READ)
            while not selector.select(_POLL_S):
                self.check()
                if until is not None and time.monotonic() > until:
                    raise OutOfTimeError
        answer = self.receive()
        while (more := self.buffered()) is not None:
            answer = more
        if answer is None:
            reason = "sent an empty answer"
            raise self.fail(reason)
        return answer

    def fail(self, reason: str) -> WorkerLostError:
        """End the worker because it broke a rule, and return the error to raise."""
        self._end()
        return WorkerLostError(reason, _NOWHERE, "")

    def close(self) -> None:
        """End the worker and everything that it started."""
        self._end()
        self._bell.close()

    def _end(self) -> None:
        if self._is_placed:  # An agent without a node never answers.
            with contextlib.suppress(Exception):  # The agent may be gone.
                self._ray.get(self._agent.close.remote(), timeout=_CLOSE_S)
        with contextlib.suppress(Exception):
            self._ray.kill(self._agent)


class _Bell:
    """A descriptor that another thread makes ready. It is safe to ring it after it was closed."""

    def __init__(self) -> None:
        self.fd, self._to = os.pipe()
        self._lock = threading.Lock()
        self._is_closed = False

    def ring(self, _: object) -> None:
        """Write a byte."""
        with self._lock:
            if not self._is_closed:
                os.write(self._to, b".")

    def close(self) -> None:
        """Close the descriptors; a second call does nothing."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                os.close(self.fd)
                os.close(self._to)
