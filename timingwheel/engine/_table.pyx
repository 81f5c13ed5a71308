# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False, binding=False, auto_pickle=False
# cython: embedsignature=True, embedsignature.format=clinic
"""The compiled timer table: the contract of timingwheel.engine.table, without objects.

What a table promises is said in timingwheel/engine/table.py, whose tests run on this body
too; here is only what differs inside. (PEP 399: one contract, two bodies.)

No call under the engine's lock does work that grows with the table: what grows does so
a block, or a piece, at a time.

**Rows** are structs of 48 bytes in blocks of 4,096, and not an array a column: what is done
to a timer touches most of its columns, and so one cache line. One array that grows would
have to move: for 12.5 million rows the kernel took 2 ms to move the pages alone.

**The index** is an open-addressing table of 4-byte row numbers; the id to compare by is in
the row. Ids are LSNs: dense, growing, in a few long runs. Multiplied by the golden ratio,
consecutive numbers fall as far from each other as can be (Knuth, The Art of Computer
Programming 3, 6.4), so a run hardly ever collides with itself, however long it is, and two
runs meet at random. (The id itself as its place would be faster still, until two runs that
a jump of 2**20 parts lie upon each other, each probe the length of a run.) A removed entry
is filled by those after it that may move up (6.4, algorithm R): no tombstones, so a table
that churns for years is as good as new.

**The index grows in pieces.** A larger one is begun beside it, and each insert and remove
moves some entries on, in the order of places. A piece ends where a run of entries ends, so
what has its home before that point is in the new one, what has it behind in the old one,
and what is new goes where it belongs by that. A place is the hash times the size, so this
writes the new index from front to back, while the pages of the old that are through go
back: both together take little more memory than one. (Anew at once, for 13.6 million, was
one insert of 0.24 s. If all that is new went to the new one, it would touch a fresh page
with each insert: 15 ms for a run of 4,096, and 5 bytes a timer until all has moved.)

**The arena** holds payloads in chunks of 64 KiB, each behind the number of its row, filled
from the front. A chunk whose last payload goes is freed. When chunks hold more than twice
the live bytes, one of them is at most half alive; what lives in it moves to the end of
the newest, and it is freed: that is at most one byte copied for each byte that was
removed. A payload larger than a quarter of a chunk has a chunk to itself.
"""

from cpython.array cimport array, clone, resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.bytes cimport PyBytes_GET_SIZE
from libc.stdint cimport INT64_MAX, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy
from posix.mman cimport MADV_DONTNEED, MAP_ANON, MAP_FAILED, MAP_PRIVATE, PROT_READ
from posix.mman cimport PROT_WRITE, madvise, mmap, munmap

from timingwheel.engine.table import (
    NO_HANDLE,
    Row,
    State,
    WheelBatch,
    half_a_row,
    no_row,
)

__all__ = ["TimerTable"]

cdef extern from "Python.h":
    void* PyMem_RawMalloc(size_t size) nogil
    void* PyMem_RawRealloc(void* memory, size_t size) nogil
    void PyMem_RawFree(void* memory) nogil
    int64_t PyLong_AsLongLongAndOverflow(object value, int* overflow) except? -1
    int PyTraceMalloc_Track(unsigned int domain, size_t memory, size_t size) nogil
    int PyTraceMalloc_Untrack(unsigned int domain, size_t memory) nogil

cdef extern from *:
    """
    #if defined(__GNUC__) || defined(__clang__)
        #define table_prefetch(address) __builtin_prefetch(address)
    #else
        #define table_prefetch(address) ((void)(address))
    #endif
    #define TABLE_GOLDEN 0x9E3779B97F4A7C15ull

    /* Little-endian on every machine; compilers make one instruction of each. */
    static CYTHON_INLINE uint32_t table_get32(const char *at) {
        const unsigned char *b = (const unsigned char *)at;
        return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16
            | (uint32_t)b[3] << 24;
    }
    static CYTHON_INLINE int64_t table_get64(const char *at) {
        return (int64_t)((uint64_t)table_get32(at)
            | (uint64_t)table_get32(at + 4) << 32);
    }
    static CYTHON_INLINE void table_put32(char *at, uint32_t value) {
        unsigned char *b = (unsigned char *)at;
        b[0] = (unsigned char)value;
        b[1] = (unsigned char)(value >> 8);
        b[2] = (unsigned char)(value >> 16);
        b[3] = (unsigned char)(value >> 24);
    }
    static CYTHON_INLINE void table_put64(char *at, int64_t value) {
        table_put32(at, (uint32_t)value);
        table_put32(at + 4, (uint32_t)((uint64_t)value >> 32));
    }
    """
    const uint64_t GOLDEN "TABLE_GOLDEN"
    void table_prefetch(const void* address) noexcept nogil
    uint32_t table_get32(const char* at) noexcept nogil
    int64_t table_get64(const char* at) noexcept nogil
    void table_put32(char* at, uint32_t value) noexcept nogil
    void table_put64(char* at, int64_t value) noexcept nogil

cdef enum:
    CHUNK_BYTES = 65_536
    LARGE_BYTES = CHUNK_BYTES // 4
    OWNER_BYTES = 4  # before each payload in a shared chunk: the number of its row
    # More than twice the live bytes by this does not matter: a chunk that is being
    # filled, one kept for the next, and one whose end was too short.
    SLACK_BYTES = 3 * CHUNK_BYTES

    BLOCK_BITS = 12
    BLOCK_ROWS = 1 << BLOCK_BITS
    ROWS_MAX = 0x7fffffff  # a bit is left to tell dead payloads

    PLACES_MIN = 32  # and no fewer than PREFETCH_MOVING
    # Places of the old index that each change passes: it is through when at most an
    # eighth of its size was added, long before either index is full.
    PLACES_A_CHANGE = 8
    DROP_BYTES = 1 << 20  # of the old index in one go: 256 pages, some 30 us
    TRACE_DOMAIN = 0x7457
    CHUNKS_MIN = 8
    PREFETCH = 8  # how many rows ahead
    PREFETCH_MOVING = 32  # how many places of the old index

    # What a row is in a snapshot block, and a scheduled timer in a group's body; both
    # are drawn in timingwheel/engine, dump.py and records.py.
    PACKED_ROW_BYTES = 34
    RECORD_SIZE_BYTES = 4
    SCHEDULED_BYTES = 10
    SCHEDULED_KIND = 1

    STATE_WAITING = 1
    STATE_FIRED = 2
    BASE_LAST = 1

cdef uint32_t NONE = 0xffffffff
cdef uint32_t DEAD = 0x80000000  # with the size, in place of the number of a row
cdef int64_t HANDLE_NONE = NO_HANDLE
cdef object WAITING = State.WAITING
cdef object FIRED = State.FIRED
cdef array UINT32S = array("I")
cdef array INT64S = array("q")
assert (UINT32S.itemsize, INT64S.itemsize) == (4, 8)
assert (WAITING, FIRED) == (STATE_WAITING, STATE_FIRED)


cdef struct TimerRow:
    int64_t timer_id  # 0 in a free row
    int64_t last_lsn
    int64_t deadline_ns  # in a free row: the next free one
    int64_t handle
    uint32_t attempt
    uint32_t size  # of the payload
    uint32_t chunk  # NONE without a payload
    uint16_t place  # of the payload in its chunk
    uint8_t state
    uint8_t base

cdef struct Index:
    uint32_t* places  # slot + 1 at its id's home or after it, 0 where nothing is
    uint64_t size  # in places; 0 if there is no such index now

cdef struct Chunk:
    char* bytes  # NULL if there is no such chunk now
    uint32_t capacity
    uint32_t fill  # bytes written; without `bytes`: the next number that is free
    uint32_t live  # bytes of these that rows own


cdef void* _resized(void* memory, uint64_t count, uint64_t size) except NULL:
    """Return room for `count` items, holding what it held; on failure nothing changed."""
    cdef void* room = NULL
    if count < (1ull << 48):
        room = PyMem_RawRealloc(memory, count * size)
    if room == NULL:
        raise MemoryError(f"no room for {count} items of {size} bytes in the timer table")
    return room


cdef class TimerTable:
    """Rows of timers by slot and by id.

    The compiled body of timingwheel.engine.table.TimerTable, which describes methods and
    invariants. Beyond its promises: a call that raises MemoryError has changed nothing.
    """

    cdef TimerRow** blocks  # of rows
    cdef uint32_t blocks_made
    cdef uint32_t blocks_capacity
    cdef uint32_t made  # slots in use or free
    cdef uint32_t first_free  # NONE without one
    cdef uint32_t live

    cdef Index index
    cdef Index old  # while the index grows: the former one
    cdef uint64_t old_start  # where moving began, an empty place
    cdef uint64_t old_moved  # places from there on that are through
    cdef uint64_t old_dropped  # the place up to which memory went back

    cdef Chunk* chunks
    cdef uint32_t chunks_made
    cdef uint32_t chunks_capacity
    cdef uint32_t first_free_chunk  # a number to use again
    cdef uint32_t open_chunk  # that is being filled; NONE before the first
    cdef uint32_t hand  # where the search for a chunk to empty goes on
    cdef char* spare  # an empty chunk, so that compaction never waits for memory
    cdef uint64_t bytes_held
    cdef uint64_t bytes_live
    cdef bint starved  # compaction found no memory, and the bound may be passed

    def __cinit__(self):
        self.first_free = self.first_free_chunk = self.open_chunk = NONE

    def __dealloc__(self):
        cdef uint32_t number
        for number in range(self.chunks_made):
            PyMem_RawFree(self.chunks[number].bytes)
        PyMem_RawFree(self.chunks)
        PyMem_RawFree(self.spare)
        _unmap(&self.old)
        _unmap(&self.index)
        for number in range(self.blocks_made):
            PyMem_RawFree(self.blocks[number])
        PyMem_RawFree(self.blocks)

    def __len__(self):
        return self.live

    # Single rows.

    def slot(self, timer_id):
        """Return the slot of a timer, None if there is no such timer. Cost: O(1)."""
        cdef int overflow
        cdef int64_t id64 = PyLong_AsLongLongAndOverflow(timer_id, &overflow)
        cdef uint32_t* place = NULL if overflow else self._find(id64)
        return None if place == NULL else place[0] - 1

    def insert(
        self,
        int64_t timer_id,
        *,
        int64_t last_lsn,
        int64_t deadline_ns,
        uint8_t base,
        bytes payload not None,
        uint32_t attempt=0,
        uint8_t state=1,
    ):
        """Add a timer that is not there yet and return its slot. Cost: O(1)."""
        cdef TimerRow row
        row.timer_id, row.last_lsn, row.deadline_ns = timer_id, last_lsn, deadline_ns
        row.attempt, row.state, row.base = attempt, state, base
        # The answer first, an object: once the row is in, nothing may fail any more.
        cdef object slot = self.made if self.first_free == NONE else self.first_free
        self._reserve(1)
        self._insert(&row, PyBytes_AS_STRING(payload), PyBytes_GET_SIZE(payload))
        return slot

    def insert_record(self, int64_t timer_id, bytes data not None, Py_ssize_t at=0):
        """Do as `insert` for a new timer, by its TimerScheduled record."""
        cdef const char* record = PyBytes_AS_STRING(data) + at
        cdef Py_ssize_t size = PyBytes_GET_SIZE(data) - at
        cdef TimerRow row
        if at < 0 or size < SCHEDULED_BYTES:
            raise ValueError(f"no TimerScheduled record in {size} bytes from {at}")
        row.timer_id = row.last_lsn = timer_id
        row.base = <uint8_t> record[1]
        row.deadline_ns = table_get64(record + 2)
        row.attempt, row.state = 0, STATE_WAITING
        cdef object slot = self.made if self.first_free == NONE else self.first_free
        self._reserve(1)
        self._insert(&row, record + SCHEDULED_BYTES, size - SCHEDULED_BYTES)
        return slot

    def remove(self, int64_t timer_id):
        """Free the row of a timer; its payload is dropped at once. Cost: O(1)."""
        cdef uint32_t* place = self._find(timer_id)
        if place == NULL:
            raise KeyError(timer_id)
        self._remove(place)
        self._compact()

    def reschedule(
        self,
        int64_t slot,
        *,
        int64_t last_lsn,
        int64_t deadline_ns,
        uint8_t base,
        uint32_t attempt,
    ):
        """Give a row another deadline and have it wait for it."""
        cdef TimerRow* row = self._row(slot)
        row.last_lsn, row.deadline_ns = last_lsn, deadline_ns
        row.base, row.attempt, row.state = base, attempt, STATE_WAITING

    def fire(self, int64_t slot, *, int64_t last_lsn, uint32_t attempt):
        """Note that a delivery began; the row has left the wheel."""
        cdef TimerRow* row = self._row(slot)
        row.last_lsn, row.attempt, row.state = last_lsn, attempt, STATE_FIRED
        row.handle = HANDLE_NONE

    def row(self, int64_t slot):
        """Return a row in use."""
        cdef TimerRow* row = self._row(slot)
        return Row(
            row.timer_id,
            row.last_lsn,
            row.deadline_ns,
            row.attempt,
            _state_of(row),
            row.base,
            self._payload(row),
        )

    def timer_id(self, int64_t slot):
        """Return whose row it is."""
        return self._row(slot).timer_id

    def last_lsn(self, int64_t slot):
        """Return the LSN of the last record applied to a row."""
        return self._row(slot).last_lsn

    def deadline_ns(self, int64_t slot):
        """Return a row's deadline on its base."""
        return self._row(slot).deadline_ns

    def base(self, int64_t slot):
        """Return which clock a row's deadline is measured on."""
        return self._row(slot).base

    def attempt(self, int64_t slot):
        """Return how many deliveries of a row have begun."""
        return self._row(slot).attempt

    def is_waiting(self, int64_t slot):
        """Return whether a row waits for its deadline."""
        return self._row(slot).state == STATE_WAITING

    def payload(self, int64_t slot):
        """Return a row's payload."""
        return self._payload(self._row(slot))

    def handle(self, int64_t slot):
        """Return a row's wheel handle, NO_HANDLE if it is in no wheel."""
        return self._row(slot).handle

    def waiting_handle(self, int64_t slot, uint8_t base):
        """Return the handle of a row that waits on a base, NO_HANDLE of any other."""
        cdef TimerRow* row = self._row(slot)
        if row.state != STATE_WAITING or row.base != base:
            return HANDLE_NONE
        return row.handle

    def set_handle(self, int64_t slot, int64_t handle):
        """Note where in a wheel a row is."""
        self._row(slot).handle = handle

    # Many rows.

    def count_handles(self, int64_t handle):
        """Return how many rows in use have a handle. Cost: O(n); for tests."""
        cdef uint32_t slot, count = 0
        cdef TimerRow* row
        for slot in range(self.made):
            row = self._at(slot)
            count += row.timer_id != 0 and row.handle == handle
        return count

    def walk(self, int64_t start, int64_t stop, *, bint in_wheels=True):
        """Yield the rows in use with start <= slot < stop, in slot order."""
        cdef int64_t slot = start
        cdef TimerRow* row
        while slot < stop and slot < self.made:
            row = self._row(slot)
            if row.timer_id != 0 and (in_wheels or row.handle < 0):
                yield self.row(slot)
            slot += 1

    @property
    def slot_count(self):
        """Slots in use or free: where a walk ends."""
        return self.made

    def timer_ids(self):
        """Return all ids in growing order. Cost: O(n log n)."""
        cdef uint32_t slot
        ids = [
            self._at(slot).timer_id
            for slot in range(self.made)
            if self._at(slot).timer_id
        ]
        ids.sort()
        return ids

    def slots_in(self, uint8_t state):
        """Return the slots of the rows in a state, by growing id. Cost: O(n log n)."""
        cdef array slots
        cdef uint32_t* numbers
        cdef uint32_t slot, count = 0
        cdef int64_t last_id = 0
        cdef bint in_order = True
        cdef TimerRow* row
        for slot in range(self.made):
            row = self._at(slot)
            count += row.timer_id != 0 and row.state == state
        slots = clone(UINT32S, count, False)
        numbers = slots.data.as_uints
        count = 0
        for slot in range(self.made):
            row = self._at(slot)
            if row.timer_id != 0 and row.state == state:
                in_order = in_order and row.timer_id > last_id
                last_id = row.timer_id
                numbers[count] = slot
                count += 1
        if not in_order:
            self._sort(numbers, count)
        return slots

    def wheel_batch(self, array slots not None, uint8_t base, *, int tick_bits):
        """Return those of some rows that are on a base, as a wheel takes them."""
        cdef Py_ssize_t at, count = len(slots), chosen = 0
        cdef array own, ticks, timer_ids
        cdef TimerRow* row
        cdef int64_t tick, first_tick = INT64_MAX
        cdef int64_t below = (1ll << tick_bits) - 1
        _require_slots(slots)
        for at in range(count):
            chosen += self._row(slots.data.as_uints[at]).base == base
        own = clone(UINT32S, chosen, False)
        ticks = clone(INT64S, chosen, False)
        timer_ids = clone(INT64S, chosen, False)
        chosen = 0
        for at in range(count):
            row = self._at(slots.data.as_uints[at])
            if row.base != base:
                continue
            # Rounded up, in a way that cannot overflow.
            tick = (row.deadline_ns >> tick_bits) + ((row.deadline_ns & below) != 0)
            first_tick = min(first_tick, tick)
            own.data.as_uints[chosen] = slots.data.as_uints[at]
            ticks.data.as_longlongs[chosen] = tick
            timer_ids.data.as_longlongs[chosen] = row.timer_id
            chosen += 1
        return WheelBatch(own, ticks, timer_ids, first_tick if chosen else 0)

    def set_handles(self, array slots not None, array handles not None):
        """Note where in a wheel many rows are."""
        cdef Py_ssize_t at, count = len(slots)
        _require_slots(slots)
        if len(handles) != count or handles.ob_descr.typecode != b"q":
            raise ValueError(f"set_handles takes a handle a slot, {count} int64")
        for at in range(count):
            self._row(slots.data.as_uints[at]).handle = handles.data.as_longlongs[at]

    def attempts(self, timer_ids):
        """Return how many deliveries of each of these timers have begun."""
        cdef int64_t id64
        found = []
        for id64 in timer_ids:
            found.append(self._row_of(id64).attempt)
        return found

    def take_out(self, timer_ids):
        """Note that these timers have left the wheels."""
        cdef int64_t id64
        for id64 in timer_ids:
            self._row_of(id64).handle = HANDLE_NONE

    def with_handle(self, timer_ids):
        """Return those of some timers, if they live, that are somewhere in order."""
        cdef int64_t id64
        cdef uint32_t* place
        found = []
        for id64 in timer_ids:
            place = self._find(id64)
            if place != NULL and self._at(place[0] - 1).handle != HANDLE_NONE:
                found.append(id64)
        return found

    def unsettled(self, timer_ids):
        """Return those of some timers, if they live, that wait and are nowhere."""
        cdef int64_t id64
        cdef uint32_t* place
        cdef TimerRow* row
        found = []
        for id64 in timer_ids:
            place = self._find(id64)
            if place != NULL:
                row = self._at(place[0] - 1)
                if row.state == STATE_WAITING and row.handle == HANDLE_NONE:
                    found.append(id64)
        return found

    def fire_many(self, timer_ids, *, int64_t last_lsn, uint32_t attempt):
        """Do as `fire` for many timers; return those that are not in the table."""
        cdef int64_t id64
        cdef uint32_t* place
        cdef TimerRow* row
        missing = []
        for id64 in timer_ids:
            place = self._find(id64)
            if place == NULL:
                missing.append(id64)
                continue
            row = self._at(place[0] - 1)
            if row.last_lsn < last_lsn:
                row.last_lsn, row.attempt = last_lsn, attempt
                row.state, row.handle = STATE_FIRED, HANDLE_NONE
        return missing

    def remove_many(self, timer_ids, *, int64_t last_lsn):
        """Do as `remove` for many timers; return those that are not in the table."""
        cdef int64_t id64
        cdef uint32_t* place
        missing = []
        for id64 in timer_ids:
            place = self._find(id64)
            if place == NULL:
                missing.append(id64)
            elif self._at(place[0] - 1).last_lsn < last_lsn:
                self._remove(place)
        self._compact()
        return missing

    # Bytes of the log and of snapshots.

    def insert_scheduled(
        self, int64_t first_lsn, bytes body not None, *, Py_ssize_t at, int64_t known_lsn
    ):
        """Add the timers that a run of TimerScheduled records in a group's body makes."""
        cdef const char* data = PyBytes_AS_STRING(body)
        cdef Py_ssize_t size, end = at, stop = PyBytes_GET_SIZE(body)
        cdef uint32_t count = 0, added = 0, number
        cdef TimerRow row
        cdef array slots
        while (size := _scheduled_size(data, end, stop)) >= 0:
            end += RECORD_SIZE_BYTES + size
            count += 1
        slots = clone(UINT32S, count, False)
        answer = (count, end, slots)  # first, as in insert
        self._reserve(count)
        row.attempt, row.state = 0, STATE_WAITING
        try:
            for number in range(count):
                size = _scheduled_size(data, at, stop)
                at += RECORD_SIZE_BYTES
                row.timer_id = row.last_lsn = first_lsn + number
                table_prefetch(_home(&self.index, row.timer_id + PREFETCH))
                if row.timer_id > known_lsn or self._find(row.timer_id) == NULL:
                    row.base = <uint8_t> data[at + 1]
                    row.deadline_ns = table_get64(data + at + 2)
                    slots.data.as_uints[added] = self._insert(
                        &row, data + at + SCHEDULED_BYTES, size - SCHEDULED_BYTES
                    )
                    added += 1
                at += size
            resize(slots, added)
        except MemoryError:
            while added:
                added -= 1
                number = slots.data.as_uints[added]
                self._remove(self._find(self._at(number).timer_id))
            self._compact()
            raise
        return answer

    def pack_rows(self, uint32_t start, uint32_t count, *, Py_ssize_t bytes_max):
        """Pack rows from a slot on as a snapshot has them; return the next slot too."""
        cdef uint64_t stop = min(<uint64_t> start + count, <uint64_t> self.made)
        cdef uint64_t end = start, slot
        cdef Py_ssize_t size = 0
        cdef TimerRow* row
        cdef char* out
        while end < stop and size < bytes_max:
            row = self._at(end)
            if row.timer_id:
                size += PACKED_ROW_BYTES + <Py_ssize_t> row.size
            end += 1
        packed = PyBytes_FromStringAndSize(NULL, size)
        out = PyBytes_AS_STRING(packed)
        for slot in range(start, end):
            row = self._at(slot)
            if row.timer_id == 0:
                continue
            table_put64(out, row.timer_id)
            table_put64(out + 8, row.last_lsn)
            table_put64(out + 16, row.deadline_ns)
            table_put32(out + 24, row.attempt)
            out[28], out[29] = <char> row.state, <char> row.base
            table_put32(out + 30, row.size)
            out += PACKED_ROW_BYTES
            if row.size:
                memcpy(out, self.chunks[row.chunk].bytes + row.place, row.size)
                out += row.size
        return packed, end

    def load_rows(self, bytes block not None, Py_ssize_t at):
        """Add the rows that `pack_rows` packed, from a byte of a block on."""
        cdef const char* data = PyBytes_AS_STRING(block)
        cdef Py_ssize_t stop = PyBytes_GET_SIZE(block)
        cdef TimerRow row
        cdef uint32_t size
        while at < stop:
            if stop - at < PACKED_ROW_BYTES:
                raise half_a_row(at, stop)
            row.timer_id = table_get64(data + at)
            row.last_lsn = table_get64(data + at + 8)
            row.deadline_ns = table_get64(data + at + 16)
            row.attempt = table_get32(data + at + 24)
            row.state, row.base = <uint8_t> data[at + 28], <uint8_t> data[at + 29]
            size = table_get32(data + at + 30)
            if size > stop - at - PACKED_ROW_BYTES:
                raise half_a_row(at, stop)
            if row.timer_id < 1 or not STATE_WAITING <= row.state <= STATE_FIRED or (
                row.base > BASE_LAST
            ):
                raise no_row(at, stop)
            self._reserve(1)
            # Most ids are neighbours; those that are not have lost nothing by it.
            table_prefetch(_home(&self.index, row.timer_id + PREFETCH))
            self._insert(&row, data + at + PACKED_ROW_BYTES, size)
            at += PACKED_ROW_BYTES + <Py_ssize_t> size

    # Rows, inside.

    cdef inline TimerRow* _at(self, uint64_t slot) noexcept:
        return &self.blocks[slot >> BLOCK_BITS][slot & (BLOCK_ROWS - 1)]

    cdef inline TimerRow* _row(self, int64_t slot) except NULL:
        if not 0 <= slot < self.made:
            raise IndexError(f"slot {slot} of a timer table with {self.made}")
        return self._at(slot)

    cdef inline TimerRow* _row_of(self, int64_t timer_id) except NULL:
        cdef uint32_t* place = self._find(timer_id)
        if place == NULL:
            raise KeyError(timer_id)
        return self._at(place[0] - 1)

    cdef inline object _payload(self, const TimerRow* row):
        if row.size == 0:
            return b""
        return PyBytes_FromStringAndSize(
            self.chunks[row.chunk].bytes + row.place, row.size
        )

    cdef int _reserve(self, uint64_t count) except -1:
        """See to it that `count` rows find a place and a place in the index."""
        cdef uint64_t needed = self.live + count  # free rows are used first
        if needed > <uint64_t> self.blocks_made << BLOCK_BITS:
            self._add_blocks(needed)
        # At most three quarters full: 2.5 probes on average at random, hardly more than
        # one in a run.
        if needed > self.index.size - (self.index.size >> 2):
            self._grow_index(max(needed + needed // 2, self.index.size * 3 // 2))
        if self.old.size:
            self._move(count * PLACES_A_CHANGE)
        return 0

    cdef int _add_blocks(self, uint64_t rows) except -1:
        """See to it that there are blocks for so many rows."""
        cdef uint64_t blocks = (rows + BLOCK_ROWS - 1) >> BLOCK_BITS, more
        if rows > ROWS_MAX:
            raise MemoryError(f"a timer table has at most {ROWS_MAX} rows")
        if blocks > self.blocks_capacity:
            more = blocks + (blocks >> 1)
            self.blocks = <TimerRow**> _resized(self.blocks, more, sizeof(TimerRow*))
            self.blocks_capacity = <uint32_t> more
        while self.blocks_made < blocks:
            self.blocks[self.blocks_made] = <TimerRow*> _resized(
                NULL, BLOCK_ROWS, sizeof(TimerRow)
            )
            self.blocks_made += 1
        return 0

    cdef int64_t _insert(
        self, TimerRow* row, const char* payload, Py_ssize_t size
    ) except -1:
        """Add a row for which room is reserved; only its payload may find none."""
        cdef uint32_t slot = self.first_free if self.first_free != NONE else self.made
        self._store(row, slot, payload, size)
        if slot == self.made:
            self.made += 1
        else:
            self.first_free = <uint32_t> self._at(slot).deadline_ns
        row.handle = HANDLE_NONE
        self._at(slot)[0] = row[0]
        if not self.old.size or not self._enter_old(row.timer_id, slot):
            _enter(&self.index, row.timer_id, slot)
        self.live += 1
        self._compact()  # it may have opened a chunk; only now has each payload its row
        return slot

    cdef void _remove(self, uint32_t* place) noexcept:
        """Remove the row that a place of the index leads to."""
        cdef uint32_t slot = place[0] - 1
        cdef TimerRow* row = self._at(slot)
        self._leave(place)
        self._drop(row)
        row.timer_id = 0
        row.deadline_ns = self.first_free
        self.first_free = slot
        self.live -= 1
        if self.old.size:
            self._move(PLACES_A_CHANGE)

    cdef int _sort(self, uint32_t* slots, uint32_t count) except -1:
        """Sort slots by id: a merge sort, for they come in runs and ids are elsewhere."""
        cdef uint32_t* room = <uint32_t*> _resized(NULL, count, sizeof(uint32_t))
        cdef uint32_t* source = slots
        cdef uint32_t* target = room
        cdef uint64_t width = 1, start, middle, end, left, right, out
        while width < count:
            for start in range(0, count, 2 * width):
                middle = min(start + width, <uint64_t> count)
                end = min(middle + width, <uint64_t> count)
                left, right = start, middle
                if middle == end or (
                    self._at(source[middle - 1]).timer_id
                    < self._at(source[middle]).timer_id
                ):
                    memcpy(target + start, source + start, (end - start) * 4)
                    continue
                for out in range(start, end):
                    if right == end or (
                        left < middle
                        and self._at(source[left]).timer_id
                        < self._at(source[right]).timer_id
                    ):
                        target[out] = source[left]
                        left += 1
                    else:
                        target[out] = source[right]
                        right += 1
            source, target = target, source
            width *= 2
        if source != slots:
            memcpy(slots, source, <size_t> count * sizeof(uint32_t))
        PyMem_RawFree(room)
        return 0

    # The index.

    cdef inline uint32_t* _find(self, int64_t timer_id) noexcept:
        """Return the place that leads to a timer's row, NULL without one."""
        cdef uint32_t* place
        if self.live == 0 or timer_id == 0:
            return NULL
        if self.old.size and not self._has_moved(timer_id):
            place = self._find_in(&self.old, timer_id)
            if place != NULL:
                return place  # else it may have found no place before the end
        return self._find_in(&self.index, timer_id)

    cdef inline uint32_t* _find_in(self, Index* index, int64_t timer_id) noexcept:
        cdef uint32_t* place = _home(index, timer_id)
        cdef uint32_t* end = index.places + index.size
        while place[0]:
            if self._at(place[0] - 1).timer_id == timer_id:
                return place
            place += 1
            if place == end:
                place = index.places
        return NULL

    cdef inline void _leave(self, uint32_t* place) noexcept:
        """Empty a place, and move up what its tenant had kept from a better one."""
        cdef bint is_old = self.old.places <= place < self.old.places + self.old.size
        cdef Index* index = &self.old if is_old else &self.index
        cdef uint32_t* places = index.places
        cdef uint64_t size = index.size, hole = place - places, at = hole, home
        while True:
            at += 1
            if at == size:
                at = 0
            if places[at] == 0:
                break
            home = _home(index, self._at(places[at] - 1).timer_id) - places
            if (at + size - home) % size >= (at + size - hole) % size:
                places[hole] = places[at]
                hole = at
        places[hole] = 0

    cdef int _grow_index(self, uint64_t size) except -1:
        """Begin an index of at least so many places; the old one moves into it."""
        cdef Index larger
        _map(&larger, max(size, <uint64_t> PLACES_MIN))
        if self.old.size:
            self._move(self.old.size)  # a large batch came before all had moved
        self.old, self.index = self.index, larger
        self.old_start = self.old_moved = 0
        if self.old.size:
            while self.old.places[self.old_start]:
                self.old_start += 1
        self.old_dropped = self.old_start
        return 0

    cdef inline bint _has_moved(self, int64_t timer_id) noexcept:
        """Return whether the home of an id in the old index is through."""
        cdef uint64_t home = _home(&self.old, timer_id) - self.old.places
        if home < self.old_start:
            home += self.old.size
        return home - self.old_start < self.old_moved

    cdef inline bint _enter_old(self, int64_t timer_id, uint32_t slot) noexcept:
        """Put an id in the old index, if its home there is yet to move and has room.

        There is room, since an eighth of the places at most come to it meanwhile; only
        the place where moving began must stay empty.
        """
        cdef uint32_t* place
        if self._has_moved(timer_id):
            return False
        place = _home(&self.old, timer_id)
        while place[0]:
            place += 1
            if place == self.old.places + self.old.size:
                place = self.old.places
        if place == self.old.places + self.old_start:
            return False
        place[0] = slot + 1
        return True

    cdef void _move(self, uint64_t places) noexcept:
        """Move the entries of so many places, and on to the end of a run of entries.

        The place where moving began stays empty, so no run goes over it.
        """
        cdef uint32_t* old = self.old.places
        cdef uint64_t size = self.old.size, at = self.old_start + self.old_moved
        cdef uint64_t ahead
        cdef uint32_t slot
        if at >= size:
            at -= size
        while True:
            ahead = at + PREFETCH_MOVING
            if ahead >= size:
                ahead -= size
            if old[ahead]:
                table_prefetch(self._at(old[ahead] - 1))
            slot = old[at]
            if slot:
                _enter(&self.index, self._at(slot - 1).timer_id, slot - 1)
            self.old_moved += 1
            at += 1
            if self.old_moved == size:
                _unmap(&self.old)
                return
            if at == size:
                at = 0
            if places:
                places -= 1
            elif slot == 0:
                break
        if at >= self.old_dropped + DROP_BYTES // sizeof(uint32_t):
            self.old_dropped = _drop_pages(&self.old, self.old_dropped, at)

    # The arena.

    cdef int _store(
        self, TimerRow* row, uint32_t slot, const char* payload, Py_ssize_t size
    ) except -1:
        """Put a payload in the arena, and note in the row where it is."""
        cdef uint32_t number = NONE
        row.size, row.chunk, row.place = 0, NONE, 0
        if size == 0:
            return 0
        if size > 0x7fffffff:
            raise MemoryError(f"a payload of {size} bytes is too large for the table")
        if size > LARGE_BYTES:
            number = self._add_chunk(OWNER_BYTES + size)
        elif self._has_room(size) or self._open():
            number = self.open_chunk
        if number == NONE:
            raise MemoryError(f"no room for a payload of {size} bytes")
        row.size = <uint32_t> size
        self._write(row, slot, payload, number)
        return 0

    cdef inline bint _has_room(self, Py_ssize_t size) noexcept:
        return self.open_chunk != NONE and (
            self.chunks[self.open_chunk].fill + OWNER_BYTES + size <= CHUNK_BYTES
        )

    cdef inline void _write(
        self, TimerRow* row, uint32_t slot, const char* payload, uint32_t number
    ) noexcept:
        """Append a payload of row.size bytes to a chunk that has room."""
        cdef Chunk* chunk = &self.chunks[number]
        row.chunk = number
        row.place = <uint16_t> (chunk.fill + OWNER_BYTES)
        memcpy(chunk.bytes + chunk.fill, &slot, OWNER_BYTES)
        memcpy(chunk.bytes + row.place, payload, row.size)
        chunk.fill += OWNER_BYTES + row.size
        chunk.live += OWNER_BYTES + row.size
        self.bytes_live += OWNER_BYTES + row.size

    cdef void _drop(self, TimerRow* row) noexcept:
        """Take a row's payload out of the arena."""
        cdef Chunk* chunk
        cdef uint32_t size = row.size, mark = DEAD | row.size
        if size == 0:
            return
        chunk = &self.chunks[row.chunk]
        memcpy(chunk.bytes + row.place - OWNER_BYTES, &mark, OWNER_BYTES)
        chunk.live -= OWNER_BYTES + size
        self.bytes_live -= OWNER_BYTES + size
        if chunk.live == 0:
            if row.chunk == self.open_chunk:
                chunk.fill = 0
            else:
                self._free_chunk(row.chunk)
        row.size, row.chunk = 0, NONE

    cdef bint _open(self) noexcept:
        """Begin another chunk; False if there is no memory for it."""
        cdef uint32_t number = self._add_chunk(CHUNK_BYTES)
        if number == NONE:
            return False
        self.open_chunk = number
        return True

    cdef uint32_t _add_chunk(self, Py_ssize_t capacity) noexcept:
        """Return the number of a new chunk, NONE if there is no memory for it."""
        cdef uint32_t number = self.first_free_chunk, more
        cdef char* bytes
        cdef void* room
        if number == NONE and self.chunks_made == self.chunks_capacity:
            more = self.chunks_capacity + (self.chunks_capacity >> 1) + CHUNKS_MIN
            room = PyMem_RawRealloc(self.chunks, more * sizeof(Chunk))
            if room == NULL:
                return NONE
            self.chunks, self.chunks_capacity = <Chunk*> room, more
        if capacity == CHUNK_BYTES and self.spare != NULL:
            bytes, self.spare = self.spare, NULL
        else:
            bytes = <char*> PyMem_RawMalloc(capacity)
            if bytes == NULL:
                return NONE
            self.bytes_held += capacity
        if number == NONE:
            number = self.chunks_made
            self.chunks_made += 1
        else:
            self.first_free_chunk = self.chunks[number].fill
        self.chunks[number].bytes = bytes
        self.chunks[number].capacity = <uint32_t> capacity
        self.chunks[number].fill = self.chunks[number].live = 0
        return number

    cdef void _free_chunk(self, uint32_t number) noexcept:
        cdef Chunk* chunk = &self.chunks[number]
        if chunk.capacity == CHUNK_BYTES and self.spare == NULL:
            self.spare = chunk.bytes
        else:
            PyMem_RawFree(chunk.bytes)
            self.bytes_held -= chunk.capacity
        chunk.bytes = NULL
        chunk.live = 0
        chunk.fill = self.first_free_chunk
        self.first_free_chunk = number

    cdef inline void _compact(self) noexcept:
        """See to it that the arena holds at most twice what lives in it."""
        self.starved = False
        while self.bytes_held > 2 * self.bytes_live + SLACK_BYTES:
            if not self._empty_a_chunk():
                self.starved = True
                return

    cdef bint _empty_a_chunk(self) noexcept:
        """Move what lives in a chunk that is at most half alive; False without memory."""
        cdef uint32_t looked
        cdef Chunk* chunk
        for looked in range(self.chunks_made):
            self.hand += 1
            if self.hand >= self.chunks_made:
                self.hand = 0
            chunk = &self.chunks[self.hand]
            if (
                chunk.bytes != NULL
                and self.hand != self.open_chunk
                and chunk.live <= chunk.capacity // 2
            ):
                return self._move_out(self.hand)
        return False

    cdef bint _move_out(self, uint32_t number) noexcept:
        cdef char* bytes = self.chunks[number].bytes
        cdef uint32_t at = 0, fill = self.chunks[number].fill, owner, size
        cdef TimerRow* row
        while at < fill:
            memcpy(&owner, bytes + at, OWNER_BYTES)
            if owner & DEAD:
                at += OWNER_BYTES + (owner & ~DEAD)
                continue
            row = self._at(owner)
            size = OWNER_BYTES + row.size
            if not self._has_room(row.size) and not self._open():
                return False  # what has moved has moved, and nothing is lost
            self._write(row, owner, bytes + at + OWNER_BYTES, self.open_chunk)
            owner = DEAD | row.size
            memcpy(bytes + at, &owner, OWNER_BYTES)
            self.chunks[number].live -= size
            self.bytes_live -= size
            at += size
        self._free_chunk(number)
        return True

    # For tests.

    def check(self):
        """Assert the invariants. For tests."""
        cdef uint32_t slot
        cdef uint32_t* place
        cdef uint64_t at
        in_use = 0
        for slot in range(self.made):
            if self._at(slot).timer_id:
                place = self._find(self._at(slot).timer_id)
                assert place != NULL, "an id leads nowhere"
                assert place[0] == slot + 1, "an id leads to another row"
                in_use += 1
        assert in_use == self.live, "len() is not the number of rows in use"
        entries = 0
        for at in range(self.index.size):
            entries += self.index.places[at] != 0
        for at in range(self.old_moved, self.old.size):
            entries += self.old.places[(self.old_start + at) % self.old.size] != 0
        assert entries == self.live, "the index knows ids that no row has"
        if self.old.size:
            assert self.old.places[self.old_start] == 0, "moving has no end"
            at = (self.old_start + self.old_moved - 1) % self.old.size
            assert not self.old_moved or self.old.places[at] == 0, "half a run moved"
        free = set()
        slot = self.first_free
        while slot != NONE:
            assert slot not in free, "a slot is free twice"
            assert self._at(slot).timer_id == 0, "a slot in use is free"
            assert self._at(slot).size == 0, "a free row holds a payload"
            free.add(slot)
            slot = <uint32_t> self._at(slot).deadline_ns
        assert len(free) + in_use == self.made <= self.blocks_made << BLOCK_BITS
        self._check_arena()

    def _check_arena(self):
        cdef uint32_t number, at, owner, slot
        cdef Chunk* chunk
        held = CHUNK_BYTES if self.spare != NULL else 0
        live = payloads = 0
        for number in range(self.chunks_made):
            chunk = &self.chunks[number]
            if chunk.bytes == NULL:
                continue
            held += chunk.capacity
            live += chunk.live
            at = owned = 0
            while at < chunk.fill:
                memcpy(&owner, chunk.bytes + at, OWNER_BYTES)
                at += OWNER_BYTES
                if owner & DEAD:
                    at += owner & ~DEAD
                    continue
                assert self._at(owner).chunk == number, "a payload has no row"
                assert self._at(owner).place == at, "a row points elsewhere"
                at += self._at(owner).size
                owned += OWNER_BYTES + self._at(owner).size
                payloads += 1
            assert at == chunk.fill <= chunk.capacity
            assert owned == chunk.live, "live bytes are miscounted"
            assert owned or number == self.open_chunk, "an empty chunk was kept"
        assert (held, live) == (self.bytes_held, self.bytes_live)
        assert self.starved or held <= 2 * live + SLACK_BYTES, "compaction is overdue"
        with_payload = 0
        for slot in range(self.made):
            with_payload += self._at(slot).timer_id != 0 and self._at(slot).size > 0
        assert payloads == with_payload


cdef inline uint32_t* _home(const Index* index, int64_t timer_id) noexcept:
    """Return where an id would best be: its hash, spread over the index."""
    return index.places + (((<uint64_t> timer_id * GOLDEN) >> 32) * index.size >> 32)


cdef inline void _enter(Index* index, int64_t timer_id, uint32_t slot) noexcept:
    """Put an id in an index that has room for it."""
    cdef uint32_t* place = _home(index, timer_id)
    while place[0]:
        place += 1
        if place == index.places + index.size:
            place = index.places
    place[0] = slot + 1


# Pages and not PyMem: those that nobody wrote to are zero and take no memory, and some of
# them can go back before the others. malloc gives no such promise below 32 MiB.

cdef int _map(Index* index, uint64_t size) except -1:
    cdef void* pages = MAP_FAILED
    if size < (1ull << 32):
        pages = mmap(
            NULL,
            size * sizeof(uint32_t),
            PROT_READ | PROT_WRITE,
            MAP_PRIVATE | MAP_ANON,
            -1,
            0,
        )
    if pages == MAP_FAILED:
        raise MemoryError(f"no room for an index of {size} timers")
    index.places, index.size = <uint32_t*> pages, size
    PyTraceMalloc_Track(TRACE_DOMAIN, <size_t> pages, size * sizeof(uint32_t))
    return 0


cdef void _unmap(Index* index) noexcept:
    if index.size:
        PyTraceMalloc_Untrack(TRACE_DOMAIN, <size_t> index.places)
        munmap(index.places, index.size * sizeof(uint32_t))
    index.places, index.size = NULL, 0


cdef uint64_t _drop_pages(Index* index, uint64_t start, uint64_t stop) noexcept:
    """Give back the memory between two places, but for parts of pages; return the end.

    Whoever looks there finds zeros.
    """
    cdef uint64_t piece = DROP_BYTES // sizeof(uint32_t)
    start = (start + piece - 1) // piece * piece
    stop = stop // piece * piece
    if start < stop:
        madvise(&index.places[start], (stop - start) * sizeof(uint32_t), MADV_DONTNEED)
    return stop


cdef inline object _state_of(const TimerRow* row):
    if row.state == STATE_WAITING:
        return WAITING
    return FIRED if row.state == STATE_FIRED else State(row.state)


cdef int _require_slots(array slots) except -1:
    if slots.ob_descr.typecode != b"I":
        raise TypeError(f"slots are an array('I'), not array({slots.typecode!r})")
    return 0


cdef inline Py_ssize_t _scheduled_size(
    const char* data, Py_ssize_t at, Py_ssize_t stop
) noexcept:
    """Return the size of the TimerScheduled record here, -1 if there is none."""
    cdef Py_ssize_t size
    if at + RECORD_SIZE_BYTES + SCHEDULED_BYTES > stop:
        return -1
    size = table_get32(data + at)
    if size < SCHEDULED_BYTES or size > stop - at - RECORD_SIZE_BYTES:
        return -1
    return size if data[at + RECORD_SIZE_BYTES] == SCHEDULED_KIND else -1
