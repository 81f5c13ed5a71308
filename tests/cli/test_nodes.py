"""`node`, `shard` and `doctor` on a database; and all else with `--store`."""

from __future__ import annotations

import pytest

from tests.cli.stage import Stage
from tests.postgres import Postgres
from timingwheel.scheduler.scheduler import Scheduler


@pytest.fixture
def where(postgres: Postgres) -> str:
    return postgres.new_schema()


def test_a_command_works_on_a_database(stage: Stage, where: str) -> None:
    nothing = stage.bare("--store", where, "job", "list")
    assert (nothing.code, "no job store yet" in nothing.err) == (1, True)
    add = ("job", "add", "mail:send", "to=a", "--every", "1h", "--name", "n")
    assert stage.bare("--store", where, *add, "--create").code == 0
    stage.environment["TIMINGWHEEL_STORE"] = where
    assert "\nn " in stage.bare("job", "list").out
    assert stage.bare("job", "pause", "n").code == 0
    assert stage.bare("job", "show", "n", "--json").json["state"] == "paused"
    near = stage.bare("--data", str(stage.data), "job", "list")
    assert "is no store yet" in near.err  # the command line is nearer


def test_two_places_are_refused_and_a_log_is_asked_of_a_directory(
    stage: Stage, where: str
) -> None:
    both = stage.bare("--store", where, "--url", "http://x", "job", "list")
    assert (both.code, "both say where the jobs are" in both.err) == (2, True)
    log = stage.bare("--store", where, "log", "verify")
    assert (log.code, "no log of its own" in log.err) == (2, True)
    wrong = stage.bare("--store", "./data", "job", "list")
    assert (wrong.code, "--data" in wrong.err) == (2, True)


def test_passwords_are_not_shown(stage: Stage) -> None:
    url = "postgresql://ann:secret@h/jobs?password=secret&sslmode=require"
    shown = stage.bare("--store", url, "config", "show").out
    assert "secret" not in shown
    assert "postgresql://ann:***@h/jobs?password=***&sslmode=require" in shown


def test_serve_takes_how_hints_come_from_wherever_settings_do(
    stage: Stage, where: str
) -> None:
    serve = ("--store", where, "serve", "--port", "0")
    wrong = stage.bare(*serve, "--hints", "loudly")
    assert (wrong.code, 'pass "auto", "off", or a postgresql://' in wrong.err) == (
        2,
        True,
    )
    stage.environment["TIMINGWHEEL_HINTS"] = "softly"
    assert 'pass "auto", "off"' in stage.bare(*serve).err
    stage.environment["TIMINGWHEEL_HINTS"] = "postgresql://ann:secret@past/jobs"
    shown = stage.bare("config", "show").out
    assert ("secret" in shown, "ann:***@past" in shown) == (False, True)
    directory = stage.run("serve", "--hints", "off")
    assert (directory.code, "name one with --store" in directory.err) == (2, True)


def test_nodes_and_shards_are_listed(stage: Stage, where: str) -> None:
    words = ("--store", where)
    stage.bare(*words, "token", "add", "ci", "--role", "read", "--create")
    assert "no node lives" in stage.bare(*words, "node", "list").err
    with Scheduler(where) as app:
        facts = app.cluster()
        assert facts is not None
        (node,) = facts.nodes
        shown = stage.bare(*words, "node", "list").out
        assert node.name in shown
        assert "256" in shown
        listed = stage.bare(*words, "node", "list", "--all", "--json").json
        assert [one["is_node"] for one in listed["members"]] == [True, False]
        assert listed["members"][0]["alive"]
        shards = stage.bare(*words, "shard", "list", "--json").json["shards"]
        assert {one["owner"] for one in shards} == {node.name}
        assert f"{node.name}: 256" in stage.bare(*words, "shard", "list").err
    assert "nothing is due" in stage.bare(*words, "shard", "list", "--late").err


def test_a_directory_has_no_nodes(stage: Stage) -> None:
    stage.add("mail:send", "--every", "1h")
    done = stage.run("node", "list")
    assert (done.code, "which one process serves" in done.err) == (1, True)


def test_doctor_looks_at_the_database(stage: Stage, where: str) -> None:
    words = ("--store", where)
    stage.bare(*words, "job", "add", "mail:send", "--every", "1h", "--create")
    done = stage.bare(*words, "doctor", "--json")
    assert done.code == 1  # the server of the tests does not wait for the disk
    found = {one["kind"]: one["mild"] for one in done.json["findings"]}
    assert found["no_node"] is True
    assert (found["not_durable"], found["autovacuum"]) == (False, False)
    assert done.json["checks"] == ["opening", "state", "runs", "jobs", "cluster"]


def test_migrate_says_what_is_to_do(stage: Stage, where: str) -> None:
    words = ("migrate", "--store", where)
    assert "no job store yet" in stage.bare(*words).err
    stage.bare("--store", where, "token", "add", "ci", "--role", "read", "--create")
    done = stage.bare(*words, "--check", "--json")
    assert (done.code, done.json["to_do"], done.json["phase"]) == (0, [], "done")
    assert stage.bare(*words).out == "schema 1 of 1, done\n"
    assert "--to" in stage.bare(*words, "--to", "9").err
    directory = stage.run("migrate")
    assert (directory.code, "--store" in directory.err) == (2, True)


def test_a_directory_moves_into_a_database_and_is_closed(
    stage: Stage, where: str
) -> None:
    job = stage.add("mail:send", "to=a", "--every", "1h", "--name", "n")
    stage.ok("token", "add", "ci", "--role", "read")
    move = ("migrate-store", "--from", str(stage.data), "--to", where)
    dry = stage.bare(*move, "--dry-run", "--json").json
    assert (dry["moved"], dry["counts"]["jobs"]) == (False, 1)
    done = stage.bare(*move)
    assert (done.code, "1 jobs moved" in done.out) == (0, True), done
    shown = stage.bare("--store", where, "job", "show", "n", "--json").json
    assert shown["id"] == job
    tokens = stage.bare("--store", where, "token", "list", "--json").json["tokens"]
    assert [one["name"] for one in tokens] == ["ci"]
    gone = stage.run("job", "list")
    assert (gone.code, "has moved to postgresql://" in gone.err) == (1, True)
    again = stage.bare(*move)
    assert (again.code, "has a job store already" in again.err) == (1, True)
    wrong = stage.bare("migrate-store", "--from", "x", "--to", "y")
    assert (wrong.code, "--to" in wrong.err) == (2, True)
