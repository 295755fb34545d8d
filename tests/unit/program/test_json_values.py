"""Programs as plain JSON values and back: every kind of argument, and what is none."""

from __future__ import annotations

import json
import math
from enum import IntEnum

import pytest

from ci_autotest.program.ir import (
    CALL_FUNCTION,
    CALL_METHOD,
    NO_GRAD,
    OUTPUT,
    PLACEHOLDER,
    Copy,
    Device,
    DType,
    FrameworkConstant,
    List,
    Mapping_,
    Program,
    Ref,
    Slice,
    Step,
    TensorSpec,
)
from ci_autotest.program.json_values import (
    argument_of,
    plain_argument,
    plain_program,
    plain_result,
    plain_spec,
    program_of,
    result_of,
    spec_of,
)
from ci_autotest.program.refusal import Refusal

SPEC = TensorSpec("bfloat16", (2, 3), (1, 2), 4, 12, requires_grad=True, device="cpu")
ARGUMENTS = {
    "int": 3,
    "large int": 1 << 80,
    "negative": -7,
    "true": True,
    "false": False,
    "none": None,
    "text": "mean",
    "text that looks like a kind": "ref",
    "float": 0.1,
    "negative zero": -0.0,
    "least": 5e-324,
    "infinity": math.inf,
    "negative infinity": -math.inf,
    "complex": complex(1.5, -0.0),
    "complex of infinities": complex(math.inf, -math.inf),
    "ellipsis": ...,
    "reference": Ref(7),
    "dtype": DType("float16"),
    "device": Device("device"),
    "constant": FrameworkConstant("torch.channels_last"),
    "empty tuple": (),
    "tuple": (1, (2.5, None), Ref(0)),
    "empty list": List(()),
    "list": List((1, List((Ref(2), ...)), (3,))),
    "mapping": Mapping_((("a", 1), ("b", List((Ref(1),))))),
    "slice": Slice(None, Ref(1), 2),
    "copy": Copy(Ref(1)),
    "slice of nothing": Slice(None, None, None),
    "spec": SPEC,
}


@pytest.mark.parametrize("argument", ARGUMENTS.values(), ids=ARGUMENTS)
def test_argument__there_and_back__is_the_same(argument):
    plain = json.loads(json.dumps(plain_argument(argument), allow_nan=False))
    found = argument_of(plain)
    assert (found, type(found)) == (argument, type(argument))
    assert repr(found) == repr(argument), "the sign of a zero too"


class Named(str):
    """A text of a class of the author's."""

    __slots__ = ()


@pytest.mark.parametrize("value", [Named("mean"), IntEnum("Axis", "FIRST SECOND").SECOND, Refusal("ValueError", "no")])
def test_plain_argument__of_a_class_of_the_authors__is_pythons_own(value):
    found = argument_of(plain_argument(value))
    assert (found == value, type(found)) == (True, str if isinstance(value, str) else int)


def test_argument__nan__is_nan_again():
    plain = json.dumps(plain_argument((math.nan, complex(math.nan, 1))), allow_nan=False)
    first, second = argument_of(json.loads(plain))
    assert math.isnan(first)
    assert (math.isnan(second.real), second.imag) == (True, 1.0)


@pytest.mark.parametrize("value", [object(), {1, 2}, b"bytes", {"a": 1}, [1]], ids=lambda value: type(value).__name__)
def test_plain_argument__value_is_none_of_a_program__is_refused(value):
    with pytest.raises(TypeError, match=f"a {type(value).__name__} cannot be sent to a host"):
        plain_argument(value)


@pytest.mark.parametrize(
    "plain",
    [
        [], [1], {}, {"unknown": 1}, {"ref": 1, "copy": 2}, {"ref": "x"}, {"float": "x"}, {"dtype": "float3"}, {"slice": [1]},
        {"complex": ["x", 1]}, {"ellipsis": False}, {"refusal": ["ValueError", ""]},
    ],
    ids=str,
)  # fmt: skip
def test_argument_of__is_none__is_refused(plain):
    with pytest.raises(ValueError, match=r"an argument (of an unknown kind|with . keys)"):
        argument_of(plain)


@pytest.mark.parametrize(
    "plain", [{"mapping": 1}, {"mapping": [1]}, {"mapping": [[1, 2]]}, {"mapping": [["a", 1, 2]]}], ids=str
)
def test_argument_of__mapping_without_pairs__is_refused(plain):
    with pytest.raises(ValueError, match=r"a mapping that is not a list of pairs|an argument of an unknown kind"):
        argument_of(plain)


def test_argument_of__nested_too_deep__is_refused():
    plain = 1
    for _ in range(20):
        plain = {"tuple": [plain]}
    with pytest.raises(ValueError, match="nested more than 16 deep"):
        argument_of(plain)


@pytest.mark.parametrize(
    "change",
    [
        {"dtype": "float3"}, {"shape": [True]}, {"shape": 2}, {"offset": 1.0}, {"state": "code"}, {"placements": [1]},
        {"more": 1}, {"distribution": {"mesh": [2]}}, {"distribution": {"mesh": [0], "placements": ["Replicate"]}},
    ],
    ids=str,
)  # fmt: skip
def test_spec_of__is_none__is_refused(change):
    with pytest.raises(ValueError, match=r"no valid tensor spec|is not a distribution"):
        spec_of({**plain_spec(SPEC), **change})


@pytest.mark.parametrize("key", plain_spec(SPEC))
def test_spec_of__a_key_is_missing__is_refused(key):
    plain = plain_spec(SPEC)
    del plain[key]
    with pytest.raises(ValueError, match="no valid tensor spec"):
        spec_of(plain)


def test_result__refusal__there_and_back_keeps_its_message():
    found = result_of(json.loads(json.dumps(plain_result(Refusal("ValueError", "no")))))
    assert (type(found), found, found.said) == (Refusal, "ValueError", "no")


def test_program__there_and_back__is_what_a_host_needs_of_it():
    setup = (Step(CALL_FUNCTION, "torch.nn.Linear", (2, 3), (("bias", False),), "linear", seed=5, in_setup=True),)
    body = (
        Step(PLACEHOLDER, "t0", (SPEC,), (), "x"),
        Step(CALL_METHOD, "sum", (Ref(1),), (("dim", List((0,))), ("dtype", DType("float64"))), "sum", NO_GRAD, 9),
        Step(OUTPUT, "output", (Ref(2),)),
    )
    found = program_of(json.loads(json.dumps(plain_program(Program(setup, body)))))
    assert (found.setup, found.body) == (setup, body)
