"""The server of a sandbox: it has imported the framework, and forks a fresh host or script for each connection.

It runs in the sandbox and never imports the candidate. Each host gets namespaces of its own inside of the sandbox: it
sees no process of another one, and finds every place to write to empty or read-only. So hosts can
leave nothing to each other, and what a host starts ends with it.

For each connection a keeper is forked. It makes the namespaces and kills what is in them when the connection is closed.
The first process in them forks the host, and sends its wait status.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import resource
import runpy
import select
import signal
import socket
import struct
import sys
from typing import Any, Final, NoReturn

from ci_autotest.host.this_process import end_with_parent

#: The form in which a keeper says that the host has begun (0) or cannot be isolated, and then sends a wait status.
NUMBER: Final = struct.Struct("<i")
#: Most bytes of a job, and its descriptors.
JOB_BYTES: Final = 1 << 16
DESCRIPTORS: Final = 5
# Source: linux/sched.h, linux/mount.h, linux/prctl.h, linux/keyctl.h, linux/capability.h.
_NEW_NAMESPACES: Final = 0x10000000 | 0x00020000 | 0x20000000 | 0x08000000  # user, mount, pid, ipc
_PRIVATE: Final = 0x4000 | 0x40000  # MS_REC | MS_PRIVATE
_QUIET: Final = 0x2 | 0x4  # MS_NOSUID | MS_NODEV
_READ_ONLY: Final = 0x1 | 0x20 | 0x1000 | _QUIET  # MS_RDONLY | MS_REMOUNT | MS_BIND
_BIND: Final = 0x1000 | 0x4000  # MS_BIND | MS_REC
_NO_EXECUTION: Final = 0x8  # MS_NOEXEC
_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 24, 38
_CAPABILITIES: Final = 64
_CAPABILITY_VERSION: Final = 0x20080522
_SYSTEM: Final = ctypes.CDLL(None, use_errno=True)
#: Numbers of ``keyctl`` by machine; elsewhere the session keyring is not left.
_KEYCTL: Final = {"x86_64": 250, "aarch64": 219}
_JOIN_SESSION_KEYRING: Final = 1


def main(argv: list[str]) -> NoReturn:
    """Serve connections until the process that started the sandbox is gone.

    Args:
        argv: Descriptor of the listening socket, then modules to import first.
    """
    end_with_parent()
    gc.disable()
    listener = socket.socket(fileno=int(argv[0]))
    for module in argv[1:]:
        with contextlib.suppress(ImportError):  # The host says so when it imports it.
            importlib.import_module(module)
    gc.enable()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        connection, _ = listener.accept()
        if os.fork() == 0:
            try:
                end_with_parent()
                listener.close()
                _keep(connection)
            finally:
                os._exit(1)
        connection.close()


def _keep(connection: socket.socket) -> NoReturn:
    """Fork the host of a connection, and send how it ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    data, descriptors, _, _ = socket.recv_fds(connection, JOB_BYTES, DESCRIPTORS)
    job = json.loads(data)
    try:
        _enter_namespaces()
    except OSError as error:
        connection.sendall(NUMBER.pack(error.errno or 1))
        os._exit(0)
    first = os.fork()
    if first == 0:
        _be_first(connection, job, descriptors)
    for descriptor in descriptors:
        os.close(descriptor)
    connection.sendall(NUMBER.pack(0))
    watched = os.pidfd_open(first)
    ready, _, _ = select.select([watched, connection.fileno()], [], [])
    if watched not in ready:  # Nobody waits for the host any more. What it has started ends with the first process.
        os.kill(first, signal.SIGKILL)
        os.waitpid(first, 0)
        with contextlib.suppress(OSError):
            connection.sendall(NUMBER.pack(signal.SIGKILL))
    os._exit(0)


def _be_first(connection: socket.socket, job: dict[str, Any], descriptors: list[int]) -> NoReturn:
    """Be the first process of the namespaces: fork the host, and send how it ended.

    The host is another process, because the system ignores signals of the first one.
    """
    end_with_parent()
    # The sandbox's own names processes that are not this host's, of which nothing can be read or changed. It stays
    # where parts of it are covered, as for root: there the system allows no other one.
    with contextlib.suppress(OSError):
        _mount(b"proc", b"/proc", b"proc", _QUIET | _NO_EXECUTION)
    host = os.fork()
    if host == 0:
        connection.close()
        _run(job, descriptors)
    for descriptor in descriptors:
        os.close(descriptor)
    ended, status = 0, 0
    while ended != host:
        ended, status = os.wait()
    with contextlib.suppress(OSError):
        connection.sendall(NUMBER.pack(status))
    os._exit(0)


def _enter_namespaces() -> None:
    """Give what this process forks its own processes, users, and places to write to.

    Raises:
        OSError: The system does not allow it.
    """
    user, group = os.getuid(), os.getgid()
    _checked(_SYSTEM.unshare(_NEW_NAMESPACES))
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{name}", "w") as file:  # noqa: PTH123 - no file of a folder
            file.write(text)
    _mount(b"none", b"/", None, _PRIVATE)
    for folder in (b"/dev", b"/"):
        _mount(None, folder, None, _READ_ONLY)
    for place in ("/tmp", "/dev/shm"):  # noqa: S108 - the sandbox's own
        _empty(place)
    os.chdir("/tmp")  # noqa: S108 - likewise


def _empty(place: str) -> None:
    """Lay an empty folder over one that earlier hosts could write to; what the sandbox shows below it stays."""
    with open("/proc/self/mountinfo") as file:  # noqa: PTH123 - likewise
        below = sorted(point for line in file if (point := line.split(" ")[4]).startswith(f"{place}/"))
    first = [point for point in below if not any(point.startswith(f"{other}/") for other in below)]
    shown = {point: os.open(point, os.O_PATH) for point in first}
    _mount(b"tmpfs", place.encode(), b"tmpfs", _QUIET)
    for point, handle in shown.items():
        os.makedirs(point, exist_ok=True)  # noqa: PTH103 - a text
        _mount(f"/proc/self/fd/{handle}".encode(), point.encode(), None, _BIND)
        os.close(handle)


def _run(job: dict[str, Any], descriptors: list[int]) -> NoReturn:
    """Be the host."""
    code = 1
    try:
        _drop_rights()
        for limit, most in ((resource.RLIMIT_DATA, "memory_bytes"), (resource.RLIMIT_FSIZE, "file_bytes")):
            if job[most]:
                resource.setrlimit(limit, (job[most], job[most]))
        os.environ.update(job["environ"])
        *own, printed = descriptors
        output = own.pop() if job["script"] else printed
        os.dup2(output, 1)
        os.dup2(printed, 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for descriptor in {output, printed}:
            os.close(descriptor)
        if job["script"]:
            sys.argv = [job["script"], *job["words"]]
            runpy.run_path(job["script"], run_name="__main__")
        else:
            importlib.import_module("ci_autotest.host.main").main([*map(str, own), *job["words"]])
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException as error:  # noqa: BLE001 - this process ends here
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _drop_rights() -> None:
    """Drop the rights that this process has in its own namespaces, for good."""
    for capability in range(_CAPABILITIES):
        _SYSTEM.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    _SYSTEM.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    head = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    _checked(_SYSTEM.capset(ctypes.byref(head), ctypes.byref((ctypes.c_uint32 * 6)())))
    number = _KEYCTL.get(os.uname().machine)
    if number is not None:  # Keys of the session would outlive the host.
        _SYSTEM.syscall(number, _JOIN_SESSION_KEYRING, None)


def _mount(source: bytes | None, target: bytes, kind: bytes | None, flags: int) -> None:
    _checked(_SYSTEM.mount(source, target, kind, ctypes.c_ulong(flags), None))


def _checked(result: int) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
