"""``torch.save`` and ``torch.load`` in a body, and the wrappers of modules for several devices."""

from __future__ import annotations

import io
from collections import OrderedDict, defaultdict

import pytest
import torch as real

from ci_autotest import random_tensor, torch
from ci_autotest.alignment.recordings import to_recording
from ci_autotest.alignment.verdict import live_of
from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.errors import AuthorError
from ci_autotest.program.codegen import body_lines
from ci_autotest.program.repro.script_facts import ScriptFacts
from ci_autotest.program.repro.torch_script import repro_text
from ci_autotest.program.serialize import decode, encode_program, encode_tensors
from tests.engine import Rules, judged, record, recorded, substitute

BITWISE = Rules(strictness="bitwise")


def x(**how):
    return random_tensor(2, 2, 3, **how)


def through_memory(value, **options):
    memory = io.BytesIO()
    torch.save(value, memory)
    memory.seek(0)
    return torch.load(memory, **options)


def a_tensor():
    return through_memory(x().exp()) + 1


def containers():
    found = through_memory(OrderedDict(epoch=3, both=[x(requires_grad=False), (x().detach(), "name")], none=None))
    assert (list(found), found["epoch"], found["both"][1][1], found["none"]) == (
        ["epoch", "both", "none"],
        3,
        "name",
        None,
    )
    return found["both"][0] * found["both"][1][0]


def a_state():
    first, second = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
    second.load_state_dict(through_memory(first.state_dict(), weights_only=True))
    return second(x())


def before_a_write():
    value, memory = x(requires_grad=False).clone(), io.BytesIO()
    torch.save(value, memory)
    value.mul_(2)
    memory.seek(0)
    return value + torch.load(io.BytesIO(memory.getvalue()), map_location="cpu")


def shared_memory():
    value = x(requires_grad=False).clone()
    whole, row = through_memory([value, value[0]])
    whole.mul_(3)
    return row + 1


def two_of_the_same_bytes():
    value = x(requires_grad=False)
    first, second = io.BytesIO(), io.BytesIO()
    torch.save(value.exp(), first)
    torch.save(torch.exp(value).clone(), second)
    first.seek(0)
    return torch.load(first)


def in_wrappers():
    wrapped = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 2))
    other = torch.nn.DataParallel(torch.nn.Linear(3, 2))
    other.load_state_dict(through_memory(wrapped.state_dict()))
    return other.module(x()) + wrapped(x())


def around_the_users():
    return torch.nn.DataParallel(real.nn.Sequential(real.nn.Linear(3, 2), real.nn.ReLU()))(x())


BODIES = [a_tensor, containers, a_state, before_a_write, shared_memory, in_wrappers, around_the_users]


@pytest.mark.parametrize("body", BODIES)
def test_save_and_load__replayed__is_aligned_bit_by_bit_and_saved(body):
    attempt = record(body)
    recording = to_recording(live_of(attempt))
    assert decode(encode_program(recording), encode_tensors(recording)) == recording
    assert judged(attempt, TorchBackend(), BITWISE).verdict.outcome == "aligned"


def test_save_and_load__printed__is_the_program_that_one_would_write():
    assert body_lines(record(before_a_write).program) == [
        "clone = x.clone()",
        "saved = io.BytesIO()",
        "torch.save([clone], saved)",
        "mul = clone.mul_(2)",
        "saved.seek(0)",
        "loaded = torch.load(saved, map_location='cpu', weights_only=True)",
        "loaded_1 = loaded[0]",
        "add = clone + loaded_1",
    ]


def test_save_and_load__in_a_repro__has_its_import():
    facts = ScriptFacts(title="t", lines=(), kind="value", rtol=0.0, atol=0.0, check_dtype=True,
               strictness="tolerance", folders=(), versions="", timeout_s=60, has_backward=False)  # fmt: skip
    assert "\nimport io\n" in repro_text(recorded(a_tensor), facts)


def test_save_and_load__of_a_wrong_value__is_found_where_it_is_computed():
    found = judged(record(a_tensor), substitute(exp=lambda value: real.exp(value) + 1)).verdict
    assert (found.outcome, found.operator, found.kind) == ("misaligned", "torch.exp", "value")


def test_load__two_saves_of_the_same_bytes__loads_the_one_of_its_memory():
    program = record(two_of_the_same_bytes).program
    saves = [i for i, step in enumerate(program.steps) if step.name == "saved"]
    loaded = next(step for step in program.steps if step.name == "loaded")
    assert (len(saves), loaded.args[0].index) == (2, saves[0])


def test_wrappers__in_a_body__are_told():
    assert record(in_wrappers).remarks == {"DataParallel", "DistributedDataParallel"}


def failing(body):
    with pytest.raises(AuthorError) as raised:
        record(body)
    return str(raised.value)


def load_of_one_of_two():
    memories = io.BytesIO(), io.BytesIO()
    for memory in memories:
        torch.save(torch.ones(2), memory)
    torch.load(io.BytesIO(memories[0].getvalue()))


def load_without_seek():
    memory = io.BytesIO()
    torch.save(x(), memory)
    torch.load(memory)


REFUSED = {
    "file": (lambda: torch.save(x(), "x.pt"), "torch.save in a test can only write to memory, and got a str."),
    "file read": (lambda: torch.load("x.pt"), "torch.load in a test can only read from memory, and got a str."),
    "module": (lambda: torch.save(torch.nn.ReLU(), io.BytesIO()), "torch.save of a ReLU is not recorded, because torch.load refuses it. Save its state_dict()."),
    "function": (lambda: torch.save(len, io.BytesIO()), "Save tensors, numbers and strings."),
    "pickled": (lambda: through_memory(x(), weights_only=False), "what a test loads is always weights_only."),
    "option": (lambda: torch.save(x(), io.BytesIO(), pickle_protocol=2), "torch.save with pickle_protocol= is not recorded."),
    "no seek": (load_without_seek, "(0 bytes from its position to its end). Write memory.seek(0) before it."),
    "foreign bytes": (lambda: torch.load(io.BytesIO(b"cos\nsystem\n")), "found nothing in memory that torch.save of this body has written (11 bytes"),
    "of two saves": (load_of_one_of_two, "bytes that 2 calls of torch.save have written, so that the tensors of any of them may be meant."),
    "defaultdict": (lambda: torch.save(defaultdict(list, a=x()), io.BytesIO()), "torch.save of a defaultdict is not recorded"),
    "wrapper of no module": (lambda: torch.nn.DataParallel(3), "torch.nn.DataParallel wraps a module, and got a int."),
}  # fmt: skip


@pytest.mark.parametrize(("body", "text"), REFUSED.values(), ids=REFUSED)
def test_save_and_load__what_is_not_recorded__is_one_sentence(body, text):
    assert text in failing(body)
