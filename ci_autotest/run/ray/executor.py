"""Workers on a Ray cluster: each is watched by an agent on its own machine; bytes go to it and come back.

The same messages as on one machine, the same inquiry when a worker is lost. A lost node is a lost
worker whose place is not known: what it had not answered is run again elsewhere. Where fewer cores
are left than workers were asked for, some wait for the place of others that have nothing left to do.
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
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ci_autotest.errors import UnavailableError
from ci_autotest.run.frames import decode_from_worker, decode_reply, encode
from ci_autotest.run.progress_beacon import NOWHERE, Spot
from ci_autotest.run.ray.agent import Agent
from ci_autotest.run.worker_loss import OutOfTimeError, WorkerLostError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ci_autotest.run.messages import FromWorker, Gone, Message

_CLOSE_S: Final = 5.0
_POLL_S: Final = 0.05
#: Seconds between two looks at the nodes of the cluster.
_LOOK_S: Final = 2.0
#: Seconds that a cluster may be without a node that has room before the run is ended.
_REPLACED_S: Final = 20.0
#: Share of a core, or of a GPU, that the worker of a slot takes.
_SHARE: Final = 0.9
_NOWHERE: Final = Spot(NOWHERE, NOWHERE, NOWHERE, NOWHERE, 0)


class RayExecutor:
    """Start workers as actors of a Ray cluster, each with a core, or with a GPU.

    Args:
        environ: Names the cluster in ``RAY_ADDRESS``; without it, one is started on this machine.
        silence_s: Seconds without a move after which a worker is ended.
        memory_bytes: Resident memory that each may hold; ``None`` and 0: no limit, the cluster has its own.
        workers: As many as were asked for; ``None`` for one a core, or a GPU.
        needs_gpu: Whether each takes a GPU; ``None``: where the cluster has any.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        silence_s: float,
        memory_bytes: int | None,
        workers: int | None,
        needs_gpu: bool | None,  # noqa: FBT001 - three answers
    ) -> None:
        """Connect to the cluster.

        Raises:
            UnavailableError: Ray is not installed, or the cluster has no room.
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
        if needs_gpu and not gpus:
            message = "a GPU is asked for, and the Ray cluster has none. Add a node that has one, or ask for cpu."
            raise UnavailableError(message)
        takes_gpu = bool(gpus) and needs_gpu is not False
        self.slots: int = workers or (gpus if takes_gpu else max(1, int(room.get("CPU", 1))))
        # Some of each core and GPU is left for the one worker beside the slots.
        own = {"num_cpus": _SHARE * min(1.0, room.get("CPU", 1.0) / self.slots)}
        beside = {"num_cpus": 0.0}
        if takes_gpu:
            own["num_gpus"] = _SHARE * min(1.0, gpus / self.slots)
            beside["num_gpus"] = 1 - _SHARE
        agent = self._ray.remote(Agent)
        self._slot, self._beside = (_Kind(self._ray, agent, wanted) for wanted in (own, beside))
        self._limits = silence_s, memory_bytes or 0

    def start(self, slot: int | None) -> RayWorker:
        """Start the worker of a slot, or one beside them, wherever there is room."""
        kind = self._beside if slot is None else self._slot
        return RayWorker(self._ray, kind.start(*self._limits), kind.check_room)

    def close(self) -> None:
        """Let go of the cluster, where this process connected to it."""
        if self._own:
            self._ray.shutdown()


class _Kind:
    """Start the workers of one kind, and know whether the cluster has room for any.

    Args:
        ray: The module.
        agent: The actor's class.
        wanted: What each takes of a node.
    """

    def __init__(self, ray: Any, agent: Any, wanted: Mapping[str, float]) -> None:
        self._ray = ray
        self._actor = agent.options(max_restarts=0, **wanted)
        self._wanted = {"CPU": wanted["num_cpus"], "GPU": wanted.get("num_gpus", 0.0)}
        self._looked_at = self._had_room_at = -math.inf

    def start(self, silence_s: float, memory_bytes: int) -> Any:
        """Return the agent of a worker, which starts as soon as a node has room for it."""
        return self._actor.remote(silence_s, memory_bytes)

    def check_room(self) -> None:
        """See now and then whether a node that lives could hold a worker, were it idle.

        Raises:
            UnavailableError: None could for a while; a cluster may replace a node that it has lost.
        """
        now = time.monotonic()
        if now - self._looked_at < _LOOK_S:
            return
        is_first, self._looked_at = self._looked_at == -math.inf, now
        if is_first or any(self._fits(node) for node in self._ray.nodes()):
            self._had_room_at = now
        elif now - self._had_room_at > _REPLACED_S:
            message = (
                "the Ray cluster has no node left that a worker fits on, and none has come for "
                f"{_REPLACED_S:.0f} s: the run cannot go on. Add a node, and run again."
            )
            raise UnavailableError(message)

    def _fits(self, node: Mapping[str, Any]) -> bool:
        has = node.get("Resources", {})
        return bool(node.get("Alive")) and all(has.get(name, 0.0) >= need for name, need in self._wanted.items())


class RayWorker:
    """Speak to a worker through its agent.

    Args:
        ray: The module.
        agent: The actor.
        check_room: Raises where the cluster has lost every node that the agent could be on.
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
        """The descriptor to wait on: a byte comes with each reply."""
        return self._bell.fd

    def begin(self) -> None:
        """Have the next message begin a new task."""
        self._begins = True

    def send(self, message: Message) -> None:
        """Send a message; the reply is waited for on ``fd``."""
        reference = self._agent.tell.remote(encode(message), begins=self._begins)
        self._begins = False
        self._replies.append(reference)
        reference.future().add_done_callback(self._bell.ring)

    def receive(self) -> FromWorker | None:
        """Return a message of the reply that has come in.

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
            what = f"sent what is no message ({error})"
            raise self.broken(what) from error
        except self._ray.exceptions.RayError as error:
            what = f"was lost with its agent or its node ({type(error).__name__})"
            raise WorkerLostError(what, _NOWHERE, "", is_killed=True) from error
        return self.buffered()

    def buffered(self) -> FromWorker | None:
        """Return the next message of the reply, or ``None``.

        Raises:
            WorkerLostError: The reply ends with the worker's end.
        """
        if self._received:
            return self._received.popleft()
        if self._gone is not None:
            gone, self._gone = self._gone, None
            raise WorkerLostError(
                gone.reason, Spot(*gone.spot), gone.output, timed_out=gone.timed_out, is_killed=gone.is_killed
            )
        return None

    def check(self) -> None:
        """See whether a worker that waits for a node will ever have one.

        The agent watches the worker, and the cluster the agent.

        Raises:
            UnavailableError: No node is left.
        """
        if not self._is_placed:
            self._check_room()

    def ask(self, message: Message, until: float | None = None) -> FromWorker:
        """Send a message and wait for the answer, until a time in monotonic seconds.

        Raises:
            WorkerLostError: The worker, its agent or its node is gone.
            OutOfTimeError: There is no answer by then.
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
            what = "answered nothing"
            raise self.broken(what)
        return answer

    def broken(self, what: str) -> WorkerLostError:
        """End a worker for what it did; return how it was lost."""
        self._end()
        return WorkerLostError(what, _NOWHERE, "")

    def close(self) -> None:
        """End the worker and everything that it started."""
        self._end()
        self._bell.close()

    def _end(self) -> None:
        if self._is_placed:  # One that has no node yet never answers.
            with contextlib.suppress(Exception):  # An agent that is gone cannot be asked.
                self._ray.get(self._agent.close.remote(), timeout=_CLOSE_S)
        with contextlib.suppress(Exception):
            self._ray.kill(self._agent)


class _Bell:
    """Wake who waits on a descriptor, from another thread, until it is closed."""

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
        """Let go of the descriptors; once."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                os.close(self.fd)
                os.close(self._to)
