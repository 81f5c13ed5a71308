"""The metrics as a scraper sees them: names, units, and what they say of what happened."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from tests.scheduler import program
from timingwheel.client.client import Client
from timingwheel.jobs.model import JobState, Outcome, SkipReason
from timingwheel.jobs.states import FINAL
from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.server.cluster_metrics import CLUSTER_METRICS
from timingwheel.server.exposition import METRICS
from timingwheel.server.metric import PREFIX
from timingwheel.server.operations import API_PATH
from timingwheel.server.serving import HttpServer
from timingwheel.server.tokens import TokenBook, TokenFile
from timingwheel.stores.embedded import EmbeddedStore
from timingwheel.testing import ManualClock
from wal.testing import MemoryFileSystem

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


class Scraper:
    """What Prometheus is to a server."""

    def __init__(self, server: HttpServer) -> None:
        self._url = f"{server.url}/metrics"

    def text(self, **headers: str) -> httpx.Response:
        return httpx.get(self._url, headers=headers, timeout=30)

    def samples(self) -> Samples:
        answer = self.text()
        assert answer.status_code == 200, answer.text
        return {
            (one.name, frozenset(one.labels.items())): one.value
            for one in samples_of(answer.text)
        }

    def value(self, name: str, **labels: str) -> float:
        return self.samples()[PREFIX + name, frozenset(labels.items())]


def samples_of(text: str) -> list[Sample]:
    return [
        one for kind in text_string_to_metric_families(text) for one in kind.samples
    ]


@pytest.fixture
def durable(tmp_path: Path) -> Iterator[HttpServer]:
    """A server on a real directory, so that there is a log to tell of."""
    program.log.clear()
    scheduler = Scheduler(tmp_path, tasks=program.app.tasks)
    with HttpServer(scheduler, port=0) as made:
        yield made


@pytest.fixture
def app(durable: HttpServer) -> Iterator[Client]:
    with Client(durable.url) as client:
        yield client


@pytest.fixture
def scraper(durable: HttpServer) -> Scraper:
    return Scraper(durable)


def test_every_metric_is_there_with_its_kind_and_its_words(
    durable: HttpServer, app: Client, scraper: Scraper
) -> None:
    app.run(app.add(program.note.call("tea"), delay=0)).wait(30)
    store = durable._scheduler.desk.store
    assert isinstance(store, EmbeddedStore)
    store.snapshot()
    scraper.text()

    text = scraper.text().text

    told = {kind.name: kind for kind in text_string_to_metric_families(text)}
    for metric in METRICS:
        if metric.name == "backlog" or metric in CLUSTER_METRICS:
            continue  # no queue has any, and a directory has no nodes
        family = told[metric.full_name.removesuffix("_total")]
        assert (family.type, family.documentation) == (metric.kind, metric.help)
        labels = {name for one in family.samples for name in one.labels}
        assert labels - {"le"} == set(metric.labels)


def test_names_follow_the_rules_of_the_field() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    for metric in METRICS:
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", metric.name), metric
        assert (metric.kind == "counter") == metric.name.endswith("_total"), metric
        assert metric.help.endswith("."), metric
        if metric.kind == "histogram":
            assert metric.name.endswith("_seconds"), metric
        # Base units alone: nobody has to guess by what to divide.
        assert not re.search(r"_(ms|ns|us|minutes|mib|kb)(_|$)", metric.name), metric


def test_values_are_what_happened(app: Client, scraper: Scraper) -> None:
    for word in ("a", "b"):
        app.run(app.add(program.note.call(word), delay=0)).wait(30)
    program.log.errors.append(ValueError("it fails"))
    app.run(app.add(program.fail_once.call(), delay=0)).wait(30)
    app.add(program.note.call("later"), delay="1h")
    paused = app.add(program.note.call("p"), delay="1h", name="p")
    app.pause(paused)
    app.runs(state="failed")  # so that the history has all of it

    value = scraper.value
    assert value("runs_total", outcome="succeeded") == 2
    assert value("runs_total", outcome="failed") == 1
    assert value("attempts_total") == 3
    assert value("attempts_ended_total", outcome="ok") == 2
    assert value("attempts_ended_total", outcome="error") == 1
    assert value("run_duration_seconds_count") == 3
    assert value("dispatch_lag_seconds_count") == 3
    assert value("schedule_lag_seconds_count") == 3
    assert value("jobs", state="active") == 1
    assert value("jobs", state="paused") == 1
    assert value("timers") == 2
    assert value("workers") == 1
    assert value("running") == 0
    assert value("dead") == 1
    assert value("serving") == 1
    assert value("wal_segments") == 1
    assert value("wal_bytes") > 0
    assert value("wal_fsync_seconds_count") > 0
    assert value("recovery_seconds") > 0


def test_a_histogram_ends_with_all_its_values(app: Client, scraper: Scraper) -> None:
    app.run(app.add(program.note.call("tea"), delay=0)).wait(30)
    name = f"{PREFIX}run_duration_seconds"

    samples = samples_of(scraper.text().text)

    buckets = [one for one in samples if one.name == f"{name}_bucket"]
    counts = [one.value for one in buckets]
    assert counts == sorted(counts)
    assert buckets[-1].labels == {"le": "+Inf"}
    assert counts[-1] == 1
    (total,) = [one.value for one in samples if one.name == f"{name}_sum"]
    assert 0 <= total < 30


def test_counters_only_rise(app: Client, scraper: Scraper) -> None:
    counters = [one.full_name for one in METRICS if one.kind == "counter"]
    before = scraper.samples()
    app.run(app.add(program.note.call("tea"), delay=0)).wait(30)

    after = scraper.samples()

    risen = 0
    for sample, value in before.items():
        if sample[0] in counters:
            assert after[sample] >= value, sample
            risen += after[sample] > value
    assert risen >= 3


def test_every_word_of_a_label_is_told_before_it_first_happens(
    scraper: Scraper,
) -> None:
    told = scraper.samples()

    def words(name: str, label: str) -> set[str]:
        return {dict(labels)[label] for one, labels in told if one == PREFIX + name}

    assert words("runs_total", "outcome") == set(map(str, FINAL))
    assert words("runs_skipped_total", "reason") == set(map(str, SkipReason))
    assert words("jobs", "state") == set(map(str, JobState))
    assert words("attempts_ended_total", "outcome") == {*map(str, Outcome), "snoozed"}


def test_labels_do_not_grow_with_what_is_asked_for(
    durable: HttpServer, scraper: Scraper
) -> None:
    with httpx.Client(base_url=durable.url, timeout=30) as http:
        for n in range(20):
            http.get(f"{API_PATH}/jobs/missing-{n}")
            http.get(f"/nothing-{n}")
        http.request("BREW", f"{API_PATH}/jobs")

    told = [
        dict(labels)
        for name, labels in scraper.samples()
        if name == f"{PREFIX}http_requests_total"
    ]

    routes = {labels["route"] for labels in told}
    assert f"{API_PATH}/jobs/{{job}}" in routes
    assert not any("missing" in route or "nothing" in route for route in routes)
    assert "(other)" in {labels["method"] for labels in told}
    assert (
        scraper.value(
            "http_requests_total",
            method="GET",
            route=f"{API_PATH}/jobs/{{job}}",
            code="404",
        )
        == 20
    )


def test_where_there_are_tokens_a_reader_may_scrape_and_nobody_else() -> None:
    book = TokenBook(TokenFile(MemoryFileSystem()), ManualClock())
    secret = book.add("prometheus", "read")
    scheduler = Scheduler(":memory:", tasks=program.app.tasks)
    with HttpServer(scheduler, port=0, tokens=book) as server:
        scraper = Scraper(server)
        assert scraper.text().status_code == 401
        answer = scraper.text(authorization=f"Bearer {secret}")
        assert answer.status_code == 200
        refused = [
            one.value
            for one in samples_of(answer.text)
            if one.name == f"{PREFIX}http_requests_total"
            and one.labels["code"] == "401"
        ]
        assert refused == [1]


def test_a_store_in_memory_has_no_log_to_tell_of(server: HttpServer) -> None:
    names = {name for name, _ in Scraper(server).samples()}

    assert f"{PREFIX}timers" in names
    assert not any(name.startswith(f"{PREFIX}wal_") for name in names)


def test_open_metrics_is_written_where_it_is_asked_for(scraper: Scraper) -> None:
    answer = scraper.text(accept="application/openmetrics-text; version=1.0.0")

    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")


def test_a_stopped_scheduler_still_answers_and_says_that_it_does_not_serve(
    durable: HttpServer, scraper: Scraper
) -> None:
    scraper.text()  # its application has started
    durable._scheduler.stop()

    told = scraper.samples()

    assert told[f"{PREFIX}serving", frozenset()] == 0
    assert (f"{PREFIX}timers", frozenset()) not in told
