"""One line of JSON for each log record, with its ids: for machines that read logs.

    logging.getLogger().handlers[0].setFormatter(JsonFormatter())
    configure_logs("json")          standard error, as `timingwheel serve --log-format json`

Every record of this package carries its ids in `extra`: run_id, job_id, task, attempt and
token of attempts; method, route, status, duration_ms, caller and peer of requests. They
become keys beside `time`, `level`, `logger` and `message`.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Final, Literal

import msgspec

LogFormat = Literal["text", "json"]
TEXT: Final = "%(levelname)s %(name)s %(message)s"
# What each record has anyway; all else came in by `extra`.
_COMMON: Final = frozenset(logging.makeLogRecord({}).__dict__) | {
    *("message", "asctime", "taskName"),
}


class JsonFormatter(logging.Formatter):
    """Writes a record as one line of JSON; it never fails and never breaks a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        at = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, object] = {
            "time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": _message(record),
        }
        for name, value in record.__dict__.items():
            if name not in _COMMON and name not in line and value is not None:
                line[name] = value
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=_shown).decode("utf-8", "replace")


def configure_logs(
    log_format: LogFormat = "text", *, level: int = logging.INFO
) -> None:
    """Have all logs from a level on, on standard error, where a supervisor takes them.

    Does nothing if the program has configured its logs already.
    """
    handler = logging.StreamHandler()
    is_json = log_format == "json"
    handler.setFormatter(JsonFormatter() if is_json else logging.Formatter(TEXT))
    logging.basicConfig(level=level, handlers=[handler])


def _message(record: logging.LogRecord) -> str:
    try:
        text = record.getMessage()
    except Exception as error:  # noqa: BLE001 - an object's own __str__ can raise anything
        text = f"{record.msg!s:.200}: cannot be formatted ({type(error).__qualname__})"
    # A lone surrogate, from a file name perhaps, has no bytes.
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _shown(value: object) -> str:
    """Return what JSON has no form for as text."""
    return repr(value)
