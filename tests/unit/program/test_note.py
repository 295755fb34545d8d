"""A note is read as it was written before it had types, and is refused as a whole if it holds what it must not."""

from __future__ import annotations

import re
from typing import Any

import pytest

from ci_autotest.errors import ProgramError
from ci_autotest.program.note import (
    CompileNote,
    DdpNote,
    DTensorNote,
    ExportNote,
    FxNote,
    KindNote,
    Note,
    PlanNote,
    ReplayRules,
    SubstituteNote,
    TorchNote,
    note_of,
    plain_note,
)

#: The keys that a note had for every kind before.
FLAT: dict[str, Any] = {
    "backend": "substitute", "candidate": "kernels", "device": "cpu", "reference_device": "cpu", "device_module": "",
    "libraries": {"numpy": "2.0"}, "processes": False, "options": {}, "run_mode": "training", "transform": "",
    "takes": "program", "dynamic": False, "takes_inputs": False, "wrap": "", "renames": {"torch.exp": "mine.exp"},
    "classes": {}, "state": {}, "load": ["build/libmine.so"], "import": ["mine.ops"], "torch": "2.13.0", "env": {},
    "spellings": {"mine.exp": ["torch.exp", "torch.Tensor.exp"]},
    "rules": {"rtol": None, "atol": 0.1, "check_dtype": True}, "strictness": "tolerance", "test": "a.py::t", "case": 3,
    "seed": 0, "kind": "value", "operator": "torch.exp", "folders": ["kernels"], "case_timeout_s": 60.0,
}  # fmt: skip


def test_note_of__file_of_before__has_the_keys_of_its_kind():
    assert note_of(FLAT) == Note(
        candidate="kernels", libraries={"numpy": "2.0"}, torch="2.13.0", rules=ReplayRules(None, 0.1), test="a.py::t",
        case=3, seed=0, kind="value", operator="torch.exp", folders=("kernels",), case_timeout_s=60.0,
        side=SubstituteNote(
            renames={"torch.exp": "mine.exp"}, spellings={"mine.exp": ["torch.exp", "torch.Tensor.exp"]},
            load=("build/libmine.so",), imports=("mine.ops",),
        ),
    )  # fmt: skip


PLAN = PlanNote(rows=[1], joins=[(0, "rows", 0)], sizes=[], weights=[], of_slices=[], independent=True, unused=False)


@pytest.mark.parametrize(
    "side",
    [
        KindNote(), TorchNote(device_module="npu.lib"), CompileNote(options={"backend": "eager"}),
        FxNote(transform="a.b", takes_inputs=True), ExportNote(transform="a.b", takes="module"),
        DTensorNote(processes=True, starts_ranks=True), DdpNote(wrap="a:b", plan=PLAN),
    ],
    ids=lambda side: type(side).__name__,
)  # fmt: skip
def test_note_of__plain_note__is_the_same(side: KindNote):
    note = Note(candidate="c", side=side, env={"A": "b"}, draws=[["0", "int", 1]])
    assert note_of(plain_note(note)) == note


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"backend": "fx", "transform": "a; evil()"}, "'a; evil()', which is not a function"),
        ({"backend": "substitute", "classes": {"torch.nn.ReLU": "os.system"}}, "not a class or function of the user's"),
        ({"backend": "torch", "import": ["os"]}, "'os', which is not a module of the user's"),
        ({"backend": "ddp", "wrap": "a:b\nimport os"}, "which is not module:function"),
        ({"backend": "torch.compile", "options": {"x=0)": 1}}, "not an argument of torch.compile"),
        (
            {"backend": "substitute", "spellings": {"a.b": ["torch.exp: 0, evil()"]}},
            "'torch.exp: 0, evil()', which is not",
        ),
        ({"backend": "substitute", "renames": {"torch.add": "torch.hub.load"}}, "which is not one of its functions"),
        ({"backend": "substitute", "spellings": {"class.if": ["torch.exp"]}}, "'class.if', which is not a function"),
        (
            {"backend": "export", "transform": "a.b", "options": {"class": 1}},
            "'class', which is not an argument of a.b",
        ),
        ({"backend": ["torch"]}, "has backend \"['torch']\", which this version does not know"),
        ({"backend": "of tomorrow"}, "has backend 'of tomorrow', which this version does not know"),
        ({"libraries": ["numpy"]}, "damaged or edited"),
        ({"env": {"A": 1}}, "damaged or edited"),
    ],
)
def test_note_of__what_is_never_printed__is_refused(given: dict[str, Any], said: str):
    with pytest.raises(ProgramError, match=re.escape(said)):
        note_of(given)
