"""The history: what is written is there, whole, once, and found by every question."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.stores.history_samples import (
    DAILY,
    DAY,
    SECOND,
    T0,
    attempt_entry,
    attempt_of,
    entries_of,
    job_entry,
    job_of,
    plain_entry,
    run_entry,
    run_of,
    skips_entry,
)
from timingwheel.errors import ArgumentError
from timingwheel.jobs.model import (
    Job,
    JobId,
    JobState,
    Misfire,
    MisfirePolicy,
    Payload,
    Policy,
    Run,
    RunId,
    RunState,
    SkipRange,
    SkipReason,
)
from timingwheel.jobs.store import JobQuery, RunQuery
from timingwheel.stores.history import (
    Entry,
    History,
    HistoryError,
    HistoryRun,
    encode,
    parse_run_cursor,
    run_cursor,
    run_order,
)
from timingwheel.stores.history_queries import jobs_question, runs_question

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "history.db")


@pytest.fixture
def history(path: str) -> Iterator[History]:
    history = History(path)
    yield history
    history.check()
    history.close()


# -- writing ------------------------------------------------------------------------------


def test_what_is_written_is_read_back_as_it_was(history: History) -> None:
    run = run_of(
        "j",
        T0,
        n=2,
        state=RunState.FAILED,
        error="Zeile 1\ngrößer 行 \0 '; DROP TABLE runs",
        result=bytes(range(256)),
    )
    value = HistoryRun(
        run=run,
        tags={"team": "bi", "ünï ' \" $.[0]": "ß"},
        payload=Payload(b"\xff\x00" * 600_000, 3),
        policy=Policy(misfire=MisfirePolicy(rule=Misfire.ALL)),
    )
    attempts = [attempt_of(run, 1, log="a\nb"), attempt_of(run, 2, error="E")]
    job = job_of("j", DAILY, tags={"a": "b"}, name="nightly")
    skips = SkipRange(JobId("j"), SkipReason.OVERLAP, T0, T0 + 5, 3)

    history.write(
        [
            *(attempt_entry(1, attempt) for attempt in attempts),
            Entry(2, "run", encode(value)),
            job_entry(3, job),
            skips_entry(4, skips),
        ]
    )

    assert history.run(run.id) == value
    assert history.runs(RunQuery()) == ([run], None)
    assert history.runs(RunQuery(tags=value.tags)).runs == [run]
    assert history.attempts(run.id) == attempts
    assert history.job(job.id) == job
    assert history.jobs(JobQuery()) == ([job], None)
    assert history.skips(job.id) == [skips]
    assert history.planned(job.id) == [(T0, 2)]
    assert history.has_job(job.id)


def test_what_is_not_there_is_none(history: History) -> None:
    run_id = run_of("j").id
    assert history.run(run_id) is None
    assert history.job(JobId("j")) is None
    assert not history.has_job(JobId("j"))
    assert history.attempts(run_id) == []
    assert history.skips(JobId("j")) == []
    assert history.planned(JobId("j")) == []
    assert history.runs(RunQuery()) == ([], None)
    assert history.jobs(JobQuery()) == ([], None)


def test_a_plain_run_stands_for_its_job_and_its_attempt(history: History) -> None:
    run = run_of("j", T0, created_ns=T0 - 9, priority=3, queue="q")
    history.write([plain_entry(1, run)])

    job = history.job(JobId("j"))
    assert job is not None
    assert (job.state, job.task, job.queue) == (JobState.DONE, "send", "q")
    assert (job.priority, job.created_ns, job.runs_made) == (3, T0 - 9, 1)
    assert job.payload == Payload(b"[1]")
    assert history.has_job(JobId("j"))
    assert history.jobs(JobQuery(task="send", queue="q")).jobs == [job]
    assert history.runs(RunQuery()).runs == [run]
    [attempt] = history.attempts(run.id)
    assert (attempt.run_id, attempt.number) == (run.id, 1)
    assert (attempt.started_ns, attempt.ended_ns) == (run.started_ns, run.ended_ns)


def test_a_live_job_is_not_in_the_history_though_its_runs_are(history: History) -> None:
    history.write([run_entry(1, run_of("j"))])
    assert not history.has_job(JobId("j"))
    assert history.job(JobId("j")) is None
    assert history.jobs(JobQuery()).jobs == []


def test_reached_lsn_is_in_the_commit_and_survives(path: str) -> None:
    history = History(path)
    assert history.reached_lsn == 0
    history.write(entries_of(7))
    assert history.reached_lsn == 7
    history.close()

    again = History(path)
    assert again.reached_lsn == 7
    assert len(again.runs(RunQuery()).runs) == 1
    again.close()


def test_entries_that_are_in_already_are_passed_over(history: History) -> None:
    run = run_of("j")
    history.write([run_entry(5, run)])
    changed = msgspec.structs.replace(run, state=RunState.FAILED)
    history.write([run_entry(5, changed), run_entry(6, run_of("k"))])

    assert history.run(run.id) == HistoryRun(run=run, payload=Payload(b"[1]"))
    assert history.reached_lsn == 6
    assert len(history.runs(RunQuery()).runs) == 2


def test_all_entries_of_one_lsn_are_taken_from_one_call(history: History) -> None:
    history.write([run_entry(5, run_of("j")), run_entry(5, run_of("k"))])
    assert len(history.runs(RunQuery()).runs) == 2


def test_a_batch_goes_in_whole_or_not_at_all(history: History) -> None:
    good = run_entry(1, run_of("j"))
    bad = Entry(2, "job", b"\xc1")
    with pytest.raises(ArgumentError, match="entries"):
        history.write([good, bad])
    assert history.reached_lsn == 0
    assert history.runs(RunQuery()).runs == []
    history.write([good])
    assert history.reached_lsn == 1


def test_a_body_of_another_kind_is_refused(history: History) -> None:
    with pytest.raises(ArgumentError, match="encode"):
        history.write([Entry(1, "run", encode(job_of("j")))])
    with pytest.raises(ArgumentError, match="encode"):
        history.write([Entry(1, "revive", encode(7))])
    assert history.reached_lsn == 0


def test_entries_out_of_order_are_refused(history: History) -> None:
    with pytest.raises(ArgumentError, match="LSN order"):
        history.write([run_entry(2, run_of("j")), run_entry(1, run_of("k"))])
    assert history.reached_lsn == 0


def test_an_unknown_kind_is_refused(history: History) -> None:
    unknown: Any = "dream"
    with pytest.raises(ArgumentError, match="dream"):
        history.write([Entry(1, unknown, b"")])


def test_a_later_entry_replaces_what_was_known_with_its_tags(history: History) -> None:
    run = run_of("j")
    lost = msgspec.structs.replace(run, state=RunState.LOST, task="other")
    history.write([run_entry(1, run, {"a": "1", "b": "2"})])
    history.write([run_entry(2, lost, {"b": "2", "c": "3"})])

    assert history.runs(RunQuery()).runs == [lost]
    assert history.runs(RunQuery(task="send")).runs == []
    assert history.runs(RunQuery(tags={"a": "1"})).runs == []
    assert history.runs(RunQuery(tags={"b": "2"})).runs == [lost]
    assert history.runs(RunQuery(tags={"c": "3"})).runs == [lost]


def test_a_revived_run_is_not_final_and_its_attempts_stay(history: History) -> None:
    run = run_of("j", state=RunState.FAILED)
    history.write([attempt_entry(1, attempt_of(run)), run_entry(2, run, {"a": "1"})])
    history.write([job_entry(3, job_of("j"))])
    history.write([Entry(4, "revive", encode(run.id))])

    assert history.run(run.id) is None
    assert history.runs(RunQuery()).runs == []
    assert history.runs(RunQuery(tags={"a": "1"})).runs == []
    assert history.planned(JobId("j")) == []
    assert history.jobs(JobQuery()).jobs == []
    assert len(history.attempts(run.id)) == 1

    done = msgspec.structs.replace(run, state=RunState.SUCCEEDED)
    history.write([run_entry(5, done), attempt_entry(5, attempt_of(run, 2))])
    assert history.runs(RunQuery()).runs == [done]
    assert len(history.jobs(JobQuery()).jobs) == 1
    assert len(history.attempts(run.id)) == 2


@pytest.mark.parametrize("length", [3, 4, 5])
@pytest.mark.parametrize("split", [0, 1, 2, 3])
def test_the_last_word_counts_however_batches_fall(
    history: History, split: int, length: int
) -> None:
    failed = run_of("j", state=RunState.FAILED)
    lost = run_of("j", state=RunState.LOST)
    entries = [
        run_entry(1, failed),
        Entry(2, "revive", encode(failed.id)),
        run_entry(3, lost),
        Entry(4, "revive", encode(failed.id)),
        run_entry(5, failed),
    ]
    history.write(entries[:split])
    history.write(entries[split:length])
    expected = {3: [lost], 4: [], 5: [failed]}
    assert history.runs(RunQuery()).runs == expected[length]


def test_a_batch_is_one_transaction_and_one_statement_a_table(
    history: History,
) -> None:
    said: list[str] = []
    history._connections.writer.set_trace_callback(said.append)
    history.write([entry for lsn in range(1, 6) for entry in entries_of(lsn)])
    history._connections.writer.set_trace_callback(None)

    words = [" ".join(line.split()[:2]) for line in said if not line.startswith("--")]
    assert words[0] == "BEGIN IMMEDIATE"
    # Runs, their tags, attempts, jobs and skips; then runs that are not live any more.
    assert sorted(words[1:-2]) == ["DELETE FROM", *["INSERT OR"] * 5]
    assert words[-2:] == ["UPDATE progress", "COMMIT"]


def test_a_discarded_run_is_forgotten_with_its_attempts(history: History) -> None:
    run, other = run_of("j", state=RunState.FAILED), run_of("k")
    history.write(
        [
            attempt_entry(1, attempt_of(run)),
            attempt_entry(1, attempt_of(other)),
            run_entry(2, run, {"a": "1"}),
            run_entry(2, other, {"a": "1"}),
            Entry(3, "discard_run", encode(run.id)),
        ]
    )
    assert history.runs(RunQuery(tags={"a": "1"})).runs == [other]
    assert history.attempts(run.id) == []
    assert len(history.attempts(other.id)) == 1


def test_in_memory_it_is_the_same() -> None:
    history = History(":memory:")
    history.write(entries_of(1))
    assert len(history.runs(RunQuery()).runs) == 1
    seen: list[int] = []
    reader = threading.Thread(
        target=lambda: seen.append(len(history.runs(RunQuery()).runs))
    )
    reader.start()
    reader.join()
    assert seen == [1]
    history.check()
    history.close()


def test_a_closed_history_says_so(path: str) -> None:
    history = History(path)
    history.close()
    history.close()
    with pytest.raises(HistoryError, match="is closed"):
        history.runs(RunQuery())
    with pytest.raises(HistoryError, match="is closed"):
        history.write(entries_of(1))


@pytest.mark.timeout(300)
def test_a_killed_writer_leaves_a_prefix_of_the_log(
    path: str, rng: random.Random
) -> None:
    for _ in range(6):
        acknowledged = _write_until_killed(path, batches=rng.randrange(1, 40))
        history = History(path)
        reached_lsn = history.reached_lsn
        assert reached_lsn >= acknowledged
        history.check()
        _assert_is_prefix(history, reached_lsn)
        history.close()


def _write_until_killed(path: str, *, batches: int) -> int:
    """Let another process write, kill it in mid-flight; the LSN it has told last."""
    command = [sys.executable, "-m", "tests.stores.history_samples", path]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as it:
        assert it.stdout is not None
        told = [int(it.stdout.readline()) for _ in range(batches)]
        # It does not wait for us, so this falls anywhere in a later batch.
        it.kill()
        told += [int(line) for line in it.stdout if line.endswith("\n")]
    return told[-1]


def _assert_is_prefix(history: History, reached_lsn: int) -> None:
    runs: list[Run] = []
    cursor: str | None = None
    while True:
        page = history.runs(RunQuery(cursor=cursor, limit=1_000))
        runs += page.runs
        cursor = page.cursor
        if cursor is None:
            break
    lsns = range(reached_lsn, 0, -1)
    assert [run.nominal_ns - T0 for run in runs] == list(lsns)
    odd = history.runs(RunQuery(tags={"parity": "odd"}, limit=1_000)).runs
    assert [run.nominal_ns - T0 for run in odd] == [i for i in lsns if i % 2][:1_000]
    for run in runs:
        assert history.has_job(run.job_id)
        assert len(history.attempts(run.id)) == 1
        assert len(history.skips(run.job_id)) == 1
    beyond = entries_of(reached_lsn + 1)
    assert history.attempts(_attempt_run(beyond[0])) == []


def _attempt_run(entry: Entry) -> RunId:
    return RunId(msgspec.msgpack.decode(entry.body)["run_id"])


# -- questions ------------------------------------------------------------------------------

TASKS = ("send", "fetch", "clean")
QUEUES = ("default", "slow")
TAGS: tuple[dict[str, str], ...] = (
    {},
    {"team": "bi"},
    {"team": "ops"},
    {"team": "bi", "tier": "1"},
    {"tier": "1"},
)
STATES = (
    RunState.SUCCEEDED,
    RunState.FAILED,
    RunState.LOST,
    RunState.SKIPPED,
    RunState.CANCELLED,
)


def _random_runs(rng: random.Random) -> dict[RunId, tuple[Run, dict[str, str]]]:
    """Runs with few values each, so that ties and matches are many."""
    found = {}
    for _ in range(400):
        run = run_of(
            f"j{rng.randrange(12)}",
            T0 + rng.randrange(20),
            n=rng.choice((0, 0, 1, 2, 10)),
            task=rng.choice(TASKS),
            queue=rng.choice(QUEUES),
            state=rng.choice(STATES),
        )
        found[run.id] = (run, rng.choice(TAGS))
    return found


def _random_query(rng: random.Random) -> RunQuery:
    def maybe(value: Any) -> Any:
        return value if rng.random() < 0.35 else None

    return RunQuery(
        job_id=maybe(JobId(f"j{rng.randrange(13)}")),
        states=maybe(frozenset(rng.sample(STATES, rng.randrange(4)))),
        task=maybe(rng.choice(TASKS)),
        queue=maybe(rng.choice(QUEUES)),
        tags=maybe(rng.choice(TAGS)),
        since_ns=maybe(T0 + rng.randrange(20)),
        until_ns=maybe(T0 + rng.randrange(20)),
        limit=rng.choice((1, 2, 7, 1_000)),
    )


def _matches(run: Run, tags: dict[str, str], query: RunQuery) -> bool:
    return (
        (query.job_id is None or run.job_id == query.job_id)
        and (query.states is None or run.state in query.states)
        and (query.task is None or run.task == query.task)
        and (query.queue is None or run.queue == query.queue)
        and (query.since_ns is None or run.nominal_ns >= query.since_ns)
        and (query.until_ns is None or run.nominal_ns < query.until_ns)
        and all(tags.get(name) == value for name, value in (query.tags or {}).items())
    )


def test_every_filter_of_runs_and_every_page_agree_with_a_plain_list(
    history: History, rng: random.Random
) -> None:
    known = _random_runs(rng)
    history.write([run_entry(1, run, tags) for run, tags in known.values()])
    matched = 0
    for _ in range(400):
        query = _random_query(rng)
        expected = sorted(
            (run for run, tags in known.values() if _matches(run, tags, query)),
            key=run_order,
            reverse=True,
        )
        matched += bool(expected)
        found: list[Run] = []
        cursor: str | None = None
        for _ in range(len(expected) + 1):
            page = history.runs(msgspec.structs.replace(query, cursor=cursor))
            found += page.runs
            cursor = page.cursor
            if cursor is None:
                break
            assert len(page.runs) == query.limit
            assert len(found) < len(expected), "a cursor that leads to nothing"
        assert found == expected, query
    assert matched > 100, "the queries must find something to tell anything"


def test_every_filter_of_jobs_and_every_page_agree_with_a_plain_list(
    history: History, rng: random.Random
) -> None:
    known: dict[str, Job] = {}
    entries = []
    for number in range(200):
        job_id, created_ns = f"j{number}", T0 + rng.randrange(30)
        task, queue = rng.choice(TASKS), rng.choice(QUEUES)
        if rng.random() < 0.4:
            run = run_of(job_id, T0 + 99, created_ns=created_ns, task=task, queue=queue)
            entries.append(plain_entry(1, run))
        else:
            job = job_of(
                job_id,
                created_ns=created_ns,
                task=task,
                queue=queue,
                state=rng.choice((JobState.DONE, JobState.CANCELLED)),
                name=rng.choice((None, "a", "b")),
                tags=rng.choice(TAGS),
            )
            entries.append(job_entry(1, job))
    history.write(entries)
    for number in range(200):
        job_or_none = history.job(JobId(f"j{number}"))
        assert job_or_none is not None
        known[job_or_none.id] = job_or_none

    def maybe(value: Any) -> Any:
        return value if rng.random() < 0.3 else None

    for _ in range(300):
        query = JobQuery(
            state=maybe(rng.choice((JobState.DONE, JobState.CANCELLED))),
            task=maybe(rng.choice(TASKS)),
            queue=maybe(rng.choice(QUEUES)),
            name=maybe(rng.choice(("a", "b", "c"))),
            tags=maybe(rng.choice(TAGS)),
            limit=rng.choice((1, 3, 50, 1_000)),
        )
        expected = sorted(
            (
                job
                for job in known.values()
                if (query.state is None or job.state == query.state)
                and (query.task is None or job.task == query.task)
                and (query.queue is None or job.queue == query.queue)
                and (query.name is None or job.name == query.name)
                and (query.tags or {}).items() <= job.tags.items()
            ),
            key=lambda job: (job.created_ns, job.id),
            reverse=True,
        )
        found: list[Job] = []
        cursor: str | None = None
        for _ in range(len(expected) + 1):
            page = history.jobs(msgspec.structs.replace(query, cursor=cursor))
            found += page.jobs
            cursor = page.cursor
            if cursor is None:
                break
            assert len(found) < len(expected), "a cursor that leads to nothing"
        assert found == expected, query


def test_a_page_begins_after_its_cursor_whatever_came_meanwhile(
    history: History,
) -> None:
    runs = [run_of("j", T0 + i) for i in range(6)]
    history.write([run_entry(1, run) for run in runs])
    first = history.runs(RunQuery(limit=2))
    assert first.runs == [runs[5], runs[4]]
    # Newer ones, and the very row of the cursor is gone.
    history.write(
        [run_entry(2, run_of("j", T0 + 9)), Entry(3, "discard_run", encode(runs[4].id))]
    )
    assert history.runs(RunQuery(limit=2, cursor=first.cursor)).runs == runs[3:1:-1]


def test_a_cursor_can_be_made_of_any_run_and_read_again() -> None:
    run = run_of("a@b#c", T0, n=3)
    assert parse_run_cursor(run_cursor(run)) == run_order(run)


@pytest.mark.parametrize(
    "text", ["", "a\0b", "\0", "'\"\\/\x01\x7f\u2028", "größe 行 😀", "\\u0000", "$[0]"]
)
def test_any_text_can_be_searched_for(history: History, text: str) -> None:
    run = run_of("j", task=text, queue=text)
    job = job_of("j", task=text, queue=text, name=text, tags={text: text})
    history.write([run_entry(1, run, {text: text, "other": "x"}), job_entry(1, job)])
    history.write([run_entry(2, run_of("k"), {"other": "x"})])

    tags = {text: text}
    assert history.runs(RunQuery(task=text, queue=text)).runs == [run]
    assert history.runs(RunQuery(tags=tags)).runs == [run]
    assert history.runs(RunQuery(tags={"other": "x"} | tags)).runs == [run]
    assert history.runs(RunQuery(job_id=run.job_id, tags=tags)).runs == [run]
    query = JobQuery(task=text, queue=text, name=text, tags=tags)
    assert history.jobs(query).jobs == [job]


@pytest.mark.parametrize("limit", [0, -1, 1_001])
def test_a_limit_outside_its_bounds_is_refused(history: History, limit: int) -> None:
    with pytest.raises(ArgumentError, match="limit"):
        history.runs(RunQuery(limit=limit))
    with pytest.raises(ArgumentError, match="limit"):
        history.jobs(JobQuery(limit=limit))


@pytest.mark.parametrize("cursor", ["", "x", "@5", "j@x", "-1@j"])
def test_a_cursor_that_is_none_is_refused(history: History, cursor: str) -> None:
    if cursor != "-1@j":
        with pytest.raises(ArgumentError, match="cursor"):
            history.runs(RunQuery(cursor=cursor))
    with pytest.raises(ArgumentError, match="cursor"):
        history.jobs(JobQuery(cursor=cursor))


def test_a_run_id_that_is_none_is_refused(history: History) -> None:
    for ask in (history.run, history.attempts):
        with pytest.raises(ArgumentError, match="run_id"):
            ask(RunId("nonsense"))


def test_skips_are_found_by_where_they_end_and_come_oldest_first(
    history: History,
) -> None:
    job = JobId("j")
    ranges = [
        SkipRange(job, SkipReason.MISFIRE, T0, T0 + 10, 11),
        SkipRange(job, SkipReason.OVERLAP, T0 + 20, T0 + 20, 1),
        SkipRange(job, SkipReason.PAUSED, T0 + 30, T0 + 40, 11),
    ]
    other = SkipRange(JobId("k"), SkipReason.DST, T0, T0, 1)
    history.write([skips_entry(1, skips) for skips in (*reversed(ranges), other)])
    assert history.skips(job) == ranges
    assert history.skips(job, T0 + 10) == ranges
    assert history.skips(job, T0 + 11) == ranges[1:]
    assert history.skips(job, T0 + 41) == []


def test_planned_is_every_run_of_the_job_in_order(history: History) -> None:
    history.write([run_entry(1, run_of("j", T0 + i % 3, n=i)) for i in range(6)])
    history.write([run_entry(2, run_of("k"))])
    assert history.planned(JobId("j")) == sorted((T0 + i % 3, i) for i in range(6))


@pytest.mark.parametrize(
    ("query", "index"),
    [
        (RunQuery(), "runs_by_nominal"),
        (RunQuery(cursor="j@5"), "runs_by_nominal"),
        (RunQuery(job_id=JobId("j"), task="t", tags={"a": "b"}), "PRIMARY KEY"),
        (RunQuery(task="t", since_ns=3, until_ns=9), "runs_by_task (task=? AND"),
        (RunQuery(states=frozenset({RunState.FAILED})), "runs_dead"),
        (RunQuery(tags={"a": "b", "c": "d"}, task="t"), "(name=? AND value=?)"),
    ],
)
def test_a_page_of_runs_is_read_in_the_order_of_an_index(
    history: History, query: RunQuery, index: str
) -> None:
    plan = _plan(history, *runs_question(query))
    assert index in plan
    assert "TEMP B-TREE" not in plan


@pytest.mark.parametrize(
    ("query", "index"),
    [
        (JobQuery(), "jobs_by_creation"),
        (JobQuery(task="t", cursor="5@j"), "jobs_by_creation ((created_ns"),
        (JobQuery(name="n"), "jobs_by_name (name=?)"),
    ],
)
def test_a_page_of_jobs_is_read_in_the_order_of_an_index(
    history: History, query: JobQuery, index: str
) -> None:
    plan = _plan(history, *jobs_question(query))
    assert index in plan
    assert "TEMP B-TREE" not in plan


def _plan(history: History, question: str, values: list[object]) -> str:
    rows = history._connections.writer.execute(f"EXPLAIN QUERY PLAN {question}", values)
    return "\n".join(row[3] for row in rows)


# -- readers beside the writer ----------------------------------------------------------------


def test_readers_see_whole_batches_only(history: History) -> None:
    batch, batches = 10, 60
    ended = threading.Event()
    faults: list[object] = []
    looks = [0, 0]

    def look(reader: int) -> None:
        last = 0
        try:
            while not ended.is_set() or not looks[reader]:
                seen = len(history.runs(RunQuery(limit=1_000)).runs)
                looks[reader] += 1
                if seen % batch or seen < last:
                    faults.append((last, seen))
                last = seen
        except Exception as error:  # noqa: BLE001 - a thread must hand it over
            faults.append(error)

    readers = [threading.Thread(target=look, args=(i,)) for i in range(2)]
    for reader in readers:
        reader.start()
    for lsn in range(1, batches + 1):
        runs = [run_of(f"j{i}", T0 + lsn) for i in range(batch)]
        history.write([run_entry(lsn, run) for run in runs])
    ended.set()
    for reader in readers:
        reader.join()
    assert faults == []
    assert min(looks) > 0


def test_a_reader_in_the_midst_of_a_page_does_not_hold_up_a_commit(
    history: History,
) -> None:
    history.write([run_entry(1, run_of("j", T0 + i)) for i in range(100)])
    with history._connections.reader() as connection:
        rows = connection.execute("SELECT body FROM runs")
        rows.fetchone()
        history.write([run_entry(2, run_of("k"))])
        assert history.reached_lsn == 2
        # It still sees the moment at which it began.
        assert len(rows.fetchall()) == 99


def test_a_reader_that_lasts_beyond_close_ends_well(path: str) -> None:
    history = History(path)
    history.write(entries_of(1))
    with history._connections.reader() as connection:
        history.close()
        assert connection.execute("SELECT count(*) FROM runs").fetchone() == (1,)
    assert history._connections.idle_readers == []


def test_the_time_of_an_end_is_never_before_what_the_job_has_seen(
    history: History,
) -> None:
    history.write([job_entry(1, job_of("j", created_ns=T0, reached_ns=T0 + DAY))])
    history.write([job_entry(2, job_of("k", created_ns=T0))], now_ns=T0 + SECOND)
    rows = history._connections.writer.execute(
        "SELECT id, ended_ns FROM jobs ORDER BY id"
    )
    assert rows.fetchall() == [("j", T0 + DAY), ("k", T0 + SECOND)]
