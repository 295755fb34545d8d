"""The script of a finding: it compiles, needs this package nowhere, fails while misaligned and passes when fixed."""

from __future__ import annotations

import ast
import json
import sys
from dataclasses import replace
from types import ModuleType

import pytest
import torch as real

from ci_autotest import random_tensor, torch
from ci_autotest.alignment.recordings import to_recording, with_expected
from ci_autotest.alignment.verdict import live_of
from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.backends.repro_notes import repro_note
from ci_autotest.errors import ProgramError
from ci_autotest.kinds import CompileCandidate, OnnxRuntimeCandidate, SubstituteCandidate, TorchCandidate
from ci_autotest.program.note import note_of, plain_note
from ci_autotest.program.repro.script_facts import ScriptFacts
from ci_autotest.program.repro.torch_script import repro_text
from ci_autotest.program.serialize import decode_program, encode_program, encode_tensors
from tests.engine import record
from tests.faults import mutating, with_backward
from tests.script_names import undefined

TOLD = ScriptFacts(
    title="misaligned: a title with 'quotes'",
    lines=["one line", "", "another"],
    kind="value",
    has_backward=True,
    rtol=1.3e-6,
    atol=1e-5,
    check_dtype=True,
    strictness="tolerance",
    folders=("../..",),
    versions="Python 3",
    timeout_s=60,
)


def x(**how):
    return random_tensor(ndim=2, dim0=3, dim1=4, **how)


def modules():
    module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3), torch.nn.Dropout(0.5))
    return torch.exp(module(x()))


def in_place():
    value = torch.exp(x()).clone()
    value[0] = 1
    value.mul_(2)
    return value


def branches():
    value = x(requires_grad=False)
    return torch.exp(value) * (2 if value.sum() > -100 else 3) + abs(value) + len(value)


def no_grad():
    with torch.no_grad():
        value = torch.exp(x())
    return value + x()


BODIES = {
    "a call": lambda: torch.exp(x()),
    "a method": lambda: x().exp(),
    "a chain": lambda: torch.exp(torch.sin(x()) * 2).sum(),
    "a large tensor": lambda: torch.exp(random_tensor(ndim=2, dim0=20, dim1=30)),
    "integers beside": lambda: torch.exp(x()) + x(dtype=int),
    "a tuple": lambda: torch.max(torch.exp(x()), dim=1),
    "several outputs": lambda: (torch.exp(x()), x() * 2),
    "modules": modules,
    "in place": in_place,
    "branches": branches,
    "no grad": no_grad,
    "random": lambda: torch.exp(torch.rand_like(x())),
    "float64": lambda: torch.exp(x(dtype=torch.float64)),
    "bfloat16": lambda: torch.exp(x(dtype=torch.bfloat16)),
    "complex": lambda: torch.exp(x(dtype=complex, low=-1, high=1)),
    "no gradient": lambda: torch.exp(x(requires_grad=False)),
    "0-dim": lambda: torch.exp(random_tensor(ndim=0)),
    "empty": lambda: torch.exp(random_tensor(ndim=1, dim0=0)),
}


@pytest.fixture
def kernels(monkeypatch):
    """A module that holds ``exp``, as a user's kernels would."""
    module = ModuleType("fake_kernels")
    module.exp = real.exp
    monkeypatch.setitem(sys.modules, "fake_kernels", module)
    return module


def script(body, profile: str | None = None, operator: str = "exp", **told) -> tuple[str, bytes]:
    live = live_of(record(body, profile=profile))
    replaced = {f"torch.{operator}": f"fake_kernels.{operator}"}
    note = repro_note(SubstituteCandidate(name="kernels", replace=replaced), live.program.steps)
    recording = with_expected(to_recording(live, note), live, TorchBackend())
    return repro_text(recording, replace(TOLD, **told)), encode_tensors(recording)


def ran(text: str, tensors: bytes, folder) -> int:
    """Run a script in this process and return its exit status."""
    (folder / "tensors.safetensors").write_bytes(tensors)
    scope = {"__name__": "repro", "__file__": str(folder / "repro.py"), "__doc__": "a title"}
    path = list(sys.path)
    try:
        exec(compile(text, "repro.py", "exec"), scope)  # noqa: S102 - what is under test
        return scope["main"]()
    finally:
        sys.path[:] = path


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("profile", ["ordinary", "non_contiguous", "special"])
def test_repro_text__candidate_is_fixed__is_aligned_and_agrees(body, profile, kernels, tmp_path, capsys):
    text, tensors = script(body, profile)
    assert ran(text, tensors, tmp_path) == 0
    out = capsys.readouterr().out
    assert "the reference recomputed agrees with the values carried here" in out
    assert "misaligned" not in out.partition("the reference recomputed")[2]


@pytest.mark.parametrize(
    "body", [b for n, b in BODIES.items() if n != "empty"], ids=[n for n in BODIES if n != "empty"]
)
def test_repro_text__candidate_is_wrong__is_misaligned(body, kernels, tmp_path, capsys):
    kernels.exp = lambda value: value.exp() + 0.5
    assert ran(*script(body), tmp_path) == 1
    assert "misaligned: value of" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("function", "kind", "said"),
    [
        (with_backward(real.exp, lambda v, grad: grad), "gradient", "misaligned: gradient of x"),
        (lambda v: v.exp().detach(), "metadata", "misaligned: requires_grad of exp: candidate False, reference True"),
        (lambda v: v.exp().double(), "dtype", "misaligned: value of exp: candidate torch.float64"),
        (lambda v: v.exp()[:1], "shape", "misaligned: value of exp: The values for attribute 'shape' do not match"),
        (mutating(real.exp), "mutation", "misaligned: x after the run"),
        (lambda _: None, "value", "misaligned: value of exp: candidate None"),
        (lambda _: 1 / 0, "error", "misaligned: the candidate raises ZeroDivisionError"),
        (lambda v: v.exp() * real.nan, "value", "misaligned: value of exp: Mismatched elements: 12 / 12"),
    ],
    ids=["gradient", "requires_grad", "dtype", "shape", "mutation", "None", "raises", "NaN"],
)
def test_repro_text__each_kind__is_misaligned(function, kind, said, kernels, tmp_path, capsys):
    kernels.exp = function
    assert ran(*script(BODIES["a call"], kind=kind, has_backward=kind == "gradient"), tmp_path) == 1
    assert said in capsys.readouterr().out


def test_repro_text__reference_changed_since__says_that_it_differs(kernels, tmp_path, capsys):
    text, tensors = script(BODIES["a call"])
    changed = text.replace("exp = torch.exp(x)", "exp = torch.exp(x) + 1", 1)
    ran(changed, tensors, tmp_path)
    assert "the reference recomputed DIFFERS from the values carried here" in capsys.readouterr().out


def saved_value_overwritten():
    value = torch.exp(x())
    value.mul_(2)
    return value


def test_repro_text__reference_cannot_differentiate__values_are_compared(kernels, tmp_path, capsys):
    text, tensors = script(saved_value_overwritten)
    assert ran(text, tensors, tmp_path) == 0
    kernels.exp = lambda value: value.exp() + 0.5
    assert ran(text, tensors, tmp_path) == 1
    assert "misaligned: value of" in capsys.readouterr().out


def test_repro_text__replaced_inside_a_module__is_caught_by_the_mode(kernels, tmp_path):
    kernels.linear = lambda v, w, b: real.nn.functional.linear(v, w, b) + 1
    live = live_of(record(lambda: torch.nn.Linear(4, 2)(x())))
    for function, status in ((kernels.linear, 1), (real.nn.functional.linear, 0)):
        kernels.linear = function
        candidate = SubstituteCandidate(name="k", replace={"torch.nn.functional.linear": "fake_kernels.linear"})
        note = repro_note(candidate, live.program.steps)
        recording = with_expected(to_recording(live, note), live, TorchBackend())
        text = repro_text(recording, TOLD)
        assert "class Replace(torch.overrides.TorchFunctionMode)" in text
        assert ran(text, encode_tensors(recording), tmp_path) == status


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("kind", ["value", "crash", "timeout"])
def test_repro_text__any_kind__compiles_and_imports_torch_and_kernels_only(body, kind, kernels):
    tree = ast.parse(script(body, kind=kind)[0])
    imported = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    imported |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported <= {
        "copy",
        "inspect",
        "json",
        "sys",
        "pathlib",
        "torch",
        "fake_kernels",
        "os",
        "subprocess",
        "signal",
        "tempfile",
        "time",
    }


@pytest.mark.parametrize("name", ["plain", "apart", "main", "assert_alike"])
def test_repro_text__module_named_as_a_function_of_the_library__is_called(name: str, tmp_path, monkeypatch, capsys):
    module = ModuleType(name)
    module.exp = real.exp
    monkeypatch.setitem(sys.modules, name, module)
    live = live_of(record(lambda: torch.exp(x()).sum().item()))
    note = repro_note(SubstituteCandidate(name="kernels", replace={"torch.exp": f"{name}.exp"}), live.program.steps)
    recording = with_expected(to_recording(live, note), live, TorchBackend())
    text = repro_text(recording, TOLD)
    end = text.rpartition("    status = ")[2].partition("\n")[0]
    scope = {"__name__": "repro", "__file__": str(tmp_path / "repro.py"), "__doc__": "a title"}
    exec(compile(text, "repro.py", "exec"), scope)  # noqa: S102 - what is under test
    assert eval(end, scope) == 0, capsys.readouterr().out  # noqa: S307 - likewise


def test_repro_text__small_tensors__need_no_file(kernels):
    assert "stored(" not in script(BODIES["a call"])[0]
    assert "stored(name, dtype)" in script(BODIES["a large tensor"])[0]


def test_repro_text__candidate_is_exported__goes_forward_only_with_the_options_of_the_note():
    attempt = record(in_place)
    live = live_of(attempt)
    candidate = OnnxRuntimeCandidate(name="onnxruntime", options={"opset_version": 18})
    note = repro_note(candidate, attempt.program.steps)
    recording = with_expected(to_recording(live, note), live, TorchBackend())
    text = repro_text(recording, TOLD)
    ast.parse(text)
    assert "through_onnx(reference, lambda: {name: inputs()[name] for name in " in text
    assert "}, {'dynamo': False, 'opset_version': 18})" in text
    assert "COTANGENTS" not in text
    # Of a note that comes from outside nothing but numbers and flags is printed.
    with pytest.raises(ProgramError, match="damaged or edited"):
        note_of({**plain_note(note), "options": {"dynamo": "__import__('os')"}})
    hostile = replace(recording, note=note_of({**plain_note(note), "options": {"f": 1}}))
    assert "}, {'dynamo': False})" in repro_text(hostile, TOLD)


def test_repro_text__candidate_is_torch_compile__compiles_the_reference():
    live = live_of(record(BODIES["a call"]))
    note = repro_note(CompileCandidate(name="c", options={"backend": "eager"}), live.program.steps)
    text = repro_text(with_expected(to_recording(live, note), live, TorchBackend()), TOLD)
    assert "candidate = torch.compile(reference, backend='eager')\n" in text
    ast.parse(text)


def on_device(**note: object) -> str:
    """Return the script of a candidate on a device of its own, with its note changed."""
    recording = to_recording(live_of(record(lambda: torch.exp(x()))))
    candidate = TorchCandidate(name="npu", device="npu", module="toy_npu.lib")
    told = repro_note(candidate, recording.program.steps)
    return repro_text(replace(recording, note=note_of({**plain_note(told), **note})), TOLD)


def test_repro_text__device_of_a_module__imports_it_runs_there_and_ends_without_its_threads():
    text = on_device()
    ast.parse(text)
    assert "    import torch\n    import toy_npu.lib\n    torch.device('npu')\nexcept Exception as error:\n" in text
    assert "DEVICE, REFERENCE_DEVICE = torch.device('npu'), torch.device('cpu')\n" in text
    assert "        torch.ones(1).to(DEVICE).cpu()\n" in text
    assert text.rstrip().endswith(
        "os._exit(status)  # an accelerator's threads may abort a process that exits normally"
    )


def test_repro_text__value_is_named_as_the_module_of_the_device__gives_way():
    def body():
        toy_npu = torch.exp(x())
        return toy_npu * 2

    recording = to_recording(live_of(record(body)))
    steps = tuple(
        step._replace(name="toy_npu") if step.target == "torch.exp" else step for step in recording.program.body
    )
    renamed = replace(recording, program=replace(recording.program, body=steps))
    candidate = TorchCandidate(name="npu", device="npu", module="toy_npu")
    text = repro_text(replace(renamed, note=repro_note(candidate, steps)), TOLD)
    assert "toy_npu_0 = torch.exp(" in text


@pytest.mark.parametrize("name", ["os; import sys", "a b", "1", 3, ["toy"], "toy..lib", "os", "os.path"])
def test_repro_text__note_names_no_module__is_never_printed_as_code(name: object):
    with pytest.raises(
        ProgramError, match=r"damaged or edited|which is not a module of the user's: it is never printed as code"
    ):
        on_device(device_module=name)


@pytest.mark.parametrize(
    ("note", "said"),
    [
        (
            {"backend": "torch.compile", "options": {"x=0) or EVIL() #": 1}},
            "which is not an argument of torch.compile: it is never printed as code",
        ),
        ({"backend": "torch.compile", "options": ["dynamic"]}, "damaged or edited"),
        (
            {"backend": "substitute", "spellings": {"k.exp": ["torch.exp"]}, "renames": {"torch.exp": "EVIL().x"}},
            "which is not",
        ),
        (
            {"backend": "substitute", "spellings": {"k.exp()": ["torch.exp"]}, "renames": {"torch.exp": "k.exp"}},
            "which is not",
        ),
    ],
)
def test_repro_text__note_with_code_in_it__is_refused(note: dict[str, object], said: str):
    plain = json.loads(encode_program(to_recording(live_of(record(lambda: torch.exp(x()))))))
    with pytest.raises(ProgramError, match=said):
        decode_program(json.dumps({**plain, "note": note}).encode())


def test_repro__integers_beyond_float64__are_exact_and_printed_as_integers(kernels, tmp_path, capsys):
    number = 2**60

    def body():
        return torch.add(random_tensor(dims=(3,), dtype=int, low=0, high=1), number)

    text, tensors = script(body, operator="add")
    kernels.add = lambda value, other: value + other + real.tensor([0, 257, 1])
    assert ran(text, tensors, tmp_path) == 1
    said = capsys.readouterr().out
    assert "Greatest absolute difference: 257 at index (1,)" in said
    kernels.add = real.add
    assert ran(text, tensors, tmp_path) == 0


#: Lines that a script with literals may have, by kind.
LINES_AT_MOST = {
    "value": 103,
    "shape": 103,
    "dtype": 103,
    "gradient": 136,
    "metadata": 116,
    "mutation": 152,
    "crash": 184,
    "nondeterminism": 105,
    "aliasing": 114,
    "error": 136,
}


@pytest.mark.parametrize("kind", LINES_AT_MOST)
def test_repro_text__small_finding__carries_what_its_kind_needs_and_no_more(kind, kernels):
    text, _ = script(lambda: torch.exp(x()), kind=kind, has_backward=kind == "gradient")
    assert undefined(text) == set()
    assert text.count("\n") <= LINES_AT_MOST[kind], text
    parts = {
        "torch.autograd.grad(": kind in {"gradient", "mutation", "crash", "error"},
        "def flags_of(": kind in {"metadata", "mutation"},
        "def stored(": False,
        "subprocess": kind == "crash",
        "def plain(": False,
    }
    assert {part: part in text for part in parts} == parts


def test_repro_text__program_and_expected_values__stand_above_what_compares(kernels):
    text, _ = script(lambda: torch.exp(random_tensor(ndim=2, dim0=20, dim1=30)), kind="gradient")
    order = ["def inputs(", "def reference(", "def candidate(", "def stored(", "EXPECTED =", "def run(", "def main("]
    assert sorted(order, key=text.index) == order
