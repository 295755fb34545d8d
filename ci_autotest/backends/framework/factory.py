"""How the backend of another framework is made: its interpreter, and the table of its operators."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ci_autotest.backends.framework.backend import RemoteBackend
from ci_autotest.backends.framework.interpreter import Interpreter
from ci_autotest.backends.framework.mapping.table import MappingTable, has_table, load_table
from ci_autotest.backends.framework.mapping.translation import Translator

if TYPE_CHECKING:
    from ci_autotest.backends.backend_setting import BackendSetting
    from ci_autotest.kinds import ModuleCandidate


def make_framework(candidate: ModuleCandidate, setting: BackendSetting) -> RemoteBackend:
    """Return a framework in one host.

    Raises:
        ConfigError: A row of the candidate's table is wrong.
        UnavailableError: Its interpreter cannot be used.
    """
    backend = RemoteBackend(
        interpreter_of(candidate, setting), translator_of(candidate), ends_with_host=setting.worker.is_isolated
    )
    return backend.in_mode(is_graph=True) if candidate.mode == "graph" else backend


def interpreter_of(candidate: ModuleCandidate, setting: BackendSetting) -> Interpreter:
    """Return the interpreter in which a candidate's hosts run."""
    python = candidate.python or sys.executable
    return Interpreter(
        candidate.name, python, candidate.module, setting.device, setting.host_folders, env=candidate.env
    )


def translator_of(candidate: ModuleCandidate) -> Translator:
    """Return what translates programs for a candidate's framework; the user's own rows replace those that ship.

    Raises:
        ConfigError: A row is wrong.
    """
    module = candidate.module
    table = load_table(module) if has_table(module) else MappingTable(module, "", module, like_torch=True, rows={})
    mapping = candidate.mapping
    return Translator(table.extended(mapping, f"candidate '{candidate.name}'") if mapping else table)
