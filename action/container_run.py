"""Runs of the tests in a container, which is removed whatever happens."""

from __future__ import annotations

import os
import secrets
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from action import container, foreign, outputs
from action.runner import say

if TYPE_CHECKING:
    from collections.abc import Mapping

    from action.step_arguments import RunArguments


def in_container(given: RunArguments, environ: Mapping[str, str]) -> foreign.Ended:
    """Run the tests in the image; for `device: cuda` and `auto`, check first that the container really has a GPU."""
    name, user = f"ci-autotest-{secrets.token_hex(8)}", (os.getuid(), os.getgid())
    place = container.place_of(Path.cwd(), given.report, user, name)
    place.output.mkdir(parents=True, exist_ok=True)
    # If the runner is root, the container runs as another user, who must be able to write the report.
    if user != place.user:
        os.chown(place.output, *place.user)
    proof = container.proof_argv(place, given.image, given.container_options)
    gpus = given.device in {"cuda", "auto"} and contained(place, proof, environ).status == 0
    if given.device == "cuda" and not gpus:
        message = (
            "the input 'device' is 'cuda', but torch finds no GPU in the container: the machine has none, the engine "
            "ignores `--gpus`, or the image's torch has no CUDA. Nothing was tested."
        )
        say(outputs.workflow_command("error", message))
        return foreign.Ended(outputs.UNAVAILABLE)
    options = [*container.hardened(place, given.container_options, gpus=gpus), *container.passed_options(environ)]
    return contained(place, container.container_argv(given.image, options, given.argv), environ)


def contained(place: container.Place, argv: list[str], environ: Mapping[str, str]) -> foreign.Ended:
    """Run a container and remove it afterwards."""
    try:
        return foreign.run_recorded(argv, environ)
    finally:
        removal, kept = container.removal_argv(place), foreign.foreign_environ(environ)
        subprocess.run(removal, env=kept, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
