"""Objects that a body got from outside its recorder, and the writes to them: plain tensors, optimizers, arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    import torch
    from numpy.typing import NDArray

    from ci_autotest.record.optimizers import Held
    from ci_autotest.record.plain_tensors import PlainTensors
    from ci_autotest.record.values import RecordedTensor


class Outside:
    """The objects of one attempt that its recorder has not made.

    Attributes:
        captured: Plain tensors by id, each with the recorded value that it represents and its version. They are kept
            alive, so that no other tensor gets the same id.
        optimizers: Optimizers of plain torch that have stepped, by id, each with its state before the case.
        given: The last known elements of a plain tensor, by its id; other elements reveal an unrecorded write.
        given_data: Plain tensors that got new elements, by id, each with its elements before the case.
        given_gradients: Plain tensors that got a gradient, by id, each with its gradient before the case.
        plain_tensors: Mode that records calls with plain tensors; ``None`` while it is not needed.
        shared: NumPy arrays that became inputs, each with its bytes at that time.
        has_left: True if a value was converted to an array; later inputs from outside may be computed from it.
        keys: Keys of the inputs that may have been computed from such an array.
    """

    __slots__ = (
        "captured", "given", "given_data", "given_gradients", "has_left", "keys", "optimizers", "plain_tensors",
        "shared",
    )  # fmt: skip

    def __init__(self) -> None:
        self.captured: dict[int, tuple[torch.Tensor, RecordedTensor, int]] = {}
        self.optimizers: dict[int, Held] = {}
        self.given: dict[int, torch.Tensor] = {}
        self.given_data: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self.given_gradients: dict[int, tuple[torch.Tensor, torch.Tensor | None]] = {}
        self.plain_tensors: PlainTensors | None = None
        self.shared: list[tuple[NDArray[Any], bytes]] = []
        self.has_left = False
        self.keys: set[str] = set()
