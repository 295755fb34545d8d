"""Operator-alignment testing for deep-learning frameworks and kernels.

The names for test authors are loaded from ``ci_autotest.testing`` on first use, so that importing this package imports
no framework.
"""

from __future__ import annotations

from ci_autotest.version import VERSION

# Importing `typing` would take longer than all other imports before Ctrl-C is handled.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from ci_autotest.testing import (
        Draws,
        assume,
        autotest,
        capture,
        choice_tensor,
        constant,
        cpu_device,
        every,
        expect,
        generator,
        gpu_device,
        index_tensor,
        invertible_tensor,
        loadertest,
        note,
        nothing,
        oneof,
        operator,
        permutation_tensor,
        positive_definite_tensor,
        random,
        random_bool,
        random_device,
        random_dtype,
        random_or_nothing,
        random_pytorch_dtype,
        random_pytorch_tensor,
        random_tensor,
        stored_tensor,
        symmetric_tensor,
        torch,
    )

__version__ = VERSION
__all__ = [
    "Draws",
    "assume",
    "autotest",
    "capture",
    "choice_tensor",
    "constant",
    "cpu_device",
    "every",
    "expect",
    "generator",
    "gpu_device",
    "index_tensor",
    "invertible_tensor",
    "loadertest",
    "note",
    "nothing",
    "oneof",
    "operator",
    "permutation_tensor",
    "positive_definite_tensor",
    "random",
    "random_bool",
    "random_device",
    "random_dtype",
    "random_or_nothing",
    "random_pytorch_dtype",
    "random_pytorch_tensor",
    "random_tensor",
    "stored_tensor",
    "symmetric_tensor",
    "torch",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        message = f"module 'ci_autotest' has no name {name!r}; it has {', '.join(__all__)}."
        raise AttributeError(message)
    from ci_autotest import testing  # noqa: PLC0415 - the framework is imported on first use

    return getattr(testing, name)


def __dir__() -> list[str]:
    return __all__
