"""Run a program's body as one graph of the framework: setup and inputs eagerly, then only outputs are seen.

The framework compiles a function that carries out the steps (``Framework.graph``). Were that function entered again
when the graph runs, nothing was compiled: it is said, and the case is no pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ci_autotest.errors import UnsupportedReason
from ci_autotest.host.binding import Binding
from ci_autotest.host.forward import forward, seen
from ci_autotest.host.frameworks.protocol import NOT_COMPILED, STEP_BY_STEP, LackingError
from ci_autotest.host.step_errors import failed, needs_attribute
from ci_autotest.host.steps import execute_step
from ci_autotest.host.trace import Run
from ci_autotest.program.ir import CALL_FUNCTION, CALL_METHOD, OUTPUT, PLACEHOLDER, Program, output_refs, step_refs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np

    from ci_autotest.host.frameworks.protocol import Framework
    from ci_autotest.host.trace import Facts

#: What a body cannot ask while its graph is made: the elements of a tensor, and gradients.
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
) -> Run:
    """Run the setup and place the inputs, then run the body as one graph.

    It is run eagerly first: what the framework has not, or refuses, says nothing of its graphs.

    Args:
        program: Setup and body.
        tensors: Storage of each placeholder by key.
        framework: Runs it; it has ``graph``.
        enter: Told the index of each step before it is run; the graph as a whole is its first call.
        snapshots: Whether the outputs are copied.

    Returns:
        Values of the setup, of the inputs and of the outputs; ``None`` for what is inside the graph.
    """
    eager = forward(program, tensors, framework, enter, snapshots=False)
    if eager.lacking is not None or eager.failure is not None:
        return eager
    graphed = _Graphed(program, Binding(framework, tensors), framework)
    enter(program.calls[0][0] if program.calls else 0)
    run = graphed.run
    try:
        graphed.begin()
        graphed.go()
    except LackingError as error:
        run.lacking = (graphed.lacking or error).why
    except BaseException as error:  # noqa: BLE001 - foreign code: its error is the outcome
        failed(run, program.steps[graphed.at], graphed.at, error, framework)
    run.values += [None] * (len(program.steps) - len(run.values))
    for value in run.values:
        facts: Facts | None = None
        try:
            facts = framework.facts(value) if framework.is_tensor(value) else None
            if snapshots and run.failure is None and run.lacking is None:
                run.copies.append(seen(value, facts, framework))
        except Exception as error:  # noqa: BLE001 - foreign tensors: reading them may raise anything
            run.failure = run.failure or (graphed.at, type(error).__name__, f"its result cannot be read: {error}")
        run.facts.append(facts)
    return run


class _Graphed:
    """Hold one program while its graph is made and run.

    Attributes:
        run: What it leaves.
        at: The step that is being carried out.
        lacking: What a step said that the framework has not, whatever became of its error where the graph was made.
    """

    def __init__(self, program: Program, binding: Binding, framework: Framework) -> None:
        self.run = Run()
        self.at = 0
        self.lacking: LackingError | None = None
        self._program = program
        self._binding = binding
        self._framework = framework
        self._entered = 0
        self._plain: dict[int, Any] = {}

    def begin(self) -> None:
        """Run the setup and place the inputs."""
        for index, step in enumerate(self._program.steps):
            self.at = index
            value = None
            if step.in_setup or step.op == PLACEHOLDER:
                needs_attribute(step, self.run.values, self._framework)
                value = execute_step(step, self.run.values, self._binding)
            elif (step.target in _READS and step.op == CALL_FUNCTION) or (
                step.target in _READING_METHODS and step.op == CALL_METHOD
            ):
                what = f"graph of a body that reads a tensor while it is made: {step.target}"
                raise LackingError(what)
            elif step.target in getattr(self._framework, "not_in_graphs", ()):
                what = f"graph of steps with {step.target}: its compiler knows that by the source alone"
                raise LackingError(what)
            self.run.values.append(value)

    def go(self) -> None:
        """Make the graph and run it."""
        run, framework = self.run, self._framework
        # What the body does not read is no input: some frameworks' graphs have gradients of zeros for all of theirs.
        read = {ref.index for step in self._program.body for ref in step_refs(step)}
        steps = enumerate(self._program.steps)
        inputs = [i for i, step in steps if step.op == PLACEHOLDER and not step.in_setup and i in read]
        modules = [i for i, value in enumerate(run.values) if value is not None and hasattr(value, "named_parameters")]
        first = next((i for i, _ in self._program.calls), 0)

        def body(tensors: Sequence[Any], parts: Sequence[Any]) -> list[Any]:
            self._entered += 1
            values = list(run.values)
            for places, given in ((inputs, tensors), (modules, parts)):
                for place, value in zip(places, given, strict=True):
                    values[place] = value
            try:
                return self._carry_out(values)
            except LackingError as error:
                self.lacking = error
                raise

        self.at = first
        graph = framework.graph(body, [run.values[i] for i in inputs], [run.values[i] for i in modules])  # type: ignore[attr-defined]
        entered = self._entered
        if not entered:
            raise LackingError(NOT_COMPILED, UnsupportedReason.NOT_COMPILED)
        run.graph = graph
        outputs = graph([run.values[i] for i in inputs])
        framework.synchronize()
        if self._entered != entered:
            raise LackingError(STEP_BY_STEP, UnsupportedReason.STEP_BY_STEP)
        self._place(outputs)

    def _carry_out(self, values: list[Any]) -> list[Any]:
        """Run the steps of the body, and return its outputs that are tensors."""
        for index, step in enumerate(self._program.steps):
            if step.in_setup or step.op in {PLACEHOLDER, OUTPUT}:
                continue
            self.at = index
            needs_attribute(step, values, self._framework)
            values[index] = execute_step(step, values, self._binding)
        places = self._outputs()
        self._plain = {i: values[i] for i in places if not self._framework.is_tensor(values[i])}
        tensors = [values[i] for i in places if i not in self._plain]
        if not tensors:
            what = "graph of a body that puts out no tensor"
            raise LackingError(what)
        return tensors

    def _outputs(self) -> list[int]:
        """Return the steps that the body puts out, each once."""
        return list(dict.fromkeys(ref.index for ref in output_refs(self._program)))

    def _place(self, outputs: Sequence[Any]) -> None:
        """Put the graph's outputs where the body's values are.

        A leaf that the body hands on stays the leaf: what the graph gives for it is another tensor, with a gradient of
        its own.
        """
        values, framework = self.run.values, self._framework
        given = iter(outputs)
        for place in self._outputs():
            found = self._plain[place] if place in self._plain else next(given)
            is_leaf = framework.is_tensor(values[place]) and framework.facts(values[place])[2]
            values[place] = values[place] if is_leaf and getattr(framework, "graph_has_backward", True) else found
