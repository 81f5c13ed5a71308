"""Where a store's door is: a unix socket among the files of its directory.

    DOOR    mode 0600; made by the holder of the directory, and removed when it closes

The name of a unix socket has room for 107 bytes, and a directory may lie deeper. So the
directory is opened, and the socket is named by that handle, in /proc, which is short. Where
there is no /proc the path itself has to fit.

What a killed holder leaves is a name at which nobody answers. Only who holds the lock of
the directory makes or removes the name, so a living holder never loses its own.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Iterator
from typing import Final

DOOR_NAME: Final = "DOOR"
BACKLOG: Final = 128
_MODE: Final = 0o600
_PATH_MAX: Final = 103
"""Bytes of a name that every system takes."""
_ROOT: Final = 0
_CREDENTIALS: Final = struct.Struct("3i")


class NoDoorError(Exception):
    """There is nobody at the door, or none can be made; the text says why."""


def listen(directory: str) -> socket.socket:
    """Return a socket that listens at the door; the directory's lock is held.

    Raises:
        NoDoorError: the file system has no sockets, or the path is too long here.
    """
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        remove(directory)
        with _address(directory) as address:
            made.bind(address)
        # Nobody gets in before `listen`, so there is no moment of a wider mode.
        os.chmod(os.path.join(directory, DOOR_NAME), _MODE)
        made.listen(BACKLOG)
    except OSError as error:
        made.close()
        raise NoDoorError(f"{directory}: {error.strerror or error}") from error
    except BaseException:
        made.close()
        raise
    return made


def connect(directory: str) -> socket.socket:
    """Return a connection to the holder of a directory.

    Raises:
        NoDoorError: nobody answers, or another user does.
    """
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _address(directory) as address:
            made.connect(address)
        if not is_ours(made):
            raise NoDoorError(f"{directory}: another user answers at {DOOR_NAME}")
    except OSError as error:
        made.close()
        raise NoDoorError(f"{directory}: {error.strerror or error}") from error
    except BaseException:
        made.close()
        raise
    return made


def remove(directory: str) -> None:
    """Take the door away; the directory's lock is held."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(directory, DOOR_NAME))


def is_ours(connection: socket.socket) -> bool:
    """Return whether the other side is of this user, or of root.

    Where the system does not tell, the mode of the socket alone keeps others out.
    """
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return True
    data = connection.getsockopt(socket.SOL_SOCKET, option, _CREDENTIALS.size)
    _, uid, _ = _CREDENTIALS.unpack(data)
    return uid in {os.geteuid(), _ROOT}


@contextlib.contextmanager
def _address(directory: str) -> Iterator[str]:
    """Name the door so that the name fits, for the length of a `with` block."""
    path = os.path.join(directory, DOOR_NAME)
    if len(os.fsencode(path)) <= _PATH_MAX:
        yield path
        return
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        by_handle = f"/proc/self/fd/{handle}/{DOOR_NAME}"
        if not os.path.exists(f"/proc/self/fd/{handle}"):
            raise NoDoorError(
                f"{path}: too long for the name of a socket here; a directory whose path "
                f"has less than {_PATH_MAX - len(DOOR_NAME)} bytes has a door"
            )
        yield by_handle
    finally:
        os.close(handle)
