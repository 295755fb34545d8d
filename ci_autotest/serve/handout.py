"""The fork server of a service for other commands of the same user: ``ci-autotest run --warm`` begins from it.

The service hands out its socket's descriptor, over a Unix socket in a folder that only the user can enter. It is taken
only by the same version with the same packages.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ci_autotest.serve.warm import installed_stamp
from ci_autotest.version import VERSION

if TYPE_CHECKING:
    from ci_autotest.serve.warm import WarmServers

_ANSWER_BYTES: Final = 256
_WAIT_S: Final = 5.0
#: Bits of a folder's mode that let others in.
_OTHERS: Final = 0o077


def hand_out(warm: WarmServers) -> None:
    """Answer whoever asks for the fork server, until this process ends; only the first service of a user does."""
    path = _address()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        if path is None or _connected(path) is not None:
            listener.close()
            return
        path.unlink(missing_ok=True)
        listener.bind(str(path))
        listener.listen()
    except OSError:
        listener.close()
        return
    threading.Thread(target=_answer, args=(listener, warm), name="ci-autotest-handout", daemon=True).start()


def _answer(listener: socket.socket, warm: WarmServers) -> None:
    while True:
        connection, _ = listener.accept()
        with connection, contextlib.suppress(OSError), warm.fork_server() as (descriptor, _):
            socket.send_fds(connection, [_identity()], [descriptor])


def handed_out() -> int | None:
    """Return a descriptor of the fork server of this user's service; ``None`` if there is none that fits."""
    path = _address()
    connection = None if path is None else _connected(path)
    if connection is None:
        return None
    with connection:
        try:
            data, descriptors, _, _ = socket.recv_fds(connection, _ANSWER_BYTES, 1)
        except OSError:
            return None
    if data == _identity() and descriptors:
        return descriptors[0]
    for descriptor in descriptors:
        os.close(descriptor)
    return None


def _identity() -> bytes:
    return hashlib.sha256(repr((VERSION, installed_stamp())).encode()).hexdigest().encode()


def _connected(path: Path) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.settimeout(_WAIT_S)
    try:
        connection.connect(str(path))
    except OSError:
        connection.close()
        return None
    return connection


def _address() -> Path | None:
    """Return the path of the socket; ``None`` if its folder is not this user's alone."""
    folder = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir(), f"ci-autotest-{os.getuid()}")
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
    except OSError:
        return None
    is_own = status.st_uid == os.getuid() and not status.st_mode & _OTHERS and not folder.is_symlink()
    return folder / "serve" if is_own else None
