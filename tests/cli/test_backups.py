"""`backup`, `restore` and `upgrade`, as people type them."""

from __future__ import annotations

from tests.cli.stage import Stage
from wal.checksum import crc32c
from wal.store import STORE_NAME


def test_a_store_is_backed_up_and_restored(stage: Stage) -> None:
    job_id = stage.add("greet", "--delay", "1h")
    kept, new = stage.data.parent / "kept", stage.data.parent / "new"
    made = stage.ok("backup", "--to", str(kept), "--json").json
    assert made["taken_ns"] == stage.clock.wall_ns()
    assert made["records"] >= 2
    looked = stage.bare("log", "verify", "--data", str(kept / "data"))
    assert (looked.code, "verdict: good" in looked.out) == (0, True)
    done = stage.ok("restore", str(kept), "--to", str(new))
    assert "as of 2026-01-01 12:00:00+00:00: what ran since then runs again" in done.out
    jobs = stage.bare("--data", str(new), "job", "list", "--json").out
    assert job_id in jobs


def test_the_directory_may_be_named_and_a_held_one_is_backed_up(stage: Stage) -> None:
    stage.add("greet", "--delay", "1h")
    kept = stage.data.parent / "kept"

    def back_up(_: object) -> None:
        done = stage.bare("backup", str(stage.data), "--to", str(kept))
        assert done.code == 0, done

    stage.served(back_up)
    assert (
        "read back and good"
        in stage.bare("restore", str(kept), "--to", str(stage.data.parent / "new")).out
    )


def test_damage_ends_a_backup_with_four_and_other_refusals_with_one(
    stage: Stage,
) -> None:
    stage.add("greet", "--delay", "1h")
    there = stage.data.parent
    occupied = stage.run("backup", "--to", str(there))
    assert (occupied.code, "unfinished" in occupied.err) == (1, True)
    taken = stage.run("restore", str(there / "none"), "--to", str(stage.data))
    assert (taken.code, "is no backup" in taken.err) == (1, True)
    segment = min(stage.data.glob("wal-*.seg"))
    data = bytearray(segment.read_bytes())
    data[4096 + 70] ^= 1
    segment.write_bytes(data)
    damaged = stage.run("backup", "--to", str(there / "kept"))
    assert (damaged.code, segment.name in damaged.err) == (4, True)
    assert (
        "unfinished"
        in stage.run("restore", str(there / "kept"), "--to", str(there / "new")).err
    )


def test_a_server_is_backed_up_where_its_directory_is(stage: Stage) -> None:
    away = stage.bare("backup", "--url", "http://127.0.0.1:1", "--to", "kept")
    assert (away.code, "pass DIRECTORY" in away.err) == (2, True)


def test_upgrade_has_nothing_to_do_and_refuses_a_newer_store(stage: Stage) -> None:
    stage.add("greet", "--delay", "1h")
    assert "nothing to do" in stage.ok("upgrade").out
    assert stage.ok("upgrade", "--json").json["changed"] is False
    store = stage.data / STORE_NAME
    data = bytearray(store.read_bytes())
    store.write_bytes(data[:20] + b"\1" + data[21:])
    assert stage.run("upgrade").code == 4  # its checksum does not hold
    data[8] += 1
    store.write_bytes(data[:48] + crc32c(bytes(data[:48])).to_bytes(4, "little"))
    newer = stage.run("upgrade")
    assert (newer.code, "newer version" in newer.err) == (1, True)
