"""Parts of queries and bodies that several operations read."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from urllib.parse import unquote

from timingwheel.errors import ArgumentError
from timingwheel.jobs.durations import Duration, duration_ns
from timingwheel.wire.bodies import PauseBody


def tags_of(pairs: list[str]) -> Mapping[str, str] | None:
    """Return the tags of a query; a colon in the word is written %3A.

    Raises:
        ArgumentError: one is no `word:value`.
    """
    if not pairs:
        return None
    tags = {}
    for pair in pairs:
        word, colon, value = pair.partition(":")
        if not colon:
            raise ArgumentError("tag", pair, "pass word:value, such as tag=team:bi")
        tags[unquote(word)] = value
    return tags


def until_of(body: PauseBody) -> datetime | Duration | None:
    """Return until when a pause lasts.

    Raises:
        ArgumentError: it is said twice, or is no length of time.
    """
    if body.duration is None:
        return body.until
    if body.until is not None:
        raise ArgumentError("duration", body.duration, "pass it or until, not both")
    return f"{duration_ns(body.duration, 'duration', zero=False)}ns"
