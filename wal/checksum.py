"""CRC32C (Castagnoli), the one checksum of every file of a store.

`google-crc32c` computes it with the processor's own instruction; `crcmod` is the portable
body of the same sum where that extension could not be built. Both give the same numbers
(tests compare them), so files move freely between machines.

Source: RFC 3720, appendix B.4.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

Extend = Callable[[int, bytes], int]


def portable_extend() -> Extend:
    """Return the portable body: `extend(crc, data) -> crc`, no extension needed."""
    import crcmod.predefined

    function: Callable[[bytes, int], int] = crcmod.predefined.mkCrcFun("crc-32c")
    return lambda crc, data: function(data, crc)


def hardware_extend() -> Extend | None:
    """Return the body that uses the processor's instruction, or None without it."""
    try:
        import google_crc32c
    except ImportError:
        return None
    if google_crc32c.implementation != "c":
        return None
    extend: Extend = google_crc32c.extend
    return extend


def native_address() -> int:
    """Return where the C function behind `hardware_extend` is, 0 if nobody can tell.

    For the compiled codec, which takes sums of 8 and of 56 bytes by the million: calling
    C from C costs a twentieth of going through the interpreter. It is
    `uint32_t crc32c_extend(uint32_t crc, const uint8_t *data, size_t count)`, part of the
    public interface of the library that google-crc32c wraps.
    """
    if hardware_extend() is None:
        return 0
    try:
        import ctypes  # which a Python may have been built without

        from google_crc32c import _crc32c

        # What a library was linked with is found through it, under whatever file name.
        function = ctypes.CDLL(_crc32c.__file__).crc32c_extend
    except (ImportError, OSError, AttributeError):
        return 0
    return ctypes.cast(function, ctypes.c_void_p).value or 0


_hardware = hardware_extend()

extend: Final[Extend] = _hardware if _hardware is not None else portable_extend()
"""`extend(crc, data) -> crc`: the sum of what gave `crc`, followed by `data`."""

IMPLEMENTATION: Final = "hardware" if _hardware is not None else "portable"


def crc32c(data: bytes) -> int:
    """Return the CRC32C of `data`, 0 .. 2**32 - 1. Cost: O(len(data))."""
    return extend(0, data)
