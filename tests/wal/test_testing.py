"""The disk in memory: what a crash may leave, what it may not, and what states come."""

from __future__ import annotations

import errno
import itertools
import random
from collections.abc import Callable

import pytest

from wal.filesystem import SECTOR_BYTES, Handle, write_new_file
from wal.testing import CrashChoice, MemoryFileSystem, SimulatedCrash

STATES = 2_000  # more than any test here has


@pytest.fixture
def disk() -> MemoryFileSystem:
    disk = MemoryFileSystem()
    disk.make_directory()
    return disk


def contents(disk: MemoryFileSystem, name: str) -> set[bytes | None]:
    """What the crash states of this moment show under a name; None where it is absent."""
    states = [state.snapshot_of_all() for state in disk.crash_states(STATES)]
    assert 0 < len(states) < STATES
    return {state.get(name) for state in states}


def durable_file(disk: MemoryFileSystem, name: str, data: bytes = b"") -> Handle:
    disk.put(name, data)
    return disk.open(name, writable=True)


def sectors(*letters: str) -> bytes:
    return b"".join(letter.encode() * SECTOR_BYTES for letter in letters)


# -- bytes ------------------------------------------------------------------------------


@pytest.mark.parametrize("sync", [MemoryFileSystem.datasync, MemoryFileSystem.sync])
def test_a_synced_write_survives_every_crash(
    disk: MemoryFileSystem, sync: Callable[[MemoryFileSystem, Handle], None]
) -> None:
    handle = durable_file(disk, "f", b"old")
    disk.pwrite(handle, b"new", 0)
    sync(disk, handle)
    assert contents(disk, "f") == {b"new"}


def test_an_unsynced_write_is_lost_in_one_state_and_kept_in_another(
    disk: MemoryFileSystem,
) -> None:
    handle = durable_file(disk, "f", b"old")
    disk.pwrite(handle, b"new", 0)
    assert contents(disk, "f") == {b"old", b"new"}


def test_a_sync_covers_only_its_own_file(disk: MemoryFileSystem) -> None:
    one, other = durable_file(disk, "one"), durable_file(disk, "other")
    disk.pwrite(one, b"x", 0)
    disk.pwrite(other, b"x", 0)
    disk.datasync(one)
    assert contents(disk, "one") == {b"x"}
    assert b"" in contents(disk, "other")


def test_a_torn_write_keeps_whole_sectors_in_any_combination(
    disk: MemoryFileSystem,
) -> None:
    handle = durable_file(disk, "f", sectors("a", "b", "c"))
    disk.pwrite(handle, sectors("A", "B", "C"), 0)
    possible = itertools.product("aA", "bB", "cC")
    assert contents(disk, "f") == {sectors(*letters) for letters in possible}


def test_sectors_are_those_of_the_file_not_of_the_write(disk: MemoryFileSystem) -> None:
    handle = durable_file(disk, "f", bytes(3 * SECTOR_BYTES))
    disk.pwrite(handle, b"x" * SECTOR_BYTES, 500)
    head = bytes(500) + b"x" * 12 + bytes(1024)
    tail = bytes(512) + b"x" * 500 + bytes(524)
    both = bytes(500) + b"x" * 512 + bytes(524)
    assert contents(disk, "f") == {bytes(1536), head, tail, both}


def test_a_later_write_can_persist_without_an_earlier_one(
    disk: MemoryFileSystem,
) -> None:
    handle = durable_file(disk, "f", sectors("a", "b"))
    disk.pwrite(handle, sectors("A"), 0)
    disk.pwrite(handle, sectors("B"), SECTOR_BYTES)
    assert sectors("a", "B") in contents(disk, "f")
    assert sectors("A", "b") in contents(disk, "f")


def test_writes_that_share_a_sector_come_in_their_order(disk: MemoryFileSystem) -> None:
    """The second one's sector was written from a page that holds the first one too."""
    handle = durable_file(disk, "f", b"..")
    disk.pwrite(handle, b"1", 0)
    disk.pwrite(handle, b"2", 1)
    assert contents(disk, "f") == {b"..", b"1.", b"12"}


def test_bytes_below_the_length_that_did_not_come_through_are_zero(
    disk: MemoryFileSystem,
) -> None:
    handle = durable_file(disk, "f")
    disk.pwrite(handle, sectors("A", "B") + b"C", 0)
    found = contents(disk, "f")
    zero = bytes(SECTOR_BYTES)
    assert found >= {b"", sectors("A"), zero + sectors("B"), zero + zero + b"C"}
    assert sectors("A") + zero + bytes(1) in found, "grown without its bytes"
    assert len(max(found, key=lambda content: len(content or b"")) or b"") == 1025


def test_a_truncation_can_be_lost_and_the_sync_keeps_it(disk: MemoryFileSystem) -> None:
    handle = durable_file(disk, "f", b"long")
    disk.truncate(handle, 1)
    assert contents(disk, "f") == {b"long", b"l"}
    disk.datasync(handle)
    assert contents(disk, "f") == {b"l"}


def test_a_sector_written_after_a_lost_truncation_has_no_old_bytes(
    disk: MemoryFileSystem,
) -> None:
    handle = durable_file(disk, "f", b"o" * 2 * SECTOR_BYTES)
    disk.truncate(handle, 0)
    disk.pwrite(handle, b"new", 0)
    lost = b"new".ljust(SECTOR_BYTES, b"\0") + b"o" * SECTOR_BYTES
    assert contents(disk, "f") == {b"o" * 1024, b"", b"new", b"\0\0\0", lost}


def test_creating_over_a_file_empties_it_only_with_the_next_sync(
    disk: MemoryFileSystem,
) -> None:
    disk.put("f", b"old")
    handle = disk.create("f")
    assert contents(disk, "f") == {b"old", b""}
    disk.datasync(handle)
    assert contents(disk, "f") == {b""}


def test_random_states_are_any_subset_of_many_operations(
    disk: MemoryFileSystem,
) -> None:
    handle = durable_file(disk, "f", sectors(*"abcdefgh"))
    for index, letter in enumerate("ABCDEFGH"):
        disk.pwrite(handle, sectors(letter), index * SECTOR_BYTES)
    found = {state.content("f")[::SECTOR_BYTES] for state in disk.crash_states(2_000)}
    assert len(found) > 200
    assert all(content.lower() == b"abcdefgh" for content in found)


# -- names ------------------------------------------------------------------------------


def test_an_unsynced_name_is_absent_in_one_state_and_present_in_another(
    disk: MemoryFileSystem,
) -> None:
    handle = disk.create("f")
    disk.pwrite(handle, b"x", 0)
    disk.datasync(handle)
    assert contents(disk, "f") == {None, b"x"}
    disk.sync_dir()
    assert contents(disk, "f") == {b"x"}


def test_a_synced_name_can_have_no_bytes(disk: MemoryFileSystem) -> None:
    handle = disk.create("f")
    disk.pwrite(handle, b"x", 0)
    disk.sync_dir()
    assert contents(disk, "f") == {b"", b"\0", b"x"}


def test_a_rename_is_both_sides_or_neither(disk: MemoryFileSystem) -> None:
    disk.put("f", b"old")
    disk.put("f.tmp", b"new")
    disk.rename("f.tmp", "f")
    states = [state.snapshot_of_all() for state in disk.crash_states(STATES)]
    assert states == [{"f": b"old", "f.tmp": b"new"}, {"f": b"new"}]


def test_a_rename_can_persist_without_a_trace_of_the_creation(
    disk: MemoryFileSystem,
) -> None:
    disk.close(disk.create("f.tmp"))
    disk.rename("f.tmp", "f")
    states = [state.names() for state in disk.crash_states(STATES)]
    assert sorted(states) == [[], ["f"], ["f.tmp"]]


def test_a_name_used_again_never_costs_the_file_that_left_it(
    disk: MemoryFileSystem,
) -> None:
    """A kept creation of `a` without the rename that freed it would lose the bytes."""
    disk.put("a", b"kept")
    disk.rename("a", "b")
    disk.close(disk.create("a"))
    states = [state.snapshot_of_all() for state in disk.crash_states(STATES)]
    assert {"a": b"kept"} in states
    assert {"b": b"kept"} in states
    assert {"a": b"", "b": b"kept"} in states
    assert all(b"kept" in state.values() for state in states)


def test_the_sync_of_the_directory_settles_all_its_names(
    disk: MemoryFileSystem,
) -> None:
    """Else a crash could bring a file back whose removal was durable."""
    disk.close(disk.create("f"))
    disk.sync_dir()
    assert disk.unsynced() == []
    disk.unlink("f")
    disk.sync_dir()
    assert contents(disk, "f") == {None}


def test_an_unlink_can_be_lost_with_the_bytes_still_there(
    disk: MemoryFileSystem,
) -> None:
    disk.put("f", b"x")
    disk.unlink("f")
    assert contents(disk, "f") == {b"x", None}
    disk.sync_dir()
    assert contents(disk, "f") == {None}


def test_names_of_different_files_come_in_any_order(disk: MemoryFileSystem) -> None:
    for name in "abc":
        disk.close(disk.create(name))
    found = {"".join(state.names()) for state in disk.crash_states(STATES)}
    assert found == {"", "a", "b", "c", "ab", "ac", "bc", "abc"}


def test_a_new_file_is_absent_or_complete_at_every_call_of_its_making() -> None:
    for calls, after in itertools.product(range(1, 6), [False, True]):
        disk = MemoryFileSystem()
        disk.make_directory()
        disk.put("f", b"old")
        disk.crash_at(disk.calls + calls, after=after)
        with pytest.raises(SimulatedCrash):
            write_new_file(disk, "f", sectors(*"abc"))
        found = contents(disk, "f")
        assert found <= {b"old", sectors(*"abc")}
        assert (found == {sectors(*"abc")}) == ((calls, after) == (5, True))


# -- the states themselves --------------------------------------------------------------


def busy_disk(seed: int) -> MemoryFileSystem:
    """A disk with some history, and at least four un-synced steps at its end."""
    disk = MemoryFileSystem()
    disk.make_directory()
    for step in range(12):
        source = random.Random(seed * 100 + step)
        handle = disk.create(source.choice("abc"))
        disk.pwrite(handle, source.randbytes(1500), source.randrange(2000))
        disk.truncate(handle, source.randrange(3000))
        if step < 8 and source.random() < 0.3:
            disk.datasync(handle)
        disk.close(handle)
        if source.random() < 0.5:
            disk.rename(source.choice(disk.names()), source.choice("abc"))
        if step < 8 and source.random() < 0.2:
            disk.sync_dir()
    return disk


@pytest.mark.parametrize("seed", range(5))
def test_a_label_brings_its_state_back_also_in_another_run(seed: int) -> None:
    labels = {}
    for state in busy_disk(seed).crash_states(120):
        labels[state.label] = state.snapshot_of_all()
    assert len(labels) == 120
    again = busy_disk(seed)
    for label, content in labels.items():
        assert again.crashed(label).snapshot_of_all() == content
        assert CrashChoice.parse(label).label == label


def test_no_two_states_of_one_moment_are_alike_and_the_limit_holds() -> None:
    disk = busy_disk(7)
    for limit in (0, 1, 10, 300):
        states = [state.snapshot_of_all() for state in disk.crash_states(limit)]
        assert len(states) == limit
        assert all(a != b for a, b in itertools.combinations(states, 2))


def test_other_seeds_give_other_random_states() -> None:
    disk = busy_disk(8)
    first, second = (
        {s.label for s in disk.crash_states(300, seed) if s.label.startswith("random")}
        for seed in (1, 2)
    )
    assert first
    assert not first & second


def test_the_first_states_keep_nothing_and_everything(disk: MemoryFileSystem) -> None:
    handle = durable_file(disk, "f", b"old")
    disk.pwrite(handle, b"new", 0)
    none, everything = itertools.islice(disk.crash_states(), 2)
    assert (none.label, none.content("f")) == ("none", b"old")
    assert (everything.label, everything.content("f")) == ("all", b"new")
    assert disk.crashed().snapshot_of_all() == none.snapshot_of_all()


def test_each_operation_is_dropped_alone_and_kept_alone(disk: MemoryFileSystem) -> None:
    handle = durable_file(disk, "f", sectors(*"abcde"))
    for index, letter in enumerate("ABCDE"):
        disk.pwrite(handle, sectors(letter), index * SECTOR_BYTES)
    found = {
        state.label: state.content("f")[::SECTOR_BYTES] for state in disk.crash_states()
    }
    assert found["drop 2"] == b"AbCDE"
    assert found["keep 2"] == b"aBcde"
    assert {f"{kind} {n}" for kind in ("drop", "keep") for n in range(1, 6)} <= set(
        found
    )


def test_the_last_write_is_torn_at_each_sector(disk: MemoryFileSystem) -> None:
    handle = durable_file(disk, "f", sectors(*"abcd"))
    disk.pwrite(handle, sectors(*"ABCD"), 0)
    found = {
        state.label: state.content("f")[::SECTOR_BYTES] for state in disk.crash_states()
    }
    assert [found[f"head 1 {n}"] for n in (1, 2, 3)] == [b"Abcd", b"ABcd", b"ABCd"]
    assert [found[f"tail 1 {n}"] for n in (1, 2, 3)] == [b"aBCD", b"abCD", b"abcD"]


def test_a_long_write_leaves_room_for_random_states(disk: MemoryFileSystem) -> None:
    handle = durable_file(disk, "f", bytes(1 << 20))
    disk.pwrite(handle, b"x" * (1 << 20), 0)
    kinds = {state.label.split()[0] for state in disk.crash_states(100)}
    assert kinds == {"none", "all", "head", "tail", "random"}


def test_a_disk_with_nothing_unsynced_has_one_state(disk: MemoryFileSystem) -> None:
    disk.put("f", b"x")
    assert [state.label for state in disk.crash_states()] == ["none"]


@pytest.mark.parametrize(
    "label", ["", "some", "drop", "drop x", "none 3", "head 1", "all all"]
)
def test_what_is_no_label_is_refused(label: str) -> None:
    with pytest.raises(ValueError):
        CrashChoice.parse(label)


@pytest.mark.parametrize("label", ["drop 0", "keep 2", "head 1 1", "size 1"])
def test_a_choice_that_does_not_fit_the_disk_is_refused(
    disk: MemoryFileSystem, label: str
) -> None:
    disk.close(disk.create("f"))
    with pytest.raises(ValueError, match=label):
        disk.crashed(label)


def test_a_crashed_disk_is_new_and_the_old_one_goes_on(disk: MemoryFileSystem) -> None:
    handle = durable_file(disk, "f", b"old")
    disk.lock("LOCK")
    disk.pwrite(handle, b"new", 0)
    disk.fail("pwrite", errno.EIO)
    crashed = disk.crashed("all")
    assert (crashed.calls, crashed.trace, crashed.unsynced()) == (0, [], [])
    assert crashed.lock("LOCK") is not None
    again = crashed.open("f", writable=True)
    crashed.pwrite(again, b"NEW", 0)
    with pytest.raises(OSError):
        disk.pwrite(handle, b"bad", 0)
    disk.pwrite(handle, b"two", 0)
    assert (disk.content("f"), crashed.content("f")) == (b"two", b"NEW")
    assert disk.crashed("none").content("f") == b"old"
    assert crashed.crashed("none").content("f") == b"new"


def test_a_crashed_disk_keeps_its_bytes_though_the_old_one_writes_and_syncs(
    disk: MemoryFileSystem,
) -> None:
    handle = durable_file(disk, "f", b"old")
    disk.pwrite(handle, b"two", 0)
    crashed = disk.crashed("none")
    disk.datasync(handle)
    disk.pwrite(handle, b"new", 0)
    disk.datasync(handle)
    assert crashed.content("f") == b"old"
    assert crashed.crashed("none").content("f") == b"old"


def test_states_are_those_of_the_moment_though_the_disk_goes_on(
    disk: MemoryFileSystem,
) -> None:
    handle = durable_file(disk, "f", b"a")
    disk.pwrite(handle, b"b", 0)
    found = []
    for state in disk.crash_states():
        found.append(state.content("f"))
        disk.pwrite(handle, b"c", 0)
        disk.datasync(handle)
    assert found == [b"a", b"b"]


def test_entropy_repeats_with_the_seed_and_never_over_a_crash() -> None:
    assert MemoryFileSystem(seed=3).entropy(8) == MemoryFileSystem(seed=3).entropy(8)
    disk = MemoryFileSystem(seed=3)
    lives = [disk, disk.crashed(), disk.crashed().crashed(), MemoryFileSystem(seed=4)]
    lives += [
        disk.other_process(),
        disk.other_process(),
        disk.crashed().other_process(),
    ]
    assert len({life.entropy(8) for life in lives}) == len(lives)
    assert disk.killed().entropy(8) != MemoryFileSystem(seed=3).entropy(8)


def test_a_kill_loses_nothing_written_but_a_power_loss_after_it_may(
    disk: MemoryFileSystem,
) -> None:
    handle = disk.create("f")
    disk.pwrite(handle, b"x", 0)
    disk.lock("LOCK")
    after = disk.killed()
    assert after.content("f") == b"x"
    assert after.lock("LOCK") is not None
    assert contents(after, "f") == {None, b"", b"\0", b"x"}
