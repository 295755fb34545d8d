"""The command of the runtime ``container``: what it takes away, and what its caller cannot give back."""

from __future__ import annotations

from pathlib import Path

import pytest

from action import container
from action.container import Place
from action.errors import StepError

PLACE = Place(Path("/w"), Path("/w/out"), (1000, 118), "c")


def test_container_argv__of_a_run__takes_everything_away():
    options = [
        *container.hardened(PLACE, [], gpus=False),
        *container.passed_options({"GITHUB_SHA": "5f", "AUTOTEST_HEAD_SHA": "6a", "HOME": "/"}),
    ]
    assert container.container_argv("ci-autotest:test", options, ["run", "--", "; rm -rf /"]) == [
        "docker", "run", "--name=c", "--user=1000:118", "--read-only", "--tmpfs=/tmp:rw,exec,nosuid,nodev", "--cap-drop=ALL",
        "--security-opt=no-new-privileges", "--network=none", "--pids-limit=4096", "--workdir=/github/workspace",
        "--mount=type=bind,source=/w,target=/github/workspace,readonly",
        "--mount=type=bind,source=/w/out,target=/github/workspace/out",
        "--env=GITHUB_SHA=5f", "--env=AUTOTEST_HEAD_SHA=6a", "--entrypoint=ci-autotest", "ci-autotest:test", "run", "--", "; rm -rf /",
    ]  # fmt: skip


def test_hardened__gpu_and_network_asked_for__are_given():
    options = container.hardened(PLACE, ["--network=bridge", "--pids-limit=9"], gpus=True)
    assert [part for part in options if part.startswith(("--network", "--gpus", "--pids"))] == [
        "--gpus=all", "--network=bridge", "--pids-limit=9",
    ]  # fmt: skip


def test_passed_options__token_and_runners_files__are_not_among_them():
    environ = dict.fromkeys(["GITHUB_TOKEN", "ACTIONS_RUNTIME_TOKEN", "GITHUB_ENV", "DOCKER_HOST", "CI"], "x")
    assert container.passed_options(environ) == ["--env=CI=x"]


def test_extra_options__on_the_list__are_kept():
    lines = ["--shm-size=2g", "--cpus=1.5", "--network=none", "--env=A=b c", "--memory=8g", "--cpuset-cpus=0-3,5"]
    assert container.extra_options(lines) == lines


@pytest.mark.parametrize(
    "line",
    [
        "--privileged", "--privileged=true", "-v /:/host", "-v=/:/host", "--volume=/:/host", "--network=host",
        "--network=container:x", "--cap-add=ALL", "--security-opt=seccomp=unconfined", "--user=0", "--pid=host",
        "--device=/dev/sda", "--env-file=/etc/passwd", "--env=GITHUB_TOKEN", "--shm-size=1g --privileged",
        "; rm -rf /", "$(id)", "--memory", "",
    ],
)  # fmt: skip
def test_extra_options__anything_else__is_refused_with_the_list(line: str):
    with pytest.raises(StepError) as raised:
        container.extra_options([line])
    assert str(raised.value) == (
        f"the input 'container-options' holds '{line}', which is not allowed: write one NAME=VALUE a line, of "
        "--cpus, --cpuset-cpus, --env, --memory, --network, --pids-limit, --shm-size."
    )


@pytest.mark.parametrize("name", ["--privileged", "-v /:/host", "a b", "; rm -rf /", "", "A", "a\nb", "$(id)"])
def test_image_of__no_name_of_an_image__is_refused(name: str):
    with pytest.raises(StepError, match="which names no image"):
        container.image_of(name)


def test_place_of__report_in_the_checkout__is_written_by_an_unprivileged_user(tmp_path: Path):
    assert container.place_of(tmp_path, "out", (0, 0), "c") == Place(tmp_path, tmp_path / "out", (1001, 1001), "c")
    assert container.place_of(tmp_path, "a/out", (1000, 118), "c").user == (1000, 118)


@pytest.mark.parametrize("output", [".", "..", "/elsewhere", "../beside", "linked", "linked/hooks"])
def test_place_of__output_that_leads_elsewhere__is_refused(tmp_path: Path, output: str):
    (tmp_path / ".git").mkdir()
    (tmp_path / "linked").symlink_to(".git")
    with pytest.raises(StepError, match="needs a folder inside the checkout, and no link"):
        container.place_of(tmp_path, output, (1000, 118), "c")


def test_bind__name_that_the_syntax_cannot_hold__is_refused():
    with pytest.raises(StepError, match="a comma, a quote or a line break"):
        container.bind(Path("/w,readonly=false"), container.WORKSPACE)
