"""Commands as a user types them, on a real directory; each is one call of `run`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from click.testing import CliRunner

from tests.cli import program
from timingwheel.cli.root import root
from timingwheel.cli.session import World
from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.testing import ManualClock

NOON_NS = 1_767_268_800 * 10**9  # 2026-01-01 12:00 UTC


class Answer(NamedTuple):
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Return the only document that was printed."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """Return the JSON lines that were printed."""
        return [json.loads(line) for line in self.out.splitlines()]


class Stage:
    """A directory and a clock.

    Attributes:
        data: the directory; it is no store before `create`.
        clock: the world's, at 2026-01-01 12:00 UTC.
    """

    def __init__(self, place: Path) -> None:
        self.data = place / "data"
        self.clock = ManualClock(wall_ns=NOON_NS)
        self.environment: dict[str, str] = {"HOME": str(place)}

    def run(self, *words: str, text: str | None = None) -> Answer:
        """Run `timingwheel --data DIR --utc` and the words; nothing is asked of code."""
        return self.bare("--data", str(self.data), "--utc", *words, text=text)

    def bare(self, *words: str, text: str | None = None) -> Answer:
        """Run `timingwheel` and the words."""
        done = CliRunner().invoke(
            root,
            list(words),
            input=text,
            obj=World(self.clock, self.environment),
            catch_exceptions=False,
        )
        return Answer(done.exit_code, done.stdout, done.stderr)

    def ok(self, *words: str, text: str | None = None) -> Answer:
        """Run and require that it ended with 0."""
        done = self.run(*words, text=text)
        assert done.code == 0, done
        return done

    def add(self, *words: str) -> str:
        """Add a job, with the store if need be, and return its id."""
        return self.ok("job", "add", *words, "--create").out.strip()

    def served(self, act: Callable[[Scheduler], object]) -> None:
        """Serve the directory with the program's tasks while something is done."""
        app = Scheduler(
            str(self.data), clock=self.clock, tasks=program.app.tasks, executor="inline"
        )
        with app:
            act(app)


def left_behind(stage: Stage) -> None:
    """Claim a run of `greet` and close the store, as a process does that dies with it."""
    app = Scheduler(str(stage.data), clock=stage.clock)
    store = app.desk.store
    store.recover()
    store.join("w1")
    store.fire(10)
    claims, ticket = store.claim("w1", tasks=frozenset({"greet"}), count=1)
    assert len(claims) == 1
    store.commit(ticket)
    store.begin(claims[0].run.id, claims[0].token)
    app.stop(0)
