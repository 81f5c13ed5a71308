"""Job ids: UUID text, and for most jobs no index behind it.

    unkeyed   UUIDv8   48 bits of the store's uuid, 62 bits: the LSN that made the job
    keyed     UUIDv5   of (store, task, key)

An LSN is never reused, so an unkeyed id is unique for ever; and it says where to look: a
pending one-time job is the timer of that number. A keyed id can be computed by whoever
knows the key, so finding the job of a key needs no index either.
"""

from __future__ import annotations

import uuid
from typing import Final

from timingwheel.errors import ArgumentError
from timingwheel.jobs.model import JobId, parse_run_id

_NUMBER_BITS: Final = 62
_NUMBER_MASK: Final = (1 << _NUMBER_BITS) - 1
_VERSION_8: Final = 0x8 << 76
_VARIANT: Final = 0b10 << _NUMBER_BITS
_INT64_END: Final = 1 << 63
_RUN_ID_FIX: Final = "pass the id of a run: <job id>@<nominal ns>[#n]"


class StoreTag:
    """Makes and reads the job ids of one store.

    Args:
        store_uuid: 16 bytes.
    """

    def __init__(self, store_uuid: bytes) -> None:
        self._namespace = uuid.UUID(bytes=store_uuid)
        self._fixed = (
            int.from_bytes(store_uuid[:6], "big") << 80 | _VERSION_8 | _VARIANT
        )

    @property
    def bytes(self) -> bytes:
        """The uuid of the store."""
        return self._namespace.bytes

    def unkeyed(self, number: int) -> JobId:
        """Return the id of the job that LSN `number` made."""
        digits = f"{self._fixed | number:032x}"
        return JobId(
            f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
        )

    def keyed(self, task: str, key: str) -> JobId:
        """Return the id of the job that has a key in the scope of a task."""
        # A length in front keeps ("ab", "c") and ("a", "bc") apart.
        return JobId(str(uuid.uuid5(self._namespace, f"{len(task)}:{task}{key}")))

    def number(self, job_id: str) -> int | None:
        """Return the LSN that made an unkeyed job of this store, None for others."""
        try:
            value = int(job_id.replace("-", ""), 16)
        except (ValueError, AttributeError):
            return None
        if value >> _NUMBER_BITS != self._fixed >> _NUMBER_BITS:
            return None
        number = value & _NUMBER_MASK
        # One job has one id: not also in capitals, or without the dashes.
        return number if self.unkeyed(number) == job_id else None


def require_run_id(text: str) -> tuple[JobId, int, int]:
    """Return (job id, nominal_ns, n) of a run's identity.

    Raises:
        ArgumentError: the text is none.
    """
    try:
        job_id, nominal_ns, n = parse_run_id(text)
    except ValueError as error:
        raise ArgumentError("run_id", text, _RUN_ID_FIX) from error
    if not (-_INT64_END <= nominal_ns < _INT64_END and 0 <= n < _INT64_END):
        raise ArgumentError("run_id", text, _RUN_ID_FIX)
    return job_id, nominal_ns, n
