"""The same scheduler under asyncio: coroutine tasks share the program's loop.

# test: run
"""

import asyncio
import tempfile

from timingwheel import After, AsyncScheduler, Context

directory = tempfile.TemporaryDirectory()
app = AsyncScheduler(directory.name)


@app.task
async def fetch(page: int) -> int:
    await asyncio.sleep(0.1)  # waits beside all others
    return page * page


@app.task
async def collect(ctx: Context, pages: int) -> str:
    ctx.log.info("all of them are there")
    return f"{pages} pages are fetched"


async def main() -> None:
    async with app:
        # The loop never waits for the disk, and requests that come together share a sync.
        jobs = await asyncio.gather(
            *(app.schedule(fetch.call(page), 0) for page in range(100))
        )
        last = await app.add(collect.call(len(jobs)), after=After.all_of(*jobs))
        [found] = await app.runs(job=last)
        run = await app.run(found)
        print(await run.result(timeout=30))
        runs = [await app.run(job) for job in jobs]
        assert [await run.result() for run in runs] == [n * n for n in range(100)]


asyncio.run(main())
directory.cleanup()
