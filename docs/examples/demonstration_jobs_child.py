"""A program with durable jobs; demonstration_jobs.py starts it, kills it, starts it again.

What it tells goes to a pipe, which outlives it: in capitals what it was promised, in
small letters what its handlers do.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections import Counter

from timingwheel import Context, Retry, Scheduler

REMINDERS, CANCELLED, OVERDUE = 8, 2, 3
PAUSE_S = 1.6

# Building a Scheduler opens nothing, so this module can be imported for its constants.
directory, pipe, life = sys.argv[1:4] if __name__ == "__main__" else ("./data", "1", "")
app = Scheduler(directory)
ended: Counter[str] = Counter()
changed = threading.Condition()


def report(*words: object) -> None:
    os.write(int(pipe), (" ".join(map(str, words)) + "\n").encode())


def begin(task: str, ctx: Context) -> None:
    report("begin", task, ctx.run_id, ctx.attempt, time.time_ns())


def end(task: str) -> None:
    with changed:
        ended[task] += 1
        changed.notify_all()


def wait_for(task: str, more: int) -> None:
    with changed:
        aim = ended[task] + more
        changed.wait_for(lambda: ended[task] >= aim, timeout=30)


@app.task
def remind(ctx: Context, customer: int) -> str:
    begin("remind", ctx)
    return f"customer {customer} was reminded"


@app.task
def tick(ctx: Context) -> None:
    begin("tick", ctx)
    end("tick")


@app.task(retry=Retry(5, backoff="500ms..2s"))
def fetch(ctx: Context, url: str) -> str:
    begin("fetch", ctx)
    if ctx.attempt <= 2:
        raise ConnectionError(f"{url} does not answer")
    end("fetch")
    return "prices of today"


@app.task
def convert(ctx: Context, film: str) -> str:
    begin("convert", ctx)
    if ctx.attempt == 1:
        threading.Event().wait()  # still at work when the process dies
    return f"{film} is converted"


@app.task(delivery="at_most_once")
def charge(ctx: Context, customer: int) -> None:  # noqa: ARG001 - nobody is charged
    begin("charge", ctx)
    threading.Event().wait()


def first_life() -> None:
    with app:
        app.add(tick.call(), cron="* * * * * *", name="tick")
        reminders = []
        for customer in range(REMINDERS):
            job_id = app.schedule(remind.call(customer), 1 + customer * 0.2)
            report("ADDED", job_id)
            reminders.append(job_id)
        for job_id in reminders[-CANCELLED:]:
            if app.cancel(job_id):
                report("CANCELLED", job_id)
        app.schedule(fetch.call("prices.example"), 0)
        wait_for("fetch", 1)
        wait_for("tick", 1)
        report("PAUSED")
        app.pause("tick", note="just to show it", actor="the demonstration")
        time.sleep(PAUSE_S)
        app.resume("tick")
        report("RESUMED")
        wait_for("tick", 1)
        for customer in range(OVERDUE):
            report("ADDED", app.schedule(remind.call(customer), 1))
        report("ADDED", app.schedule(convert.call("the-general.mkv"), 0))
        report("CHARGED", app.schedule(charge.call(7), 0))
        threading.Event().wait()


if __name__ == "__main__":
    signal.alarm(120)  # should anything hang, we do not stay for ever
    logging.basicConfig(stream=sys.stdout, format="   log of %(name)s: %(message)s")
    if life == "first":
        first_life()
    else:
        app.run_forever()  # until SIGTERM
