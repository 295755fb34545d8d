"""How the backend of a candidate is made that is the user's functions: in this process, or in one of their own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ci_autotest.backends.framework.interpreter import Interpreter
from ci_autotest.backends.framework.mapping.table import MappingTable
from ci_autotest.backends.framework.mapping.translation import Translator
from ci_autotest.backends.operators.identity import refuse_unknown
from ci_autotest.backends.operators.user_operators import find, is_module_class
from ci_autotest.backends.substitute.backend import SubstituteBackend
from ci_autotest.backends.substitute.isolated_kernels import IsolatedBackend
from ci_autotest.errors import ConfigError, ProgramError, UnavailableError
from ci_autotest.program.targets import is_own
from ci_autotest.values.sandbox import sandboxed, seen_folders

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ci_autotest.backends.backend_setting import BackendSetting
    from ci_autotest.backends.protocol import Backend
    from ci_autotest.kinds import SubstituteCandidate


def make_substitute(candidate: SubstituteCandidate, setting: BackendSetting) -> Backend:
    """Return torch with the user's functions.

    Raises:
        ConfigError: The candidate names an operator that torch lacks, or one that cannot be replaced where it runs.
        UnavailableError: A function cannot be imported, or there is no sandbox here.
    """
    if candidate.is_isolated:
        return _isolated(candidate, setting)
    return SubstituteBackend(_replaced(candidate), setting.device, candidate.scope, candidate.state)


def _isolated(candidate: SubstituteCandidate, setting: BackendSetting) -> IsolatedBackend:
    _refuse_classes(candidate)
    root = Path(setting.folders[0]) if setting.folders else Path.cwd()
    seen = seen_folders(candidate.sandbox or (), root)
    interpreter = Interpreter(
        candidate.name, sys.executable, "torch", setting.device, env=candidate.env,
        folders=seen if candidate.is_sandboxed else setting.host_folders,
        replace=_replaced(candidate), scope=candidate.scope, sandbox=_sandbox(candidate, seen),
    )  # fmt: skip
    table = MappingTable("torch", "", "torch", like_torch=True, rows={})
    return IsolatedBackend(
        interpreter, Translator(table, takes_float8=True), ends_with_host=setting.worker.is_isolated,
        is_fresh=setting.is_fresh and not candidate.is_sandboxed,
    )  # fmt: skip


def _sandbox(candidate: SubstituteCandidate, folders: Sequence[str]) -> tuple[str, ...]:
    """Return the beginning of the command of a sandbox; empty if the candidate has none."""
    if not candidate.is_sandboxed:
        return ()
    try:
        return tuple(sandboxed(folders))
    except UnavailableError as error:
        message = f"candidate '{candidate.name}': {error}"
        raise UnavailableError(message) from error


def _replaced(candidate: SubstituteCandidate) -> Mapping[str, str]:
    """Return a candidate's replacements after checking that torch has the operators, or that the user declared them."""
    for operator in candidate.replace:
        if is_own(operator):
            _refuse_missing(operator, candidate)
        elif not is_module_class(operator):
            refuse_unknown(operator, f"candidate '{candidate.name}': replace")
    return candidate.replace


def _refuse_classes(candidate: SubstituteCandidate) -> None:
    """Refuse to replace classes of modules in a process of their own: a host has no such replacement."""
    classes = [operator for operator in candidate.replace if is_module_class(operator)]
    if classes:
        message = (
            f"candidate '{candidate.name}': replace: {classes[0]} is a class of modules, which `isolated` and `env` do "
            "not replace. Remove them."
        )
        raise ConfigError(message)


def _refuse_missing(operator: str, candidate: SubstituteCandidate) -> None:
    try:
        find(operator)
    except ProgramError as error:
        message = (
            f"candidate '{candidate.name}': replace: no library registers {operator!r} with torch. Name the library in "
            "`load`, or the module that registers it in `import`."
        )
        raise ConfigError(message) from error
