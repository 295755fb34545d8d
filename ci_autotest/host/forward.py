"""The forward run of a program, step by step or as one graph: it keeps values, metadata and copies."""

from __future__ import annotations

from contextlib import nullcontext
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from ci_autotest.errors import OutOfScopeError, Unsupported, UnsupportedReason
from ci_autotest.host.binding import Binding
from ci_autotest.host.frameworks.protocol import NOT_COMPILED, STEP_BY_STEP, LackingError
from ci_autotest.host.steps import execute_step
from ci_autotest.host.trace import Facts, RunTrace, Snapshot
from ci_autotest.program.edit import used_by
from ci_autotest.program.ir import (
    CALL_FUNCTION,
    CALL_METHOD,
    GET_ATTR,
    OUTPUT,
    PLACEHOLDER,
    READS_OF_MODULES,
    Program,
    output_refs,
)
from ci_autotest.program.python_names import is_in_module

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import numpy as np

    from ci_autotest.host.frameworks.protocol import Framework
    from ci_autotest.program.ir import Step


def forward(
    program: Program,
    tensors: Mapping[str, np.ndarray],
    framework: Framework,
    enter: Callable[[int], None],
    *,
    snapshots: bool,
) -> RunTrace:
    """Run the steps. The first step that raises ends the run, and its error is recorded there.

    With snapshots the run waits for each step, so that an error or a crash is reported at the step that caused it.
    Without, reading the values waits for all steps together.

    Args:
        program: Setup and body.
        tensors: Storage of each placeholder by key.
        framework: The framework that runs it.
        enter: Called with the index of each step before it runs.
        snapshots: Whether every value is copied right after its step.
    """
    run = RunTrace()
    begin = getattr(framework, "begin", None)
    if begin is not None:
        begin()
    around = getattr(framework, "around", nullcontext())
    binding = Binding(framework, tensors)
    run.memory = binding.memory
    for index, step in enumerate(program.steps):
        # Before the step runs, so that a crash is attributed to it.
        enter(index)
        value: Any = None
        facts: Facts | None = None
        if step.op != OUTPUT:
            try:
                needs_attribute(step, run.values, framework)
                with nullcontext() if step.op == PLACEHOLDER else around:
                    value = execute_step(step, run.values, binding)
                if snapshots and step.op != PLACEHOLDER:
                    framework.synchronize()
                if (loaded := step.loaded_state) is not None:
                    run.left_out += _left_out(run.values[loaded[0]], loaded[1])
                facts = framework.facts(value) if framework.is_tensor(value) else None
                if snapshots:
                    run.copies.append(_snapshot(value, facts, framework))
            except LackingError as error:  # before BaseException: it is our own error and needs no interpretation
                run.lacking = error.why
                return run
            except BaseException as error:  # noqa: BLE001 - foreign code: its error is the outcome
                record_error(run, step, index, error, framework)
                return run
        elif snapshots:
            # The output has no value, but copies and steps must have the same indices.
            run.copies.append(Snapshot(None, None))
        run.values.append(value)
        run.facts.append(facts)
    return run


def _left_out(module: Any, state: Iterable[str]) -> list[str]:
    """Return the names of state entries that the module which loads them lacks."""
    own = module.state_dict()
    return [f"{type(module).__name__}.{name}" for name in state if name not in own]


def _snapshot(value: Any, facts: Facts | None, framework: Framework) -> Snapshot:
    """Return a copy of a value; ``None`` for a module, whose state is read at the end of the run."""
    if facts is not None:
        return Snapshot(facts, framework.array(value))
    return Snapshot(None, None if hasattr(value, "state_dict") else value)


# Graph mode: run a program's body as one compiled graph. The setup runs eagerly, and only outputs are visible.
#
# The framework compiles a Python function that executes the steps (``Framework.graph``). If that function is called
# again when the graph runs, then nothing was compiled, and the case is reported as unsupported instead of aligned.


#: Calls that need elements or gradients, which tensors do not have while a graph is traced.
_READS: Final = frozenset({"builtins.bool", "builtins.int", "builtins.float"})
_READING_METHODS: Final = frozenset({
    "item", "numpy", "tolist", "__bool__", "__int__", "__float__", "__index__", "backward", "retain_grad",
})  # fmt: skip


def as_graph(
    program: Program,
    tensors: Mapping[str, np.ndarray],
    framework: Framework,
    enter: Callable[[int], None],
    *,
    snapshots: bool,
) -> RunTrace:
    """Run the setup and make the inputs, then run the body as one graph.

    The program runs eagerly first. If it fails there, the eager run is returned, because the failure says nothing about
    graphs.

    Args:
        program: Setup and body.
        tensors: Storage of each placeholder by key.
        framework: The framework that runs it; it must have ``graph``.
        enter: Called with the index of each step before it runs; the graph counts as the first call of the body.
        snapshots: Whether the outputs are copied.

    Returns:
        A run with the values of the setup, the inputs and the outputs, and ``None`` for values inside the graph.
    """
    eager = forward(program, tensors, framework, enter, snapshots=False)
    if eager.lacking is not None or eager.failure is not None:
        return eager
    body = _GraphBody(program, Binding(framework, tensors), framework)
    enter(program.calls[0][0] if program.calls else 0)
    run = body.run
    try:
        body.prepare()
        body.compile_and_run()
    except LackingError as error:
        run.lacking = (body.lacking or error).why
    except BaseException as error:  # noqa: BLE001 - foreign code: its error is the outcome
        record_error(run, program.steps[body.at], body.at, error, framework)
    # A run that stopped early has a value for every step all the same: the response goes by index.
    run.values += [None] * (len(program.steps) - len(run.values))
    for value in run.values:
        facts: Facts | None = None
        try:
            facts = framework.facts(value) if framework.is_tensor(value) else None
            if snapshots and run.failure is None and run.lacking is None:
                run.copies.append(_snapshot(value, facts, framework))
        except Exception as error:  # noqa: BLE001 - foreign tensors: reading them may raise anything
            run.failure = run.failure or (body.at, type(error).__name__, f"its result cannot be read: {error}")
        run.facts.append(facts)
    return run


class _GraphBody:
    """A program's body while it is compiled and run.

    Attributes:
        run: The run so far.
        at: Index of the step that is executing.
        lacking: The feature that a step lacks, whatever error the compiler raises for it.
    """

    def __init__(self, program: Program, binding: Binding, framework: Framework) -> None:
        self.run = RunTrace()
        self.at = 0
        self.lacking: LackingError | None = None
        self._program = program
        self._binding = binding
        self._framework = framework
        self._entered = 0
        self._plain: dict[int, Any] = {}

    def prepare(self) -> None:
        """Run the setup and make the inputs."""
        for index, step in enumerate(self._program.steps):
            self.at = index
            value = None
            if step.in_setup or step.op == PLACEHOLDER:
                needs_attribute(step, self.run.values, self._framework)
                value = execute_step(step, self.run.values, self._binding)
            elif (step.target in _READS and step.op == CALL_FUNCTION) or (
                step.target in _READING_METHODS and step.op == CALL_METHOD
            ):
                detail = f"graph of a body that reads a tensor's value while the graph is traced: {step.target}"
                raise LackingError(detail)
            elif step.target in getattr(self._framework, "not_in_graphs", ()):
                detail = f"graph with {step.target}: its compiler recognizes that in source code only"
                raise LackingError(detail)
            self.run.values.append(value)

    def compile_and_run(self) -> None:
        """Compile the body and run the graph."""
        run, framework = self.run, self._framework
        # Unused placeholders are not passed in: some frameworks give every input of a graph a gradient of zeros.
        read = used_by(self._program.body)
        inputs = [i for i in self._program.inputs if i in read]
        modules = [i for i, value in enumerate(run.values) if value is not None and hasattr(value, "named_parameters")]
        first = next((i for i, _ in self._program.calls), 0)

        def body(tensors: Sequence[Any], parts: Sequence[Any]) -> list[Any]:
            self._entered += 1
            # A copy, because a compiler may call the body several times.
            values = list(run.values)
            for places, given in ((inputs, tensors), (modules, parts)):
                for place, value in zip(places, given, strict=True):
                    values[place] = value
            try:
                return self._execute(values)
            except LackingError as error:
                self.lacking = error  # kept here, because a compiler may raise its own error instead
                raise

        self.at = first
        graph = framework.graph(body, [run.values[i] for i in inputs], [run.values[i] for i in modules])  # type: ignore[attr-defined]
        # A compiler may call the body several times. Any call after this point means that it runs uncompiled.
        entered = self._entered
        if not entered:
            raise LackingError(NOT_COMPILED, UnsupportedReason.NOT_COMPILED)
        run.graph = graph
        outputs = graph([run.values[i] for i in inputs])
        framework.synchronize()
        if self._entered != entered:
            raise LackingError(STEP_BY_STEP, UnsupportedReason.STEP_BY_STEP)
        self._place(outputs)

    def _execute(self, values: list[Any]) -> list[Any]:
        """Execute the steps of the body, and return the outputs that are tensors."""
        for index, step in self._program.numbered:
            if not step.is_call:
                continue
            self.at = index
            needs_attribute(step, values, self._framework)
            values[index] = execute_step(step, values, self._binding)
        places = self._outputs()
        self._plain = {i: values[i] for i in places if not self._framework.is_tensor(values[i])}
        tensors = [values[i] for i in places if i not in self._plain]
        if not tensors:
            detail = "graph of a body whose outputs include no tensor"
            raise LackingError(detail)
        return tensors

    def _outputs(self) -> list[int]:
        """Return the indices of the steps that are outputs, each once."""
        return list(dict.fromkeys(ref.index for ref in output_refs(self._program)))

    def _place(self, outputs: Sequence[Any]) -> None:
        """Store the graph's outputs as the values of their steps.

        If the body returns a leaf, the leaf itself stays, because the graph's output is another tensor with a gradient
        of its own.
        """
        values, framework = self.run.values, self._framework
        given = iter(outputs)
        for place in self._outputs():
            found = self._plain[place] if place in self._plain else next(given)
            is_leaf = framework.is_tensor(values[place]) and framework.facts(values[place])[2]
            values[place] = values[place] if is_leaf and getattr(framework, "graph_has_backward", True) else found


# What a step's error means: the framework lacks a feature, or the error is the outcome of the case.


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
    if (spec := step.spec) is not None:
        text = f"it cannot make this {spec.dtype} tensor ({message})"
        run.lacking = Unsupported(UnsupportedReason.NO_COUNTERPART, text)
    elif step.loaded_state is not None:
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
    name = step.args[1] if step.target == "builtins.getattr" else step.target
    is_asked = step.op in {CALL_METHOD, GET_ATTR} or step.target == "builtins.getattr"
    if not is_asked or step.receiver is None or not isinstance(name, str):
        return
    value = values[step.receiver]
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
