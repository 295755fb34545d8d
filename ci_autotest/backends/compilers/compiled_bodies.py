"""What compilers and exporters have made of bodies, kept for the next runs of the same body with the same sizes.

Compiling takes a thousand times as long as running. What was made of a body once also answers its later runs, as it
does in a user's program, so that a callable which remembers its first inputs is wrong in them.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from hashlib import blake2b, sha256
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

import torch

from ci_autotest.backends.body_source import BODY
from ci_autotest.backends.operator_usage import computing

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

    from ci_autotest.backends.compilers.delegation import DelegationWatch
    from ci_autotest.program.ir import Program

Made = TypeVar("Made")

#: What is kept of one candidate in one process. Dynamo keeps as many versions of a function that several bodies share.
_KEPT: Final = 16
#: Values of a setup whose text says what they are.
_PLAIN: Final = (bool, int, float, complex, str, type(None), torch.dtype, torch.device)


def body_key(program: Program, values: Sequence[Any]) -> tuple[Hashable, ...] | None:
    """Return what a compiled body holds for; ``None`` if it holds for this run only.

    The program says everything but the data: its calls and their constants, and size, layout and dtype of each input.
    Weights of modules belong to it, because compilers fold them into their code.

    Args:
        program: A program.
        values: What its body takes.
    """
    own: list[Hashable] = []
    for value in values:
        if isinstance(value, torch.nn.Module):
            weights = _weights(value)
            if not weights:
                return None
            own.append(weights)
        elif isinstance(value, _PLAIN):
            own.append(repr(value))
        elif not isinstance(value, torch.Tensor):
            return None
    return repr(program.steps), *own


def _weights(module: torch.nn.Module) -> str:
    """Return a hash of a module's parameters and buffers; empty if their bytes cannot be read."""
    found = sha256(f"{module} {module.training}".encode())
    for name, value in module.state_dict().items():
        if not isinstance(value, torch.Tensor) or value.layout is not torch.strided or value.is_quantized:
            return ""
        found.update(f"{name} {value.dtype} {tuple(value.shape)} {value.stride()} {value.requires_grad}".encode())
        found.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


class KeptCallables(Generic[Made]):
    """What was made of the latest bodies, by ``body_key``."""

    def __init__(self) -> None:
        self._made: dict[Hashable, Made] = {}

    def get(self, key: Hashable) -> Made | None:
        """Return what is kept by a key."""
        return self._made.get(key)

    def keep(self, key: Hashable, made: Made) -> None:
        """Keep what was made of a body, in place of the oldest if there are many."""
        if key is None:
            return
        if len(self._made) >= _KEPT:
            del self._made[next(iter(self._made))]
        self._made[key] = made

    def __len__(self) -> int:
        return len(self._made)

    def clear(self) -> None:
        """Forget everything."""
        self._made.clear()


class CompileClock:
    """The time that a candidate spends on compiling and exporting."""

    def __init__(self) -> None:
        self._seconds = 0.0

    def add(self, seconds: float) -> None:
        """Add the seconds of a compilation."""
        self._seconds += seconds

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count the time within a block."""
        begun = time.perf_counter()
        try:
            yield
        finally:
            self.add(time.perf_counter() - begun)

    def taken(self) -> float:
        """Return the seconds since the last call."""
        seconds, self._seconds = self._seconds, 0.0
        return seconds


class CompiledBody(NamedTuple):
    """A body and what ``torch.compile`` has made of it.

    Attributes:
        plain: The body's function.
        function: The compiled one.
        watch: Its compiler, which was watched.
    """

    plain: Callable[..., Any]
    function: Callable[..., Any]
    watch: DelegationWatch


class CompiledBodies:
    """The bodies that ``torch.compile`` has compiled for one candidate.

    Dynamo keeps what it compiles by the code of a function, and compiles a function that it has seen with other sizes
    for all sizes. So each body has a file name of its own, and Dynamo forgets everything at once: only what was one
    graph is kept, because functions that Dynamo compiles behind a break are shared by all bodies.

    Args:
        options: Arguments of ``torch.compile``.
        is_kept: Whether what was compiled may run again for another case.
    """

    def __init__(self, options: Mapping[str, Any], *, is_kept: bool) -> None:
        self._options, self._is_kept = options, is_kept
        self._kept: KeptCallables[CompiledBody] = KeptCallables()
        self._is_clean = False
        self.clock = CompileClock()

    def get(self, key: Hashable) -> CompiledBody | None:
        """Return the compiled body of a key, if it is kept."""
        return self._kept.get(key)

    def make(self, written: Callable[[str], Callable[..., Any]], key: Hashable, watch: DelegationWatch) -> CompiledBody:
        """Return a body that its first call compiles; ``settle`` decides whether it is kept.

        Args:
            written: Takes the name of a file, and returns the body's function.
            key: From ``body_key``, or more.
            watch: The compiler.
        """
        if not self._is_clean or len(self._kept) >= _KEPT:
            self.forget()
        self._is_clean = False
        function = written(f"{BODY[:-1]} {blake2b(repr(key).encode(), digest_size=8).hexdigest()}>")
        return CompiledBody(function, torch.compile(function, backend=watch, **self._options), watch)

    def run(self, body: CompiledBody, arguments: Sequence[Any], on_compiled: Callable[[], object]) -> Any:
        """Run a body. Of a first run, what is before the end of the last compilation counts as compiling.

        Args:
            body: The body.
            arguments: What it takes.
            on_compiled: Called after each compilation.
        """
        begun = compiled = time.perf_counter()

        def note() -> None:
            nonlocal compiled
            compiled = time.perf_counter()
            on_compiled()

        body.watch.begin()
        body.watch.on_compiled = note
        try:
            return body.function(*arguments)
        finally:
            self.clock.add(compiled - begun)

    def settle(self, body: CompiledBody, program: Program, key: Hashable) -> None:
        """Keep a body after its first call if it is one graph, without a break."""
        if body.watch.is_settled:
            return
        if self._is_kept and key is not None and body.watch.is_one_graph(computing(program)):
            body.watch.is_settled = True
            self._kept.keep(key, body)
            self._is_clean = True

    def forget(self) -> None:
        """Forget all bodies."""
        torch._dynamo.reset()
        self._kept.clear()
        self._is_clean = True
