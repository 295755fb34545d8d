"""Protocols between the recorder and the parts of a recording, which avoid circular imports.

Recorded values (``Value``, ``RecordedModule``) refer to a recorder, and the recorder creates them. So they are ``Any``
here; their own modules define them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from io import BytesIO

    import torch
    from numpy.typing import NDArray

    from ci_autotest.backends.trace import Background, Trace
    from ci_autotest.errors import Unsupported
    from ci_autotest.program.ir import Ref, Step, TensorSpec
    from ci_autotest.program.refusal import Refusal
    from ci_autotest.values.result import NoProfile


class Callee(Protocol):
    """A callee: a function or module class of torch (``function.Function``)."""

    target: str
    real: Callable[..., Any]
    name: str
    is_random: bool
    hints: dict[str, object] | None


class Module(Protocol):
    """A recorded module (``modules.RecordedModule``)."""

    real: torch.nn.Module
    ref: Ref
    target: str


class ModuleSteps(Protocol):
    """Recorder of the steps of modules (``module_steps.ModuleSteps``)."""

    def mark(self, module: Any) -> None:
        """Note that the body uses a module."""

    def has_run(self, module: Any) -> bool:
        """Whether the module, or a part of it, has run."""

    def hooks_of(self, module: Any) -> Any:
        """Return the hooks of a module."""

    def call(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record a call with its hooks."""

    def forward(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record a forward without hooks."""

    def method(self, module: Any, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Record a method that changes a module."""

    def read(self, module: Any, name: str) -> Any:
        """Record a read of an attribute."""

    def read_path(self, module: Any, target: str, path: str) -> Any:
        """Record a read of a parameter or buffer by its path."""

    def part(self, module: Any, path: str) -> Any:
        """Return a part of a module."""

    def set_attribute(self, module: Any, name: str, value: object) -> None:
        """Record the assignment of an attribute."""

    def load_state(self, module: Any, state: dict[str, Any], *, strict: bool) -> None:
        """Record a call of ``load_state_dict``."""

    def snapshot(self, module: Any) -> None:
        """Store the current state of a module."""


class Recorder(Protocol):
    """The recorder of one attempt; ``recorder.Recorder`` describes the attributes."""

    drawer: Any  # a `Drawer`
    device: torch.device
    steps: list[Step]
    trace: Trace
    watched: Collection[int]
    sources: dict[str, torch.Tensor]
    shared: list[tuple[NDArray[Any], bytes]]
    refusal: tuple[int, Exception] | None
    dtype: torch.dtype | None
    has_setup: bool
    hook_values: list[Any]
    is_in_hook: ClassVar[bool]
    keeps_graph: bool
    marks_modules: bool
    modules: list[Any]
    module_steps: Any
    captured: dict[int, tuple[torch.Tensor, Any, int]]
    optimizers: dict[int, Any]
    given: dict[int, torch.Tensor]
    plain_tensors: Any
    given_data: dict[int, tuple[torch.Tensor, torch.Tensor]]
    given_gradients: dict[int, tuple[torch.Tensor, torch.Tensor | None]]
    has_left: bool
    reads: dict[tuple[Ref, str], object]
    remarks: set[str]
    saved: dict[bytes, list[tuple[BytesIO, int, Any]]]
    assumption: str
    skipped: str
    untested: Unsupported | None
    is_widened: bool
    notes: list[str]
    background: Background | None
    outside: set[str]
    outputs: tuple[Ref, ...]
    profile_applied: bool
    profile_obstacle: NoProfile

    @property
    def has_given_up(self) -> bool:
        """Whether the body has ended its case."""

    def tensor(self, source: torch.Tensor, spec: TensorSpec, name: str | None = None) -> Any:
        """Record a placeholder."""

    def capture(self, tensor: torch.Tensor) -> Any:
        """Record a tensor of plain torch as an input."""

    def call_function(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record a call of a function, or the construction of a module."""

    def call_plain(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record a call of a plain torch function with a recorded value."""

    def call_python(self, target: str, call: Callable[..., Any], args: tuple[Any, ...], name: str) -> Any:
        """Record one of Python's operators or functions."""

    def first(self, value: Any) -> Any:
        """Return a tensor's first value."""

    def read(self, receiver: Any, name: str) -> Any:
        """Return an attribute of a tensor that is no tensor."""

    def call_method(self, receiver: Any, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record a method of a tensor."""

    def array(self, receiver: Any, kwargs: dict[str, Any]) -> NDArray[Any]:
        """Record ``tensor.numpy()``."""

    def run(self, step: Step, call: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Run a step on the reference and record it."""

    def demand(self, error: BaseException | None) -> None:
        """Mark the refusal of the last refused step as expected by the author."""

    def keep(self, step: Step, result: Any) -> Any:
        """Record a step with its value, and return the value for the body."""

    def silent(self, step: Step, value: Refusal | None = None) -> None:
        """Record a step without a value for the body."""

    def register_hook(self, receiver: Any, function: Callable[[Any], Any]) -> Any:
        """Record a hook on a value's gradient."""

    def begin_hook(self) -> list[Any]:
        """Start to collect every value; return the list."""

    def end_hook(self) -> None:
        """Stop collecting values."""

    def seed(self) -> int:
        """Return the seed for the framework's generator before the next step, if that is random."""
