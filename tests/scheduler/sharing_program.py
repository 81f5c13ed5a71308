"""A process that shares a directory with others; a test tells it what to do.

Commands come as lines: `tick`, `load`, `hold WORD`, `release`, `drain`, `stop`. What has
happened is one line in the journal, which all processes append to:

    ask TOKEN     added TOKEN     unknown TOKEN     ran TOKEN PID     held WORD PID
"""

from __future__ import annotations

import itertools
import os
import sys
import threading

from timingwheel.jobs.model import Delivery
from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.stores.door_errors import HolderLostError
from timingwheel.stores.shared_store import SharedStore

app = Scheduler(sys.argv[1] if len(sys.argv) > 1 else "unused", if_held="client")
released = threading.Event()
stopping = threading.Event()
numbers = itertools.count()


def note(*words: object) -> None:
    """Append a line to the journal, in one write."""
    journal = os.open(os.environ["JOURNAL"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(journal, (" ".join(map(str, words)) + "\n").encode())
    os.close(journal)


def say(*words: object) -> None:
    """Tell the test."""
    print(*words, flush=True)


@app.task(name="mark")
def mark(token: str) -> None:
    """Note that it ran."""
    note("ran", token, os.getpid())


@app.task(name="mark_once", delivery=Delivery.AT_MOST_ONCE)
def mark_once(token: str) -> None:
    """Note that it ran; it may not run again."""
    note("ran", token, os.getpid())


@app.task(name="hold", delivery=Delivery.AT_MOST_ONCE)
def hold(word: str) -> None:
    """Run until the test releases it."""
    note("held", word, os.getpid())
    released.wait()


def load() -> None:
    """Add jobs, one after the other, until told to stop."""
    for number in numbers:
        if stopping.is_set():
            return
        kind = "once" if number % 2 else "again"
        token = f"{kind}-{os.getpid()}-{number}"
        call = (mark_once if kind == "once" else mark).call(token)
        note("ask", token)
        try:
            app.add(call, delay=0, key=token if number % 3 == 0 else None)
        except HolderLostError:
            note("unknown", token)
        else:
            note("added", token)


def main() -> None:
    """Serve, and do as told."""
    app.start()
    store = app.desk.store
    assert isinstance(store, SharedStore)
    say("holder" if store.is_holder else "client")
    loads: list[threading.Thread] = []
    for line in sys.stdin:
        command, *words = line.split()
        match command:
            case "tick":
                app.add(mark.call("tick"), every="0.2s", max_runs=5, name="tick")
            case "load":
                loads += [threading.Thread(target=load) for _ in range(2)]
                for thread in loads:
                    thread.start()
            case "hold":
                app.add(hold.call(words[0]), delay=0)
            case "release":
                released.set()
            case "drain":
                stopping.set()
                for thread in loads:
                    thread.join()
                while app.jobs(state="active", limit=1):
                    threading.Event().wait(0.05)
            case "stop":
                break
        say("done", command)
    app.stop()
    say("stopped")


if __name__ == "__main__":
    main()
