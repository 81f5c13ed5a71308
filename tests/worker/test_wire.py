"""What a handler adds is the same job on the server as it was in the worker."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from tests.worker import program
from timingwheel.jobs.after import After
from timingwheel.jobs.cron import Cron
from timingwheel.jobs.model import Cap
from timingwheel.scheduler.adding import make_follow_up
from timingwheel.scheduler.retrying import Retry
from timingwheel.scheduler.tasks import Call, NamedTask
from timingwheel.wire.options import AddBody
from timingwheel.wire.workers import follow_up_body

JOB = "00000000-0000-8000-8000-000000000001"


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"delay": "1h", "priority": 3},
        {"at": datetime(2030, 1, 2, 3, 4, 5, 6, UTC), "queue": "mail"},
        {"every": "10m", "misfire": "all(100, 1h)", "overlap": "buffer_all(50)"},
        {"cron": "30 2 * * *", "tz": "Europe/Berlin", "name": "nightly"},
        {"cron": Cron("0 3 * * *", tz="Asia/Tokyo", gap="skip"), "key": "k"},
        {"cron": "0 3 * * *", "splay": "5m", "jitter": "1s", "calendar": "feast"},
        {"after": After(JOB), "tags": {"a": "b"}},
        {"after": After.any_of(JOB, on="failure")},
        {"delay": 0, "retry": Retry(7, backoff="2s..30s", jitter=0.5)},
        {"delay": 0, "timeout": "90s", "start_deadline": "1h", "max_lost": 9},
        {"delay": 0, "delivery": "at_most_once", "concurrency": Cap("db", 2)},
        {"every": "1d", "start": datetime(2030, 1, 1, tzinfo=UTC), "max_runs": 3},
    ],
)
def test_a_follow_up_arrives_as_it_was_sent(options: dict[str, Any]) -> None:
    draft = make_follow_up(program.greet.call("ada"), options)
    sent = msgspec.json.encode(follow_up_body(draft))
    body = msgspec.json.decode(sent, type=AddBody)
    assert body.payload is not None
    # As the server makes it, which need not know the task.
    call = Call(NamedTask(body.task), body.payload)
    arrived = body.options() | {"name": body.name, "key": body.key}
    assert make_follow_up(call, arrived) == draft
