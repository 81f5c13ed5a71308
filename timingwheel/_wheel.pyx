# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False, binding=False, auto_pickle=False
# cython: embedsignature=True, embedsignature.format=clinic
"""The compiled timing wheel: the contract of timingwheel.wheel, in a few cache lines.

What a wheel promises is said in timingwheel/wheel.py, whose tests run on this body too;
here is only what differs inside. (PEP 399: one contract, two bodies, nothing in one
only.)

**The table.** Two parallel arrays under a timer's *index*: its key, and its *tenant*:
the generation of the timer that lives there with the bit LIVE, or the next generation
without it while the index is free, or 0 when it is retired. So a handle is live if one
4-byte word says so, and cancel is one write to it.

**The slots.** A slot is a chain of 256-byte chunks of 16 entries (deadline, index,
tenant), filled at its tail and read at its head. To cascade is to copy from few chunks
to few others, in order: no table is read on the way, no list is followed. One pool
holds the chunks. It always has room for the partial chunks of every slot there is, so
once a timer is inserted nothing that moves it can run out of memory.

**The cursor** stands on a tick until all of its timers have left. A slot reached is
cascaded down, level by level, until a level-0 slot holds what is due: a radix sort by
bytes, which is stable. A timer inserted for the cursor's own tick joins that slot, at
its end, so only those inserted behind the cursor need a heap (*overdue*), and all of
them are due before anything in a slot.

**The due** leave slots and heap for one queue first and are handed out from there, so
that the keys and tenants of many can be fetched from memory at once, and so that an
advance that runs out of memory for its list has lost nothing.

**Free indexes** are the set bits of a 64-way bitmap tree, lowest first, so that what is
inserted after a million random cancels fills the memory in order again (in prototypes
45 against 170 ns a timer); before it a stack of the last freed, which are still in the
cache.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release
from cpython.buffer cimport PyObject_GetBuffer
from cpython.list cimport PyList_Append
from libc.stdint cimport INT64_MAX, int64_t, uint32_t, uint64_t
from libc.string cimport memcpy, memmove, memset

from array import array

from timingwheel.wheel_arguments import (
    as_int,
    budget,
    insert_refusal,
    int64_out,
    int64_view,
    length_refusal,
    present,
    start,
    too_many,
)

__all__ = ["TimerWheel"]

cdef extern from "Python.h":
    void* PyMem_RawRealloc(void* memory, size_t size) nogil
    void PyMem_RawFree(void* memory) nogil

cdef extern from *:
    """
    /* Constants of C, for Cython would read its own from memory each time. */
    #define WHEEL_NONE UINT32_MAX
    #define WHEEL_LIVE 0x80000000u
    #define WHEEL_GENERATION 0x0fffffffu

    #if defined(__GNUC__) || defined(__clang__)
        #define wheel_lowest_bit(word) __builtin_ctzll(word)
        #define wheel_highest_bit(word) (63 - __builtin_clzll(word))
        #define wheel_prefetch(address) __builtin_prefetch(address)
        #define wheel_prefetch_to_write(address) __builtin_prefetch(address, 1)
    #else
        static int wheel_lowest_bit(uint64_t word) {
            int bit = 0;
            while (!(word & 1)) { word >>= 1; bit++; }
            return bit;
        }
        static int wheel_highest_bit(uint64_t word) {
            int bit = 0;
            while (word >>= 1) bit++;
            return bit;
        }
        #define wheel_prefetch(address) ((void)(address))
        #define wheel_prefetch_to_write(address) ((void)(address))
    #endif

    /* Read an int of 64 bits; 0 if it is not one. PyLong_AsLongLong goes byte by byte
       for all that has two digits, as ticks and handles have; in a prototype that made
       a whole cancel 327 ns instead of 230. So two digits are read here, where we know
       how CPython holds them. */
    static CYTHON_INLINE int wheel_int64(PyObject *value, int64_t *result) {
        int overflow;
        if (!PyLong_Check(value))
            return 0;
    #if defined(PYPY_VERSION) || defined(Py_LIMITED_API) || PYLONG_BITS_IN_DIGIT != 30
    #elif PY_VERSION_HEX < 0x030C0000
        {
            const digit *digits = ((PyLongObject *)value)->ob_digit;
            Py_ssize_t size = Py_SIZE(value);
            if (size == 2) {
                *result = (int64_t)digits[1] << 30 | digits[0];
                return 1;
            }
            if (size == 1 || size == 0) {
                *result = size ? digits[0] : 0;
                return 1;
            }
        }
    #elif PY_VERSION_HEX < 0x030F0000
        {
            /* The sign is in the lowest two bits, 0 for positive; the size is above. */
            const digit *digits = ((PyLongObject *)value)->long_value.ob_digit;
            uintptr_t tag = ((PyLongObject *)value)->long_value.lv_tag;
            if (tag >> 3 == 2 && (tag & 3) == 0) {
                *result = (int64_t)digits[1] << 30 | digits[0];
                return 1;
            }
            if (tag >> 3 == 1 && (tag & 3) == 0) {
                *result = digits[0];
                return 1;
            }
        }
    #endif
        *result = PyLong_AsLongLongAndOverflow(value, &overflow);
        return !overflow;
    }
    """
    const uint32_t NONE "WHEEL_NONE"
    const uint32_t LIVE "WHEEL_LIVE"
    const uint32_t GENERATION "WHEEL_GENERATION"
    int wheel_lowest_bit(uint64_t word) noexcept nogil
    int wheel_highest_bit(uint64_t word) noexcept nogil
    void wheel_prefetch(const void* address) noexcept nogil
    void wheel_prefetch_to_write(const void* address) noexcept nogil
    bint wheel_int64(object value, int64_t* result) noexcept

cdef enum:
    SLOT_BITS = 8
    SLOTS = 256
    LEVELS = 8
    POSITIONS = 2_048
    WORDS_A_LEVEL = 4

    CHUNK = 16  # entries of 16 bytes: four cache lines, aligned or not
    # Each slot has a partial chunk at either end, and one is on its way.
    CHUNKS_IN_RESERVE = 2 * POSITIONS + 2

    HOT = 128
    TREE_DEPTH = 6  # 64 ** 6 bits: more than there can be indexes
    INDEXES_MIN = 64
    DUE_AT_ONCE = 1_024  # what an advance into a buffer moves at a time: 16 KiB
    DUE_KEPT = 65_536  # the longest queue whose memory is kept for the next advance
    PREFETCH = 16  # how many entries ahead
    SWEEP_SLACK = 256  # as in the plain wheel

# An int as long as any answer. What cancels or fires holds one like it from the start
# and frees it just before it answers: there is memory for the answer when it is too
# late to fail.
cdef int64_t ANSWER = 1ll << 59


cdef struct Entry:
    int64_t deadline
    uint32_t index
    uint32_t tenant  # what the table says while the timer is live

cdef struct Chunk:
    Entry entries[CHUNK]

cdef struct Slot:
    uint32_t head  # chunk to read from, NONE if the slot is empty
    uint32_t tail  # chunk to write to
    uint32_t read  # entries of the head that are gone
    uint32_t fill  # entries of the tail that are written; CHUNK if the slot is empty

cdef struct Overdue:
    uint64_t serial  # the order of insertion within a tick
    Entry entry


cdef void* _resized(void* memory, uint64_t count, uint64_t size) except NULL:
    """Return room for `count` items, with what it held, or raise, nothing changed."""
    cdef void* room = NULL
    if count < (1ull << 48):
        room = PyMem_RawRealloc(memory, count * size)
    if room == NULL:
        raise MemoryError(f"no room for {count} items of {size} bytes in the wheel")
    return room


cdef class TimerWheel:
    """A multi-level hashed timing wheel of (deadline tick, int64 key) timers.

    The compiled body of timingwheel.wheel.TimerWheel, which describes arguments,
    methods and invariants. Beyond its promises: a call that raises MemoryError has
    inserted, cancelled and fired nothing, though an advance may have moved now_tick.
    (Calls that need memory for their answer alone take it first: see ANSWER.)
    """

    cdef int64_t now
    cdef int64_t cursor  # behind `now` only while a budget has cut an advance short
    cdef uint64_t live
    cdef uint64_t dead
    cdef uint64_t entries_max  # what the chunk pool has room for

    # The table and its free indexes.
    cdef int64_t* keys
    cdef uint32_t* tenants
    cdef uint64_t made  # indexes ever used
    cdef uint64_t capacity
    cdef uint64_t timers_max
    cdef uint32_t last_generation
    cdef uint32_t hot_count
    cdef uint32_t hot[HOT]
    cdef uint64_t* tree[TREE_DEPTH]  # free indexes below `made` that are not hot
    cdef uint64_t tree_count

    # The slots.
    cdef Chunk* chunks
    cdef uint32_t* following  # the chunk after each, in a slot or among the free ones
    cdef uint32_t chunks_made
    cdef uint32_t chunks_capacity
    cdef uint32_t first_free_chunk
    cdef uint64_t levels  # bit l: level l has a slot that is not empty
    cdef uint64_t occupied[LEVELS * WORDS_A_LEVEL]
    cdef Slot slots[POSITIONS]

    # The queues.
    cdef Entry* due
    cdef uint64_t due_first
    cdef uint64_t due_end
    cdef uint64_t due_capacity
    cdef Overdue* overdue
    cdef uint64_t overdue_count
    cdef uint64_t overdue_capacity
    cdef uint64_t serial

    def __cinit__(self, *_, **__):
        # All else is zero or NULL. A wheel whose __init__ never ran can hold nothing.
        self.first_free_chunk = NONE
        self._empty_slots()

    def __init__(self, now_tick=0, *, generation_bits=28, timers_max=0xffffffff):
        now_tick, generation_bits, timers_max = start(
            now_tick, generation_bits, timers_max
        )
        self._free_all()
        self.now = self.cursor = now_tick
        self.last_generation = (1 << <int> generation_bits) - 1
        self.timers_max = timers_max

    def __dealloc__(self):
        self._free_all()

    def __len__(self):
        return self.live

    def __repr__(self):
        return f"<{type(self).__name__} at tick {self.now}, {self.live} timers>"

    @property
    def now_tick(self):
        """The highest tick that advance has been given, or the tick of the start."""
        return self.now

    def insert(self, deadline_tick, key):
        """Add a timer and return its handle."""
        cdef Entry entry
        cdef int64_t key64
        if not (
            wheel_int64(deadline_tick, &entry.deadline) and wheel_int64(key, &key64)
        ):
            self._read_timer(deadline_tick, key, &entry.deadline, &key64)
        if self.hot_count == 0:
            self._refill()
        if self.live + self.dead >= self.entries_max:
            self._reserve_entries(1)
        if entry.deadline < self.cursor:
            self._reserve_overdue(1)
        entry.index = self.hot[self.hot_count - 1]
        entry.tenant = self.tenants[entry.index] | LIVE
        handle = <object> _handle(&entry)  # it may raise, and nothing has changed yet
        self.hot_count -= 1
        self._insert(&entry, key64)
        return handle

    def cancel(self, handle):
        """Remove the timer of that handle, and say whether there was one."""
        cdef int64_t handle64
        if not wheel_int64(handle, &handle64):
            if not wheel_int64(as_int("handle", handle), &handle64):
                return False  # beyond 64 bits
        if not self._cancel(handle64):
            return False
        if self.dead > self.live + SWEEP_SLACK:
            self._sweep()
        return True

    def advance(self, now_tick, max_fire=None):
        """Move to now_tick and remove the timers that are due, up to a budget."""
        cdef int64_t now
        cdef uint64_t most = INT64_MAX
        cdef uint64_t seen = 0, fired_count = 0
        # Before any state is read: a new list can start the garbage collector, and that
        # the finalizer of something that uses this wheel.
        fired = []
        if not wheel_int64(now_tick, &now):
            now_tick = present(now_tick)
            if not wheel_int64(now_tick, &now):
                budget(max_fire)
                return fired  # before every tick that a deadline can be
        if max_fire is not None:
            most = budget(max_fire)
        if now > self.now:
            self.now = now
        # Nothing leaves the queue before the list is whole. Some at a time are listed,
        # as soon as they have come from memory.
        while fired_count < most:
            self._gather(now, seen + min(most - fired_count, <uint64_t> DUE_AT_ONCE))
            if self._list_due(now, &seen, most, fired) == 0:
                break
            fired_count = len(fired)
        self._fire(seen, NULL)
        self._settle()
        return fired

    def next_due(self):
        """Return a tick that no live timer is due before, or None if there is none."""
        cdef uint32_t position
        cdef int64_t tick
        if self.live == 0:
            return None
        if self._first_queued(&tick):
            return tick
        while True:
            position = self._first_live_position()
            tick = self._start_of(position)
            if position < SLOTS or tick > self.now:
                return tick
            self.cursor = tick
            self._cascade(position)

    def occupied_slots(self):
        """Which slots hold any timer, as a bitmap: bit level * 256 + byte."""
        cdef int word
        bits = 0
        for word in range(LEVELS * WORDS_A_LEVEL):
            if self.occupied[word]:
                bits |= <object> self.occupied[word] << 64 * word
        return bits

    def insert_many(self, deadlines, keys):
        """Add many timers, as insert does one after the other; return their handles."""
        cdef Py_buffer ticks, new_keys, out
        cdef Py_ssize_t count
        deadlines, keys = int64_view("deadlines", deadlines), int64_view("keys", keys)
        count = len(deadlines)
        if len(keys) != count:
            raise length_refusal(len(keys), count)
        handles = array("q", (0,)) * count
        PyObject_GetBuffer(deadlines, &ticks, PyBUF_SIMPLE)
        PyObject_GetBuffer(keys, &new_keys, PyBUF_SIMPLE)
        PyObject_GetBuffer(handles, &out, PyBUF_WRITABLE)
        try:
            self._insert_many(
                <int64_t*> ticks.buf, <int64_t*> new_keys.buf, <int64_t*> out.buf, count
            )
        finally:
            PyBuffer_Release(&ticks)
            PyBuffer_Release(&new_keys)
            PyBuffer_Release(&out)
        return handles

    def cancel_many(self, handles):
        """Remove the timers of many handles, and say how many there were."""
        cdef Py_buffer view
        cdef int64_t* handle
        cdef uint64_t at, ahead, count, before
        handles = int64_view("handles", handles)
        answer = <object> ANSWER
        before = self.live
        PyObject_GetBuffer(handles, &view, PyBUF_SIMPLE)
        handle = <int64_t*> view.buf
        count = view.len // sizeof(int64_t)
        for at in range(count):
            if at + PREFETCH < count:
                ahead = <uint32_t> handle[at + PREFETCH]
                if ahead < self.made:
                    wheel_prefetch(&self.tenants[ahead])
            self._cancel(handle[at])
        PyBuffer_Release(&view)
        before -= self.live
        if self.dead > self.live + SWEEP_SLACK:
            self._sweep()
        del answer
        return before

    def advance_into(self, now_tick, out):
        """Move to now_tick and write the keys that are due to the front of a buffer."""
        cdef Py_buffer view
        cdef int64_t now
        cdef uint64_t most, written = 0
        out = int64_out("out", out)
        answer = <object> ANSWER
        if not wheel_int64(now_tick, &now):
            now_tick = present(now_tick)
            if not wheel_int64(now_tick, &now):
                return 0  # before every tick that a deadline can be
        if now > self.now:
            self.now = now
        PyObject_GetBuffer(out, &view, PyBUF_WRITABLE)
        most = view.len // sizeof(int64_t)
        try:
            while written < most:
                self._gather(now, min(most - written, <uint64_t> DUE_AT_ONCE))
                if not self._due_by(now):
                    break
                written += self._fire_due(
                    now, most - written, <int64_t*> view.buf + written
                )
        finally:
            PyBuffer_Release(&view)
        self._settle()
        del answer
        return written

    def clear(self):
        """Cancel every timer, and return how many there were."""
        cdef uint64_t index
        cleared = self.live
        for index in range(self.made):
            if self.tenants[index] & LIVE:
                self._release(<uint32_t> index)
        self.live = 0
        self._sweep()
        return cleared

    @cython.final
    cdef int _read_timer(
        self, deadline_tick, key, int64_t* deadline64, int64_t* key64
    ) except -1:
        """Read other integer types than int, or raise what insert promises."""
        self._reserve_indexes(1)  # a full wheel says so first, as the plain one does
        deadline_int = as_int("deadline_tick", deadline_tick)
        key_int = as_int("key", key)
        if not (
            wheel_int64(deadline_int, deadline64) and wheel_int64(key_int, key64)
        ):
            raise insert_refusal(deadline_int, key_int)
        return 0

    # The table.

    @cython.final
    cdef inline bint _lives(self, const Entry* entry) noexcept:
        return self.tenants[entry.index] == entry.tenant

    @cython.final
    cdef inline bint _cancel(self, int64_t handle) noexcept:
        cdef uint32_t index = <uint32_t> handle
        # Beyond 2**60 a generation would reach into the bit that says LIVE.
        if index >= self.made or <uint64_t> handle >= 1ull << 60:
            return False
        if self.tenants[index] != (<uint32_t> (handle >> 32) | LIVE):
            return False
        self._release(index)
        self.live -= 1
        self.dead += 1
        return True

    @cython.final
    cdef inline void _release(self, uint32_t index) noexcept:
        cdef uint32_t generation = self.tenants[index] & GENERATION
        if generation == self.last_generation:
            self.tenants[index] = 0  # worn out: retired
            return
        self.tenants[index] = generation + 1
        if self.hot_count == HOT:
            self._cool()
        self.hot[self.hot_count] = index
        self.hot_count += 1

    @cython.final
    cdef void _cool(self) noexcept:
        """Put the older half of the hot free indexes in the tree."""
        cdef uint32_t at
        for at in range(HOT // 2):
            self._plant(self.hot[at])
        self.hot_count = HOT - HOT // 2
        memmove(self.hot, &self.hot[HOT // 2], self.hot_count * sizeof(uint32_t))

    @cython.final
    cdef inline void _plant(self, uint64_t index) noexcept:
        cdef uint64_t word
        cdef int level
        self.tree_count += 1
        for level in range(TREE_DEPTH):
            word = self.tree[level][index >> 6]
            self.tree[level][index >> 6] = word | 1ull << (index & 63)
            if word:
                return
            index >>= 6

    @cython.final
    cdef uint64_t _uproot(self, uint64_t* bits) noexcept:
        """Take the lowest word of free indexes out of the tree; return its place."""
        cdef uint64_t place = 0
        cdef uint64_t child
        cdef int level
        for level in range(TREE_DEPTH - 1, 0, -1):
            place = place << 6 | <uint64_t> wheel_lowest_bit(self.tree[level][place])
        bits[0] = self.tree[0][place]
        self.tree[0][place] = 0
        child = place
        for level in range(1, TREE_DEPTH):
            self.tree[level][child >> 6] &= ~(1ull << (child & 63))
            child >>= 6
            if self.tree[level][child]:
                break
        return place

    @cython.final
    cdef int _refill(self) except -1:
        """Make the lowest free indexes hot, the lowest of them on top, or raise."""
        cdef uint32_t picked[HOT]
        cdef uint32_t count = 0
        cdef uint64_t place, bits = 0
        while self.tree_count > count and count <= HOT - 64:
            place = self._uproot(&bits)
            while bits:
                picked[count] = <uint32_t> (place << 6) + wheel_lowest_bit(bits)
                count += 1
                bits &= bits - 1
        self.tree_count -= count
        if count == 0:
            if self.made == self.capacity:
                self._reserve_indexes(1)
            # Generations start at 1, so no small integer (nor True) is ever a handle.
            while count < 64 and self.made < self.capacity:
                self.tenants[self.made] = 1
                picked[count] = <uint32_t> self.made
                self.made += 1
                count += 1
        for place in range(count):
            self.hot[place] = picked[count - 1 - place]
            wheel_prefetch_to_write(&self.keys[self.hot[place]])
        self.hot_count = count
        return 0

    @cython.final
    cdef int _reserve_indexes(self, uint64_t count) except -1:
        """See to it that `count` indexes can be taken, or raise and change nothing."""
        cdef uint64_t free = self.hot_count + self.tree_count
        cdef uint64_t more, capacity
        if count <= free + (self.capacity - self.made):
            return 0
        more = count - free
        if more > self.timers_max - self.made:
            raise too_many(
                more, pending=self.live, made=self.made, timers_max=self.timers_max
            )
        # By half: growing may mean copying, and room that nobody wrote to is free.
        capacity = max(self.made + more, self.capacity + (self.capacity >> 1))
        capacity = min(max(capacity, <uint64_t> INDEXES_MIN), self.timers_max)
        self._grow_table(capacity)
        return 0

    @cython.final
    cdef int _grow_table(self, uint64_t capacity) except -1:
        cdef uint64_t words, words_before
        cdef int level
        self.keys = <int64_t*> _resized(self.keys, capacity, sizeof(int64_t))
        self.tenants = <uint32_t*> _resized(self.tenants, capacity, sizeof(uint32_t))
        words, words_before = capacity, self.capacity
        for level in range(TREE_DEPTH):
            words, words_before = (words + 63) >> 6, (words_before + 63) >> 6
            self.tree[level] = <uint64_t*> _resized(
                self.tree[level], words, sizeof(uint64_t)
            )
            memset(&self.tree[level][words_before], 0, (words - words_before) * 8)
        self.capacity = capacity
        return 0

    # Memory for what is to come, taken before anything changes.

    @cython.final
    cdef int _reserve_entries(self, uint64_t count) except -1:
        """See to it that `count` more timers find a place, wherever they will move."""
        cdef uint64_t entries = self.live + self.dead + count
        cdef uint64_t chunks
        if entries <= self.entries_max:
            return 0
        chunks = max(entries, self.entries_max + (self.entries_max >> 1)) // CHUNK + 1
        chunks += CHUNKS_IN_RESERVE
        self.chunks = <Chunk*> _resized(self.chunks, chunks, sizeof(Chunk))
        self.following = <uint32_t*> _resized(self.following, chunks, sizeof(uint32_t))
        if self.due_capacity < DUE_AT_ONCE:
            self.due = <Entry*> _resized(self.due, DUE_AT_ONCE, sizeof(Entry))
            self.due_capacity = DUE_AT_ONCE
        self.chunks_capacity = <uint32_t> chunks
        self.entries_max = (chunks - CHUNKS_IN_RESERVE) * CHUNK
        return 0

    @cython.final
    cdef int _reserve_overdue(self, uint64_t count) except -1:
        cdef uint64_t capacity = self.overdue_count + count
        if capacity > self.overdue_capacity:
            capacity = max(capacity, 2 * self.overdue_capacity)
            self.overdue = <Overdue*> _resized(self.overdue, capacity, sizeof(Overdue))
            self.overdue_capacity = capacity
        return 0

    @cython.final
    cdef int _reserve_due(self, uint64_t count) except -1:
        cdef uint64_t queued = self.due_end - self.due_first
        if self.due_end + count <= self.due_capacity:
            return 0
        if self.due_first:
            memmove(self.due, &self.due[self.due_first], queued * sizeof(Entry))
            self.due_first, self.due_end = 0, queued
        if queued + count > self.due_capacity:
            self.due = <Entry*> _resized(
                self.due, 2 * (queued + count), sizeof(Entry)
            )
            self.due_capacity = 2 * (queued + count)
        return 0

    @cython.final
    cdef void _free_all(self) noexcept:
        """Give all memory back and be as empty as at first."""
        cdef int level
        self._empty_slots()
        PyMem_RawFree(self.keys)
        PyMem_RawFree(self.tenants)
        for level in range(TREE_DEPTH):
            PyMem_RawFree(self.tree[level])
            self.tree[level] = NULL
        PyMem_RawFree(self.chunks)
        PyMem_RawFree(self.following)
        PyMem_RawFree(self.due)
        PyMem_RawFree(self.overdue)
        self.keys, self.tenants = NULL, NULL
        self.chunks, self.following = NULL, NULL
        self.due, self.overdue = NULL, NULL
        self.live = self.dead = self.entries_max = self.serial = 0
        self.made = self.capacity = self.tree_count = 0
        self.hot_count = self.chunks_capacity = 0
        self.due_capacity = self.overdue_capacity = 0

    # The slots.

    @cython.final
    cdef void _empty_slots(self) noexcept:
        """Let go of every entry, wherever it stands."""
        cdef int position
        for position in range(POSITIONS):
            self.slots[position].head = self.slots[position].tail = NONE
            self.slots[position].read, self.slots[position].fill = 0, CHUNK
        memset(self.occupied, 0, sizeof(self.occupied))
        self.levels = 0
        self.chunks_made, self.first_free_chunk = 0, NONE
        self.due_first = self.due_end = self.overdue_count = 0

    @cython.final
    cdef inline void _insert(self, Entry* entry, int64_t key) noexcept:
        """Make a timer of an index that is free; all memory is there."""
        self.keys[entry.index] = key
        self.tenants[entry.index] = entry.tenant
        self.live += 1
        if entry.deadline >= self.cursor:
            self._place(entry)
        else:
            self._push_overdue(entry)

    @cython.final
    cdef int _insert_many(
        self,
        const int64_t* ticks,
        const int64_t* keys,
        int64_t* handles,
        uint64_t count,
    ) except -1:
        cdef Entry entry
        cdef uint64_t at, behind = 0
        self._reserve_indexes(count)
        self._reserve_entries(count)
        for at in range(count):
            behind += ticks[at] < self.cursor
        self._reserve_overdue(behind)
        for at in range(count):
            if self.hot_count == 0:
                self._refill()  # what it needs is reserved
            self.hot_count -= 1
            entry.index = self.hot[self.hot_count]
            entry.tenant = self.tenants[entry.index] | LIVE
            entry.deadline = ticks[at]
            handles[at] = _handle(&entry)
            self._insert(&entry, keys[at])
        return 0

    @cython.final
    cdef inline void _place(self, const Entry* entry) noexcept:
        """Put an entry at the end of the slot that its deadline and the cursor name."""
        cdef uint32_t position = _position(entry.deadline, self.cursor)
        cdef Slot* slot = &self.slots[position]
        if slot.fill == CHUNK:
            self._lengthen(slot, position)
        self.chunks[slot.tail].entries[slot.fill] = entry[0]
        slot.fill += 1

    @cython.final
    cdef void _lengthen(self, Slot* slot, uint32_t position) noexcept:
        cdef uint32_t line, chunk = self.first_free_chunk
        if chunk != NONE:
            self.first_free_chunk = self.following[chunk]
        else:
            chunk = self.chunks_made
            self.chunks_made += 1
        if slot.tail == NONE:
            slot.head, slot.read = chunk, 0
            self.occupied[position >> 6] |= 1ull << (position & 63)
            self.levels |= 1ull << (position >> SLOT_BITS)
        else:
            self.following[slot.tail] = chunk
        slot.tail, slot.fill = chunk, 0
        # Whichever slot needs the next one will find it in the cache.
        chunk = self.first_free_chunk
        if chunk == NONE:
            chunk = self.chunks_made
        for line in range(0, CHUNK, 4):
            wheel_prefetch_to_write(&self.chunks[chunk].entries[line])

    @cython.final
    cdef inline void _return_chunk(self, uint32_t chunk) noexcept:
        self.following[chunk] = self.first_free_chunk
        self.first_free_chunk = chunk

    @cython.final
    cdef inline void _unchain(self, Slot* slot, uint32_t position) noexcept:
        """Mark a slot empty; its chunks are the caller's."""
        cdef uint64_t* words
        slot.head, slot.tail, slot.read, slot.fill = NONE, NONE, 0, CHUNK
        self.occupied[position >> 6] &= ~(1ull << (position & 63))
        words = &self.occupied[(position >> SLOT_BITS) * WORDS_A_LEVEL]
        if (words[0] | words[1] | words[2] | words[3]) == 0:
            self.levels &= ~(1ull << (position >> SLOT_BITS))

    @cython.final
    cdef inline void _next_chunk(self, Slot* slot, uint32_t position) noexcept:
        """Drop the head chunk of a slot, which has been read to its end."""
        cdef uint32_t head = slot.head
        if head == slot.tail:
            self._unchain(slot, position)
        else:
            slot.head, slot.read = self.following[head], 0
        self._return_chunk(head)

    @cython.final
    cdef inline uint32_t _first_position(self) noexcept:
        """Return the first slot with an entry, dead or alive; NONE if there is none."""
        cdef int level, word
        if self.levels == 0:
            return NONE
        level = wheel_lowest_bit(self.levels)
        word = level * WORDS_A_LEVEL
        while self.occupied[word] == 0:
            word += 1
        return (word << 6) + wheel_lowest_bit(self.occupied[word])

    @cython.final
    cdef uint32_t _first_live_position(self) except? 0xffffffff:
        """Return the first slot with a live timer, where there is one; the dead go."""
        cdef uint32_t position
        cdef Slot* slot
        while True:
            position = self._first_position()
            assert position != NONE, "a live timer is in no slot and in no queue"
            slot = &self.slots[position]
            # One is enough: in level 0 all of a slot share its deadline, above it the
            # slot's start is the answer.
            while slot.head != NONE:
                if self._lives(&self.chunks[slot.head].entries[slot.read]):
                    return position
                self.dead -= 1
                slot.read += 1
                if slot.read == _end(slot, slot.head):
                    self._next_chunk(slot, position)

    @cython.final
    cdef inline int64_t _start_of(self, uint32_t position) noexcept:
        """Return the first tick of a slot: the cursor's upper bytes, the slot's own."""
        cdef uint64_t byte = position & (SLOTS - 1)
        cdef uint32_t shift = (position >> SLOT_BITS) * SLOT_BITS
        cdef uint64_t upper = 0
        if shift < 56:  # else there are none, and C cannot shift by 64
            upper = <uint64_t> self.cursor >> (shift + SLOT_BITS) << SLOT_BITS
        return <int64_t> ((upper | byte) << shift)

    @cython.final
    cdef void _cascade(self, uint32_t position) noexcept:
        """Place the entries of a slot anew, the cursor having reached its start."""
        cdef Chunk chunk
        cdef Slot slot = self.slots[position]
        cdef uint32_t at, end, head = slot.head, read = slot.read
        self._unchain(&self.slots[position], position)
        while True:
            end = _end(&slot, head)
            chunk = self.chunks[head]
            # Free before its entries are placed, for they may need it.
            slot.head = self.following[head]
            self._return_chunk(head)
            for at in range(read, end):
                self._place(&chunk.entries[at])
            if head == slot.tail:
                return
            head, read = slot.head, 0

    @cython.final
    cdef int _take(self, uint32_t position, uint64_t most) except -1:
        """Move the first entries of a slot to the queue of what is due."""
        cdef Slot* slot = &self.slots[position]
        cdef Entry* entries
        cdef uint64_t at, count
        cdef uint32_t end
        while most and slot.head != NONE:
            end = _end(slot, slot.head)
            count = min(<uint64_t> (end - slot.read), most)
            self._reserve_due(count)
            entries = &self.chunks[slot.head].entries[slot.read]
            memcpy(&self.due[self.due_end], entries, count * sizeof(Entry))
            for at in range(count):
                # By the time that they are fired they have come from memory.
                wheel_prefetch(&self.tenants[entries[at].index])
                wheel_prefetch(&self.keys[entries[at].index])
            self.due_end += count
            most -= count
            slot.read += <uint32_t> count
            if slot.read == end:
                self._next_chunk(slot, position)
        return 0

    # The queues.

    @cython.final
    cdef int _gather(self, int64_t now, uint64_t want) except -1:
        """Move what is due by `now` to the queue, until `want` entries are in it."""
        cdef uint32_t position
        cdef int64_t tick
        if self.overdue_count:
            self._gather_overdue(now, want)
        while self.due_end - self.due_first < want:
            position = self._first_position()
            tick = INT64_MAX if position == NONE else self._start_of(position)
            if position == NONE or tick > now:
                # Nothing lies between, so every timer keeps its level: no bit in which
                # its deadline and the cursor agree above that level has changed.
                self.cursor = max(self.cursor, now)
                break
            self.cursor = tick
            if position < SLOTS:
                self._take(position, want - (self.due_end - self.due_first))
            else:
                self._cascade(position)
        return 0

    @cython.final
    cdef int _gather_overdue(self, int64_t now, uint64_t want) except -1:
        cdef Entry* entry
        cdef uint64_t at
        while self.overdue_count and self.overdue[0].entry.deadline <= now:
            entry = &self.overdue[0].entry
            if (
                self.due_end - self.due_first >= want
                and self.due[self.due_end - 1].deadline <= entry.deadline
            ):
                break
            self._reserve_due(1)
            # The place is the end, except among what an advance left that ran out of
            # memory; that goes first in a tie, since it came by a slot.
            at = self.due_end
            while at > self.due_first and self.due[at - 1].deadline > entry.deadline:
                self.due[at] = self.due[at - 1]
                at -= 1
            self.due[at] = entry[0]
            self.due_end += 1
            self._pop_overdue()
        return 0

    @cython.final
    cdef inline bint _due_by(self, int64_t now) noexcept:
        return (
            self.due_first < self.due_end and self.due[self.due_first].deadline <= now
        )

    @cython.final
    cdef int _list_due(
        self, int64_t now, uint64_t* seen, uint64_t most, list fired
    ) except -1:
        """List the keys in the queue from place `seen`; return if there were any."""
        cdef Entry* entry
        cdef uint64_t count = len(fired)
        cdef uint64_t before = seen[0]
        while self.due_first + seen[0] < self.due_end and count < most:
            entry = &self.due[self.due_first + seen[0]]
            if entry.deadline > now:
                break
            if self._lives(entry):
                PyList_Append(fired, self.keys[entry.index])
                count += 1
            seen[0] += 1
        return seen[0] > before

    @cython.final
    cdef uint64_t _fire_due(self, int64_t now, uint64_t most, int64_t* out) noexcept:
        cdef uint64_t count = 0, queued = self.due_end - self.due_first
        cdef Entry* due = &self.due[self.due_first]
        while count < queued and count < most and due[count].deadline <= now:
            count += 1
        return self._fire(count, out)

    @cython.final
    cdef uint64_t _fire(self, uint64_t seen, int64_t* out) noexcept:
        """Remove the first entries of the queue, writing their keys to `out` if any."""
        cdef Entry* entry
        cdef uint64_t at, fired = 0
        for at in range(self.due_first, self.due_first + seen):
            entry = &self.due[at]
            if at + PREFETCH < self.due_end:
                wheel_prefetch(&self.tenants[self.due[at + PREFETCH].index])
            if self._lives(entry):
                if out != NULL:
                    out[fired] = self.keys[entry.index]
                self._release(entry.index)
                fired += 1
        self.live -= fired
        self.dead -= seen - fired
        self.due_first += seen
        if self.due_first == self.due_end:
            self.due_first = self.due_end = 0
        return fired

    @cython.final
    cdef void _settle(self) noexcept:
        """Sweep if that is overdue, and keep no long queue when it is empty."""
        cdef void* less
        if self.dead > self.live + SWEEP_SLACK:
            self._sweep()
        if self.due_end == 0 and self.due_capacity > DUE_KEPT:
            less = PyMem_RawRealloc(self.due, DUE_AT_ONCE * sizeof(Entry))
            if less != NULL:
                self.due, self.due_capacity = <Entry*> less, DUE_AT_ONCE

    @cython.final
    cdef bint _first_queued(self, int64_t* tick) noexcept:
        """Find the earliest deadline in the queues; dead heads go."""
        cdef bint found = False
        while (
            self.due_first < self.due_end
            and not self._lives(&self.due[self.due_first])
        ):
            self._fire(1, NULL)
        while self.overdue_count and not self._lives(&self.overdue[0].entry):
            self._pop_overdue()
            self.dead -= 1
        if self.due_first < self.due_end:
            tick[0] = self.due[self.due_first].deadline
            found = True
        if self.overdue_count:
            if not found or self.overdue[0].entry.deadline < tick[0]:
                tick[0] = self.overdue[0].entry.deadline
            found = True
        return found

    @cython.final
    cdef void _push_overdue(self, const Entry* entry) noexcept:
        cdef uint64_t at = self.overdue_count
        self.overdue_count += 1
        self.serial += 1
        self.overdue[at].entry, self.overdue[at].serial = entry[0], self.serial
        self._sift_up(at)

    @cython.final
    cdef void _sift_up(self, uint64_t at) noexcept:
        cdef Overdue moving = self.overdue[at]
        cdef uint64_t parent
        while at:
            parent = (at - 1) >> 1
            if not _before(&moving, &self.overdue[parent]):
                break
            self.overdue[at] = self.overdue[parent]
            at = parent
        self.overdue[at] = moving

    @cython.final
    cdef void _pop_overdue(self) noexcept:
        """Remove the first of the heap."""
        self.overdue_count -= 1
        self.overdue[0] = self.overdue[self.overdue_count]
        self._sift_down(0)

    @cython.final
    cdef void _sift_down(self, uint64_t at) noexcept:
        cdef Overdue moving = self.overdue[at]
        cdef uint64_t child = 2 * at + 1
        while child < self.overdue_count:
            if child + 1 < self.overdue_count and _before(
                &self.overdue[child + 1], &self.overdue[child]
            ):
                child += 1
            if not _before(&self.overdue[child], &moving):
                break
            self.overdue[at] = self.overdue[child]
            at = child
            child = 2 * at + 1
        self.overdue[at] = moving

    # The sweep, which needs no memory and so cannot fail.

    @cython.final
    cdef void _sweep(self) noexcept:
        """Drop every dead entry, wherever it stands."""
        cdef int word
        cdef uint64_t bits
        self.dead = 0
        if self.live == 0:
            self._empty_slots()
            return
        for word in range(LEVELS * WORDS_A_LEVEL):
            bits = self.occupied[word]
            while bits:
                self._sweep_slot((word << 6) + wheel_lowest_bit(bits))
                bits &= bits - 1
        self._sweep_queues()

    @cython.final
    cdef void _sweep_slot(self, uint32_t position) noexcept:
        """Move the live entries of a slot to its front and free the chunks behind."""
        cdef Slot* slot = &self.slots[position]
        cdef uint32_t source = slot.head, target = slot.head, last = slot.tail
        cdef uint32_t at = slot.read, end, fill = 0, spare
        cdef Entry* entry
        while True:
            end = _end(slot, source)
            while at < end:
                entry = &self.chunks[source].entries[at]
                at += 1
                if not self._lives(entry):
                    continue
                if fill == CHUNK:
                    target, fill = self.following[target], 0
                self.chunks[target].entries[fill] = entry[0]
                fill += 1
            if source == last:
                break
            source, at = self.following[source], 0
        while target != last:
            spare = self.following[target]
            self.following[target] = self.following[spare]
            self._return_chunk(spare)
            if spare == last:
                break
        if fill:
            slot.read, slot.tail, slot.fill = 0, target, fill
        else:
            self._unchain(slot, position)
            self._return_chunk(target)

    @cython.final
    cdef void _sweep_queues(self) noexcept:
        cdef uint64_t at, count = 0
        for at in range(self.due_first, self.due_end):
            if self._lives(&self.due[at]):
                self.due[count] = self.due[at]
                count += 1
        self.due_first, self.due_end = 0, count
        count = 0
        for at in range(self.overdue_count):
            if self._lives(&self.overdue[at].entry):
                self.overdue[count] = self.overdue[at]
                count += 1
        self.overdue_count = count
        for at in range(count // 2, 0, -1):
            self._sift_down(at - 1)

    # The invariants.

    def check(self):
        """Assert every invariant of the class; for tests and for doubt."""
        assert 0 <= self.cursor <= self.now
        chunks = self._check_free_chunks()
        entries = self._check_slots(chunks) + self._check_queues()
        assert len(set(chunks)) == len(chunks), "a chunk is used twice"
        assert len(chunks) == self.chunks_made <= self.chunks_capacity
        assert len(entries) <= self.entries_max, "the pool may be too small to cascade"
        living = {index for index, tenant in entries if self.tenants[index] == tenant}
        assert len(set(entries)) == len(entries), "an entry stands in two places"
        assert len(living) == self.live, "len() is not the number of live timers"
        assert len(entries) - len(living) == self.dead, "dead entries are miscounted"
        assert self.dead <= self.live + SWEEP_SLACK, "a sweep is overdue"
        self._check_table(entries, living)

    def _check_table(self, entries, living):
        cdef uint64_t index
        free = self._check_free_indexes()
        assert self.made <= self.capacity <= self.timers_max
        for index in range(self.made):
            tenant = self.tenants[index]
            generation = tenant & GENERATION
            assert tenant in (generation, generation | LIVE)
            assert generation <= self.last_generation
            assert bool(tenant & LIVE) == (index in living), "a live timer is nowhere"
            is_free = generation and not tenant & LIVE
            assert is_free == (index in free), "a free index is lost, or is no free one"
        for index, tenant in entries:
            assert tenant & LIVE
            following = self.tenants[index] & GENERATION
            if index not in living and following:
                assert tenant & GENERATION < following, "a dead entry could live again"

    def _check_free_indexes(self):
        cdef uint64_t word, words = (self.capacity + 63) >> 6
        cdef int level
        planted = [
            word << 6 | bit
            for word in range(words)
            for bit in range(64)
            if self.tree[0][word] >> bit & 1
        ]
        assert len(planted) == self.tree_count, "free indexes are miscounted"
        for level in range(1, TREE_DEPTH):
            for word in range(words):
                has_bit = self.tree[level][word >> 6] >> (word & 63) & 1
                assert has_bit == (self.tree[level - 1][word] != 0), "a lost branch"
            words = (words + 63) >> 6
        free = {*planted, *[self.hot[at] for at in range(self.hot_count)]}
        assert len(free) == self.tree_count + self.hot_count, "an index is free twice"
        return free

    def _check_free_chunks(self):
        chunks = []
        chunk = self.first_free_chunk
        while chunk != NONE:
            assert len(chunks) < self.chunks_made, "the free chunks form a ring"
            chunks.append(chunk)
            chunk = self.following[chunk]
        return chunks

    def _check_slots(self, chunks):
        cdef uint32_t position, at, chunk
        cdef Slot* slot
        cdef Entry* entry
        entries = []
        for position in range(POSITIONS):
            slot = &self.slots[position]
            is_occupied = self.occupied[position >> 6] >> (position & 63) & 1
            assert is_occupied == (slot.head != NONE) == (slot.tail != NONE)
            chunk, at = slot.head, slot.read
            while chunk != NONE:
                chunks.append(chunk)
                assert at < _end(slot, chunk) <= CHUNK, "an empty chunk is kept"
                for at in range(at, _end(slot, chunk)):
                    entry = &self.chunks[chunk].entries[at]
                    if self._lives(entry):
                        assert entry.deadline >= self.cursor, "a slot lies behind"
                        assert _position(entry.deadline, self.cursor) == position
                        assert self._start_of(position) <= entry.deadline
                    entries.append((entry.index, entry.tenant))
                at = 0
                chunk = NONE if chunk == slot.tail else self.following[chunk]
        for level in range(LEVELS):
            words = [self.occupied[level * WORDS_A_LEVEL + at] for at in range(4)]
            assert any(words) == self.levels >> level & 1
        return entries

    def _check_queues(self):
        cdef uint64_t at
        cdef Overdue* heap = self.overdue
        entries = []
        for at in range(self.due_first, self.due_end):
            entries.append((self.due[at].index, self.due[at].tenant))
            assert self.due[at].deadline <= self.cursor
            if at > self.due_first:
                assert self.due[at - 1].deadline <= self.due[at].deadline
        for at in range(self.overdue_count):
            entries.append((heap[at].entry.index, heap[at].entry.tenant))
            assert heap[at].entry.deadline < self.cursor
            assert heap[at].serial <= self.serial
            if at:
                assert _before(&heap[(at - 1) >> 1], &heap[at]), "`overdue` is no heap"
        return entries


cdef inline uint32_t _end(const Slot* slot, uint32_t chunk) noexcept:
    return slot.fill if chunk == slot.tail else CHUNK


cdef inline uint32_t _position(int64_t deadline, int64_t cursor) noexcept:
    # The highest bit in which the two differ names the level; the lowest is set so that
    # equal ones have one too, of level 0.
    cdef uint32_t level = wheel_highest_bit((deadline ^ cursor) | 1) >> 3
    return level << SLOT_BITS | (deadline >> (level * SLOT_BITS) & (SLOTS - 1))


cdef inline int64_t _handle(const Entry* entry) noexcept:
    return <int64_t> (entry.tenant & GENERATION) << 32 | entry.index


cdef inline bint _before(const Overdue* one, const Overdue* other) noexcept:
    if one.entry.deadline != other.entry.deadline:
        return one.entry.deadline < other.entry.deadline
    return one.serial < other.serial
