"""Names of the sources and their families, without torch, because the parent process checks paths with them."""

from __future__ import annotations

from typing import Final

from ci_autotest.program.targets import OVERLOADS

OPINFO: Final = "builtin:opinfo"
MODULES: Final = "builtin:modules"

#: Families of the operator database: its own folders of definitions first, then its classes of entries. The module
#: database has none. Families of overloads: what they return is new, written to ``self``, or to ``out=``.
FAMILIES: Final[dict[str, tuple[str, ...]]] = {
    OPINFO: (
        "fft", "linalg", "masked", "nn.functional", "signal", "sparse", "special",
        "unary", "binary", "reductions", "shape", "other",
    ),
    MODULES: (),
    OVERLOADS: ("functional", "in_place", "out"),
}  # fmt: skip


def source_of(file: str) -> str:
    """Return the source that a file name belongs to, such as ``builtin:opinfo``; empty for any other file."""
    return next((source for source in FAMILIES if file == source or file.startswith((f"{source}/", f"{source}:"))), "")
