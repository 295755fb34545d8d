"""Run a program in a framework, and keep what was seen: values, facts, copies, gradients."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from ci_autotest.execute.frameworks.protocol import LackingError
from ci_autotest.execute.steps import execute_step
from ci_autotest.program.ir import (
    CALL_FUNCTION,
    CALL_METHOD,
    GET_ATTR,
    OUTPUT,
    PLACEHOLDER,
    Ref,
    TensorSpec,
    output_refs,
    ref_to,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ci_autotest.execute.frameworks.protocol import Framework
    from ci_autotest.program.ir import Argument, Program, Step

#: A tensor's dtype, shape, requires_grad and is_leaf.
Facts = tuple[str, tuple[int, ...], bool, bool]
#: numpy's dtype of a tensor's elements as they go over the wire: bfloat16 as its bits.
_BITS: Final = {"bfloat16": "uint16"}
_WRITES: Final = frozenset({
    "setitem", "iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "iand", "ior", "ixor", "ilshift",
    "irshift",
})  # fmt: skip


class Seen(NamedTuple):
    """Hold a value as it was at its step.

    Attributes:
        facts: Of a tensor; ``None`` for another value.
        array: Its elements, or the plain value.
    """

    facts: Facts | None
    array: Any


class Run:
    """What one run of a program left behind.

    Attributes:
        values: Live value of each step, by index.
        facts: Of each tensor as it was observed, ``None`` for other values.
        copies: Of each value at its step; empty unless the run took snapshots.
        failure: The step that raised, the error's kind and message.
        lacking: What the framework has not, where a step asked for it.
        gradients: By what they are with respect to.
        backward_failure: What the backward pass raised.
    """

    def __init__(self) -> None:
        """Begin with nothing seen."""
        self.values: list[Any] = []
        self.facts: list[Facts | None] = []
        self.copies: list[Seen] = []
        self.failure: tuple[int, str, str] | None = None
        self.lacking: str | None = None
        self.gradients: list[tuple[Any, Any]] = []
        self.backward_failure: str | None = None


class _Binding:
    """A framework as the interpreter of programs asks for it, with the data of one run."""

    def __init__(self, framework: Framework, tensors: Mapping[str, np.ndarray]) -> None:
        self._framework = framework
        self._tensors = tensors
        self.in_mode = framework.in_mode

    def placeholder(self, step: Step) -> Any:  # noqa: ANN401 - a framework's tensor
        spec = step.args[0]
        assert isinstance(spec, TensorSpec)  # noqa: S101 - checked when recorded
        return leaf(self._framework, self._tensors[step.target].copy(), spec)

    def function(self, target: str) -> Callable[..., Any]:
        try:
            return adapter(self._framework.name, target) or self._framework.function(target)
        except LookupError:
            raise LackingError(target) from None

    def constant(self, argument: Argument) -> Any:  # noqa: ANN401 - a framework's constant
        try:
            return self._framework.constant(argument)
        except LookupError as error:
            raise LackingError(str(error)) from None


def adapter(framework: str, target: str) -> Callable[..., Any] | None:
    """Return the function of ``execute/adapters/<framework>.py`` that a target names, ``None`` for another target.

    Raises:
        LookupError: There is no such function.
    """
    namespace, _, name = target.partition(".")
    if namespace != "adapters":
        return None
    where = f"ci_autotest.execute.adapters.{framework}"
    try:
        found = getattr(importlib.import_module(where), name, None)
    except ModuleNotFoundError as error:
        if error.name is None or not where.startswith(error.name):
            raise  # what it imports is missing
        raise LookupError(target) from None
    if found is None:
        raise LookupError(target)
    return found  # type: ignore[no-any-return]


def has(framework: Framework, target: str) -> bool:
    """Whether a framework has what a target names: a function, an adapter of ours, or a member of its tensors."""
    try:
        found = adapter(framework.name, target) or framework.function(target)
    except (LookupError, ImportError):
        member = getattr(framework, "has_member", None)
        return member is not None and bool(member(target))
    return found is not None


def leaf(framework: Framework, storage: np.ndarray, spec: TensorSpec) -> Any:  # noqa: ANN401 - a framework's tensor
    """Return a leaf of a storage's elements: in its own layout where the framework has layouts, else in C order."""
    if spec.is_contiguous:
        return framework.tensor(storage.reshape(spec.shape), spec)
    if hasattr(framework, "strided"):
        return framework.strided(storage, spec)
    return framework.tensor(elements(storage, spec), spec)


def elements(storage: np.ndarray, spec: TensorSpec) -> np.ndarray:
    """Return a storage's elements in the shape of ``spec``, in C order."""
    size = storage.itemsize
    strides = tuple(stride * size for stride in spec.strides)
    view = np.lib.stride_tricks.as_strided(storage[spec.offset :], spec.shape, strides)
    return np.array(view, order="C")


def storage_of(data: bytes, dtype: str) -> np.ndarray:
    """Return the elements that bytes hold; bfloat16 as its bits in uint16."""
    return np.frombuffer(data, _BITS.get(dtype, dtype))


def forward(program: Program, tensors: Mapping[str, np.ndarray], framework: Framework, *, snapshots: bool) -> Run:
    """Run the steps; one that raises ends the run and is in it.

    Args:
        program: Setup and body.
        tensors: Storage of each placeholder by key.
        framework: Runs it.
        snapshots: Whether every value is copied at its step.
    """
    run = Run()
    binding = _Binding(framework, tensors)
    for index, step in enumerate(program.steps):
        value: Any = None
        facts: Facts | None = None
        if step.op != OUTPUT:
            try:
                _need_attribute(step, run.values, framework)
                value = execute_step(step, run.values, binding)
                if step.op != PLACEHOLDER:
                    framework.synchronize()
                facts = framework.facts(value) if framework.is_tensor(value) else None
                if snapshots:
                    run.copies.append(seen(value, facts, framework))
            except LackingError as error:
                run.lacking = f"it has no {error}"
                return run
            except (Exception, SystemExit) as error:  # noqa: BLE001 - foreign code: its error is the outcome
                if isinstance(spec := step.args[0] if step.args else None, TensorSpec):
                    run.lacking = f"it takes no {spec.dtype} tensor such as this one ({type(error).__name__}: {error})"
                elif not (lacking := framework.lacking(error)):
                    run.failure = (index, type(error).__name__, str(error))
                else:
                    run.lacking = lacking
                return run
        elif snapshots:
            run.copies.append(Seen(None, None))
        run.values.append(value)
        run.facts.append(facts)
    return run


def _need_attribute(step: Step, values: Sequence[Any], framework: Framework) -> None:
    """Refuse a method or property that the framework's tensors have not.

    Raises:
        LackingError: It is not there.
    """
    receiver = step.args[0] if step.args else None
    if step.op not in {CALL_METHOD, GET_ATTR} or not isinstance(receiver, Ref):
        return
    value = values[receiver.index]
    if framework.is_tensor(value) and not hasattr(type(value), step.target) and not hasattr(value, step.target):
        message = f"Tensor.{step.target}"
        raise LackingError(message)


def seen(value: Any, facts: Facts | None, framework: Framework) -> Seen:  # noqa: ANN401 - a framework's value
    """Return a value as it is now."""
    return Seen(facts, framework.array(value) if facts is not None else value)


def backward(program: Program, run: Run, cotangents: Mapping[int, np.ndarray], framework: Framework) -> None:
    """Put the cotangents into the outputs that require grad, and keep every gradient.

    Args:
        program: What was run.
        run: What it left; the gradients are put into it.
        cotangents: Elements by position of the output's tensors, in their shape.
        framework: Ran it.
    """
    roots, weights = _roots(program, run, cotangents, framework)
    keys, inputs = _inputs(program, run, roots, framework)
    if not roots or not keys:
        return
    try:
        found = framework.gradients(roots, weights, inputs)
        framework.synchronize()
        run.gradients = [
            (key, None if gradient is None else seen(gradient, framework.facts(gradient), framework))
            for key, gradient in zip(keys, found, strict=True)
        ]
    except (Exception, SystemExit) as error:  # noqa: BLE001 - foreign code: its error is the outcome
        run.lacking = framework.lacking(error) or None
        run.backward_failure = f"{type(error).__name__}: {error}"


def _roots(
    program: Program, run: Run, cotangents: Mapping[int, np.ndarray], framework: Framework
) -> tuple[list[Any], list[Any]]:
    """Return the outputs that require grad on this side, each once, and the gradients that are put into them."""
    roots: list[Any] = []
    weights: list[Any] = []
    refs = output_refs(program)
    for position, weight in cotangents.items():
        value = run.values[refs[position].index] if position < len(refs) else None
        if not framework.is_tensor(value) or any(value is root for root in roots):
            continue
        dtype, shape, requires_grad, _ = framework.facts(value)
        if requires_grad and shape == weight.shape:
            spec = TensorSpec(dtype, shape, (), 0, weight.size)
            roots.append(value)
            weights.append(framework.tensor(weight.copy(), spec))
    return roots, weights


def _inputs(program: Program, run: Run, roots: Sequence[Any], framework: Framework) -> tuple[list[Any], list[Any]]:
    """Return what gradients are taken for: leaves, parameters, and intermediates where nothing is overwritten."""
    keys: list[Any] = []
    inputs: list[Any] = []
    last = len(run.values) - 2
    overwrites = any(_writes(step) for step in program.body)
    # The gradient of an output that nothing else uses is the cotangent itself.
    taken = {id(roots[0])} if len(roots) == 1 and program.body[-1].args == (ref_to(last),) else set()
    for index, value in enumerate(run.values):
        step = program.steps[index]
        if framework.is_tensor(value):
            requires_grad = framework.facts(value)[2]
            if requires_grad and id(value) not in taken and (step.op == PLACEHOLDER or not overwrites):
                taken.add(id(value))
                keys.append(index)
                inputs.append(value)
        elif step.in_setup and hasattr(value, "named_parameters"):
            for name, parameter in value.named_parameters():
                if framework.facts(parameter)[2] and id(parameter) not in taken:
                    taken.add(id(parameter))
                    keys.append((index, name))
                    inputs.append(parameter)
    return keys, inputs


def _writes(step: Step) -> bool:
    name = step.target.rpartition(".")[2]
    if dict(step.kwargs).get("inplace") is True:
        return True
    if step.op == CALL_METHOD:
        return name.endswith("_") and not name.endswith("__")
    return step.op == CALL_FUNCTION and (name in _WRITES or (name.endswith("_") and not name.startswith("_")))
