"""The same engine under asyncio: a thousand requests share a handful of syncs.

# test: run
"""

import asyncio
import tempfile

from timingwheel import AsyncTimerEngine

ORDERS = 1_000


async def main(directory: str) -> None:
    reminded = asyncio.Queue[str]()

    async def remind(_: int, payload: bytes) -> None:
        await reminded.put(payload.decode())

    async with AsyncTimerEngine(directory, on_fire=remind) as engine:
        # Each call returns when its timer is on the disk. The event loop never waits
        # for that, and calls that come together are synced together.
        ids = await asyncio.gather(
            *(engine.schedule(3_600, b"order %d" % n) for n in range(ORDERS))
        )
        assert len(set(ids)) == len(engine) == ORDERS

        # Paid: no reminder is due. True means that it will not come.
        assert all(await asyncio.gather(*map(engine.cancel, ids[1:])))

        # Not paid: remind now, and not in an hour.
        assert await engine.reschedule(ids[0], 0)
        print("remind:", await reminded.get())


with tempfile.TemporaryDirectory() as directory:
    asyncio.run(main(directory))
