"""The order of size: each simplification makes a program smaller, and the part that counts most decides."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ci_autotest.program.distribution import Distribution
from ci_autotest.program.ir import CALL_FUNCTION, NO_GRAD, OUTPUT, PLACEHOLDER, Copy, Program, Ref, Step, TensorSpec
from ci_autotest.program.recording import Recording
from ci_autotest.shrink.size import size
from ci_autotest.values.case import Draw

SPEC = TensorSpec("float32", (2, 2), (2, 1), 0, 4)
DATA = np.array([0.3, -1.7, 2.0, 1.0], "<f4").tobytes()
CALL = Step(CALL_FUNCTION, "torch.mul", (Ref(0), 1), (), "mul")


def recording(spec=SPEC, data=DATA, calls=(CALL,), cotangents=()):
    output = Step(OUTPUT, "output", (Ref(len(calls)),), (), "output")
    program = Program((), (Step(PLACEHOLDER, "t0", (spec,), (), "x"), *calls, output), cotangents)
    return Recording(program, {"t0": data, "cotangent_0": DATA})


def floats(*numbers):
    return np.array(numbers, "<f4").tobytes()


LARGER = {
    "one call more": recording(calls=(CALL, CALL)),
    "one argument more": recording(calls=(CALL._replace(kwargs=(("out", None),)),)),
    "more elements": recording(replace(SPEC, shape=(2, 3), strides=(3, 1), storage_size=6), DATA + floats(0, 0)),
    "a cotangent": recording(cotangents=(SPEC,)),
    "an input with a gradient": recording(replace(SPEC, requires_grad=True)),
    "another float dtype": recording(
        replace(SPEC, dtype="float16"), np.frombuffer(DATA, "<f4").astype("<f2").tobytes()
    ),
    "an input that is not contiguous": recording(replace(SPEC, strides=(1, 2))),
    "an input that is expanded": recording(replace(SPEC, strides=(0, 1), storage_size=2), floats(0.0, 0.0)),
    "a mode": recording(calls=(CALL._replace(modes=NO_GRAD),)),
    "a copy": recording(calls=(CALL._replace(args=(Copy(Ref(0)), 1)),)),
    "a larger constant": recording(calls=(CALL._replace(args=(Ref(0), 9)),)),
    "numbers that are not whole": recording(data=floats(0.3, -1.7, 2.0, 1.1)),
    "a sign": recording(data=floats(0.3, -1.7, 2.0, -1.0)),
    "ranks": recording(replace(SPEC, distribution=Distribution((2,), ("Replicate",)))),
    "an input that is cut": recording(replace(SPEC, distribution=Distribution((2,), ("Shard(0)",)))),
}


@pytest.mark.parametrize("larger", LARGER.values(), ids=LARGER)
def test_size__one_thing_more__is_larger(larger):
    assert size(recording()) < size(larger)


def test_size__smaller_number_in_a_tuple__is_smaller():
    small, large = (recording(calls=(CALL._replace(args=(Ref(0), (number,))),)) for number in (1, 7))
    assert size(small) < size(large)


def test_size__fewer_steps__counts_more_than_elements():
    small = TensorSpec("float32", (1,), (1,), 0, 1)
    assert size(recording()) < size(recording(small, floats(0.0), calls=(CALL, CALL)))


def test_size__draw_nearer_to_the_simplest__is_smaller():
    near, far = (Draw("0.dim0", "dim", 1, 100, value, 1) for value in (3, 57))
    assert size(recording()) < size(recording(), (near,)) < size(recording(), (far,))
    assert size(recording(), (near,)) < size(recording(), (near,), "special")


def test_size__equal_calls__are_smaller_than_different_ones():
    other = CALL._replace(args=(Ref(0), 0))
    assert size(recording(calls=(CALL, CALL))) < size(recording(calls=(CALL, other)))
