# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False, binding=False, auto_pickle=False
# cython: embedsignature=True, embedsignature.format=clinic
"""The compiled group buffer: records go into a frame's bytes, and no object is made.

What a plan promises is said in wal/plan.py, whose tests run on this body too. (PEP 399:
one contract, two bodies.) Ctrl-C comes only inside the one call that is made of Python,
`SegmentPool.claim`, before anything has changed.
"""

from cpython.bytes cimport PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_SIZE
from libc.stdint cimport int64_t

from wal.errors import RecordTooLargeError
from wal.frame import ALIGN_BYTES, BODY_BYTES_MAX, HEADER_BYTES
from wal.segment import SEGMENT_HEADER_BYTES

__all__ = ["FramePlan", "PendingFrame"]

# As in wal/frame.py and wal/segment.py.
cdef enum:
    FRAME_HEADER = 64
    SEGMENT_HEADER = 4096
    BODY_MAX = 8 << 20

assert (HEADER_BYTES, ALIGN_BYTES, SEGMENT_HEADER_BYTES, BODY_BYTES_MAX) == (
    FRAME_HEADER, FRAME_HEADER, SEGMENT_HEADER, BODY_MAX
)


cdef inline int64_t frame_bytes(int64_t body_length) noexcept nogil:
    return FRAME_HEADER + (body_length + 63) // 64 * 64


cdef class PendingFrame:
    """Records that will be written as one frame."""

    cdef readonly bytearray body
    cdef readonly int64_t record_count
    cdef readonly int64_t first_lsn
    cdef readonly bint rotate
    cdef public bytes sealed

    def __init__(self, int64_t first_lsn, *, bint rotate):
        self.body = bytearray()
        self.first_lsn = first_lsn
        self.rotate = rotate

    @property
    def last_lsn(self):
        """Number of the last record."""
        return self.first_lsn + self.record_count - 1


cdef class FramePlan:
    """Which frames wait to be written, each with a place that is already owned.

    The compiled body of wal.plan.FramePlan, which describes methods and invariants.
    """

    cdef object pool
    cdef int64_t segment_size_bytes
    cdef int64_t body_max
    cdef list frames  # the oldest first; a handful at most, mostly one
    cdef list in_flight
    cdef int64_t offset  # where the open frame starts, or the next one will
    cdef int64_t limit
    cdef readonly int64_t next_lsn
    cdef readonly int64_t bytes_waiting
    cdef readonly int64_t records_waiting
    cdef readonly int64_t bytes_written

    def __init__(
        self,
        pool,
        *,
        int64_t next_lsn,
        int64_t segment_size_bytes,
        int64_t offset,
        int64_t size,
    ):
        self.pool = pool
        self.segment_size_bytes = segment_size_bytes
        self.body_max = min(
            BODY_MAX, segment_size_bytes - SEGMENT_HEADER - 2 * FRAME_HEADER
        )
        self.frames = []
        self.in_flight = []
        self.offset = offset
        self.limit = size - FRAME_HEADER
        self.next_lsn = next_lsn

    @property
    def body_bytes_max(self):
        """The largest group that fits a frame in a fresh segment."""
        return self.body_max

    def __bool__(self):
        return PyList_GET_SIZE(self.frames) > 0

    def add(self, bytes body not None, *, int64_t record_count, bint urgent):
        """Plan a group of one or more records, which stays together in one frame."""
        cdef int64_t size = PyBytes_GET_SIZE(body), first = self.next_lsn
        cdef int64_t offset = self.offset, limit = self.limit, total
        cdef bint rotate = False
        cdef PendingFrame frame = None
        assert record_count > 0
        if size > self.body_max:
            raise RecordTooLargeError(size, self.body_max)
        if PyList_GET_SIZE(self.frames):
            frame = <PendingFrame>self.frames[PyList_GET_SIZE(self.frames) - 1]
            total = len(frame.body) + size
            if total > self.body_max or offset + frame_bytes(total) > limit:
                offset += frame_bytes(len(frame.body))
                frame = None
        if frame is None:
            if offset + frame_bytes(size) > limit:
                if not self.pool.claim(urgent=urgent):
                    return None
                rotate = True
                offset = SEGMENT_HEADER
                limit = self.segment_size_bytes - FRAME_HEADER
            frame = PendingFrame(first, rotate=rotate)
            frame.body += body
            self.frames.append(frame)
        else:
            frame.body += body
        frame.record_count += record_count
        self.offset = offset
        self.limit = limit
        self.next_lsn = first + record_count
        self.bytes_waiting += size
        self.records_waiting += record_count
        return first

    def take(self, *, bint everything):
        """Return the frames to write now; nothing more is added to them."""
        cdef PendingFrame frame
        while PyList_GET_SIZE(self.frames) and (
            everything or not PyList_GET_SIZE(self.in_flight)
        ):
            frame = <PendingFrame>self.frames[0]
            self.in_flight.append(frame)
            if PyList_GET_SIZE(self.frames) == 1:
                self.offset += frame_bytes(len(frame.body))
            del self.frames[0]
        return self.in_flight

    def written(self):
        """Note that what was taken is durable and waits no longer."""
        cdef PendingFrame frame
        cdef int64_t size = 0, count = 0
        for frame in self.in_flight:
            size += len(frame.body)
            count += frame.record_count
        self.in_flight = []
        self.bytes_waiting -= size
        self.records_waiting -= count
        self.bytes_written += size
