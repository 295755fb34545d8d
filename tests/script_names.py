"""Names that a script reads and that nobody binds."""

from __future__ import annotations

import ast
import builtins
import symtable


def undefined(text: str) -> set[str]:
    """Return the names that a script or its functions read and that neither it nor Python binds."""
    plain = ast.parse(text)
    for node in ast.walk(plain):  # no annotation is evaluated
        for name in ("annotation", "returns"):
            if getattr(node, name, None) is not None:
                setattr(node, name, ast.Constant(None) if isinstance(node, ast.AnnAssign) else None)
    table = symtable.symtable(ast.unparse(plain), "<text>", "exec")
    bound = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_assigned() or symbol.is_imported()}
    bound |= {symbol.get_name() for symbol in table.get_symbols() if symbol.is_namespace()}
    found = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_referenced()}
    waiting = list(table.get_children())
    while waiting:
        scope = waiting.pop()
        waiting += scope.get_children()
        found |= {symbol.get_name() for symbol in scope.get_symbols() if symbol.is_global()}
        # `global name` in a function binds it.
        bound |= {symbol.get_name() for symbol in scope.get_symbols() if symbol.is_declared_global()}
    return found - bound - set(vars(builtins)) - {"__file__"}
