"""``autotest.yml``: strictly read; what is wrong is named with what to write."""

from __future__ import annotations

import json
import os
import re
from datetime import date
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest
import yaml

from ci_autotest.config import BUILT_IN, Config, chosen, decode, duration_s, find, json_schema, read, size_bytes
from ci_autotest.errors import ConfigError
from ci_autotest.kinds import CompileCandidate, TorchCandidate

FULL = """
paths: [autotests]
cases: 20
budget: 10m
seed: commit
strictness: tolerance
case-timeout: 60s
workers: auto
reference: {backend: torch, device: auto}
candidates:
  - {name: compiled, backend: torch.compile, options: {backend: aot_eager}}
  - {name: cuda, backend: torch, device: cuda, required: true}
  - {name: kernels, backend: substitute, replace: {torch.nn.functional.softmax: mykernels.softmax}}
tolerances:
  - {operator: torch.nn.functional.conv*, dtype: float16, rtol: 2e-3, atol: 1.0e-4, reason: "accumulates in half"}
known:
  - {operator: torch.argsort, candidate: cuda, kind: dtype, reason: "int32 indices", until: 2027-06-01}
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "autotest.yml"
    path.write_text(text, encoding="utf-8")
    return path


def test_read__example_of_the_design__is_read(tmp_path):
    config = read(written(tmp_path, FULL.replace("2e-3", "2.0e-3")))
    assert (config.cases, config.budget, config.seed, config.case_timeout) == (20, "10m", "commit", "60s")
    assert [candidate.name for candidate in config.candidates] == ["compiled", "cuda", "kernels"]
    assert config.candidates[1].required
    assert config.tolerances[0].rtol == 2e-3
    assert config.known[0].until == date(2027, 6, 1)


def test_read__number_that_yaml_takes_for_text__is_read(tmp_path):
    # YAML 1.1 reads 2e-3 as a string: people write it all the same, the design's own example does.
    assert read(written(tmp_path, FULL)).tolerances[0].rtol == 2e-3


@pytest.mark.parametrize("text", ["", "# nothing", "{}", "cases: 20"], ids=["empty", "a comment", "braces", "one key"])
def test_read__almost_nothing__is_the_defaults(text, tmp_path):
    assert read(written(tmp_path, text)) == Config()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("case: 3", "unknown key 'case'. Did you mean 'cases'?"),
        ("strictnes: ulp", "unknown key 'strictnes'. Did you mean 'strictness'?"),
        ("candidate: []", "unknown key 'candidate'. Did you mean 'candidates'?"),
        ("xyzzy: 1", "unknown key 'xyzzy'. Known: budget, candidates, case_timeout"),
        ("candidates: [{name: a, backend: torch, devise: cpu}]", "unknown key candidates[0].'devise'. Did you mean 'device'?"),
        ("reference: {devices: cpu}", "unknown key reference.'devices'. Did you mean 'device'?"),
        ("tolerances: [{operators: a, rtol: 0.1, atol: 0.1, reason: x}]", "tolerances[0].'operators'. Did you mean 'operator'?"),
        ("known: [{operator: a, reason: b}, {operator: a, reason: b, untill: 2027-01-01}]", "known[1].'untill'. Did you mean 'until'?"),
        ("cases: many", "cases is text; a whole number is expected."),
        ("cases: 0", "cases is 0. Give 1 to 1,000,000,000."),
        ("cases: -3", "cases is -3. Give 1 to 1,000,000,000."),
        ("workers: 0", "workers is 0. Give 1 to 10,000."),
        (
            "candidates: [{name: jax, backend: module, module: jax, shapes: -1}]",
            "candidate 'jax' has shapes: -1. Give 0 or more.",
        ),
        ("cases: true", "cases is true or false; a whole number is expected."),
        ("strictness: strict", "strictness is 'strict'; allowed: tolerance, measured, ulp, bitwise."),
        ("seed: tuesday", "seed is 'tuesday'; allowed: a number, commit, random."),
        ("fail_on: always", "fail_on is 'always'; allowed: misaligned, new, never, flaky, leniency, slower."),
        ("slower_factor: 0.5", "slower_factor is 0.5. Give a ratio of 1 or more, such as 1.1."),
        ("slower_factor: .nan", "slower_factor is nan. Give a ratio of 1 or more, such as 1.1."),
        ("budget: soon", "budget is 'soon', which is not a duration. Write a number with ms, s, m or h, such as 90s or 10m."),
        ("budget: 10", "budget is a whole number; write a duration with its unit, such as 90s or 10m."),
        ("case_timeout: 60", "case_timeout is a whole number; write a duration with its unit, such as 90s or 10m."),
        ("memory: 4", "memory is a whole number; write a size with its unit, such as 4GiB, or auto, or off."),
        ("budget: 0s", "budget is '0s', which is not a duration."),
        ("case_timeout: -1s", "case_timeout is '-1s', which is not a duration."),
        ("case_timeout: 5d", "case_timeout is '5d', which is not a duration."),
        ("candidates: {name: a}", "candidates is a mapping; a list is expected."),
        ("candidates: [{name: a}]", "candidates[0].backend is missing; allowed: torch, torch.compile,"),
        ("candidates: [{name: a, backend: tensorflow}]", "candidates[0].backend is 'tensorflow'; allowed: torch, torch.compile, fx, onnxruntime, export, substitute, module, dtensor, ddp, fsdp, and what installed packages add: none."),
        ("candidates: [{name: ../a, backend: torch}]",
         "candidate '../a' has a wrong name. Write letters, digits and . _ + -, a letter or digit first,"),
        ("candidates: [{name: a b, backend: torch}]", "candidate 'a b' has a wrong name."),
        ("candidates: [{name: '', backend: torch}]", "candidate '' has a wrong name."),
        ("candidates: [{name: a, backend: torch}, {name: a, backend: torch}]",
         "two candidates are named 'a'. Give each a name of its own."),
        ("candidates: [{name: reference, backend: torch}]",
         "candidate 'reference' has the name that stands for PyTorch where a test expects a value."),
        ("candidates: [{name: a, backend: substitute}]",
         "candidate 'a' replaces nothing. Give replace: {operator: module.function}."),
        ("candidates: [{name: a, backend: torch.compile, replace: {torch.exp: m.exp}}]",
         "candidate 'a' has 'replace', which backend torch.compile does not use. Write backend: substitute, or remove it."),
        ("candidates: [{name: a, backend: substitute, replace: {torch.exp: exp}}]",
         "candidate 'a' replaces torch.exp by 'exp'. Write module.function."),
        ("candidates: [{name: a, backend: fx}]",
         "candidate 'a' of backend fx has no transform, so there is no pass to test. Give transform: module.function."),
        ("candidates: [{name: a, backend: fx, transform: fuse}]",
         "candidate 'a' has transform 'fuse'. Write module.function."),
        ("candidates: [{name: a, backend: torch, delegated: my.names}]",
         "candidate 'a' has 'delegated', which backend torch does not use. Write backend: torch.compile or export, or "
         "remove it."),
        ("candidates: [{name: a, backend: torch, inference: true}]",
         "candidate 'a' has 'inference', which backend torch does not use. Write backend: torch.compile, or remove it."),
        ("candidates: [{name: a, backend: torch.compile, forward_only: [torch.exp]}]",
         "candidates[0].forward_only is a list; true or false is expected."),
        ("candidates: [{name: a, backend: torch.compile, forward_only: true, inference: true}]",
         "candidate 'a' has both inference and forward_only. Remove one: inference leaves out gradients, too."),
        ("candidates: [{name: a, backend: torch.compile, delegated: names}]",
         "candidate 'a' has delegated 'names'. Write module.function."),
        ("candidates: [{name: a, backend: torch, transform: my.fuse}]",
         "candidate 'a' has 'transform', which backend torch does not use. Write backend: fx, or remove it."),
        ("candidates: [{name: a, backend: substitute, replace: {torch.exp: 'os;x.y'}}]", "Write module.function."),
        ("candidates: [{name: a, backend: module, module: torch, mode: graph}]",
         "mode: graph, but module 'torch' has no known graph mode. Modules with one: oneflow, paddle. Write mode: eager"),
        ("candidates: [{name: a, backend: torch, mode: graph}]", "'mode', which backend torch does not use. Write backend: module,"),
        ("candidates: [{name: a, backend: module, module: oneflow, mode: lazy}]",
         "candidates[0].mode is 'lazy'; allowed: eager, graph."),
        ("candidates: [{name: a, backend: fx, transform: m.f, layouts: [strided]}]",
         "candidates[0].layouts[0] is 'strided'; allowed: contiguous."),
        ("candidates: [{name: a, backend: torch, device: gpu}]",
         "candidate 'a' has device 'gpu', which is not one of cpu, cuda, auto. Write module: with the module that registers it"),
        ("candidates: [{name: a, backend: torch, device: npu, module: 'os; x'}]",
         "candidate 'a' has module 'os; x'. Write the name of the module that registers device 'npu', such as torch_npu."),
        ("candidates: [{name: a, backend: torch, device: 'n pu', module: torch_npu}]",
         "candidate 'a' has device 'n pu', which is not one of cpu, cuda, auto. Write the name that module 'torch_npu' registers"),
        ("candidates: [{name: a, backend: torch, module: torch_npu}]",
         "candidate 'a' has 'module', which backend torch does not use on device cpu. Write backend: module, or device:"),
        ("candidates: [{name: a, backend: module, module: oneflow, device: npu}]",
         "candidate 'a' has device 'npu', which is not one of cpu, cuda, auto. A framework of backend module runs on one"),
        ("opinfo: {op_overrides: {add: [{decorator: skip, device_type: npu}]}}",
         "opinfo.op_overrides has a skip with device_type 'npu', but a skip holds for all candidates. Remove device_type, or write decorator: expectedFailure."),
        ("known: [{operator: a}]", "known[0] lacks 'reason'. Add it."),
        ("known: [{operator: a, reason: b, until: someday}]", "known[0].until is not a date. Write it as 2026-12-31."),
        ("tolerances: [{operator: a, rtol: 0.1, reason: b}]", "tolerances[0] has rtol alone. Write both rtol and atol."),
        ("tolerances: [{operator: a, rtol: -0.1, atol: 0.1, reason: b}]", "rtol"),
        ("tolerances: [{operator: a, rtol: 0.1, atol: .inf, reason: b}]", "tolerances[0] is infinite: nothing would be compared."),
        ("[1, 2]", "the file is a list; a mapping is expected."),
        ("just text", "the file is text; a mapping is expected."),
        ("a: [", "is not YAML"),
        ("a: !!python/object/apply:os.system ['true']", "is not YAML"),
        ("cases: 3\ncases: 4", "cases"),
    ],
    ids=lambda value: value.replace("\n", " ") if len(value) < 60 else "",
)  # fmt: skip
def test_read__what_is_wrong__is_named_with_the_file(text, said, tmp_path):
    path = written(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        read(path)
    assert said in str(caught.value)
    assert str(path) in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", None], ids=["no text", "no file"])
def test_read__what_cannot_be_read__says_so(content, tmp_path):
    path = tmp_path / "autotest.yml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match="cannot be read"):
        read(path)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("10m", 600), ("1.5h", 5400), ("250ms", 0.25), (" 2m ", 120), ("0.5s", 0.5)],
)
def test_duration_s__text__is_seconds(text, seconds):
    assert duration_s(text, "budget") == seconds


@pytest.mark.parametrize(
    ("text", "size"), [("4GiB", 4 << 30), ("512MiB", 512 << 20), ("1.5GiB", 3 << 29), ("auto", None), ("off", 0)]
)
def test_size_bytes__text__is_bytes(text, size):
    assert size_bytes(text) == size


@pytest.mark.parametrize("text", ["", "4", "4GB", "0GiB", "-1GiB", "four", "1 GiB"])
def test_size_bytes__what_is_none__says_what_to_write(text):
    with pytest.raises(ConfigError) as caught:
        size_bytes(text)
    assert str(caught.value) == (
        f"memory is {text!r}, which is not a size. Write a number with MiB or GiB, such as 4GiB, or auto, or off."
    )


@pytest.mark.parametrize(
    "text", ["", "s", "7", "10", "ten minutes", "10 m", "1h30m", "0", "0.0s", "-5s", "inf", "nan", "1e3s", "5d"]
)
def test_duration_s__what_is_none__is_refused(text):
    with pytest.raises(ConfigError, match="budget is"):
        duration_s(text, "budget")


CONFIG = Config(candidates=(TorchCandidate(name="mine"), CompileCandidate(name="torch")))


@pytest.mark.parametrize(
    ("config", "names", "found"),
    [
        pytest.param(CONFIG, (), ["mine", "torch"], id="none named: all of the file's"),
        pytest.param(CONFIG, ("mine",), ["mine"], id="of the file"),
        pytest.param(CONFIG, ("cuda", "mine"), ["cuda", "mine"], id="built in"),
        pytest.param(CONFIG, ("mine", "mine"), ["mine"], id="twice"),
        pytest.param(Config(), ("torch.compile",), ["torch.compile"], id="no file"),
    ],
)
def test_chosen__names__are_those_candidates(config, names, found):
    assert [candidate.name for candidate in chosen(config, names)] == found


def test_chosen__name_of_the_file__wins_over_the_built_in():
    assert chosen(CONFIG, ("torch",))[0].backend == "torch.compile"


@pytest.mark.parametrize(
    ("config", "names", "said"),
    [
        (
            CONFIG,
            ("mime",),
            "unknown candidate 'mime'. Did you mean 'mine'? Known: cuda, jax, mindspore, mine, oneflow, onnxruntime, paddle, torch, torch.compile.",
        ),
        (
            CONFIG,
            ("xyz",),
            "unknown candidate 'xyz'. Known: cuda, jax, mindspore, mine, oneflow, onnxruntime, paddle, torch, torch.compile.",
        ),
        (
            Config(),
            (),
            "no candidate: name one with --candidate (cuda, jax, mindspore, oneflow, onnxruntime, paddle, torch, torch.compile), or list your own",
        ),
    ],
    ids=["nearly", "not at all", "none"],
)
def test_chosen__unknown__names_the_nearest(config, names, said):
    with pytest.raises(ConfigError) as caught:
        chosen(config, names)
    assert said in str(caught.value)


def test_find__nearest_file__upward(tmp_path):
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    outer = written(tmp_path, "")
    assert find(inner) == outer
    nearer = written(tmp_path / "a", "")
    assert find(inner) == nearer


def test_json_schema__design_example__is_valid_and_a_wrong_one_is_not():
    plain = yaml.safe_load(FULL.replace("case-timeout", "case_timeout").replace("2e-3", "2.0e-3"))
    plain["known"][0]["until"] = str(plain["known"][0]["until"])
    jsonschema.validate(plain, json_schema())
    for wrong in ({"cases": "many"}, {"unknown": 1}, {"candidates": [{"name": "a"}]}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, json_schema())


def test_json_schema__shipped_for_editors__is_this_one():
    assert json.loads((files("ci_autotest") / "autotest.schema.json").read_text()) == json_schema()


def test_built_in__each__needs_no_configuration():
    assert {name: candidate.name for name, candidate in BUILT_IN.items()} == {name: name for name in BUILT_IN}
    assert decode({"candidates": []}, "here").candidates == ()


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("{name: c, backend: torch.compile, options: {dynamic: maybe}}", "has options with dynamic: maybe. Write true or false."),
        ("{name: c, backend: torch.compile, options: {backend: 3}}", "has options with backend: 3. Write the name of a compiler"),
        ("{name: c, backend: torch.compile, options: {options: 3}}", "has options with options: 3. Write a mapping of options"),
        ("{name: c, backend: torch.compile, options: {mode: max-autotune, options: {a: 1}}}", "Remove one."),
        ("{name: c, backend: torch.compile, options: {mod: x}}", "has option 'mod', which torch.compile does not have. Did you mean 'mode'?"),
        ("{name: c, backend: onnxruntime, options: {opset: 18}}",
         "has option 'opset', which onnxruntime does not have. Did you mean 'opset_version'?"),
        ("{name: c, backend: fx, transform: a.b, options: {transform: a.c}}",
         "has 'options', which backend fx does not use. Write backend: torch.compile or onnxruntime or export,"),
        ("{name: c, backend: torch, options: {mode: x}}", "has 'options', which backend torch does not use."),
    ],
)  # fmt: skip
def test_read__option_that_a_backend_has_not__is_refused(tmp_path, row, said):
    with pytest.raises(ConfigError, match=re.escape(said)):
        read(written(tmp_path, f"candidates:\n  - {row}\n"))


BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join(['*' + chr(97 + i)] * 10)}]\n" for i in range(9)
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("? [a, b]\n: 3\n", "a key is a list or a mapping"),
        ('seed: "\\ud800"\n', "half of a surrogate pair"),
        ("candidates: &a\n  - *a\n", "an alias refers to a value that contains it"),
        (BOMB, "more than 100,000 values after its aliases are expanded"),
        ("# " + "x" * (257 << 10), "it is larger than 256 KiB"),
        ("cases: 99999999999999999999\n", "Give 1 to 1,000,000,000."),
        ("workers: 100000\n", "Give 1 to 10,000."),
        (f"memory: {'9' * 400}GiB\n", "which is not a size"),
        (f"budget: {'9' * 400}h\n", "which is not a duration"),
    ],
)
def test_read__file_without_bounds__is_refused(tmp_path, text, said):
    (tmp_path / "autotest.yml").write_text(text)
    with pytest.raises(ConfigError, match=re.escape(said)):
        read(tmp_path / "autotest.yml")


def test_read__no_regular_file__is_refused(tmp_path):
    os.mkfifo(tmp_path / "autotest.yml")
    for path in (tmp_path / "autotest.yml", Path("/dev/zero")):
        with pytest.raises(ConfigError, match="it is not a regular file"):
            read(path)
