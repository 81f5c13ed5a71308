"""What a task marks as secret leaves no server, but to the worker that runs it."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import httpx
import pytest

from tests.scheduler.test_secrets import SECRET, app, connect, open_door
from timingwheel.client.client import Client
from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.scheduler.secrets import MASK
from timingwheel.scheduler.tasks import TaskRegistry
from timingwheel.server.operations import API_PATH
from timingwheel.server.serving import HttpServer


@pytest.fixture
def server() -> Iterator[HttpServer]:
    """Dispatches only: it knows no task, as most servers of workers do not."""
    with HttpServer(Scheduler(":memory:", tasks=TaskRegistry()), port=0) as made:
        yield made


@pytest.fixture
def http(server: HttpServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url + API_PATH, timeout=30) as client:
        yield client


@pytest.fixture
def client(server: HttpServer) -> Iterator[Client]:
    with Client(server.url) as made:
        yield made


def test_no_answer_has_it_in_any_form(
    client: Client, http: httpx.Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "timingwheel")
    job = client.add(connect.call("db", SECRET), delay="1h", name="c")
    texts = [
        http.get("/jobs").text,
        http.get(f"/jobs/{job.id}").text,
        http.patch(f"/jobs/{job.id}", json={"priority": 3}).text,
        http.patch(
            f"/jobs/{job.id}", json={"args": {"host": "x"}, "dry_run": True}
        ).text,
        http.post(f"/jobs/{job.id}/trigger").text,
        http.get("/runs").text,
        repr(client.job(job)),
    ]
    for text in texts:
        assert SECRET not in text
    assert SECRET not in caplog.text
    assert json.loads(texts[1])["args"] == {"host": "db", "password": MASK}


def test_the_worker_gets_it(client: Client, http: httpx.Client) -> None:
    client.add(connect.call("db", SECRET), delay=0)
    worker = http.post("/workers", json={"name": "w", "ttl": "15s"}).json()["id"]
    body = {"tasks": [connect.name], "wait": 30, "count": 1}
    (claim,) = http.post(f"/workers/{worker}/claims", json=body).json()["items"]
    assert claim["args"] == {"host": "db", "password": SECRET}


def test_an_edit_that_sends_the_mask_back_changes_nothing_of_it(
    client: Client, http: httpx.Client, server: HttpServer
) -> None:
    job = client.add(connect.call("db", SECRET), delay="1h", name="c")
    shown = http.get(f"/jobs/{job.id}").json()["args"]
    answer = http.patch(f"/jobs/{job.id}", json={"args": shown | {"host": "new"}})
    assert answer.status_code == 200, answer.text
    stored = server._scheduler.job(job.id).payload
    assert SECRET.encode() in stored.body
    assert MASK.encode() not in stored.body
    assert stored.secret == ("password",)
    assert http.get(f"/jobs/{job.id}").json()["args"] == {
        "host": "new",
        "password": MASK,
    }


def test_a_secret_number_is_kept_where_the_server_checks_types() -> None:
    with HttpServer(Scheduler(":memory:", tasks=app.tasks), port=0) as server:
        with Client(server.url) as client:
            job = client.add(open_door.call(1234), delay="1h", name="d")
        with httpx.Client(base_url=server.url + API_PATH) as http:
            body = {"args": {"pin": MASK, "door": "back"}}
            answer = http.patch(f"/jobs/{job.id}", json=body)
            assert answer.status_code == 200, answer.text
            assert answer.json()["job"]["args"] == {"pin": MASK, "door": "back"}
            wrong = http.patch(f"/jobs/{job.id}", json={"args": {"pin": SECRET}})
            assert wrong.status_code == 422
            assert SECRET not in wrong.text
        stored = server._scheduler.job(job.id).payload
        assert b"1234" in stored.body
