"""The watch over a compiler: which steps of a body it ran itself, and which PyTorch ran in its place.

A graph that PyTorch runs calls PyTorch's operators, and a ``TorchDispatchMode`` sees each of them; a part that the
compiler runs itself calls none. The graph's node leads to a line of the printed body, and the line to a step. A
compiler may drop that trail; then the operators are matched by name with those that each step calls. So are those that
the compiler's own code calls, told by the first frame outside of torch: the operator of a step is PyTorch's in its
place, and any other one is a part of a kernel.

Only this module knows of torch what has no public name. What it does not find makes the delegation unknown.
"""

from __future__ import annotations

import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ci_autotest.backends.body_source import BODY
from ci_autotest.backends.operator_usage import computing, operators_of
from ci_autotest.backends.user_errors import FOREIGN, pass_interrupt
from ci_autotest.errors import error_text
from ci_autotest.values.delegation import Delegation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import FrameType

    from ci_autotest.program.ir import Program

#: Compilers of torch itself. What dynamo captures runs by them as they mean it: some of them run the graph by PyTorch's
#: kernels on purpose, to test what is above.
OF_TORCH: Final = frozenset({
    "aot_eager", "aot_eager_decomp_partition", "aot_eager_decomp_partition_crossref",
    "aot_eager_decomp_partition_with_mode", "aot_eager_default_partitioner", "aot_ts", "cudagraphs",
    "dynamo_accuracy_minifier_backend", "dynamo_minifier_backend", "eager", "eager_debug", "eager_noexcept", "inductor",
    "invoke_subgraph", "pre_dispatch_eager", "ts",
})  # fmt: skip
#: Operators of PyTorch's dispatcher that move or make memory and compute nothing.
_MOVES: Final = frozenset({
    "aten::alias", "aten::clone", "aten::copy_", "aten::detach", "aten::empty", "aten::empty_like",
    "aten::empty_strided", "aten::lift_fresh", "aten::lift_fresh_copy", "aten::_to_copy",
})  # fmt: skip
_NAMESPACES: Final = frozenset({"aten", "prims"})
#: Parts of the name of an operator with its namespace.
_OF_NAMESPACE: Final = 2
_TORCH: Final = f"{Path(torch.__file__).parent}/"
_FELL_BACK: Final = "PyTorch ran a part that the compiler had taken: the compiler fell back silently"
#: TorchScript says this of a number within any mode: then it is run without one.
_OF_SCRIPT: Final = "Expected a value of type 'Tensor' for argument 'self' but instead found type"
_BEGIN: Final = BODY.removesuffix(">")
_LINE: Final = re.compile(rf'File "{_BEGIN}[^"]*", line (\d+)')
_MODES: Final = torch._C._TorchDispatchModeKey  # torch has no public name for it


#: Characters of an error that a note has.
_NOTE_CHARS: Final = 200


def compiler_of(compiler: Any, options: Mapping[str, Any]) -> Callable[..., Any]:
    """Return what compiles a graph, as ``torch.compile`` makes it of its arguments.

    Raises:
        Exception: Torch has no such compiler, or the compiler has no such mode or option.
    """
    if compiler == "inductor":  # Its entry takes neither: torch turns both into a configuration first.
        own: Any = torch._TorchCompileInductorWrapper
        compiled: Callable[..., Any] = own(options.get("mode"), options.get("options"), options.get("dynamic"))
        return compiled
    lookup: Any = torch._dynamo.lookup_backend
    found: Callable[..., Any] = lookup(compiler)
    return partial(found, **options)


class DelegationWatch:
    """A compiler of dynamo's graphs that passes them on to another one, and watches what becomes of them.

    Args:
        compiler: The name of the other one, or the compiler itself.
        lines: The step of each line of the body's text.
        hook: Takes what the compiler returned for a graph, and returns the names of the operators that it runs itself,
            or their number; ``None`` if that is to be seen.
    """

    def __init__(self, compiler: Any, lines: Mapping[int, int], hook: Callable[..., Any] | None = None) -> None:
        self._compiler, self._lines, self._hook = compiler, lines, hook
        self._is_of_torch = compiler in OF_TORCH and hook is None
        self._functions: list[Callable[..., Any]] = []
        self.graphs = 0
        #: Number of graphs that the latest run of the body has run compiled.
        self.runs = 0
        #: Called after each compilation, before the compiled function runs.
        self.on_compiled: Callable[[], None] | None = None
        #: Whether what was compiled is kept: from then on the compiler is not asked again.
        self.is_settled = False
        #: Whether it was asked again all the same, because what dynamo compiled does not hold for another run.
        self.is_outdated = False
        self._captured: set[int] = set()
        #: What each step calls, from a run without data: steps by operator, in order, once for each call.
        self._called: dict[str, list[int]] = defaultdict(list)
        self._seen: list[TorchCall] = []
        self._is_known = self._is_graph_known = True

    def __repr__(self) -> str:
        """Return the compiler's name, which torch puts into a compiler's errors."""
        return str(self._compiler)

    def __call__(self, graph: torch.fx.GraphModule, example_inputs: list[Any], **options: Any) -> Callable[..., Any]:
        """Compile a graph of dynamo's; return its function, which is watched while it runs.

        Raises:
            RuntimeError: The body is kept, so that this graph is for another run than the one that it was kept for.
        """
        if self.is_settled:
            self.is_outdated = True
            message = "what was compiled does not hold for this run"
            raise RuntimeError(message)
        self.graphs += 1
        self.capture(graph, example_inputs)
        try:
            function = compiler_of(self._compiler, options)(graph, example_inputs)
        finally:
            if self.on_compiled is not None:
                self.on_compiled()
        if self._is_of_torch:
            return self._counted(function)
        (returned,) = next(node for node in graph.graph.nodes if node.op == "output").args
        return self._counted(self.watched(function, len(returned) if isinstance(returned, tuple | list) else None))

    def begin(self) -> None:
        """Begin another run of what was compiled."""
        self.runs = 0
        self._seen.clear()
        self._is_known = self._is_graph_known

    def is_one_graph(self, needed: frozenset[int]) -> bool:
        """Whether the steps that matter are one graph, without a break."""
        return self.graphs == 1 and needed <= self._captured

    def capture(self, graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> None:
        """Note which steps a graph is made of."""
        captured = {self._step_of(node) for node in graph.graph.nodes if node.op.startswith("call")}
        self._captured |= {step for step in captured if step is not None}
        if not self._is_of_torch:
            self._note_calls(graph, inputs)

    def capture_run(self, body: Callable[..., Any], inputs: Sequence[torch.Tensor]) -> None:
        """Note which operators each step calls, by a run of the whole body: an exporter keeps no trail to the steps."""
        self._captured |= {*self._lines.values()}
        calls: list[tuple[str, int]] = []
        with torch.no_grad(), _BodyMode(calls):
            body(*inputs)
        for operator, line in calls:
            if line in self._lines:
                self._called[operator].append(self._lines[line])

    def _counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            self.runs += 1
            return function(*args)

        return run

    def watched(self, function: Callable[..., Any], count: int | None = None) -> Callable[..., Any]:
        """Return a compiled function that is watched while it runs.

        Args:
            function: The function.
            count: Number of results of its graph; dynamo reads that many, and no more. ``None`` if unknown.
        """
        self._functions.append(function)

        def run(*args: Any) -> Any:
            try:
                with _CallMode(self._seen):
                    return _checked_results(function(*args), count)
            except RuntimeError as error:
                if _OF_SCRIPT not in str(error):
                    raise
            self._is_known = False
            return function(*args)

        return run

    def found(self, program: Program) -> Delegation:
        """Return what was seen, or what the hook says, of the steps of a program that matter."""
        needed = computing(program)
        outside = needed - self._captured
        if self._is_of_torch:
            return Delegation(needed & self._captured, outside)
        if self._hook is not None:
            return self._told(self._hook, program, needed)
        try:
            left = self._left()
        except (AttributeError, IndexError, KeyError, TypeError):  # What has no public name has changed.
            return Delegation(is_known=False)
        called = {step for steps in self._called.values() for step in steps}
        inside = needed & called if self._is_known else needed & self._captured
        notes = (_FELL_BACK,) if any(call.is_fallback for call in self._seen) else ()
        # Of a body that only moves numbers nothing can be seen.
        is_known = self._is_known and bool(inside | outside)
        return Delegation(inside - left - outside, (inside & left) | outside, notes, is_known)

    def _told(self, hook: Callable[..., Any], program: Program, needed: frozenset[int]) -> Delegation:
        """Return what the hook says; a number below that of the calls does not tell which of them PyTorch ran."""
        try:
            answers = [hook(function) for function in self._functions]
            if all(type(answer) is int for answer in answers):
                count = sum(answers)
                return Delegation(needed if count else frozenset(), needed if count < len(needed) else frozenset())
            names = {_base_name(name) for answer in answers for name in _checked_names(answer)}
        except FOREIGN as error:
            pass_interrupt(error)
            reason = " ".join(error_text(error).split())[:_NOTE_CHARS]
            return Delegation(notes=(f"`delegated`: {type(error).__name__}: {reason}",), is_known=False)
        called: dict[int, set[str]] = {
            at: {_base_name(program.steps[at].target), _base_name(name)}
            for at, name in zip(needed, operators_of(program.steps, needed), strict=True)
        }
        for operator, steps in self._called.items():
            for step in set(steps) & needed:
                called[step].add(_base_name(operator))
        own = frozenset(step for step, of in called.items() if of & names)
        return Delegation(own, needed - own)

    def _left(self) -> set[int]:
        """Return the steps of which PyTorch ran an operator."""
        left: set[int] = set()
        unmatched: Counter[str] = Counter()
        for call in self._seen:
            step = None if call.caller is None else self._step_of(_node(call.caller))
            if call.is_own and not self._called[call.operator]:
                continue
            if step is None:
                unmatched[call.operator] += 1
            else:
                left.add(step)
        own = Counter(call.operator for call in self._seen if call.is_own)
        for operator, count in unmatched.items():
            steps = self._called[operator]
            # What no step calls is a part of a graph that the compiler has made of another one.
            self._is_known &= count - own[operator] <= len(steps)
            left.update(steps[:count])
        return left

    def _note_calls(self, graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> None:
        """Note which operators each step calls, by a run with tensors that have no data."""
        try:
            for operator, node in _calls_of(graph, inputs):
                step = self._step_of(node)
                if step is not None:
                    self._called[operator].append(step)
        except Exception:  # noqa: BLE001 - an operator may refuse tensors without data, in any way
            self._is_known = self._is_graph_known = False

    def _step_of(self, node: torch.fx.Node) -> int | None:
        """Return the step that a node was made of; ``None`` if it does not say."""
        lines = _LINE.findall(node.meta.get("stack_trace") or "")
        return self._lines.get(int(lines[-1])) if lines else None


def _checked_results(results: Any, count: int | None) -> Any:
    """Return the results of a graph, of which dynamo reads ``count``.

    Raises:
        ValueError: There are more.
    """
    if count is not None and isinstance(results, tuple | list) and len(results) > count:
        message = f"the compiled function returns {len(results)} results, and its graph has {count}"
        raise ValueError(message)
    return results


def _checked_names(answer: Any) -> list[str]:
    """Return the names that a hook gave.

    Raises:
        TypeError: They are no list of texts.
    """
    if isinstance(answer, str) or not isinstance(answer, Iterable) or not all(isinstance(name, str) for name in answer):
        message = "it returned neither names nor a number"
        raise TypeError(message)
    return list(answer)


def _base_name(name: str) -> str:
    """Return the name of an operator without its namespace and its overload: ``aten::add.Tensor`` is ``add``."""
    parts = name.rpartition("::")[2].split(".")
    is_of_dispatcher = "::" in name or parts[0] in _NAMESPACES or parts[:2] == ["torch", "ops"]
    if len(parts) > 1 and (parts[-1] == "default" or (is_of_dispatcher and parts[-1][:1].isupper())):
        parts = parts[:-1]
    elif "::" in name or (parts[0] in _NAMESPACES and len(parts) > _OF_NAMESPACE):
        parts = parts[: 1 if "::" in name else _OF_NAMESPACE]
    return parts[-1].rstrip("_").lower()


class TorchCall(NamedTuple):
    """An operator that PyTorch ran for a graph.

    Attributes:
        operator: Of PyTorch's dispatcher, without its overload: ``add.Scalar`` may stand for ``add.Tensor``.
        caller: The node that called it, or the graph and the line of its code; ``None`` if that is not known.
        is_fallback: Whether code of the compiler ran the graph as a part of another one.
        is_own: Whether code of the compiler called it. It is PyTorch's in place of a call of the body if it is the same
            operator; others are a part of the compiler's kernels.
    """

    operator: str
    caller: torch.fx.Node | tuple[torch.fx.GraphModule, int] | None
    is_fallback: bool = False
    is_own: bool = False


class _CallMode(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch has no types here
    """Note the operators that PyTorch runs for a graph.

    Args:
        seen: Receives them.
    """

    def __init__(self, seen: list[TorchCall]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._seen = seen
        self._frame: FrameType | None = None

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Let a compiler that compiles inside of the function do so."""
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        frame = self._frame or sys._getframe(1)
        # In inference mode an operator that is made of others arrives whole; the body's steps are noted by its parts.
        before, self._frame = self._frame, frame
        try:
            with self:
                result = func.decompose(*args, **(kwargs or {}))
        finally:
            self._frame = before
        if result is not NotImplemented:
            return result
        if _is_computing(func) and not _is_traced():
            self._seen.append(_call_of(_operator(func), frame))
        return func(*args, **(kwargs or {}))


class _BodyMode(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch has no types here
    """Note the operators that a body calls, with the line of its text.

    Args:
        calls: Receives them.
    """

    def __init__(self, calls: list[tuple[str, int]]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._calls = calls

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        frame: FrameType | None = sys._getframe(1)
        while _is_computing(func) and frame is not None:
            if frame.f_code.co_filename.startswith(_BEGIN):
                self._calls.append((_operator(func), frame.f_lineno))
                break
            frame = frame.f_back
        return func(*args, **(kwargs or {}))


def _operator(func: Any) -> str:
    """Return the operator of a call: ``exp_`` computes what ``exp`` does, and a compiler may call either."""
    return str(func._schema.name).rstrip("_")


def _is_computing(func: Any) -> bool:
    return func.namespace in _NAMESPACES and func._schema.name not in _MOVES


def _is_traced() -> bool:
    """Whether a compiler only traces, which a lazy one does in its first call."""
    return any(torch._C._get_dispatch_mode(mode) is not None for mode in (_MODES.FAKE, _MODES.PROXY))


def _call_of(operator: str, frame: FrameType | None) -> TorchCall:
    """Return a call with what called it."""
    caller, is_own = None, False
    while frame is not None and frame.f_code.co_filename != __file__:
        found = _graph_of(frame)
        if found is not None and caller is not None and is_own:
            return TorchCall(operator, caller, is_fallback=True)
        if found is not None and caller is None:
            caller = found
        elif not frame.f_code.co_filename.startswith(_TORCH):
            is_own = True
            if caller is None:
                return TorchCall(operator, None, is_own=True)
        frame = frame.f_back
    return TorchCall(operator, caller)


def _graph_of(frame: FrameType) -> torch.fx.Node | tuple[torch.fx.GraphModule, int] | None:
    """Return what a frame runs of a graph: a node of an interpreter, or a line of a graph's code."""
    held, name = frame.f_locals, frame.f_code.co_name
    if name == "run_node" and isinstance(held.get("n"), torch.fx.Node):
        return held["n"]  # type: ignore[no-any-return]
    is_graph = name == "forward" and isinstance(held.get("self"), torch.fx.GraphModule)
    return (held["self"], frame.f_lineno) if is_graph else None


def _node(caller: torch.fx.Node | tuple[torch.fx.GraphModule, int]) -> torch.fx.Node:
    """Return the node that a caller stands for."""
    if isinstance(caller, torch.fx.Node):
        return caller
    graph, line = caller
    # mypy takes attributes of a module for tensors.
    held: Any = graph
    number = held._lineno_map[line - getattr(held, "_prologue_start", 0)]
    found: torch.fx.Node = list(graph.graph.nodes)[number]
    return found


def _calls_of(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Iterator[tuple[str, torch.fx.Node]]:
    """Yield the operators that a graph calls, with their nodes, by a run with tensors that have no data."""
    from torch._guards import detect_fake_mode  # noqa: PLC0415 - older versions of torch lack it
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode  # noqa: PLC0415 - likewise

    found: list[tuple[str, torch.fx.Node]] = []
    at: list[torch.fx.Node] = []

    class Nodes(torch.fx.Interpreter):
        def run_node(self, n: torch.fx.Node) -> Any:
            at[:] = [n]
            return super().run_node(n)

    class CalledOperators(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if at and at[0].op.startswith("call") and _is_computing(func):
                found.append((_operator(func), at[0]))
            return func(*args, **(kwargs or {}))

    fake = detect_fake_mode(inputs) or FakeTensorMode(allow_non_fake_inputs=True)
    empty = [
        fake.from_tensor(each) if isinstance(each, torch.Tensor) and not isinstance(each, FakeTensor) else each
        for each in inputs
    ]
    with fake, CalledOperators():  # type: ignore[no-untyped-call]
        Nodes(graph).run(*empty)
    return iter(found)
