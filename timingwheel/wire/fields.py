"""What a field may hold, as far as JSON Schema can say it.

It is for the document alone: requests are judged where the scheduler judges them, so
that the words of a refusal are the same by URL and in a program.
"""

from __future__ import annotations

from datetime import date, datetime
from typing import Annotated

from msgspec import Meta

from timingwheel.jobs.schedule import HORIZON_NS, NS

When = Annotated[datetime, Meta(extra_json_schema={"format": "date-time"})]
"""An instant by RFC 3339, with an offset."""
Day = Annotated[
    date,
    Meta(
        extra_json_schema={"pattern": r"^(19[7-9][0-9]|20[0-9]{2})-[0-9]{2}-[0-9]{2}$"}
    ),
]
"""A day of a calendar."""
Text = Annotated[str, Meta(extra_json_schema={"pattern": r"\S", "minLength": 1})]
"""A name, a key, a rule."""
Length = (
    Annotated[
        float, Meta(extra_json_schema={"minimum": 0, "maximum": HORIZON_NS // NS})
    ]
    | Annotated[
        str,
        Meta(
            extra_json_schema={
                "pattern": r"^([0-9]{1,9}(\.[0-9]{1,3})?(us|ms|s|m|h|d|w)){1,3}$",
                "maxLength": 100,
                "examples": ["10m", "1h30m", "0.2s"],
            }
        ),
    ]
)
"""A length of time: seconds, or text such as "10m"."""
Count = Annotated[int, Meta(extra_json_schema={"minimum": 1, "maximum": 1_000})]
"""How many at once, of what is shown or claimed."""
Bound = Annotated[int, Meta(extra_json_schema={"minimum": 1})]
"""How many at most."""
Hold = Annotated[float, Meta(extra_json_schema={"minimum": 0, "maximum": 60})]
"""Seconds that the server may hold a request."""
