"""What of a value survives its way through bytes."""

from __future__ import annotations

import uuid

import pytest

from tests.scheduler import task_functions as functions
from timingwheel.scheduler.signatures import Signature, arrives_as

NAN = float("nan")


@pytest.mark.parametrize(
    ("sent", "arrived"),
    [
        (1, 1),
        (1, 1.0),
        ("a", "a"),
        (NAN, NAN),
        ([NAN, {"a": NAN}], [NAN, {"a": NAN}]),
        ((1, "a"), (1, "a")),
        (functions.Point(1), functions.Point(1)),
    ],
)
def test_the_same_is_the_same(sent: object, arrived: object) -> None:
    assert arrives_as(sent, arrived)


@pytest.mark.parametrize(
    ("sent", "arrived"),
    [
        (1, 2),
        ((1, 2), [1, 2]),
        ([1, 2], [1]),
        ({1, 2}, [1, 2]),
        ({"a": 1}, {"a": 1, "b": 2}),
        ({"a": (1,)}, {"a": [1]}),
        (uuid.UUID(int=1), str(uuid.UUID(int=1))),
        (functions.Point(1), {"x": 1, "y": 0.0}),
        (NAN, None),
    ],
)
def test_another_kind_or_content_is_not(sent: object, arrived: object) -> None:
    assert not arrives_as(sent, arrived)


def test_a_signature_shows_types_and_not_their_postponed_texts() -> None:
    signature = Signature(functions.shaped, "m:shaped")
    assert signature.text == (
        "m:shaped(first: int, /, second: int, *rest: int, third: int = 3, **more: str)"
    )


def test_a_signature_shows_no_ctx_because_nobody_passes_it() -> None:
    signature = Signature(functions.send_with_context, "m:send")
    assert signature.text == "m:send(to: str)"
