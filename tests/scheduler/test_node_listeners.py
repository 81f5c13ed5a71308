from __future__ import annotations

from tests.scheduler import program
from timingwheel.jobs.store import Request
from timingwheel.scheduler.simulation import Sim


class Heard:
    """What a listener heard."""

    def __init__(self) -> None:
        self.turns = 0
        self.requests: list[Request] = []

    def turned(self) -> None:
        self.turns += 1

    def asked_to_end(self, request: Request) -> None:
        self.requests.append(request)


def test_a_listener_hears_of_turns_and_of_attempts_that_others_are_to_end(
    sim: Sim,
) -> None:
    heard = Heard()
    sim.app.add_node_listener(heard)
    ref = sim.app.add(program.note.call("x"), cron="@yearly")
    sim.advance(1)
    assert heard.turns > 0
    store = sim.app.desk.store
    store.join("far", ttl_ns=10**12)
    sim.app.pause(sim.app.queue("default"))
    run = sim.app.trigger(ref)
    sim.app.resume(sim.app.queue("default"))
    claims, ticket = store.claim("far", tasks=frozenset({program.note.name}), count=1)
    store.commit(ticket)
    store.begin(run.id, claims[0].token)
    sim.app.cancel(ref, running="signal")
    sim.advance(1)
    assert heard.requests == [Request(run.id, claims[0].token, kill=False)]
