"""The command that runs the tests in a container: what it may reach, and what its caller may change.

Pure functions; the standard library only.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from action.inputs import StepError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

#: Where the caller's checkout is seen.
WORKSPACE = PurePosixPath("/github/workspace")
#: Variables that say where a report's links lead, and which commit is tested; none is a secret.
PASSED = (
    "CI", "GITHUB_ACTIONS", "GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_SHA", "GITHUB_REF", "GITHUB_RUN_ID",
    "GITHUB_RUN_ATTEMPT", "GITHUB_EVENT_NAME", "AUTOTEST_HEAD_SHA",
)  # fmt: skip
#: What `container-options` may hold, and the form of its value. Nothing here gives more than a share of the machine.
ALLOWED = {
    "--cpus": r"[0-9]+(\.[0-9]+)?",
    "--cpuset-cpus": r"[0-9]+([-,][0-9]+)*",
    "--env": r"[A-Za-z_][A-Za-z0-9_]*=.*",
    "--memory": r"[0-9]+[bkmg]?",
    "--network": r"none|bridge",
    "--pids-limit": r"[0-9]+",
    "--shm-size": r"[0-9]+[bkmg]?",
}
#: Ends with 0 where torch finds a GPU inside: an engine may ignore `--gpus` without a word.
PROOF = "import sys, torch; sys.exit(0 if torch.cuda.is_available() else 1)"
#: A container that the runner's root starts runs as this user.
UNPRIVILEGED = (1001, 1001)


@dataclass(frozen=True)
class Place:
    """Say where a container runs.

    Args:
        workspace: The caller's checkout, seen read-only.
        output: Folder of the report, inside the checkout: all that the container may write, beside its scratch.
        user: Numbers of the user and the group.
        name: Of the container, which is removed by it: an engine may lose the exit status of `--rm`.
    """

    workspace: Path
    output: Path
    user: tuple[int, int]
    name: str


def image_of(name: str) -> str:
    """Return the image's name, refused where it is none: an option, several words, or nothing."""
    if re.fullmatch(r"[a-z0-9][A-Za-z0-9._:/@-]*", name) is None:
        message = f"the input 'image' is '{name}', which names no image: give one as registry/name:tag or name@digest."
        raise StepError(message)
    return name


def extra_options(lines: Iterable[str]) -> list[str]:
    """Return the caller's own options, each on the allow list."""
    found = []
    for line in lines:
        name, _, value = line.partition("=")
        if re.fullmatch(ALLOWED.get(name, r"(?!)"), value) is None:
            message = (
                f"the input 'container-options' holds '{line}', which is not allowed: "
                f"write one NAME=VALUE a line, of {', '.join(sorted(ALLOWED))}."
            )
            raise StepError(message)
        found.append(line)
    return found


def hardened(place: Place, extra: list[str], *, gpus: bool) -> list[str]:
    """Return ``docker run`` with everything taken away that a test does not need.

    No token (only variables of `PASSED` are handed over), no socket, no network unless it is asked for, a root that
    cannot be written. Compilers have their scratch in /tmp, which may be executed: inductor loads what it built there.
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
    """Return ``--mount`` of a folder; its syntax has no way to write a comma or a quote."""
    if set(f"{source}{target}") & set(',"\n'):
        message = f"'{source}' cannot be given to a container: its name has a comma, a quote or a line break."
        raise StepError(message)
    return "--mount=" + ",".join(["type=bind", f"source={source}", f"target={target}", *flags])


def proof_argv(place: Place, image: str, extra: list[str]) -> list[str]:
    """Return the command that ends with 0 where a GPU is really there."""
    return [*hardened(place, extra, gpus=True), "--entrypoint=python", image, "-I", "-c", PROOF]


def container_argv(image: str, options: list[str], argv: list[str]) -> list[str]:
    """Return the command that runs ``ci-autotest argv`` in ``image`` with ``options`` of `hardened`."""
    return [*options, "--entrypoint=ci-autotest", image, *argv]


def passed_options(environ: Mapping[str, str]) -> list[str]:
    """Return the options that hand variables over, by value: the engine may run elsewhere."""
    return [f"--env={name}={environ[name]}" for name in PASSED if environ.get(name)]


def removal_argv(place: Place) -> list[str]:
    """Return the command that ends and removes the container, if it is there."""
    return ["docker", "rm", "--force", "--volumes", place.name]


def place_of(workspace: Path, output: str, user: tuple[int, int], name: str) -> Place:
    """Return where to run; the report must lie in the checkout, in a folder of its own.

    Args:
        workspace: Absolute.
        output: As the inputs name it.
        user: The runner's; root's tests run as `UNPRIVILEGED`.
        name: Of the container.
    """
    root = workspace.resolve()
    folder = (root / output).resolve()
    # What is tested may hold a link of that name: to the machine's files, or to `.git`.
    if root not in folder.parents or str(folder) != os.path.normpath(root / output):
        message = (
            f"the input 'output' is '{output}': runtime 'container' needs a folder inside the checkout, and no link."
        )
        raise StepError(message)
    return Place(root, folder, user if user[0] else UNPRIVILEGED, name)
