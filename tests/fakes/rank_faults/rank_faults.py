"""What a rank of a group may do to itself, its group and its worker. It needs the standard library alone."""

import ctypes
import os
import signal
import stat
import subprocess
import sys
import time


def killed():
    os.kill(os.getpid(), signal.SIGKILL)


def terminated():
    os.kill(os.getpid(), signal.SIGTERM)


def segfault():
    ctypes.string_at(0)


def exit_0():
    os._exit(0)


def exit_3():
    os._exit(3)


def system_exit():
    sys.exit(0)


def raises():
    message = "this rank raises"
    raise ValueError(message)


def garbage():
    _write_to_pipes(b"junk!")


def zeros():
    """Write what is a frame with nothing in it."""
    _write_to_pipes(bytes(64))


def _write_to_pipes(data):
    for fd in range(3, 64):
        try:
            if stat.S_ISFIFO(os.fstat(fd).st_mode):
                os.write(fd, data)
        except OSError:
            pass


def closes():
    """Close every pipe, and go on."""
    for fd in range(3, 64):
        try:
            if stat.S_ISFIFO(os.fstat(fd).st_mode):
                os.close(fd)
        except OSError:
            pass
    time.sleep(1000)


def output():
    for _ in range(50):
        os.write(1, b"noise of a rank ! " * 58254)


def children():
    """Leave two children behind, of which one has gone to a session and a parent of its own."""
    subprocess.Popen(["sleep", "1000"], start_new_session=True, stdout=subprocess.DEVNULL)
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(1000)
        os._exit(0)
    os.wait()


def hangs():
    time.sleep(1000)


def spins():
    while True:
        pass


def stopped():
    os.kill(os.getpid(), signal.SIGSTOP)


def memory():
    held = []
    while True:
        held.append(bytearray(32 << 20))
        held[-1][::4096] = bytes(len(held[-1][::4096]))


def right():
    pass


#: In an order, because the fake of OneFlow gets the number of a fault.
FAULTS = {
    fault.__name__: fault
    for fault in (
        right, killed, terminated, segfault, exit_0, exit_3, system_exit, raises, garbage, zeros, closes, output,
        children, hangs, spins, stopped, memory,
    )
}  # fmt: skip
