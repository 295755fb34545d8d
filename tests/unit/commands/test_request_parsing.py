"""What was asked for: options over ``--set``, that over the file, that over the defaults."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import pytest

from ci_autotest.commands.request_parsing import request_of
from ci_autotest.errors import ConfigError
from ci_autotest.kinds import ModuleCandidate

if TYPE_CHECKING:
    from pathlib import Path

    from ci_autotest.config import Config


def asked(folder: Path, *settings: str, **given: object) -> Config:
    return request_of((), {"set": settings, **given}, folder, needs_candidate=False).config


def test_request_of__set__stands_above_the_file_and_below_an_option(tmp_path: Path):
    (tmp_path / "autotest.yml").write_text("cases: 3\ncase_timeout: 5s\nstrictness: ulp\n")
    config = asked(tmp_path, "case-timeout=7s", "strictness=bitwise", cases=9)
    assert (config.cases, config.case_timeout, config.strictness) == (9, "7s", "bitwise")
    assert asked(tmp_path, "cases=4", cases=9).cases == 9
    assert asked(tmp_path, "cases=4").cases == 4


def test_request_of__folder_named_all__is_that_folder(tmp_path: Path):
    assert asked(tmp_path, output="all", cases="all").output == "all"


def test_request_of__set_of_a_list__replaces_that_of_the_file(tmp_path: Path):
    (tmp_path / "autotest.yml").write_text("candidates: [{name: a, backend: torch}]\n")
    config = asked(tmp_path, "candidates=- {name: b, backend: torch}\n- {name: c, backend: torch}")
    assert [candidate.name for candidate in config.candidates] == ["b", "c"]


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("cases", "--set is 'cases'. Write KEY=VALUE, the value in YAML, such as case_timeout=30s."),
        ("case=3", "--set: unknown key 'case'. Did you mean 'cases'?"),
        ("cases=[", "--set cases is not YAML"),
        ("cases=0", "--set: cases is 0"),
        ("cases=!!python/object/apply:os.system [id]", "--set cases is not YAML"),
    ],
    ids=["no value", "unknown key", "not YAML", "out of range", "a tag that runs code"],
)
def test_request_of__set_that_cannot_be_meant__says_why(tmp_path: Path, setting: str, message: str):
    with pytest.raises(ConfigError) as caught:
        asked(tmp_path, setting)
    assert str(caught.value).startswith(message)


def test_request_of__built_in_candidate__has_the_interpreter_that_was_made_for_it(tmp_path: Path):
    python = tmp_path / ".venvs" / "paddle" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    request = request_of((), {"candidate": ("paddle", "jax", "torch")}, tmp_path)
    paddle, jax, _ = request.candidates
    assert isinstance(paddle, ModuleCandidate)
    assert isinstance(jax, ModuleCandidate)
    assert (paddle.python, jax.python) == (str(python), "")


def test_request_of__candidate_of_the_file__has_the_interpreter_that_it_names(tmp_path: Path):
    python = tmp_path / ".venvs" / "paddle" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    row = "{name: paddle, backend: module, module: "
    (tmp_path / "autotest.yml").write_text(f"candidates: [{row}paddle, python: python3}}]\n")
    assert [candidate.python for candidate in request_of((), {}, tmp_path).candidates] == ["python3"]
    (tmp_path / "autotest.yml").write_text(f"candidates: [{row}other}}]\n")
    assert [candidate.python for candidate in request_of((), {}, tmp_path).candidates] == [""]


def test_replay__configuration_named_with_a_space__is_one_word(tmp_path):
    path = tmp_path / "my folder" / "autotest.yml"
    path.parent.mkdir()
    path.write_text("cases: 3\n", "utf-8")
    request = request_of((), {"config": path}, tmp_path, needs_candidate=False)
    assert shlex.split(request.replay) == ["ci-autotest", "replay", "--config", str(path)]
    assert request_of((), {}, path.parent, needs_candidate=False).replay == "ci-autotest replay"


def test_request_of__device__is_for_candidates_that_can_be_there(tmp_path: Path):
    (tmp_path / "autotest.yml").write_text(
        "candidates:\n"
        "  - {name: simulated, backend: dtensor, ranks: 2}\n"
        "  - {name: flow, backend: module, module: oneflow, ranks: 2}\n"
        "  - {name: processes, backend: dtensor, ranks: 2, processes: true}\n"
        "  - {name: ddp, backend: ddp, ranks: 2}\n"
    )
    found = request_of((), {"set": (), "device": "cuda"}, tmp_path, needs_candidate=False)

    assert {each.name: each.device for each in found.candidates} == {
        "simulated": "cpu", "flow": "cpu", "processes": "cuda", "ddp": "cuda",
    }  # fmt: skip
