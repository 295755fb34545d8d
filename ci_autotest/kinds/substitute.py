"""The user's functions in place of operators."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ci_autotest.kinds.candidate import ELSEWHERE, DeviceCandidate, unknown_names, wrong_variables
from ci_autotest.program.python_names import is_name, is_path
from ci_autotest.program.targets import is_own
from ci_autotest.values.kernel_scope import KernelScope, RunMode

if TYPE_CHECKING:
    from collections.abc import Iterator


class SubstituteCandidate(DeviceCandidate, frozen=True, kw_only=True, tag="substitute"):
    """Your functions in place of operators; everything else is PyTorch.

    Attributes:
        replace: The dotted path of your function for each operator, for example
            ``torch.nn.functional.softmax: mykernels.softmax``. It takes and returns torch tensors like the operator.
            The operator may be one of your own, ``refs.swiglu`` or ``torch.ops.mylib.swiglu``, and a class of modules
            may be replaced by another.
        state: For classes of modules in ``replace``: the dotted path of a function that takes the replacement's module
            and the reference's ``state_dict``, and copies the state. Without it, the state is copied by name.
        isolated: Whether the functions run in a process that holds neither the reference's values nor the comparison.
        sandbox: Folders that a sandbox sees in which the functions run: a process of their own that sees nothing else
            of yours, no other process and no network. It needs bubblewrap, and a system that allows user namespaces.
            Null for none.
        env: Environment variables of the process in which the functions run, which is then one of their own.
        forward_only: Whether the functions of ``replace`` have no backward pass, or the operators of ``replace`` whose
            functions have none. They get tensors without a graph, and of a case that calls one only values are
            compared.
        dtypes: Dtypes that the functions take, asked of each call, for example ``float16``. Empty for all dtypes.
        layouts: Layouts of the tensors that the functions take, asked of each call; ``contiguous`` is the only one.
            Empty for all layouts.
        devices: Kinds of devices whose tensors the functions take, for example ``cuda``. Empty for all devices.
        writes: Parameters of the operators that the functions write to by design, for example ``input`` of a loss that
            leaves its gradient there. What such an input then holds is not compared, and a result may share its memory;
            everything else is compared.
        guard: Whether the inputs of one case in eight, and what the functions allocate, lie between guard bands, so
            that reads and writes out of bounds show. Null for yes.
        opcheck: Whether ``torch.library.opcheck`` checks the functions that are operators of a library, in three cases
            of each test. Null for yes.
    """

    replace: dict[str, str] = msgspec.field(default_factory=dict)
    state: dict[str, str] = msgspec.field(default_factory=dict)
    isolated: bool = False
    sandbox: tuple[str, ...] | None = None
    env: dict[str, str] = msgspec.field(default_factory=dict)
    devices: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    guard: bool | None = None
    opcheck: bool | None = None

    @property
    def is_isolated(self) -> bool:
        """Whether the functions run in a host."""
        return self.isolated or self.is_sandboxed or bool(self.env)

    @property
    def is_sandboxed(self) -> bool:
        """Whether the functions run in a sandbox."""
        return self.sandbox is not None

    @property
    def has_guard(self) -> bool:
        """Whether cases in which code outside of torch runs are guarded."""
        return self.guard is not False

    @property
    def checks_operators(self) -> bool:
        """Whether operators of libraries that answer calls are checked."""
        return self.opcheck is not False

    @property
    def run_mode(self) -> RunMode:
        """How bodies run: with gradients, because each function has a scope of its own."""
        return "training"

    @property
    def replaced(self) -> dict[str, str]:
        """The user's function for each operator that it replaces."""
        return self.replace

    @property
    def scope(self) -> KernelScope:
        """What the functions take, call by call."""
        every = tuple(self.replace) if self.forward_only else ()
        forward_only = self.forward_only if isinstance(self.forward_only, tuple) else every
        return KernelScope(forward_only, self.dtypes, self.profiles, self.layouts, self.devices, self.writes)

    @property
    def environ(self) -> dict[str, str]:
        """Environment variables of its own process."""
        return self.env

    @property
    def named(self) -> tuple[str, ...]:
        """What programs may name: the user's functions and modules of which it consists."""
        return (*super().named, *self.replace.values(), *filter(is_own, self.replace), *self.state.values())

    @property
    def untimed(self) -> str:
        """Why it is not timed; empty if it can be."""
        return ELSEWHERE if self.is_isolated else ""

    def faults(self) -> Iterator[str]:
        """Yield what is wrong with its values, and what to write instead."""
        yield from super().faults()
        if not self.replace:
            yield "replaces nothing. Give replace: {operator: module.function}."
        yield from self._wrong_paths()
        yield from wrong_variables(self.env)
        if self.is_isolated and (self.load or self.imports):
            yield (
                f"has {'load' if self.load else 'import'!r} and runs in a process of its own, which does not read it. "
                "Let the module of the replacement register its operators when it is imported."
            )
        if isinstance(self.forward_only, tuple):
            yield from unknown_names("forward_only", self.forward_only, self.replace, "which it does not replace")
        for device in self.devices:
            if device == "gpu":
                yield "has devices: 'gpu', which is no kind of device of PyTorch. Did you mean 'cuda'?"
            elif not is_name(device):
                yield f"has devices: {device[:80]!r}. Write kinds of devices without an index, such as cpu or cuda."

    def _wrong_paths(self) -> Iterator[str]:
        for operator, path in self.replace.items():
            if not is_path(path):
                yield f"replaces {operator} by {path!r}. Write module.function."
        for target, path in self.state.items():
            if target not in self.replace:
                yield f"has 'state' for {target!r}, which it does not replace. Add it to `replace`, or remove it."
            elif not is_path(path):
                yield f"has 'state' with {path!r}. Write module.function."
