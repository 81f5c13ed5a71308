"""Somebody who puts jobs while servers fail, and keeps a journal of what was promised."""

from __future__ import annotations

import contextlib
import threading

from tests.stores.stage import draft
from timingwheel.jobs.model import JobId, Payload
from timingwheel.stores.postgres.errors import DatabaseAwayError
from timingwheel.stores.postgres.store import PostgresStore


class Putter:
    """Puts jobs one by one, each under a key of its own, until `stop`.

    Attributes:
        promised: jobs whose put has returned, by key.
        unknown: keys whose put has raised: they may be there.

    Args:
        url: of the store.
    """

    def __init__(self, url: str) -> None:
        self.promised: dict[str, JobId] = {}
        self.unknown: list[str] = []
        self._url = url
        self._ended = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Put no more, and find out what became of the unknown ones, by their keys."""
        self._ended.set()
        self._thread.join()
        if self._error is not None:
            raise self._error
        with contextlib.closing(PostgresStore.open(self._url)) as store:
            for key in self.unknown:
                self.promised[key] = _put(store, key)

    def _run(self) -> None:
        try:
            with contextlib.closing(PostgresStore.open(self._url)) as store:
                number = 0
                while not self._ended.wait(0.002):
                    number += 1
                    key = f"k{number}"
                    try:
                        self.promised[key] = _put(store, key)
                    except DatabaseAwayError:
                        self.unknown.append(key)
        except BaseException as error:  # noqa: BLE001 - raised by `stop`
            self._error = error


def _put(store: PostgresStore, key: str) -> JobId:
    one = draft(0, task="work", payload=Payload(b"\x80"), key=key)
    return store.put([one])[0].id
