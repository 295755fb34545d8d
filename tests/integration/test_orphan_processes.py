"""What killed runs leave running: ended by its token, and nothing else is, whatever its environment says."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from ci_autotest.run.orphan_processes import TOKEN, end_left_behind, new_token

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="environments of others are Linux's to show")
MAKER = "from ci_autotest.run.orphan_processes import new_token; print(new_token())"


def is_ended(token: str) -> bool:
    """Return whether a process with a token was ended."""
    with subprocess.Popen(["sleep", "600"], env={**os.environ, TOKEN: token}, start_new_session=True) as process:
        end_left_behind()
        is_over = process.poll() is not None  # It is waited for as it is ended.
        process.kill()
        return is_over


def token_of_the_dead() -> str:
    return subprocess.run([sys.executable, "-c", MAKER], capture_output=True, text=True, check=True).stdout.strip()


def test_end_left_behind__token_of_a_process_that_is_gone__is_ended():
    assert is_ended(token_of_the_dead())


def test_end_left_behind__number_is_another_process_by_now__is_ended():
    _, begun, rest = new_token().split("-")
    assert is_ended(f"{os.getpid()}-{int(begun) - 1}-{rest}")


def test_end_left_behind__maker_is_dead_and_not_waited_for__is_ended():
    with subprocess.Popen([sys.executable, "-c", MAKER], stdout=subprocess.PIPE, text=True) as maker:
        assert maker.stdout is not None
        token = maker.stdout.read().strip()  # Closed by its end: a zombie from now on.
        os.waitid(os.P_PID, maker.pid, os.WEXITED | os.WNOWAIT)
        assert is_ended(token)


@pytest.mark.parametrize(
    "token",
    [
        pytest.param(new_token(), id="of a living run"),
        pytest.param("", id="empty"),
        pytest.param("mine", id="a word"),
        pytest.param("0-0-00000000", id="of no process"),
        pytest.param("-1-1-00000000", id="negative"),
        pytest.param("../1-1-00000000", id="a path"),
        pytest.param("9" * 5000 + "-1-00000000", id="of many digits"),
        pytest.param("²-1-00000000", id="digits of another kind"),
        pytest.param("1-1-00000000\n", id="a line"),
    ],
)
def test_end_left_behind__token_of_a_living_run_or_of_nobody__stays(token: str):
    assert not is_ended(token)


def test_end_left_behind__called_below_what_was_left__ends_neither_itself_nor_what_is_above_it():
    code = "from ci_autotest.run.orphan_processes import end_left_behind; end_left_behind(); print('alive')"
    above = f"import subprocess, sys; sys.exit(subprocess.run([sys.executable, '-c', {code!r}]).returncode)"
    # To any other run that begins meanwhile on this machine it is left behind, and is ended, but hardly each time.
    ends = {
        (done.returncode, done.stdout)
        for done in (
            subprocess.run(
                [sys.executable, "-c", above], env={**os.environ, TOKEN: token_of_the_dead()}, capture_output=True,
                text=True, check=False,
            )
            for _ in range(3)
        )
    }  # fmt: skip
    assert (0, "alive\n") in ends, ends
