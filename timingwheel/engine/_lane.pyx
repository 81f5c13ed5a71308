# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False, binding=False, auto_pickle=False
# cython: embedsignature=True, embedsignature.format=clinic
"""The compiled short way of a request: the contract of timingwheel.engine.lane.

What a lane promises is said in timingwheel/engine/lane.py, whose tests run on this body
too. Inside, records are written where they will lie: the only objects of a call are the
bytes of its group, and the numbers that go to table, wheel and log. (PEP 399: one
contract, two bodies.)
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.bytes cimport PyBytes_GET_SIZE
from cpython.float cimport PyFloat_AS_DOUBLE
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.object cimport PyObject
from libc.math cimport ceil
from libc.stdint cimport INT64_MAX, int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

from timingwheel.engine.arguments import (
    BATCH_BYTES_MAX,
    BATCH_TIMERS_MAX,
    PAYLOAD_BYTES_MAX,
)
from timingwheel.engine.lane import DELAY_MAX_S
from timingwheel.engine.records import ID_ONLY, RESCHEDULED, SCHEDULED, Base, Kind
from timingwheel.engine.timeline import TICK_BITS
from wal.errors import WalError
from wal.frame import RECORD_OVERHEAD_BYTES

__all__ = ["Lane"]

cdef extern from "Python.h":
    int64_t PyLong_AsLongLongAndOverflow(object value, int* overflow) except? -1

cdef extern from *:
    """
    /* Little-endian on every machine; compilers make one instruction of each. */
    static CYTHON_INLINE void lane_put32(char *at, uint32_t value) {
        unsigned char *b = (unsigned char *)at;
        b[0] = (unsigned char)value;
        b[1] = (unsigned char)(value >> 8);
        b[2] = (unsigned char)(value >> 16);
        b[3] = (unsigned char)(value >> 24);
    }
    static CYTHON_INLINE void lane_put64(char *at, uint64_t value) {
        lane_put32(at, (uint32_t)value);
        lane_put32(at + 4, (uint32_t)(value >> 32));
    }
    """
    void lane_put32(char* at, uint32_t value) noexcept nogil
    void lane_put64(char* at, uint64_t value) noexcept nogil

cdef enum:
    SIZE_BYTES = 4
    HEAD_BYTES = 14  # of a TimerScheduled record in a group's body, before its payload
    SCHEDULED_BYTES = HEAD_BYTES - SIZE_BYTES  # drawn in records.py
    SCHEDULED_KIND = 1
    RESCHEDULED_BYTES = 22
    RESCHEDULED_KIND = 2
    CANCELLED_BYTES = 9
    CANCELLED_KIND = 4
    ELAPSED = 0
    TICK = 16
    NS = 1_000_000_000

cdef int64_t DELAY_MAX = DELAY_MAX_S
cdef Py_ssize_t PAYLOAD_MAX = PAYLOAD_BYTES_MAX
cdef Py_ssize_t TIMERS_MAX = BATCH_TIMERS_MAX
cdef Py_ssize_t BYTES_MAX = BATCH_BYTES_MAX
assert (RECORD_OVERHEAD_BYTES, SCHEDULED.size) == (SIZE_BYTES, SCHEDULED_BYTES)
assert (Kind.TIMER_SCHEDULED, Base.ELAPSED) == (SCHEDULED_KIND, ELAPSED)
assert (RESCHEDULED.size, ID_ONLY.size) == (RESCHEDULED_BYTES, CANCELLED_BYTES)
assert (Kind.TIMER_RESCHEDULED, Kind.TIMER_CANCELLED) == (
    RESCHEDULED_KIND, CANCELLED_KIND
)
assert TICK_BITS == TICK


cdef class Lane:
    """Makes, moves and cancels timers on elapsed time, quickly.

    The compiled body of timingwheel.engine.lane.Lane, which describes its methods.
    """

    cdef object core
    cdef object life
    cdef object log
    cdef object table
    cdef object wheel
    cdef object monotonic_ns
    cdef int64_t ahead_ns  # of elapsed time before the monotonic clock

    def __init__(self, core):
        self.core, self.log, self.table = core, core.log, core.state.table
        self.life = core.life
        self.wheel = core.state.timeline.elapsed_wheel
        self.monotonic_ns = core.clock.monotonic_ns
        self.ahead_ns = core.state.timeline.elapsed_ahead_ns

    def schedule(self, delay, payload):
        """Make a timer; return its id, or 0 where the general way has to be gone."""
        cdef int64_t delay_ns = _delay_ns(delay)
        cdef int64_t now_ns, deadline_ns, tick
        cdef Py_ssize_t size
        cdef char* out
        if delay_ns < 0 or type(payload) is not bytes:
            return 0
        size = PyBytes_GET_SIZE(payload)
        now_ns = self.ahead_ns + <int64_t> self.monotonic_ns()
        if size > PAYLOAD_MAX or delay_ns > INT64_MAX - now_ns:
            return 0
        deadline_ns = now_ns + delay_ns
        body = PyBytes_FromStringAndSize(NULL, HEAD_BYTES + size)
        _write(PyBytes_AS_STRING(body), deadline_ns, PyBytes_AS_STRING(payload), size)
        tick = _tick_of(deadline_ns)
        core = self.core
        lock = core.lock
        if not lock.acquire(False):
            return 0
        try:
            timer_id = self._append(body, 1, False)
            if timer_id is not None:
                slot = self.table.insert_record(timer_id, body, SIZE_BYTES)
                self.table.set_handle(slot, self.wheel.insert(tick, timer_id))
                core.applied_lsn = timer_id
                self._wake(core, tick)
                return timer_id
        except BaseException as error:
            self.life.broke_off(error, applied_lsn=core.applied_lsn)
            raise
        finally:
            _release(core, lock)
        return 0

    def schedule_many(self, delays, payloads):
        """Make many; return the first id, or 0 where the general way has to be gone."""
        body = self._body_of(delays, payloads)
        if body is None:
            return 0
        count = len(delays)
        core = self.core
        lock = core.lock
        if not lock.acquire(False):
            return 0
        try:
            first = self._append(body, count, False)
            if first is not None:
                core.state.apply_group(first, body)
                core.applied_lsn = first + count - 1
                return first
        except BaseException as error:
            self.life.broke_off(error, applied_lsn=core.applied_lsn)
            raise
        finally:
            _release(core, lock)
        return 0

    def reschedule(self, timer_id, delay):
        """Give a timer a new delay; return an LSN, or 0 for the general way."""
        cdef int64_t delay_ns = _delay_ns(delay)
        cdef int64_t now_ns, deadline_ns, tick
        cdef char* out
        if delay_ns < 0 or type(timer_id) is not int:
            return 0
        now_ns = self.ahead_ns + <int64_t> self.monotonic_ns()
        if delay_ns > INT64_MAX - now_ns:
            return 0
        deadline_ns = now_ns + delay_ns
        tick = _tick_of(deadline_ns)
        core, table = self.core, self.table
        lock = core.lock
        if not lock.acquire(False):
            return 0
        try:
            slot = table.slot(timer_id)
            if slot is None:
                return 0
            handle = table.waiting_handle(slot, ELAPSED)
            if <int64_t> handle < 0:
                return 0
            attempt = table.attempt(slot)
            body = PyBytes_FromStringAndSize(NULL, SIZE_BYTES + RESCHEDULED_BYTES)
            out = PyBytes_AS_STRING(body)
            lane_put32(out, RESCHEDULED_BYTES)
            out[SIZE_BYTES], out[SIZE_BYTES + 1] = RESCHEDULED_KIND, ELAPSED
            lane_put32(out + SIZE_BYTES + 2, <uint32_t> attempt)
            lane_put64(out + SIZE_BYTES + 6, <uint64_t> timer_id)
            lane_put64(out + SIZE_BYTES + 14, <uint64_t> deadline_ns)
            lsn = self._append(body, 1, True)
            if lsn is None:
                return 0
            self.wheel.cancel(handle)
            table.reschedule(
                slot,
                last_lsn=lsn,
                deadline_ns=deadline_ns,
                base=ELAPSED,
                attempt=attempt,
            )
            table.set_handle(slot, self.wheel.insert(tick, timer_id))
            core.applied_lsn = lsn
            self._wake(core, tick)
            return lsn
        except BaseException as error:
            self.life.broke_off(error, applied_lsn=core.applied_lsn)
            raise
        finally:
            _release(core, lock)

    def cancel(self, timer_id):
        """Remove a timer that waits; return an LSN, or 0 for the general way."""
        cdef char* out
        if type(timer_id) is not int:
            return 0
        core, table = self.core, self.table
        lock = core.lock
        if not lock.acquire(False):
            return 0
        try:
            slot = table.slot(timer_id)
            if slot is None:
                return 0
            handle = table.waiting_handle(slot, ELAPSED)
            if <int64_t> handle < 0:
                return 0
            body = PyBytes_FromStringAndSize(NULL, SIZE_BYTES + CANCELLED_BYTES)
            out = PyBytes_AS_STRING(body)
            lane_put32(out, CANCELLED_BYTES)
            out[SIZE_BYTES] = CANCELLED_KIND
            lane_put64(out + SIZE_BYTES + 1, <uint64_t> timer_id)
            lsn = self._append(body, 1, True)
            if lsn is None:
                return 0
            self.wheel.cancel(handle)
            table.remove(timer_id)
            core.applied_lsn = lsn
            return lsn
        except BaseException as error:
            self.life.broke_off(error, applied_lsn=core.applied_lsn)
            raise
        finally:
            _release(core, lock)

    cdef object _append(self, body, count, bint urgent):
        """Append under the lock; None if the general way has to be gone."""
        if self.life.closed is not None or self.life.failed is not None:
            return None
        if not urgent and self.log.congested:
            return None
        try:
            if urgent:
                return self.log.append_group(body, count, urgent=True)
            return self.log.append_group(body, count)
        except WalError:
            return None

    cdef int _wake(self, core, int64_t tick) except -1:
        """Do as core.wake_if_earlier, which is called only if it would wake somebody."""
        cdef int64_t due_ns = (tick << TICK) - self.ahead_ns
        wake_at_ns = core.wake_at_ns
        if wake_at_ns is None or due_ns < <int64_t> wake_at_ns:
            core.wake_if_earlier(due_ns)
        return 0

    cdef object _body_of(self, delays, payloads):
        """Return the records of a batch, None if anything of it is unusual."""
        cdef Py_ssize_t at, count, size, total = 0
        cdef int64_t now_ns, delay_ns
        cdef char* out
        if type(delays) is not list or type(payloads) is not list:
            return None
        count = PyList_GET_SIZE(delays)
        if not 0 < count <= TIMERS_MAX or PyList_GET_SIZE(payloads) != count:
            return None
        now_ns = self.ahead_ns + <int64_t> self.monotonic_ns()
        # From here to the end nothing runs that could change the lists or their items.
        if PyList_GET_SIZE(delays) != count or PyList_GET_SIZE(payloads) != count:
            return None
        for at in range(count):
            payload = <object> PyList_GET_ITEM(payloads, at)
            delay_ns = _delay_ns(<object> PyList_GET_ITEM(delays, at))
            if delay_ns < 0 or delay_ns > INT64_MAX - now_ns:
                return None
            if type(payload) is not bytes or PyBytes_GET_SIZE(payload) > PAYLOAD_MAX:
                return None
            total += PyBytes_GET_SIZE(payload)
        if total > BYTES_MAX:
            return None
        body = PyBytes_FromStringAndSize(NULL, count * HEAD_BYTES + total)
        out = PyBytes_AS_STRING(body)
        for at in range(count):
            payload = <object> PyList_GET_ITEM(payloads, at)
            delay_ns = _delay_ns(<object> PyList_GET_ITEM(delays, at))
            size = PyBytes_GET_SIZE(payload)
            _write(out, now_ns + delay_ns, PyBytes_AS_STRING(payload), size)
            out += HEAD_BYTES + size
        return body


cdef int _release(core, lock) except -1:
    """Release the lock, whatever a signal's handler raises before it."""
    try:
        if core.letting_pass:
            core.pass_on()
    finally:
        lock.release()
    return 0


cdef inline int64_t _delay_ns(delay) except? -2:
    """Return a delay in ns, rounded up; -1 if it is none, or unusual."""
    cdef double seconds
    cdef int64_t whole
    cdef int overflow
    if type(delay) is float:
        seconds = PyFloat_AS_DOUBLE(delay)
        if 0 <= seconds <= DELAY_MAX:
            return <int64_t> ceil(seconds * NS)
    elif type(delay) is int:
        whole = PyLong_AsLongLongAndOverflow(delay, &overflow)
        if not overflow and 0 <= whole <= DELAY_MAX:
            return whole * NS
    return -1


cdef inline int64_t _tick_of(int64_t deadline_ns) noexcept:
    """Return the tick of a deadline, rounded up, in a way that cannot overflow."""
    return (deadline_ns >> TICK) + ((deadline_ns & ((1 << TICK) - 1)) != 0)


cdef inline void _write(
    char* out, int64_t deadline_ns, const char* payload, Py_ssize_t size
) noexcept:
    """Write a TimerScheduled record as it stands in a group's body."""
    lane_put32(out, <uint32_t> (SCHEDULED_BYTES + size))
    out[SIZE_BYTES], out[SIZE_BYTES + 1] = SCHEDULED_KIND, ELAPSED
    lane_put64(out + SIZE_BYTES + 2, <uint64_t> deadline_ns)
    memcpy(out + HEAD_BYTES, payload, size)
