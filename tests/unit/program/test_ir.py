"""Facts of a step, told by its name."""

from __future__ import annotations

import pytest

from ci_autotest.program.ir import CALL_FUNCTION, CALL_METHOD, CALL_MODULE, PLACEHOLDER, Ref, Step, writes_to_receiver

WRITING = [
    Step(CALL_METHOD, "exp_", (Ref(0),)),
    Step(CALL_METHOD, "__iadd__", (Ref(0), 1)),
    Step(CALL_METHOD, "__setitem__", (Ref(0), 0, 1)),
    Step(CALL_FUNCTION, "torch.exp_", (Ref(0),)),
    Step(CALL_FUNCTION, "operator.iand", (Ref(0), 1)),
    Step(CALL_FUNCTION, "operator.setitem", (Ref(0), 0, 1)),
    Step(CALL_FUNCTION, "torch.nn.functional.relu", (Ref(0),), (("inplace", True),)),
]
READING = [
    Step(CALL_METHOD, "exp", (Ref(0),)),
    Step(CALL_METHOD, "__and__", (Ref(0), 1)),
    # The underscore tells these from Python's keywords.
    Step(CALL_FUNCTION, "operator.and_", (Ref(0), 1)),
    Step(CALL_FUNCTION, "operator.not_", (Ref(0),)),
    Step(CALL_FUNCTION, "operator.invert", (Ref(0),)),
    Step(CALL_FUNCTION, "torch.isnan", (Ref(0),)),
    Step(CALL_FUNCTION, "torch.nn.functional.relu", (Ref(0),), (("inplace", False),)),
    # What the user's own do is not told by their names.
    Step(CALL_FUNCTION, "torch.ops.mine.scale_", (Ref(0), 2.0)),
    Step(CALL_FUNCTION, "mykernels.scale_", (Ref(0), 2.0)),
    Step(PLACEHOLDER, "t0_", ()),
]


@pytest.mark.parametrize(
    ("step", "expected"), [*((step, True) for step in WRITING), *((step, False) for step in READING)],
    ids=[step.target for step in (*WRITING, *READING)],
)  # fmt: skip
def test_writes_to_receiver__each_spelling(step: Step, expected: bool):
    assert writes_to_receiver(step, ()) is expected


@pytest.mark.parametrize("inplace", [True, False])
def test_writes_to_receiver__call_of_a_module__goes_by_its_constructor(inplace: bool):
    module = Step(CALL_FUNCTION, "torch.nn.ReLU", (), (("inplace", inplace),), "module", in_setup=True)
    assert writes_to_receiver(Step(CALL_MODULE, "torch.nn.ReLU", (Ref(0), Ref(1))), (module,)) is inplace
