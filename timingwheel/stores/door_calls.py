"""What may be asked through a store's door: calls of JobStore and of Node, by name.

The types of arguments and answers are those of the methods themselves, so whatever comes
is checked before it is looked at, and a call is spelled once.
"""

from __future__ import annotations

import functools
import inspect
import json
import zlib
from collections.abc import Mapping
from typing import Any, Final, get_type_hints

import msgspec

from timingwheel.jobs.figures import Measured
from timingwheel.jobs.store import JobStore
from timingwheel.stores.door_frames import raw
from timingwheel.stores.nodes import Node

DOOR_VERSION: Final = 1
"""Of the frames and of the order in which they come; raised when one of them changes."""


class DoorCall:
    """One call: its name, its arguments and its answer.

    Args:
        method: of JobStore or of Node.
        of_node: whether it belongs to a node.
        again: whether it may be asked twice: a question, or what is the same when it
            is done once more.
        commits: whether the answer ends with a ticket, which is durable before it
            leaves.
        as_json: whether the answer may hold integers that MessagePack has no room for.
    """

    def __init__(
        self,
        method: Any,
        *,
        of_node: bool,
        again: bool = False,
        commits: bool = False,
        as_json: bool = False,
    ) -> None:
        hints = get_type_hints(method)
        self.name: Final[str] = method.__name__
        self.of_node: Final = of_node
        self.again: Final = again
        self.commits: Final = commits
        self.names: Final = tuple(inspect.signature(method).parameters)[1:]
        self.takes: Final = tuple[tuple(hints[name] for name in self.names)]  # type: ignore[misc]
        self.gives: Final = hints["return"]
        self._arguments: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(
            self.takes
        )
        self._as_json = as_json
        self._answer: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(
            bytes if as_json else self.gives
        )

    def arguments(self, body: msgspec.Raw) -> dict[str, Any]:
        """Return the arguments by name.

        Raises:
            msgspec.DecodeError: they are none of this call.
        """
        return dict(zip(self.names, self._arguments.decode(body), strict=True))

    def sent(self, answer: Any) -> msgspec.Raw:
        """Return what the call has returned, encoded."""
        return raw(msgspec.json.encode(answer) if self._as_json else answer)

    def answer(self, body: msgspec.Raw) -> Any:
        """Return what the call has returned."""
        answer = self._answer.decode(body)
        if not self._as_json:
            return answer
        return msgspec.json.decode(answer, type=self.gives)


def _calls() -> Mapping[str, DoorCall]:
    asks = (
        *(JobStore.now, JobStore.commit, Measured.figures),
        *(JobStore.get, JobStore.find, JobStore.jobs, JobStore.followers),
        *(JobStore.planned, JobStore.run, JobStore.runs, JobStore.attempts),
        *(JobStore.skips, JobStore.load_ahead, JobStore.queue, JobStore.queues),
        *(JobStore.calendar, JobStore.calendars),
    )
    # Done twice they leave what they leave when done once.
    sets = (JobStore.quarantine, JobStore.set_queue, JobStore.set_calendar)
    changes = (
        *(JobStore.put, JobStore.update, JobStore.cancel, JobStore.hold),
        JobStore.cancel_run,
        *(JobStore.unhold, JobStore.create_runs, JobStore.rebind),
        *(JobStore.retry, JobStore.discard),
    )
    of_node = (
        *(Node.join, Node.beat, Node.adopt, Node.leave),
        *(Node.recover, Node.fire, Node.begin, Node.requests),
    )
    committed = (Node.claim, Node.give_back, Node.finish)
    calls = [
        # A slot of the highest level of a wheel is longer than 64 bits of nanoseconds.
        DoorCall(JobStore.storage, of_node=False, again=True, as_json=True),
        *(DoorCall(method, of_node=False, again=True) for method in asks + sets),
        *(DoorCall(method, of_node=False) for method in changes),
        # A new holder takes a node's calls as they come: it has been told what the node
        # has in hand, and gives back what else was given to it.
        *(DoorCall(method, of_node=True, again=True) for method in of_node),
        *(
            DoorCall(method, of_node=True, again=True, commits=True)
            for method in committed
        ),
    ]
    return {call.name: call for call in calls}


CALLS: Final = _calls()


@functools.cache
def shape() -> str:
    """Return a mark that two versions share only if they mean the same by all calls."""
    types = [kind for call in CALLS.values() for kind in (call.takes, call.gives)]
    schemas, components = msgspec.json.schema_components(types)
    names = [(call.name, call.names) for call in CALLS.values()]
    text = json.dumps([names, schemas, components], sort_keys=True)
    return f"{DOOR_VERSION}.{zlib.crc32(text.encode()):08x}"
