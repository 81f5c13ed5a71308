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

from timingwheel.jobs.model import JobId

_NUMBER_BITS: Final = 62
_NUMBER_MASK: Final = (1 << _NUMBER_BITS) - 1
_VERSION_8: Final = 0x8 << 76
_VARIANT: Final = 0b10 << _NUMBER_BITS


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
        return value & _NUMBER_MASK
