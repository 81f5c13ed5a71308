from __future__ import annotations

from typing import Any

import httpx
import msgspec
import pytest
from openapi_spec_validator import validate

from tests.scheduler import program
from timingwheel.server.api import BODY_BYTES_MAX
from timingwheel.server.app import OPERATIONS
from timingwheel.server.operations import API_PATH, Routes
from timingwheel.server.serving import HttpServer

NOTE = program.note.name


def added(http: httpx.Client, **body: Any) -> str:
    made = http.post("/jobs", json={"task": NOTE, "args": {"what": "tea"}, **body})
    assert made.status_code in {200, 201}, made.text
    job_id: str = made.json()["id"]
    return job_id


def problem(response: httpx.Response) -> Any:
    assert response.headers["content-type"] == "application/problem+json"
    found = response.json()
    assert found["status"] == response.status_code
    return found


def test_a_job_by_url_runs_and_tells_its_result(http: httpx.Client) -> None:
    job_id = added(http, delay=0)
    ended = http.get(f"/runs/{job_id}/end", params={"timeout": 30}).json()["run"]
    assert ended["state"] == "succeeded"
    assert ended["value"] == "TEA"
    assert program.log.calls == ["tea"]


def test_a_job_shows_its_arguments_and_its_times_with_all_digits(
    http: httpx.Client,
) -> None:
    job = http.get(f"/jobs/{added(http, cron='0 3 * * *', name='nightly')}").json()
    assert job["args"] == {"what": "tea"}
    assert job["next"].endswith("T03:00:00Z")
    assert job["created_ns"] % 10**9 == int(job["created"][20:-1].ljust(9, "0"))
    assert http.get("/jobs/nightly").json() == job


def test_a_name_in_a_path_may_hold_any_character(http: httpx.Client) -> None:
    added(http, cron="@daily", name="team/ä b?#%")
    found = http.get("/jobs/team%2F%C3%A4%20b%3F%23%25/explanation")
    assert "is active" in found.json()["text"]


def test_the_same_key_makes_one_job_and_another_payload_is_refused(
    http: httpx.Client,
) -> None:
    body = {"task": NOTE, "args": {"what": "tea"}, "delay": "1h"}
    headers = {"Idempotency-Key": "inv-17"}
    first = http.post("/jobs", json=body, headers=headers)
    again = http.post("/jobs", json=body, headers=headers)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["id"] == again.json()["id"]
    assert first.headers["location"].endswith(first.json()["id"])
    other = http.post("/jobs", json=body | {"args": {"what": "rum"}}, headers=headers)
    assert problem(other)["code"] == "key-conflict"
    assert other.status_code == 409


def test_a_change_is_made_only_to_the_revision_that_was_read(
    http: httpx.Client,
) -> None:
    job_id = added(http, cron="0 3 * * *")
    tag = http.get(f"/jobs/{job_id}").headers["etag"]
    assert tag == '"1"'
    change = {"cron": "0 4 * * *"}
    url = f"/jobs/{job_id}"
    made = http.patch(url, json=change, headers={"If-Match": tag})
    assert made.headers["etag"] == '"2"'
    assert made.json()["after"][0]["utc"][11:16] == "04:00"
    late = http.patch(url, json={"priority": 3}, headers={"If-Match": tag})
    assert problem(late)["code"] == "revision-conflict"
    assert late.status_code == 412
    wrong = http.patch(url, json=change, headers={"If-Match": "3"})
    assert problem(wrong)["field"] == "If-Match"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"task": NOTE, "delay": [1]}, "delay"),
        ({"task": "a:b", "delay": "soon"}, "delay"),
        ({"task": NOTE, "delay": 1, "wat": 2}, "wat"),
        ({"delay": 1}, "task"),
        ({"task": NOTE, "delay": 1, "args": {"wat": 1}}, "args"),
        ({"task": NOTE, "cron": "61 * * * *", "args": {"what": "x"}}, "cron"),
        ({"task": "a:b", "at": "2030-01-01T00:00:00"}, "at"),
        ({"task": "a:b", "delay": 1, "retry": {"attempts": 0}}, "retry.attempts"),
        ({"task": "a:b", "delay": 1, "tags": {"a": 1}}, "tags[...]"),
        ({"task": "a:b", "delay": 1, "priority": 1.5}, "priority"),
    ],
)
def test_a_value_that_cannot_be_meant_is_named(
    http: httpx.Client, body: Any, field: str
) -> None:
    answer = http.post("/jobs", json=body)
    assert answer.status_code == 422
    assert problem(answer)["field"] == field
    assert http.get("/jobs").json()["items"] == []


def test_what_is_not_there_is_told_in_the_same_words(http: httpx.Client) -> None:
    unknown = problem(http.get("/jobs/nope"))
    assert (unknown["status"], unknown["field"]) == (404, "job")
    assert unknown["detail"].startswith("job is 'nope': there is no such job")
    assert problem(http.get("/nope"))["code"] == "no-such-path"
    assert problem(http.put("/jobs", json={}))["status"] == 405
    assert problem(http.get("/jobs", params={"wat": 1}))["field"] == "wat"
    assert problem(http.get("/jobs", params={"limit": "many"}))["field"] == "limit"
    assert problem(http.post("/jobs/nope/cancel"))["code"] == "unknown-job"
    run = "00000000-0000-8000-8000-000000000002@5"
    assert problem(http.get(f"/runs/{run}"))["code"] == "unknown-run"


def test_a_body_that_is_none_or_too_long_is_refused(http: httpx.Client) -> None:
    json = {"content-type": "application/json"}
    assert problem(http.post("/jobs", content=b"{", headers=json))["code"] == "no-json"
    form = {"content-type": "text/plain"}
    assert problem(http.post("/jobs", content=b"{}", headers=form))["status"] == 415
    long = b'"' + b"x" * BODY_BYTES_MAX + b'"'
    refused = problem(http.post("/jobs", content=long, headers=json))
    assert refused["status"] == 413
    assert problem(http.post("/jobs", headers=json))["field"] == "body"


def test_pages_follow_each_other_and_filters_hold(http: httpx.Client) -> None:
    for n in range(5):
        added(http, delay="1h", tags={"n": str(n), "team:x": "a"})
    first = http.get("/jobs", params={"limit": 3}).json()
    rest = http.get("/jobs", params={"limit": 3, "cursor": first["cursor"]}).json()
    ids = [job["id"] for job in first["items"] + rest["items"]]
    assert len(set(ids)) == 5
    assert rest["cursor"] is None
    tagged = http.get("/jobs", params={"tag": ["n:3", "team%3Ax:a"]}).json()["items"]
    assert [job["tags"]["n"] for job in tagged] == ["3"]
    assert problem(http.get("/jobs", params={"tag": "n"}))["field"] == "tag"


def test_a_task_that_the_server_does_not_know_is_taken_and_waits(
    http: httpx.Client,
) -> None:
    made = http.post("/jobs", json={"task": "mail:send", "args": {"a": 1}, "delay": 0})
    assert made.status_code == 201
    tasks = {one["name"]: one for one in http.get("/tasks").json()["items"]}
    assert tasks["mail:send"]["jobs"] == 1
    assert "what: str" in tasks[NOTE]["signature"]


def test_a_job_is_paused_resumed_triggered_and_cancelled(http: httpx.Client) -> None:
    url = f"/jobs/{added(http, cron='@yearly')}"
    assert http.post(f"{url}/pause", json={"note": "x"}).json() == {"changed": True}
    assert http.get(url).json()["pause"]["note"] == "x"
    assert http.post(f"{url}/resume").json()["skipped"] == 0
    run = http.post(f"{url}/trigger").json()
    assert run["reason"] == "manual"
    done = http.get(f"/runs/{run['id'].replace('#', '%23')}/end").json()["run"]
    assert done["state"] == "succeeded"
    assert http.post(f"{url}/cancel").json() == {
        "result": "cancelled",
        "prevented": True,
    }


def test_queues_and_calendars_are_set(http: httpx.Client) -> None:
    queue = http.patch("/queues/bulk", json={"limit": 2, "rate": 0.5}).json()
    assert queue == {"name": "bulk", "limit": 2, "rate": 0.5, "pause": None}
    assert http.patch("/queues/bulk", json={"rate": None}).json()["limit"] == 2
    assert http.post("/queues/bulk/pause").json() == {"changed": True}
    assert [one["name"] for one in http.get("/queues").json()["items"]] == ["bulk"]
    assert problem(http.get("/calendars/none"))["code"] == "unknown-calendar"
    http.put("/calendars/h", json={"dates": ["2030-01-01"], "weekdays": ["SAT"]})
    changed = http.patch("/calendars/h", json={"exclude": ["2030-01-02"]}).json()
    assert changed["dates"] == ["2030-01-01", "2030-01-02"]


def test_the_document_is_valid_and_names_every_operation(
    server: HttpServer, http: httpx.Client
) -> None:
    document = httpx.get(f"{server.url}/openapi.json").json()
    validate(document)
    for one in OPERATIONS:
        assert one.method.lower() in document["paths"][API_PATH + one.path]
    names = [one.name for one in OPERATIONS]
    assert len(names) == len(set(names))


def test_every_struct_of_the_api_can_be_read_back() -> None:
    for one in OPERATIONS:
        msgspec.json.Decoder(one.returns)


def test_an_exact_path_goes_before_a_name() -> None:
    routes = Routes(OPERATIONS)
    methods, names = routes.find(b"/tasks/rebind")
    assert methods["POST"].name == "rebind_task"
    assert names == []
    assert routes.find(b"/jobs//cancel") == ({}, [])


def test_health_and_readiness(server: HttpServer) -> None:
    assert httpx.get(f"{server.url}/health").json() == {"status": "ok"}
    assert httpx.get(f"{server.url}/ready").json() == {"status": "ok"}


def test_a_body_that_misfits_before_it_stops_being_json_is_refused(
    http: httpx.Client,
) -> None:
    headers = {"content-type": "application/json"}
    for body in (b"1\xe9B", b"[}", b'{"task": 1, '):
        assert problem(http.post("/jobs", content=body, headers=headers))["status"] in {
            400,
            422,
        }
    refused = http.post("/jobs", content=b"1\xe9", headers=headers)
    assert problem(refused)["code"] == "no-json"


def test_a_method_that_a_path_has_not_is_refused_with_those_that_it_has(
    http: httpx.Client,
) -> None:
    for method in ("PUT", "TRACE", "OPTIONS"):
        refused = http.request(method, "/jobs")
        assert problem(refused)["code"] == "no-such-method"
        assert refused.headers["allow"] == "GET, POST"


def test_what_the_path_names_is_not_found_and_what_a_body_mentions_is_misfit(
    http: httpx.Client,
) -> None:
    calendar = http.get("/calendars/none")
    assert (calendar.status_code, problem(calendar)["field"]) == (404, "calendar")
    body = {"task": NOTE, "args": {"what": "x"}, "cron": "@daily", "calendar": "none"}
    mention = http.post("/jobs", json=body)
    assert (mention.status_code, problem(mention)["field"]) == (422, "calendar")
    run = http.get("/runs/nope")
    assert (run.status_code, problem(run)["field"]) == (404, "run")
    after = {"task": NOTE, "args": {"what": "x"}, "after": "nope"}
    waits = http.post("/jobs", json=after)
    assert (waits.status_code, problem(waits)["field"]) == (422, "after")
    many = http.get(f"/jobs/{added(http, cron='@daily')}/only-run")
    assert (many.status_code, problem(many)["field"]) == (422, "job")


@pytest.mark.parametrize(
    ("method", "path", "body", "field"),
    [
        ("POST", "/jobs", {"task": "", "delay": 1}, "task"),
        ("POST", "/jobs", {"task": NOTE, "args": {"what": "x"}}, "body"),
        ("POST", "/jobs", {"task": "a:b", "after": {"jobs": []}}, "after.jobs"),
        ("POST", "/jobs", {"task": "a:b", "args": {"a": "x" * 1_100_000}}, "args"),
        ("PATCH", "/jobs/n", {}, "body"),
        ("POST", "/jobs/n/pause", {"duration": "soon"}, "duration"),
        ("POST", "/tasks/rebind", {"old": "a:b", "new": "c:d"}, "new"),
        ("PATCH", "/calendars/h", {"exclude": ["0530-07-30"]}, "exclude"),
    ],
)
def test_a_refusal_names_the_field_of_its_request(
    http: httpx.Client, method: str, path: str, body: Any, field: str
) -> None:
    added(http, cron="@daily", name="n")
    refused = http.request(method, path, json=body)
    assert (refused.status_code in {413, 422}, problem(refused)["field"]) == (
        True,
        field,
    )


def test_a_day_that_cannot_be_excluded_leaves_the_calendar_as_it_was(
    http: httpx.Client,
) -> None:
    http.put("/calendars/h", json={"dates": ["2030-01-01"]})
    change = {"include": ["2030-01-01"], "exclude": ["0530-07-30"]}
    assert http.patch("/calendars/h", json=change).status_code == 422
    assert http.get("/calendars/h").json()["dates"] == ["2030-01-01"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"task": "a:b", "delay": 1, "version": 10**30}, "version"),
        ({"task": "a:b", "delay": 1, "retry": 10**30}, "retry"),
        ({"task": "a:b", "delay": 1, "retry": {"max_ns": 10**30}}, "retry.max_ns"),
        (
            {"task": "a:b", "delay": 1, "payload": {"body": "", "version": 10**30}},
            "payload.version",
        ),
        (
            {
                "task": "a:b",
                "trigger": {"when": {"type": "cron", "expression": "@daily"}}
                | {"start_ns": 10**30},
            },
            "trigger.start_ns",
        ),
    ],
)
def test_a_number_beyond_63_bits_is_named(
    http: httpx.Client, body: Any, field: str
) -> None:
    refused = http.post("/jobs", json=body)
    assert (refused.status_code, problem(refused)["field"]) == (422, field)


def test_an_argument_may_be_a_long_number_and_have_any_name(
    http: httpx.Client,
) -> None:
    args = {"self": 10**30, "name": 1}
    made = http.post("/jobs", json={"task": "a:b", "args": args, "delay": "1h"})
    assert made.status_code == 201
    assert http.get(f"/jobs/{made.json()['id']}").json()["args"] == args


def test_moments_of_the_year_9999_are_bounds_like_others(http: httpx.Client) -> None:
    added(http, cron="@daily", name="n")
    for moment in ("9999-01-01T00:00:00Z", "0001-01-01T00:00:00Z"):
        for path in ("/runs", "/dead", "/jobs/n/skips"):
            found = http.get(path, params={"since": moment})
            assert (found.status_code, found.json()["items"]) == (200, [])
        assert http.get("/runs", params={"until": moment}).status_code == 200
        why = http.get("/jobs/n/why", params={"nominal": moment})
        assert (why.status_code, problem(why)["field"]) == (422, "nominal")
    for path in ("/jobs/n/pause", "/queues/q/pause"):
        refused = http.post(path, json={"until": "9999-01-01T00:00:00Z"})
        assert (refused.status_code, problem(refused)["field"]) == (422, "until")


def test_a_moment_in_a_query_is_no_number(http: httpx.Client) -> None:
    for moment in ("0.5", "1700000000", "", "2030-01-01"):
        refused = http.get("/runs", params={"since": moment})
        assert (refused.status_code, problem(refused)["field"]) == (422, "since")


def test_a_name_may_hold_the_end_of_a_line(http: httpx.Client) -> None:
    job_id = added(http, cron="@daily", name="a\nb")
    assert http.get("/jobs/a%0Ab").json()["id"] == job_id
    assert problem(http.get("/jobs/a%0A"))["code"] == "unknown-job"
