"""A file served by FUSE that remembers every write and every flush: a disk on record.

    python -m tests.crash.block_device PLACE IMAGE RECORD

mounts one file, `disk`, over a directory; a loop device on that file and ext4 on the loop
device make it the disk of a real file system. What arrives goes to the record in its order:
a write with its place and bytes, or a flush, after which a real disk promises that all
before it is there.

    record: b"W" offset(8) size(8) bytes | b"F" 0(8) 0(8)       little-endian

The kernel's side of FUSE is spoken as it stands (include/uapi/linux/fuse.h, 7.31): a few
requests are enough for one file, and a library would be one more thing to install.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from enum import IntEnum
from pathlib import Path
from typing import Final

NAME: Final = b"disk"
MOUNTED: Final = "mounted"
RECORDED: Final = struct.Struct("<cQQ")
_IN: Final = struct.Struct("<IIQQIIII")
_OUT: Final = struct.Struct("<IiQ")
_ATTR: Final = struct.Struct("<QQQQQQIIIIIIIIII")
_ENTRY: Final = struct.Struct("<QQQQII")
_INIT: Final = struct.Struct("<IIIIHHIIHHI28x")
_RW: Final = struct.Struct("<QQIIQII")
_STATFS: Final = struct.Struct("<QQQQQIII28x")
_WRITE_BYTES_MAX: Final = 1 << 20
_BUFFER_BYTES: Final = _WRITE_BYTES_MAX + 4096
_BIG_WRITES: Final = 1 << 5
_VALID_SECONDS: Final = 3600
_ENOENT, _ENOSYS = 2, 38
_NEW_MOUNTS: Final = 0x20000
_DETACH: Final = 2
_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_ROOT, _FILE = 1, 2


class Op(IntEnum):
    """The requests that are understood, and those that want no answer."""

    LOOKUP = 1
    FORGET = 2
    GETATTR = 3
    SETATTR = 4
    OPEN = 14
    READ = 15
    WRITE = 16
    STATFS = 17
    RELEASE = 18
    FSYNC = 20
    FLUSH = 25
    INIT = 26
    OPENDIR = 27
    INTERRUPT = 36
    DESTROY = 38


class RecordingDisk:
    """Answers the kernel until the file is unmounted.

    Args:
        device: of FUSE, mounted.
        image: what the disk holds; it is changed by writes.
        record: where writes and flushes are noted.
    """

    def __init__(self, device: int, image: Path, record: Path) -> None:
        self._device = device
        self._image = os.open(image, os.O_RDWR)
        self._size = os.fstat(self._image).st_size
        self._record = record.open("ab", buffering=0)

    def serve(self) -> None:
        """Answer until the kernel says that it is over."""
        while True:
            try:
                request = os.read(self._device, _BUFFER_BYTES)
            except OSError:  # unmounted
                return
            _, op, unique, node, *_ = _IN.unpack_from(request)
            if op == Op.DESTROY:
                return
            if op not in (Op.FORGET, Op.INTERRUPT):
                error, answer = self._answer(op, node, request[_IN.size :])
                size = _OUT.size + len(answer)
                os.write(self._device, _OUT.pack(size, -error, unique) + answer)

    def _answer(self, op: int, node: int, body: bytes) -> tuple[int, bytes]:
        match op:
            case Op.INIT:
                limits = (0, _BIG_WRITES, 12, 10, _WRITE_BYTES_MAX, 1, 256, 0, 0)
                return 0, _INIT.pack(7, 31, *limits)
            case Op.LOOKUP:
                if body.rstrip(b"\0") != NAME:
                    return _ENOENT, b""
                entry = _ENTRY.pack(_FILE, 0, _VALID_SECONDS, _VALID_SECONDS, 0, 0)
                return 0, entry + self._attr(_FILE)
            case Op.GETATTR | Op.SETATTR:
                return 0, struct.pack("<QII", _VALID_SECONDS, 0, 0) + self._attr(node)
            case Op.OPEN | Op.OPENDIR:
                return 0, struct.pack("<QII", 0, 0, 0)
            case Op.READ:
                _, offset, size, *_ = _RW.unpack_from(body)
                return 0, os.pread(self._image, size, offset)
            case Op.WRITE:
                return 0, self._write(body)
            case Op.FSYNC:
                self._record.write(RECORDED.pack(b"F", 0, 0))
                return 0, b""
            case Op.RELEASE | Op.FLUSH:
                return 0, b""
            case Op.STATFS:
                return 0, _STATFS.pack(0, 0, 0, 0, 0, 4096, 255, 4096)
        return _ENOSYS, b""

    def _write(self, body: bytes) -> bytes:
        _, offset, size, *_ = _RW.unpack_from(body)
        data = body[_RW.size : _RW.size + size]
        os.pwrite(self._image, data, offset)
        self._record.write(RECORDED.pack(b"W", offset, size) + data)
        return struct.pack("<II", size, 0)

    def _attr(self, node: int) -> bytes:
        mode, size = (0o040755, 0) if node == _ROOT else (0o100600, self._size)
        times = (0, 0, 0, 0, 0, 0)
        return _ATTR.pack(node, size, size // 512, *times, mode, 1, 0, 0, 0, 4096, 0)


def mount(place: Path) -> int:
    """Mount FUSE over a directory; return its device.

    Raises:
        OSError: it is not permitted here.
    """
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0"
    path = os.fsencode(place)
    _require(_LIBC.mount(b"disk", path, b"fuse", 0, options.encode()))
    return device


def leave(place: Path) -> None:
    """Go on in a mount namespace in which what was mounted over a directory is not.

    The last process in a namespace unmounts what is left in it. Were that the server, it
    would wait for ever for its own answer to what ext4 writes last.

    Raises:
        OSError: it is not permitted here.
    """
    _require(_LIBC.unshare(_NEW_MOUNTS))
    _require(_LIBC.umount2(os.fsencode(place), _DETACH))


def _require(outcome: int) -> None:
    if outcome:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


if __name__ == "__main__":
    _place, _image, _record = map(Path, sys.argv[1:])
    _disk = RecordingDisk(mount(_place), _image, _record)
    leave(_place)
    print(MOUNTED, flush=True)
    _disk.serve()
