"""The `docker run` command for the tests: what the container may reach, and which options a workflow may add.

Pure functions; the standard library only.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from action.errors import refuse

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

#: Mount point of the checkout.
WORKSPACE = PurePosixPath("/github/workspace")
#: Variables that are passed to the container, for the report's links and the tested commit; none is a secret.
PASSED = (
    "CI", "GITHUB_ACTIONS", "GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_SHA", "GITHUB_REF", "GITHUB_RUN_ID",
    "GITHUB_RUN_ATTEMPT", "GITHUB_EVENT_NAME", "AUTOTEST_HEAD_SHA",
)  # fmt: skip
#: Options that `container-options` may have, and the form of their values. None of them grants more than resources.
ALLOWED = {
    "--cpus": r"[0-9]+(\.[0-9]+)?",
    "--cpuset-cpus": r"[0-9]+([-,][0-9]+)*",
    "--env": r"[A-Za-z_][A-Za-z0-9_]*=.*",
    "--memory": r"[0-9]+[bkmg]?",
    "--network": r"none|bridge",
    "--pids-limit": r"[0-9]+",
    "--shm-size": r"[0-9]+[bkmg]?",
}
#: Exits with 0 if torch finds a GPU in the container: some engines ignore `--gpus` silently.
PROOF = "import sys, torch; sys.exit(0 if torch.cuda.is_available() else 1)"
#: User and group of the container if the runner is root.
UNPRIVILEGED = (1001, 1001)


@dataclass(frozen=True)
class Place:
    """Folders, user and name of a container.

    Args:
        workspace: The checkout, mounted read-only.
        output: Folder of the report inside the checkout; besides its scratch, the container may write nothing else.
        user: Numbers of the user and the group.
        name: Name of the container, for its removal: with `--rm`, an engine may lose the exit status.
    """

    workspace: Path
    output: Path
    user: tuple[int, int]
    name: str


def image_of(name: str) -> str:
    """Return the image's name; refuse anything else, such as an option, several words or nothing."""
    message = f"the input 'image' is '{name}', which names no image: give one as registry/name:tag or name@digest."
    refuse(message, when=re.fullmatch(r"[a-z0-9][A-Za-z0-9._:/@-]*", name) is None)
    return name


def extra_options(lines: list[str]) -> list[str]:
    """Return the options of the workflow; refuse those that are not on the allow list."""
    for line in lines:
        name, _, value = line.partition("=")
        refuse(
            f"the input 'container-options' holds '{line}', which is not allowed: write one NAME=VALUE a line, of "
            f"{', '.join(sorted(ALLOWED))}.",
            when=re.fullmatch(ALLOWED.get(name, r"(?!)"), value) is None,
        )
    return lines


def hardened(place: Place, extra: list[str], *, gpus: bool) -> list[str]:
    """Return ``docker run`` without everything that a test does not need.

    There is no token (only the variables of `PASSED` are passed on), no socket, no network unless the workflow asks for
    it, and the root is read-only. Files in /tmp may be executed, because inductor loads what it compiled there.
    """
    return [
        "docker", "run", f"--name={place.name}", f"--user={place.user[0]}:{place.user[1]}", "--read-only",
        "--tmpfs=/tmp:rw,exec,nosuid,nodev", "--cap-drop=ALL", "--security-opt=no-new-privileges",
        *([] if any(option.startswith("--network=") for option in extra) else ["--network=none"]),
        *([] if any(option.startswith("--pids-limit=") for option in extra) else ["--pids-limit=4096"]),
        *(["--gpus=all"] if gpus else []),
        f"--workdir={WORKSPACE}", bind(place.workspace, WORKSPACE, "readonly"),
        bind(place.output, WORKSPACE / place.output.relative_to(place.workspace).as_posix()),
        *extra,
    ]  # fmt: skip


def bind(source: Path, target: PurePosixPath, *flags: str) -> str:
    """Return ``--mount`` for a folder; its syntax cannot express a comma or a quote."""
    message = f"'{source}' cannot be mounted in a container: its name has a comma, a quote or a line break."
    refuse(message, when=not set(',"\n').isdisjoint(f"{source}{target}"))
    return "--mount=" + ",".join(["type=bind", f"source={source}", f"target={target}", *flags])


def proof_argv(place: Place, image: str, extra: list[str]) -> list[str]:
    """Return the command that exits with 0 if the container really has a GPU."""
    return [*hardened(place, extra, gpus=True), "--entrypoint=python", image, "-I", "-c", PROOF]


def container_argv(image: str, options: list[str], argv: list[str]) -> list[str]:
    """Return the command that runs ``ci-autotest argv`` in ``image`` with ``options`` of `hardened`."""
    return [*options, "--entrypoint=ci-autotest", image, *argv]


def passed_options(environ: Mapping[str, str]) -> list[str]:
    """Return the options that pass variables on, by value, because the engine may run on another machine."""
    return [f"--env={name}={environ[name]}" for name in PASSED if environ.get(name)]


def removal_argv(place: Place) -> list[str]:
    """Return the command that stops and removes the container, if it exists."""
    return ["docker", "rm", "--force", "--volumes", place.name]


def place_of(workspace: Path, output: str, user: tuple[int, int], name: str) -> Place:
    """Return where to run; the report must have a folder of its own inside the checkout.

    Args:
        workspace: Absolute path of the checkout.
        output: The input ``output``.
        user: User and group of the runner; if that is root, the tests run as `UNPRIVILEGED`.
        name: Name of the container.
    """
    root = workspace.resolve()
    folder = (root / output).resolve()
    # The checkout may have a link of that name, for example to files of the machine or to `.git`.
    refuse(
        f"the input 'output' is '{output}': runtime 'container' needs a folder inside the checkout, and no link.",
        when=root not in folder.parents or str(folder) != os.path.normpath(root / output),
    )
    return Place(root, folder, user if user[0] else UNPRIVILEGED, name)
