"""A program for tests in processes of its own: `serving_program.py DIRECTORY [JOURNAL]`.

It serves the directory until a signal comes, and appends what its handlers do to the
journal, a line each.
"""

from __future__ import annotations

import os
import sys
import threading

from timingwheel.scheduler.scheduler import Scheduler

app = Scheduler(sys.argv[1] if __name__ == "__main__" else "never-opened")


def write(line: str) -> None:
    """Append a line to the journal in one call, so that a kill cannot tear it."""
    journal = os.open(os.environ["JOURNAL"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(journal, f"{line}\n".encode())
    os.close(journal)


def say(word: str) -> None:
    """Tell the test, in one call: handlers run side by side."""
    os.write(1, f"{word}\n".encode())


@app.task(name="mark")
def mark(what: str) -> str:
    """Write that it ran."""
    write(f"ran {what}")
    say(f"ran {what}")
    return what


@app.task(name="announce")
def announce() -> None:
    """Say that it serves; run_forever listens to signals by then."""
    say("serving")


@app.task(name="hang")
def hang() -> None:
    """Say that it runs, and never end."""
    say("hanging")
    threading.Event().wait()


if __name__ == "__main__":
    app.add(mark.call("nightly"), cron="0 3 * * *", name="nightly")
    if "hang" in sys.argv[2:]:
        app.add(hang.call(), delay="50ms", key="hang")
    app.schedule(announce.call(), 0)
    app.run_forever(grace=0 if "hang" in sys.argv[2:] else 10)
    say("stopped")
