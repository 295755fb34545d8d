"""How the backends of compilers and exporters are made."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ci_autotest.backends.compilers.export import ExportBackend
from ci_autotest.backends.compilers.onnx import OnnxExporter
from ci_autotest.backends.compilers.torch_compile import CompileBackend
from ci_autotest.backends.compilers.user_exporter import UserExporter
from ci_autotest.backends.function_paths import load_function
from ci_autotest.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ci_autotest.backends.backend_setting import BackendSetting
    from ci_autotest.kinds import CompileCandidate, ExportCandidate, OnnxRuntimeCandidate


def make_compiler(candidate: CompileCandidate, setting: BackendSetting) -> CompileBackend:
    """Return ``torch.compile`` with the compiler of a row.

    Raises:
        ConfigError: There is no such compiler, or it refuses the options.
    """
    try:
        return CompileBackend(candidate.options, setting.device, _hook(candidate.delegated), candidate.run_mode)
    except ConfigError as error:
        message = f"candidate '{candidate.name}': {error}"
        raise ConfigError(message) from error


def make_onnx_runtime(candidate: OnnxRuntimeCandidate, setting: BackendSetting) -> ExportBackend:
    """Return ONNX Runtime with PyTorch's exporter."""
    return ExportBackend(OnnxExporter(candidate.options, candidate.name), setting.device)


def make_exporter(candidate: ExportCandidate, setting: BackendSetting) -> ExportBackend:
    """Return an exporter or a runtime of the user's."""
    function = load_function(candidate.compile, "compile")
    exporter = UserExporter(
        partial(function, **candidate.options), candidate.compile, candidate.takes, is_dynamic=candidate.dynamic
    )
    return ExportBackend(exporter, setting.device, _hook(candidate.delegated))


def _hook(path: str) -> Callable[..., Any] | None:
    """Return the function that says what a compiler runs itself; ``None`` if that is to be seen."""
    return load_function(path, "delegated") if path else None
