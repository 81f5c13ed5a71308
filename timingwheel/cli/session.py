"""The session of one command: its settings, its printer, and the way to the jobs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import click

from timingwheel.cli.connection import Connection, connected
from timingwheel.cli.everywhere import flags_of
from timingwheel.cli.output import Printer
from timingwheel.cli.settings import Settings
from timingwheel.clock import Clock, SystemClock


@dataclass(frozen=True)
class World:
    """What a command takes from outside; a test passes its own.

    Attributes:
        clock: where time comes from.
        environment: variables.
    """

    clock: Clock = field(default_factory=SystemClock)
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)


class Session:
    """What a command has in hand.

    Attributes:
        settings: what counts for this command.
        printer: how it answers.
        clock: where time comes from.
    """

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self.settings = settings
        self.clock = clock
        self.printer = Printer(
            clock, as_json=settings.flag("json"), in_utc=settings.flag("utc")
        )

    @contextmanager
    def connected(self, *, create: bool = False) -> Iterator[Connection]:
        """Open the way to the jobs for the length of the block.

        Args:
            create: make the directory if it is no store yet.

        Raises:
            RefusedError: nothing answers there, with what to do.
            StoreError, StoreInUseError, LogCorruptError: as opening a Scheduler.
        """
        with connected(self.settings, self.clock, create=create) as connection:
            yield connection


def session_of(ctx: click.Context) -> Session:
    """Return the session of a command.

    Raises:
        MisuseError: a setting is invalid.
    """
    world = ctx.find_object(World) or World()
    return Session(Settings(flags_of(ctx), world.environment), world.clock)
