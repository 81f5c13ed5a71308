"""That each peer is a store, that its server ends with it, and that none is required."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from bench import beanstalk, lmdb_store, peers, postgres, redis
from bench.peers import LEFT_OUT, Kind, PeerError, Server, opened
from bench.stores import AsyncStore, EngineStore, SqliteStore, Store

LOADED = 100

STORES: list[tuple[Kind, Callable[[Path], Store]]] = [
    (peers.HERE, lambda at: EngineStore(at, LOADED)),
    (peers.HERE, lambda at: SqliteStore(at, LOADED)),
    (lmdb_store.KIND, lambda at: lmdb_store.LmdbStore(at, LOADED)),
    (redis.KIND, lambda at: redis.RedisStore(at, LOADED)),
    (beanstalk.KIND, lambda at: beanstalk.BeanstalkStore(at, LOADED)),
    (postgres.KIND, lambda at: postgres.PostgresStore(at, LOADED)),
]
ASYNC_STORES: list[tuple[Kind, Callable[[Path], AsyncStore]]] = [
    (lmdb_store.KIND, lambda at: lmdb_store.AsyncLmdbStore(at, LOADED)),
    (redis.KIND, lambda at: redis.AsyncRedisStore(at, LOADED)),
    (beanstalk.KIND, lambda at: beanstalk.AsyncBeanstalkStore(at, LOADED)),
    (postgres.KIND, lambda at: postgres.AsyncPostgresStore(at, LOADED)),
]


@pytest.mark.parametrize(("kind", "make"), STORES)
def test_a_store_makes_timers_and_cancels_each_once(
    kind: Kind, make: Callable[[Path], Store], place: Path
) -> None:
    if not kind.is_here():
        pytest.skip(LEFT_OUT[kind.name])
    with closing(make(place)) as store:
        ids = {store.schedule(), *store.some_ids(300)}
        store.schedule_many(256)

        assert len(ids) == 301
        chosen = ids.pop()
        assert store.cancel(chosen)
        assert not store.cancel(chosen)


@pytest.mark.parametrize(("kind", "make"), ASYNC_STORES)
def test_an_async_store_makes_timers_for_a_loop(
    kind: Kind, make: Callable[[Path], AsyncStore], place: Path
) -> None:
    if not kind.is_here():
        pytest.skip(LEFT_OUT[kind.name])
    with closing(make(place)) as store:
        for _ in range(3):
            store.runner.run(store.schedule())


def test_a_server_ends_with_its_store_and_leaves_no_socket(place: Path) -> None:
    if not redis.KIND.is_here():
        pytest.skip(LEFT_OUT[redis.KIND.name])
    store = redis.RedisStore(place, LOADED)
    pid, sockets = store.server.pid, store.server.sockets
    store.close()

    assert not os.path.exists(sockets)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_server_that_does_not_start_is_told_by_its_last_words(tmp_path: Path) -> None:
    with pytest.raises(PeerError, match="no such option"):
        Server(["sh", "-c", "echo no such option; exit 1"], tmp_path)


def test_a_peer_that_is_missing_or_fails_is_left_out_and_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left_out: dict[str, str] = {}
    monkeypatch.setattr(peers, "LEFT_OUT", left_out)

    def make() -> EngineStore:
        raise PeerError("does not start: bad luck")

    with ExitStack() as stack:
        missing = Kind("missing", programs=("no-such-program",), install="make it")
        assert list(opened(stack, missing, make)) == []
        assert list(opened(stack, Kind("failing"), make)) == []

    assert left_out == {
        "missing": "not installed: make it",
        "failing": "does not start: bad luck",
    }
