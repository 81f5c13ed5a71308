# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False, binding=False, auto_pickle=False
# cython: embedsignature=True, embedsignature.format=clinic
"""The compiled codec: group frames to bytes and back, without an object a record.

What each function promises is said with its plain body, in wal/frame.py and wal/runs.py,
where the bytes are drawn too; here is only what differs inside. (PEP 399: one contract,
two bodies.)

**The sums** are google-crc32c's, called as the C function that they are, if that can be
found; else through the interpreter, which costs some 100 ns a sum, of which a frame has
four.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.bytes cimport PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

from wal.checksum import extend as extend_by_call
from wal.checksum import native_address
from wal.frame import BODY_BYTES_MAX, FRAME_VERSION, LSN_MAX, MAGIC, Flag
from wal.frame import FormatError, Group
from wal.runs import Place

__all__ = ["chain_of", "encode_frame", "encode_records", "read_frames"]

cdef extern from *:
    """
    /* Little-endian on every machine; compilers make one instruction of each. */
    static CYTHON_INLINE uint32_t codec_get32(const uint8_t *b) {
        return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16
            | (uint32_t)b[3] << 24;
    }
    static CYTHON_INLINE uint64_t codec_get64(const uint8_t *b) {
        return (uint64_t)codec_get32(b) | (uint64_t)codec_get32(b + 4) << 32;
    }
    static CYTHON_INLINE void codec_put32(uint8_t *b, uint32_t value) {
        b[0] = (uint8_t)value;
        b[1] = (uint8_t)(value >> 8);
        b[2] = (uint8_t)(value >> 16);
        b[3] = (uint8_t)(value >> 24);
    }
    static CYTHON_INLINE void codec_put64(uint8_t *b, uint64_t value) {
        codec_put32(b, (uint32_t)value);
        codec_put32(b + 4, (uint32_t)(value >> 32));
    }
    """
    uint32_t codec_get32(const uint8_t* at) noexcept nogil
    uint64_t codec_get64(const uint8_t* at) noexcept nogil
    void codec_put32(uint8_t* at, uint32_t value) noexcept nogil
    void codec_put64(uint8_t* at, uint64_t value) noexcept nogil

ctypedef uint32_t (*CrcExtend)(uint32_t, const uint8_t*, size_t) noexcept nogil

# As wal/frame.py draws them; that they are the same is asserted below.
cdef enum:
    HEADER_BYTES = 64
    SECTOR_BYTES = 512
    RECORD_OVERHEAD_BYTES = 4
    AT_HEADER_CRC = 4
    AT_BODY_LENGTH = 8
    AT_RECORD_COUNT = 12
    AT_FIRST_LSN = 16
    AT_LAST_LSN = 24
    AT_DURABLE_LSN = 32
    AT_WALL_NS = 40
    AT_BODY_CRC = 48
    AT_CHAIN_CRC = 52
    AT_FLAGS = 56
    AT_VERSION = 58
    AT_MASK = 60
    FLAG_ATOMIC = 1
    FLAG_MASKED = 4
    FLAG_CLOSE = 8
    FLAGS_END = 16
    VERSION = 1
    BODY_MAX = 8 << 20
    FIRST_MASK = 0xA5C35A3C

cdef const uint8_t* MAGIC_BYTES = b"TWgf"
cdef int64_t LSN_LAST = 0x7fffffffffffffff
cdef object FLAGS = tuple(Flag(bits) for bits in range(FLAGS_END))
assert (MAGIC, FRAME_VERSION, BODY_BYTES_MAX, LSN_MAX) == (
    b"TWgf", VERSION, BODY_MAX, LSN_LAST
)
assert (Flag.ATOMIC, Flag.MASKED, Flag.CLOSE) == (FLAG_ATOMIC, FLAG_MASKED, FLAG_CLOSE)

cdef CrcExtend native = <CrcExtend><size_t>native_address()
if native is not NULL and native(1, b"twg", 3) != extend_by_call(1, b"twg"):
    native = NULL  # something else by that name


cdef inline uint32_t extended(
    uint32_t crc, const uint8_t* data, Py_ssize_t size
) except? 0:
    """Return the sum of what gave `crc`, followed by `data`."""
    if native is not NULL:
        return native(crc, data, size)
    return extend_by_call(crc, PyBytes_FromStringAndSize(<const char*>data, size))


cdef inline uint32_t seeded_at(uint32_t seed, uint64_t offset) except? 0:
    """Return what both sums of the frame at `offset` start from."""
    cdef uint8_t[8] packed
    codec_put64(packed, offset)
    return extended(seed, packed, 8)


cdef inline Py_ssize_t padded(Py_ssize_t length) noexcept nogil:
    return (length + 63) // 64 * 64


# Encoding.

def encode_records(payloads):
    """Return the body that holds these records, in order."""
    cdef list records = payloads if type(payloads) is list else list(payloads)
    cdef Py_ssize_t size = 0, length
    cdef uint8_t* at
    cdef bytes body
    for payload in records:
        if not isinstance(payload, bytes):
            return encode_records([bytes(memoryview(each)) for each in records])
        size += RECORD_OVERHEAD_BYTES + PyBytes_GET_SIZE(payload)
    body = PyBytes_FromStringAndSize(NULL, size)
    at = <uint8_t*>PyBytes_AS_STRING(body)
    for payload in records:
        length = PyBytes_GET_SIZE(payload)
        codec_put32(at, length)
        memcpy(at + RECORD_OVERHEAD_BYTES, PyBytes_AS_STRING(payload), length)
        at += RECORD_OVERHEAD_BYTES + length
    return body


def encode_frame(
    body,
    *,
    uint32_t record_count,
    uint64_t first_lsn,
    uint64_t durable_lsn,
    uint64_t wall_ns,
    uint32_t chain_crc,
    uint16_t flags,
    uint32_t seed,
    uint64_t offset,
):
    """Return the frame as it goes to the disk at `offset` of its segment."""
    cdef Py_buffer source
    cdef Py_ssize_t length, stored
    cdef uint32_t mask, at_offset
    cdef uint8_t* head
    cdef uint8_t* rest
    cdef bytes frame
    assert offset % 64 == 0
    PyObject_GetBuffer(body, &source, PyBUF_SIMPLE)
    try:
        length = source.len
        assert length <= BODY_MAX
        stored = padded(length)
        frame = PyBytes_FromStringAndSize(NULL, HEADER_BYTES + stored)
        head = <uint8_t*>PyBytes_AS_STRING(frame)
        rest = head + HEADER_BYTES
        memcpy(rest, source.buf, length)
    finally:
        PyBuffer_Release(&source)
    memset(rest + length, 0, stored - length)
    mask = mask_for(rest, stored, offset)
    flags |= FLAG_ATOMIC
    if mask:
        put_mask(rest, stored, mask)
        flags |= FLAG_MASKED
    at_offset = seeded_at(seed, offset)
    memcpy(head, MAGIC_BYTES, 4)
    codec_put32(head + AT_BODY_LENGTH, length)
    codec_put32(head + AT_RECORD_COUNT, record_count)
    codec_put64(head + AT_FIRST_LSN, first_lsn)
    codec_put64(head + AT_LAST_LSN, first_lsn + record_count - 1)
    codec_put64(head + AT_DURABLE_LSN, durable_lsn)
    codec_put64(head + AT_WALL_NS, wall_ns)
    codec_put32(head + AT_BODY_CRC, extended(at_offset, rest, stored))
    codec_put32(head + AT_CHAIN_CRC, chain_crc)
    codec_put32(head + AT_FLAGS, flags | <uint32_t>VERSION << 16)
    codec_put32(head + AT_MASK, mask)
    codec_put32(
        head + AT_HEADER_CRC,
        extended(at_offset, head + AT_BODY_LENGTH, HEADER_BYTES - AT_BODY_LENGTH),
    )
    return frame


def chain_of(bytes frame not None, Py_ssize_t offset = 0):
    """Return the chain checksum that the next frame carries."""
    assert 0 <= offset <= PyBytes_GET_SIZE(frame) - HEADER_BYTES
    return extended(0, <uint8_t*>PyBytes_AS_STRING(frame) + offset, HEADER_BYTES)


cdef uint32_t mask_for(
    const uint8_t* stored, Py_ssize_t size, uint64_t offset
) noexcept nogil:
    """Return 0 if no sector after the first is faint, else a pattern that mends it."""
    cdef Py_ssize_t first = (SECTOR_BYTES - (offset + HEADER_BYTES) % SECTOR_BYTES)
    cdef uint32_t pattern = FIRST_MASK
    first %= SECTOR_BYTES
    if not has_faint_sector(stored, size, first, 0):
        return 0
    while has_faint_sector(stored, size, first, pattern):
        pattern = pattern * 1664525u + 1013904223u
    return pattern


cdef bint has_faint_sector(
    const uint8_t* stored, Py_ssize_t size, Py_ssize_t first, uint32_t mask
) noexcept nogil:
    """Return whether a sector from `first` on, under that mask, has < 2 bytes not 0."""
    cdef uint8_t[4] pattern
    cdef Py_ssize_t at = first, stop
    cdef int found
    codec_put32(pattern, mask)
    while at < size:
        stop = min(at + SECTOR_BYTES, size)
        found = 0
        while at < stop and found < 2:
            found += stored[at] != pattern[at % 4]
            at += 1
        if found < 2:
            return True
        # Sectors begin at `first`, wherever the search in this one ended.
        at = stop
    return False


cdef void put_mask(uint8_t* stored, Py_ssize_t size, uint32_t mask) noexcept nogil:
    """XOR `stored`, a multiple of 64 bytes, with the repeated pattern."""
    cdef Py_ssize_t at
    for at in range(0, size, 4):
        codec_put32(stored + at, codec_get32(stored + at) ^ mask)


# Reading back.

cdef struct FrameHead:
    uint32_t body_length
    uint64_t first_lsn
    uint64_t last_lsn
    uint64_t wall_ns
    uint32_t chain_crc
    uint16_t flags
    uint32_t mask
    uint32_t chain_of_it


cdef bint head_at(
    const uint8_t* data, Py_ssize_t size, Py_ssize_t offset, uint32_t seed,
    FrameHead* head,
) except -1:
    """Take the header at `offset` into `head`; False if none is valid there."""
    cdef const uint8_t* at = data + offset
    cdef uint32_t record_count, flags_and_version, at_offset
    if size - offset < HEADER_BYTES or memcmp(at, MAGIC_BYTES, 4) != 0:
        return False
    at_offset = seeded_at(seed, offset)
    if codec_get32(at + AT_HEADER_CRC) != extended(
        at_offset, at + AT_BODY_LENGTH, HEADER_BYTES - AT_BODY_LENGTH
    ):
        return False
    head.flags = codec_get32(at + AT_FLAGS) & 0xffff
    if at[AT_VERSION] != VERSION or head.flags >= FLAGS_END:
        raise FormatError(
            f"frame version {at[AT_VERSION]}, flags {head.flags:#x}: written by a "
            "newer version"
        )
    head.body_length = codec_get32(at + AT_BODY_LENGTH)
    record_count = codec_get32(at + AT_RECORD_COUNT)
    head.first_lsn = codec_get64(at + AT_FIRST_LSN)
    head.last_lsn = codec_get64(at + AT_LAST_LSN)
    if (
        head.body_length > BODY_MAX
        or head.first_lsn > <uint64_t>LSN_LAST + 1  # so that the sum below holds
        or head.last_lsn != head.first_lsn + record_count - 1
        or head.last_lsn > <uint64_t>LSN_LAST
    ):
        return False
    head.wall_ns = codec_get64(at + AT_WALL_NS)
    head.chain_crc = codec_get32(at + AT_CHAIN_CRC)
    head.mask = codec_get32(at + AT_MASK)
    return True


cdef bint body_holds(
    const uint8_t* data, Py_ssize_t size, Py_ssize_t offset, uint32_t seed,
    FrameHead* head,
) except -1:
    """Return whether all of the frame's body is there and under its sum."""
    cdef Py_ssize_t start = offset + HEADER_BYTES, stored = padded(head.body_length)
    if size - start < stored:
        return False
    return codec_get32(data + offset + AT_BODY_CRC) == extended(
        seeded_at(seed, offset), data + start, stored
    )


def read_frames(
    bytes data not None,
    place,
    *,
    uint32_t seed,
    Py_ssize_t until,
    int64_t after_lsn,
    Py_ssize_t bytes_max,
):
    """Read the frames that follow each other from `place` on, and join them.

    As the plain body in two steps: it verifies, and then copies what was verified.
    """
    cdef const uint8_t* source = <const uint8_t*>PyBytes_AS_STRING(data)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(data), begin, offset, joined = 0
    cdef Py_ssize_t copy_from
    cdef int64_t last_lsn
    cdef uint64_t first  # may be one beyond the last number that there is
    cdef uint32_t chain_crc
    cdef uint16_t flags
    cdef uint64_t wall_ns
    cdef FrameHead head
    begin, last_lsn, chain_crc, flags, wall_ns = place
    copy_from = offset = begin
    first = <uint64_t>last_lsn + 1
    while offset < until:
        try:
            if not head_at(source, size, offset, seed, &head):
                break
        except FormatError:
            if offset == begin:
                raise
            break
        if (
            flags >= FLAG_CLOSE
            or head.first_lsn != <uint64_t>last_lsn + 1
            or head.chain_crc != chain_crc
            or (offset != begin and joined + head.body_length > bytes_max)
            or not body_holds(source, size, offset, seed, &head)
        ):
            break
        chain_crc = extended(0, source + offset, HEADER_BYTES)
        offset += HEADER_BYTES + padded(head.body_length)
        last_lsn = head.last_lsn
        flags = head.flags
        wall_ns = head.wall_ns
        if last_lsn <= after_lsn:
            first = <uint64_t>last_lsn + 1
            copy_from = offset
        else:
            joined += head.body_length
    if offset == begin:
        return place, None
    place = Place(offset, last_lsn, chain_crc, FLAGS[flags], wall_ns)
    if <uint64_t>last_lsn < first:
        return place, None
    return place, Group(
        first,
        <uint64_t>last_lsn - first + 1,
        joined_bodies(source, copy_from, offset, joined),
        wall_ns,
        FLAGS[flags],
    )


cdef bytes joined_bodies(
    const uint8_t* data, Py_ssize_t offset, Py_ssize_t end, Py_ssize_t size
):
    """Return the bodies, unmasked, of the frames from `offset` to `end`, which hold."""
    cdef bytes body = PyBytes_FromStringAndSize(NULL, size)
    cdef uint8_t* at = <uint8_t*>PyBytes_AS_STRING(body)
    cdef Py_ssize_t length, place
    cdef uint8_t[4] pattern
    cdef uint32_t mask
    while offset < end:
        length = codec_get32(data + offset + AT_BODY_LENGTH)
        mask = codec_get32(data + offset + AT_MASK)
        memcpy(at, data + offset + HEADER_BYTES, length)
        if mask:
            codec_put32(pattern, mask)
            for place in range(length):
                at[place] ^= pattern[place % 4]
        at += length
        offset += HEADER_BYTES + padded(length)
    return body
