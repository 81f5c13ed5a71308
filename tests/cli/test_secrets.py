"""The command line shows no argument that its task marks as secret."""

from __future__ import annotations

import json

from tests.scheduler.test_secrets import SECRET, app, connect
from timingwheel.cli.documents import job_document
from timingwheel.scheduler.secrets import MASK
from timingwheel.testing import Sim


def test_a_job_is_shown_without_its_secrets() -> None:
    with Sim(tasks=app) as sim:
        job = sim.app.job(sim.app.add(connect.call("db", SECRET), delay="1h"))

    document = job_document(job)

    assert document["arguments"] == {"host": "db", "password": MASK}
    assert SECRET not in json.dumps(document, default=str)
