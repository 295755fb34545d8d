"""Recorded modules, which a body uses in place of ``torch.nn`` modules.

Reading a parameter (``get_parameter("0.weight")``) or a part (``get_submodule("0")``) is a step that every version of
torch can replay. The construction and changes before the first forward belong to the setup, later changes to the body.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

from ci_autotest.errors import AuthorError
from ci_autotest.record.module_hooks import KINDS
from ci_autotest.record.unsupported_uses import refuse_ranks
from ci_autotest.record.values import Method

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ci_autotest.program.ir import Ref
    from ci_autotest.record.module_steps import ModuleSteps
    from ci_autotest.record.values import RecordedTensor

#: Methods that change a module; all but the last return it.
_CHANGES: Final = frozenset(
    {"to", "train", "eval", "float", "double", "half", "bfloat16", "requires_grad_", "zero_grad"}
)
#: Replacements of methods that are not recorded.
_INSTEAD: Final = {"register_backward_hook": "Use .register_full_backward_hook. "}
# RecordedModule.__setattr__ records a step, so the wrapper's own attributes are set without it.
_set: Final = object.__setattr__
_OWN: Final = frozenset({"label", "real", "ref", "target", "_owner", "_steps"})


class RecordedModule:
    """A module of the reference, or a part of one, as the body sees it.

    Attributes:
        real: The reference's module.
        ref: The step that constructed the module, or accessed the part.
        target: Dotted name of its class.
        label: Name of its results in the program.
    """

    __slots__ = ("_owner", "_steps", "label", "real", "ref", "target")

    label: str
    real: torch.nn.Module
    ref: Ref
    target: str
    _owner: RecordedModule | None
    _steps: ModuleSteps

    def __init__(
        self, real: torch.nn.Module, ref: Ref, steps: ModuleSteps, target: str, owner: RecordedModule | None = None
    ) -> None:
        _set(self, "real", real)
        _set(self, "ref", ref)
        _set(self, "target", target)
        _set(self, "label", target.rpartition(".")[2].lower())
        _set(self, "_owner", owner)
        _set(self, "_steps", steps)

    @property
    def root(self) -> RecordedModule:
        """The module that has this part; the module itself if it is no part."""
        return self if self._owner is None else self._owner

    @property
    def was_called(self) -> bool:
        """True if the body has run or changed it or a module that shares a part; later changes belong to the body."""
        return self._steps.has_run(self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Record a forward."""
        self._steps.mark(self)
        return self._steps.call(self, args, kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Record a forward without its hooks."""
        self._steps.mark(self)
        return self._steps.forward(self, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        if name in _CHANGES:
            return Method(self, name, lambda args, kwargs: self._change(name, args, kwargs))
        if name in KINDS:
            return lambda hook, **options: self._steps.hooks_of(self).register(name, hook, options)
        try:
            found = getattr(self.real, name)
        except AttributeError:
            refuse_ranks(name)
            raise
        if isinstance(found, torch.Tensor):
            return self._steps.read(self, name)
        if isinstance(found, torch.nn.Module):
            return self._part(name)
        if callable(found):
            message = (
                f"`.{name}()` of a module is not recorded. {_INSTEAD.get(name, '')}Use its forward, .to, .train, "
                ".eval, .state_dict, .load_state_dict, .named_parameters, or its parameters and parts by name."
            )
            raise AuthorError(message)
        return found

    def __setattr__(self, name: str, value: object) -> None:
        if name in _OWN:
            object.__setattr__(self, name, value)
        else:
            self._steps.mark(self)  # later changes must come after this step, so they belong to the body
            self._steps.set_attribute(self, name, value)

    def __getitem__(self, index: int | str | slice) -> Any:
        names = list(dict(self.real.named_children()))
        if isinstance(index, slice):
            return _Parts(self._part(name) for name in names[index])
        return self._part(index if isinstance(index, str) else names[index])

    def __reduce_ex__(self, protocol: object) -> Any:
        message = (
            "a recorded module cannot be copied or pickled. Construct another one and load the state: "
            "other.load_state_dict(module.state_dict())."
        )
        raise AuthorError(message)

    def __repr__(self) -> str:
        return f"<recorded {self.real!r}>"

    def __len__(self) -> int:
        return len(self.real)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[RecordedModule]:
        return self.children()

    def children(self) -> Iterator[RecordedModule]:
        """Return the parts, in order."""
        return (part for _, part in self.named_children())

    def named_children(self) -> Iterator[tuple[str, RecordedModule]]:
        """Return the parts with their names, in order."""
        return ((name, self._part(name)) for name, _ in list(self.real.named_children()))

    def modules(self) -> Iterator[RecordedModule]:
        """Return the module and all of its parts, recursively."""
        return (part for _, part in self.named_modules())

    def named_modules(self) -> Iterator[tuple[str, RecordedModule]]:
        """Return the module and all of its parts, recursively, with their paths."""
        return ((path, self._part(path) if path else self) for path, _ in list(self.real.named_modules()))

    def parameters(self, recurse: bool = True) -> Iterator[RecordedTensor]:  # noqa: FBT001, FBT002 - torch's
        """Return the parameters, each read as a step."""
        return (value for _, value in self.named_parameters(recurse=recurse))

    def named_parameters(self, prefix: str = "", recurse: bool = True) -> Iterator[tuple[str, RecordedTensor]]:  # noqa: FBT001, FBT002
        """Return the parameters with their paths, each read as a step."""
        names = [name for name, _ in self.real.named_parameters(recurse=recurse)]
        return ((f"{prefix}.{name}" if prefix else name, self.get_parameter(name)) for name in names)

    def named_buffers(self) -> Iterator[tuple[str, RecordedTensor]]:
        """Return the buffers with their paths, each read as a step."""
        return ((name, self.get_buffer(name)) for name, _ in list(self.real.named_buffers()))

    def buffers(self) -> Iterator[RecordedTensor]:
        """Return the buffers, each read as a step."""
        return (value for _, value in self.named_buffers())

    def get_parameter(self, path: str) -> RecordedTensor:
        """Record a read of a parameter by its path."""
        return self._steps.read_path(self, "get_parameter", path)  # type: ignore[no-any-return]

    def get_buffer(self, path: str) -> RecordedTensor:
        """Record a read of a buffer by its path."""
        return self._steps.read_path(self, "get_buffer", path)  # type: ignore[no-any-return]

    def get_submodule(self, path: str) -> RecordedModule:
        """Return a part by its path."""
        return self._part(path)

    def state_dict(self) -> dict[str, RecordedTensor]:
        """Record a read of every parameter and buffer, detached and in torch's order."""
        parameters = dict(self.real.named_parameters(remove_duplicate=False))
        read: dict[bool, Callable[[str], Any]] = {True: self.get_parameter, False: self.get_buffer}
        return {path: read[path in parameters](path).detach() for path in self.real.state_dict()}

    def load_state_dict(self, state: Mapping[str, RecordedTensor], strict: bool = True) -> None:  # noqa: FBT001, FBT002 - torch's
        """Record the call."""
        self._steps.mark(self)
        self._steps.load_state(self, dict(state), strict=strict)

    def apply(self, function: Callable[[torch.nn.Module], None]) -> RecordedModule:
        """Initialize the module with a function of the user; the resulting state belongs to the setup.

        Raises:
            AuthorError: The body has run or changed the module, so the function's changes would not be recorded.
        """
        if self.was_called:
            message = "`.apply()` of a module that has run is not recorded. Call it before the first forward."
            raise AuthorError(message)
        self.real.apply(function)
        self._steps.snapshot(self.root)
        return self

    def _part(self, path: str) -> RecordedModule:
        part: RecordedModule = self._steps.part(self, path)
        return part

    def _change(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> RecordedModule:
        self._steps.method(self, name, args, kwargs)
        return self


class _Parts(tuple[RecordedModule, ...]):
    """A slice of a sequence of modules; a call passes its argument through them one after the other."""

    __slots__ = ()

    def __call__(self, value: Any) -> Any:
        """Record a forward of each part."""
        for part in self:
            value = part(value)
        return value
