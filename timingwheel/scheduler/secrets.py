"""Arguments that are nobody's business: marked by their task, shown as `***` everywhere.

    @app.task(secret=("password",))
    def connect(host: str, password: str) -> None: ...

The names travel with the payload, so that whoever shows it needs no task: an API, a page, a
command line on a directory. They are stored as they are, in the log and in the history, and
workers get them: this keeps secrets off screens and out of logs, and not from whoever can
read the disk.

An edit may send `***` back for what was not typed anew; the stored value stays then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from timingwheel.jobs.errors import UNREADABLE
from timingwheel.jobs.model import Payload

MASK: Final = "***"
"""In place of a secret."""
_PICKLE_MARK: Final = b"\xc1"


def masked(payload: Payload) -> Payload:
    """Return a payload as it may be shown."""
    if not payload.secret:
        return payload
    try:
        return _replaced(payload, dict.fromkeys(payload.secret, MASK), only_known=True)
    except (TypeError, RecursionError):
        # No codec of ours writes what it cannot write again: nobody sees any of it.
        return msgspec.structs.replace(payload, body=b"")


def masked_arguments(
    arguments: Mapping[str, object], secret: tuple[str, ...]
) -> dict[str, object]:
    """Return arguments as they may be shown."""
    return {
        name: MASK if name in secret else value for name, value in arguments.items()
    }


def with_kept_secrets(payload: Payload, former: Payload) -> Payload:
    """Return a payload with the secrets of a former one where it says `***`.

    Args:
        payload: a new one; if it marks nothing, the former one's marks stay.
        former: the stored one.
    """
    secret = payload.secret or former.secret
    if not secret:
        return payload
    given, kept = _fields(payload), _fields(former)
    back = {
        name: kept[name]
        for name in secret
        if given.get(name) == MASK and name in kept and name in former.secret
    }
    payload = msgspec.structs.replace(payload, secret=secret)
    return _replaced(payload, back) if back else payload


def arguments_with_kept_secrets(
    arguments: Mapping[str, object], former: Payload
) -> dict[str, object]:
    """Return arguments by name with the stored secrets where they say `***`."""
    kept = _fields(former)
    return {
        name: kept[name]
        if name in former.secret and value == MASK and name in kept
        else value
        for name, value in arguments.items()
    }


def _fields(payload: Payload) -> dict[str, Any]:
    """Return what a payload holds by name; nothing if it is a pickle or damaged."""
    body = payload.body
    if body[:1] == _PICKLE_MARK:
        return {}
    decode = msgspec.json.decode if body[:1] == b"{" else msgspec.msgpack.decode
    try:
        found = decode(body)
    except UNREADABLE:
        return {}
    return found if isinstance(found, dict) else {}


def _replaced(
    payload: Payload, values: Mapping[str, object], *, only_known: bool = False
) -> Payload:
    """Return a payload with other values, in the form that it has."""
    fields = _fields(payload)
    for name, value in values.items():
        if not only_known or name in fields:
            fields[name] = value
    is_json = payload.body[:1] == b"{"
    encoder = msgspec.json.Encoder if is_json else msgspec.msgpack.Encoder
    body = encoder(order="deterministic").encode(fields)
    return msgspec.structs.replace(payload, body=body)
