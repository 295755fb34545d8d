"""What a step's error means: the framework lacks a feature, or the error is the outcome of the case."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ci_autotest.errors import OutOfScopeError, Unsupported, UnsupportedReason
from ci_autotest.host.frameworks.protocol import LackingError
from ci_autotest.program.ir import CALL_METHOD, GET_ATTR, LOADS_STATE, READS_OF_MODULES, Ref, TensorSpec
from ci_autotest.program.python_names import is_in_module

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ci_autotest.host.frameworks.protocol import Framework
    from ci_autotest.host.trace import RunTrace
    from ci_autotest.program.ir import Step


def record_error(run: RunTrace, step: Step, index: int, error: BaseException, framework: Framework) -> None:
    """Record a step's error in its run: either the framework lacks a feature, or the error is the outcome.

    Args:
        run: The run to record it in.
        step: The step that raised.
        index: Index of the step.
        error: The error.
        framework: The framework of the run.
    """
    message = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0].rstrip('.')}"
    # A leaf that the framework cannot hold, or a state that its module cannot load, is no error of the tested operator.
    if isinstance(spec := step.args[0] if step.args else None, TensorSpec):
        text = f"it cannot make this {spec.dtype} tensor ({message})"
        run.lacking = Unsupported(UnsupportedReason.NO_COUNTERPART, text)
    elif step.in_setup and step.target == LOADS_STATE:
        # The test did not ask for this step: it is how ci-autotest copies the reference's state.
        text = f"its module cannot load the state of the reference's module ({message})"
        run.lacking = Unsupported(UnsupportedReason.NO_COUNTERPART, text)
    elif isinstance(error, OutOfScopeError):
        run.lacking = error.why
    elif lacking := framework.lacking(error):
        run.lacking = Unsupported(UnsupportedReason.NO_COUNTERPART, lacking)
    elif isinstance(error, NotImplementedError):
        run.lacking = Unsupported(UnsupportedReason.NO_COUNTERPART, f"{type(error).__name__}: {str(error)[:300]}")
    else:
        run.failure = (index, type(error).__name__, str(error))


def needs_attribute(step: Step, values: Sequence[Any], framework: Framework) -> None:
    """Refuse a method or property that the framework's tensors or modules lack.

    Raises:
        LackingError: The attribute does not exist.
    """
    receiver = step.args[0] if step.args else None
    name = step.args[1] if step.target == "builtins.getattr" else step.target
    is_asked = step.op in {CALL_METHOD, GET_ATTR} or step.target == "builtins.getattr"
    if not is_asked or not isinstance(receiver, Ref) or not isinstance(name, str):
        return
    value = values[receiver.index]
    # The class is asked first, because asking a value computes its properties.
    if framework.is_tensor(value) and not hasattr(type(value), name) and not hasattr(value, name):
        message = f"Tensor.{name}"
        raise LackingError(message)
    if step.op == CALL_METHOD and hasattr(value, "state_dict") and not hasattr(value, name):
        path = step.args[1] if name in READS_OF_MODULES else None
        if path is None or not is_in_module(path) or not _has(value, str(path)):
            message = f"nn.Module.{name}" if path is None else f"{path} in its {type(value).__name__}"
            raise LackingError(message)


def _has(value: Any, path: str) -> bool:
    try:
        attrgetter(path)(value)
    except AttributeError:
        return False
    return True
