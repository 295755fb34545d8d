"""Kernels in a process that has neither the reference's values nor the comparison: ``isolated: true``.

``IsolatedBackend`` is the worker's side. ``IsolatedKernels`` is the host's side: torch with some operators replaced by
the user's functions, as ``substitute`` does in the worker.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from ci_autotest.backends.case_scope import CaseScope
from ci_autotest.backends.framework.backend import RemoteBackend
from ci_autotest.backends.framework.process import HostProcess
from ci_autotest.backends.function_paths import load_function
from ci_autotest.backends.operators.identity import operator_of
from ci_autotest.backends.operators.user_operators import UserOperator
from ci_autotest.backends.result_bands import ResultBands
from ci_autotest.backends.substitute.backend import Replacing, nothing_replaced
from ci_autotest.backends.substitute.call_scope import CallScope
from ci_autotest.errors import Unsupported, UnsupportedReason
from ci_autotest.host.frameworks.torch_like import TorchLike
from ci_autotest.program.ir import OPERATOR_CHECKS, RESULT_BANDS
from ci_autotest.program.targets import OPS, is_own
from ci_autotest.values.kernel_scope import KernelScope

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from ci_autotest.backends.framework.interpreter import Interpreter
    from ci_autotest.backends.framework.mapping.translation import Translator
    from ci_autotest.backends.framework.response import Reader
    from ci_autotest.backends.framework.response_trace import ResponseTrace
    from ci_autotest.program.ir import Program
    from ci_autotest.program.note import HostNote


class IsolatedBackend(RemoteBackend):
    """Execute programs with replacements in a host of this interpreter.

    A worker that has imported torch and run nothing is forked: that is as fresh as a new process. A host with variables
    of its own is spawned, because libraries read them when they are imported; so is one that uses a GPU, which torch
    has looked for here already, and one that takes the place of a lost host.
    """

    lacks_graph = "isolated kernels are not compiled; drop `isolated: true` for this test's candidate"

    def __init__(
        self, interpreter: Interpreter, translator: Translator, *, ends_with_host: bool = False, is_fresh: bool = False
    ) -> None:
        first = iter([is_fresh and sys.platform == "linux" and not interpreter.env and interpreter.device == "cpu"])
        super().__init__(
            interpreter,
            translator,
            ends_with_host=ends_with_host,
            start=lambda own: HostProcess(own, forks=next(first, False)),
        )
        self.scope = CallScope(interpreter.scope)
        self.case_scope = CaseScope(frozenset(interpreter.scope.profiles))
        self.writes_inputs = bool(interpreter.scope.writes)

    def has_operators(self) -> bool:
        """Return true, because only the host imports the functions and knows which of them are operators."""
        return True

    def _note_calls(self, trace: ResponseTrace, reader: Reader) -> None:
        super()._note_calls(trace, reader)
        if self.scope.is_forward_only(trace.calls):
            trace.has_backward, trace.has_gone_back = False, True

    def repro_note(self, program: Program, sources: Mapping[str, Any]) -> HostNote | None:  # noqa: ARG002
        """Return ``None``, because a repro is a process of its own and calls the replacements itself."""
        return None

    def _by_name(self, lacking: Unsupported) -> Unsupported:
        # Torch lacks no operator, so if something is not implemented, it is the user's function.
        is_users = lacking.reason is UnsupportedReason.NO_COUNTERPART
        return lacking._replace(reason=UnsupportedReason.NOT_IMPLEMENTED) if is_users else lacking


def _body(target: str) -> Callable[..., Any]:
    """Return a function that calls an operator without a replacement; its module is imported at the first call."""

    def imported(*args: Any, **kwargs: Any) -> Any:
        return load_function(target, "operator")(*args, **kwargs)

    return imported


class IsolatedKernels(TorchLike):
    """Execute steps with torch and replacements.

    Args:
        module: Always ``torch``.
        device: ``cpu`` or ``cuda``.
        replace: Dotted path of the replacement by operator, in any spelling.
        scope: What the replacements take: the fields of ``KernelScope``.

    Raises:
        UnavailableError: A replacement cannot be imported.
    """

    def __init__(self, module: str, device: str, replace: Mapping[str, str], scope: Sequence[Sequence[str]]) -> None:
        super().__init__(module, device)
        self._functions = {operator_of(operator): load_function(path) for operator, path in replace.items()}
        self._scope = CallScope(KernelScope(*map(tuple, scope)))
        self.around = Replacing(self._functions, self._scope)

    def function(self, target: str) -> Callable[..., Any]:
        """Return the function that a target names; an operator of the user's is passed to its replacement."""
        if not is_own(target):
            return super().function(target)
        return load_function(target, "operator") if target.startswith(OPS) else UserOperator(target, _body(target))

    def _mode(self, mode: str) -> AbstractContextManager[object]:
        if mode in OPERATOR_CHECKS:
            return self.around.checking(mode.partition(":")[2])
        return ResultBands(has_zeros=mode == RESULT_BANDS[1]) if mode in RESULT_BANDS else super()._mode(mode)

    def begin(self) -> None:
        """Begin a run with new counts."""
        self.around = Replacing(self._functions, self._scope)

    def has_backward(self) -> bool:
        """Whether this run has a backward pass; a kernel may have none."""
        return not self._scope.is_forward_only(self.around.counts)

    def calls(self) -> dict[str, int]:
        """Return how often each replacement was called in this run, and 0 for every other operator that was called."""
        return dict(self.around.counts)

    def lacking(self, error: BaseException) -> str:  # noqa: ARG002 - a framework's
        """Return an empty text, because an error of a user's function is the outcome whatever its message says."""
        return ""

    def untested(self) -> Unsupported | None:
        """Return why the run tested no replacement; ``None`` if it called one."""
        return None if self.around.replaced else nothing_replaced(self._functions, self.around)
