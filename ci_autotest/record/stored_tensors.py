"""Tensors with elements from a file beside the test, for example those of a real program.

The elements are the same in every case, so only the profile ``non_contiguous`` can apply.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ci_autotest.errors import AuthorError
from ci_autotest.program.npz import ArrayError, read_npz
from ci_autotest.record.context import recorder_for
from ci_autotest.record.dependent_tensors import record_array
from ci_autotest.record.draw.dtypes import holds_gradients
from ci_autotest.record.draw.generators import Generator, settle
from ci_autotest.record.draw.profiles import NON_CONTIGUOUS, ORDINARY, STORED, VALUE_PROFILES, obstacle

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

#: Greatest number of keys that a message names.
_SHOWN = 8


def stored_tensor(file: str, key: str | Generator, requires_grad: bool | Generator = True) -> torch.Tensor:
    """Return a recorded tensor with the elements of an array of a ``.npz`` file.

    Args:
        file: The file, relative to the folder of the file that calls this function.
        key: Name of the array, or a generator of one. Its shape and dtype are the tensor's. bfloat16 and float8, which
            NumPy lacks, are stored as their bits, in a structure with one field of that name:
            ``bits.view([("bfloat16", "<u2")])``.
        requires_grad: True if the tensor requires grad; integers and booleans never do.

    Raises:
        AuthorError: Called outside a test; or the file, or the array in it, is missing or cannot be a tensor. Arrays of
            Python objects are never loaded.
    """
    recorder = recorder_for("stored_tensor")
    caller = Path(sys._getframe(1).f_code.co_filename)  # the documented way to the caller
    drawer = recorder.drawer
    drawer.tensor_site()  # it takes a site, so that replacing it by a drawn tensor keeps the sites of later draws
    name = str(settle(drawer, key, str))
    dtype, array = _read(caller, str(file), name)
    has_grad = bool(settle(drawer, requires_grad, bool)) and holds_gradients(dtype)
    profile = drawer.profile
    if profile != ORDINARY and (profile != NON_CONTIGUOUS or array.size < 2):  # noqa: PLR2004 - one element has one layout
        is_of_values = profile in VALUE_PROFILES
        found = STORED if is_of_values else obstacle(profile, dtype, is_bounded=False, count=array.size)
        recorder.notes.profile_obstacle = found
    value: Any = record_array(recorder, array, dtype, with_grad=has_grad)
    return value  # type: ignore[no-any-return]


def _read(caller: Path, file: str, key: str) -> tuple[str, NDArray[Any]]:
    call = f"stored_tensor({file!r}, {key!r})"
    try:
        return read_npz(caller.parent / file, key)
    except FileNotFoundError:
        problem = f"there is no such file beside {caller.name}. Copy it there, or capture the program again with --data"
    except OSError as error:
        problem = f"the file beside {caller.name} cannot be read: {error.strerror}"
    except KeyError as error:
        shown = ", ".join([*map(repr, error.args[:_SHOWN]), *(["…"] if len(error.args) > _SHOWN else [])])
        problem = f"the file has no array of that name. It has {shown or 'none'}"
    except ArrayError as error:
        problem = str(error)
    message = f"{call}: {problem}."
    raise AuthorError(message)
