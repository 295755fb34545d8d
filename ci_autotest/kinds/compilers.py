"""Compilers of bodies: ``torch.compile``, PyTorch's exporter with ONNX Runtime, and exporters or runtimes of users."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from ci_autotest.kinds.candidate import BodyCandidate, Candidate, unknown_options, wrong_values
from ci_autotest.program.python_names import is_name, is_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ci_autotest.values.kernel_scope import RunMode

#: Arguments of ``torch.compile`` (PyTorch 2.13) that `options:` may hold.
COMPILE_OPTIONS: Final = frozenset({"backend", "mode", "dynamic", "fullgraph", "options"})
#: Arguments of ``torch.onnx.export`` (PyTorch 2.13) that `options:` may hold; ``dynamo`` chooses between its exporters.
EXPORT_OPTIONS: Final = frozenset({"dynamo", "opset_version"})
_TYPES: Final[dict[str, tuple[type, str]]] = {
    "backend": (str, "the name of a compiler, such as inductor"), "mode": (str, "the name of a mode"),
    "dynamic": (bool, "true or false"), "fullgraph": (bool, "true or false"),
    "options": (dict, "a mapping of options of the compiler"),
}  # fmt: skip
_NO_CALL: Final = "an exported model has no call of the body that could be timed"


class CompileCandidate(BodyCandidate, frozen=True, kw_only=True, tag="torch.compile"):
    """``torch.compile`` with any compiler behind it.

    Attributes:
        options: Keyword arguments of ``torch.compile``: ``backend``, ``mode``, ``dynamic``, ``fullgraph`` and
            ``options``.
        delegated: The dotted path of a function that takes what was made of a graph, and returns the names of the
            operators that run there, or their number. Without it, ci-autotest watches which operators PyTorch runs in
            the compiler's place.
        inference: Whether the body is compiled and run within ``torch.inference_mode()``, as a model in use is; only
            values are compared.
    """

    is_pytorch = True
    is_compiler = True

    options: dict[str, Any] = msgspec.field(default_factory=dict)
    delegated: str = ""
    inference: bool = False

    @property
    def compiler(self) -> str:
        """Name of the compiler behind ``torch.compile``."""
        return str(self.options.get("backend", "inductor"))

    @property
    def imported_first(self) -> tuple[str, ...]:
        """Modules that the server of a finding's processes imports once, because they take seconds."""
        return ("torch._dynamo", "torch._inductor.compile_fx") if self.compiler == "inductor" else ("torch._dynamo",)

    @property
    def run_mode(self) -> RunMode:
        """How bodies run: with gradients, or without."""
        return "inference" if self.inference else super().run_mode

    @property
    def named(self) -> tuple[str, ...]:
        """What programs may name: the user's functions and modules of which it consists."""
        return (*super().named, self.delegated)

    def faults(self) -> Iterator[str]:
        """Yield what is wrong with its values, and what to write instead."""
        yield from super().faults()
        yield from unknown_options(self.backend, self.options, COMPILE_OPTIONS)
        yield from wrong_values("options", self.options)
        for key, (kind, words) in _TYPES.items():
            value = self.options.get(key)
            if value is not None and not isinstance(value, kind):
                yield f"has options with {key}: {str(value)[:80]}. Write {words}."
        if self.options.get("mode") and self.options.get("options"):
            yield "has options with both mode and options, of which torch.compile takes one. Remove one."
        if self.delegated and not is_path(self.delegated):
            yield f"has delegated {self.delegated!r}. Write module.function."
        if self.inference and self.forward_only:
            yield "has both inference and forward_only. Remove one: inference leaves out gradients, too."


#: ``onnxscript`` is for ``dynamo: true``.
_PACKAGES: Final = ("onnx==1.23.2", "onnxruntime==1.31.1", "onnxscript==0.7.2")


def options_of(candidate: Candidate) -> dict[str, Any]:
    """Return the options of a compiler or exporter; none of any other candidate."""
    if isinstance(candidate, CompileCandidate | OnnxRuntimeCandidate | ExportCandidate):
        return candidate.options
    return {}


class OnnxRuntimeCandidate(BodyCandidate, frozen=True, kw_only=True, tag="onnxruntime"):
    """ONNX Runtime, with models that ``torch.onnx.export`` makes.

    Attributes:
        options: Keyword arguments of ``torch.onnx.export``: ``dynamo`` and ``opset_version``.
    """

    packages = _PACKAGES
    is_compiler = True

    options: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def untimed(self) -> str:
        """Why it is not timed; empty if it can be."""
        return _NO_CALL

    def faults(self) -> Iterator[str]:
        """Yield what is wrong with its values, and what to write instead."""
        yield from super().faults()
        yield from unknown_options(self.backend, self.options, EXPORT_OPTIONS)
        yield from wrong_values("options", self.options)


class ExportCandidate(BodyCandidate, frozen=True, kw_only=True, tag="export"):
    """An exporter or a runtime of the user's.

    Attributes:
        compile: The dotted path of a function that takes a ``torch.export.ExportedProgram`` and returns a callable,
            which takes the body's tensors and returns its results.
        options: Keyword arguments of that function.
        takes: What that function takes. ``module`` stands for an ``nn.Module`` and a tuple of its inputs.
        dynamic: Whether bodies are exported for all sizes, so that one callable is used for cases of several sizes.
        delegated: The dotted path of a function that takes what was made of a graph, and returns the names of the
            operators that run there, or their number. Without it, ci-autotest watches which operators PyTorch runs in
            the callable's place.
    """

    is_compiler = True

    compile: str = ""
    options: dict[str, Any] = msgspec.field(default_factory=dict)
    takes: Literal["program", "module"] = "program"
    dynamic: bool = False
    delegated: str = ""

    @property
    def named(self) -> tuple[str, ...]:
        """What programs may name: the user's functions and modules of which it consists."""
        return (*super().named, self.compile, self.delegated)

    @property
    def untimed(self) -> str:
        """Why it is not timed; empty if it can be."""
        return _NO_CALL

    def faults(self) -> Iterator[str]:
        """Yield what is wrong with its values, and what to write instead."""
        yield from super().faults()
        if not self.compile:
            yield "of backend export has no compile, so there is nothing to run. Give compile: module.function."
        elif not is_path(self.compile):
            yield f"has compile {self.compile!r}. Write module.function."
        for name in self.options:
            if not is_name(name):
                yield f"has options with {name[:80]!r}. Write the name of an argument of {self.compile}."
        yield from wrong_values("options", self.options)
        if self.dynamic and self.takes == "module":
            yield "has dynamic: true and takes: module, but only an exported program knows its sizes. Remove one."
        if self.delegated and not is_path(self.delegated):
            yield f"has delegated {self.delegated!r}. Write module.function."
