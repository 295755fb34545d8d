"""What the parts of a recording need of their recorder and of each other's values, as types without a circle.

Recorded values (``Value``, ``RecordedModule``) hold a recorder, and a recorder makes them: here they are ``Any``, and
the modules that own them say what they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    import torch
    from numpy.typing import NDArray

    from ci_autotest.backends.trace import Trace
    from ci_autotest.program.ir import Ref, Step, TensorSpec
    from ci_autotest.program.refusal import Refusal
    from ci_autotest.record.draw.draws import Drawer


class Callee(Protocol):
    """What is called: a function of torch's, or the class of a module, as ``function.Function`` has it."""

    target: str
    real: Callable[..., Any]
    name: str
    is_random: bool
    hints: dict[str, object] | None


class Module(Protocol):
    """A recorded module, as ``modules.RecordedModule`` has it."""

    real: torch.nn.Module
    ref: Ref
    target: str


class ModuleSteps(Protocol):
    """What writes down the steps of recorded modules, as ``module_steps.ModuleSteps`` does."""

    def mark(self, module: Any) -> None:
        """Note that a module is used by the body."""

    def has_run(self, module: Any) -> bool:
        """Whether its forward has run."""

    def hooks_of(self, module: Any) -> Any:
        """Return its hooks."""

    def call(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record a call with its hooks."""

    def forward(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record a call of its forward alone."""

    def method(self, module: Any, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Record a method that changes it."""

    def read(self, module: Any, name: str) -> Any:
        """Record the reading of an attribute."""

    def read_path(self, module: Any, target: str, path: str) -> Any:
        """Record the reading of a parameter or buffer by its path."""

    def part(self, module: Any, path: str) -> Any:
        """Return a part of it."""

    def set_attribute(self, module: Any, name: str, value: object) -> None:
        """Record the setting of an attribute."""

    def load_state(self, module: Any, state: dict[str, Any], *, strict: bool) -> None:
        """Record that it is given a state."""

    def snapshot(self, module: Any) -> None:
        """Keep its state as it is."""


class Recorder(Protocol):
    """One attempt while its body runs; the attributes are described where they are made, in ``recorder``."""

    drawer: Drawer
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
    keeps_graph: bool
    modules: list[Any]
    module_steps: Any
    captured: dict[int, tuple[torch.Tensor, Any, int]]
    optimizers: dict[int, Any]
    given: dict[int, torch.Tensor]
    plain_tensors: Any
    given_data: dict[int, tuple[torch.Tensor, torch.Tensor]]
    given_gradients: dict[int, tuple[torch.Tensor, torch.Tensor | None]]
    has_left: bool
    outside: set[str]
    outputs: tuple[Ref, ...]
    profile_applied: bool

    def tensor(self, source: torch.Tensor, spec: TensorSpec, name: str | None = None) -> Any:
        """Record a placeholder."""

    def capture(self, tensor: torch.Tensor) -> Any:
        """Record a tensor that plain torch made as an input."""

    def call_function(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record a call of a function, or the construction of a module."""

    def call_plain(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record what plain torch was asked to do with a recorded value."""

    def call_python(self, target: str, call: Callable[..., Any], args: tuple[Any, ...], name: str) -> Any:
        """Record one of Python's operators or functions."""

    def call_method(self, receiver: Any, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record a method of a tensor."""

    def array(self, receiver: Any, kwargs: dict[str, Any]) -> NDArray[Any]:
        """Record the taking of a tensor's elements as an array of numpy."""

    def run(self, step: Step, call: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Run a step on the reference and write it down."""

    def demand(self, error: BaseException | None) -> None:
        """Note that the author wrote that the last step was to be refused."""

    def keep(self, step: Step, result: Any) -> Any:
        """Write down a step with its value, and return what the body gets."""

    def silent(self, step: Step, value: Refusal | None = None) -> None:
        """Write down a step that gives nothing that a body could use."""

    def register_hook(self, receiver: Any, function: Callable[[Any], Any]) -> Any:
        """Record a hook on a value's gradient."""

    def begin_hook(self) -> list[Any]:
        """Begin to remember every value; return the list."""

    def end_hook(self) -> None:
        """Remember values no more."""

    def seed(self) -> int:
        """Return what the framework's generator is set to before the next step, where it is random."""
