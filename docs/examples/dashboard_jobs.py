"""A service with jobs of all kinds, and its dashboard: what `make serve` opens.

    python docs/examples/dashboard_jobs.py [DIRECTORY] [--port N]

Every task does next to nothing: what is to be seen is the schedule. Ctrl-C ends it; what
is in the directory is there again at the next start.
"""

import argparse
import logging
import random
import sys
import time
from datetime import UTC, datetime, timedelta

from timingwheel import After, Context, Retry, Scheduler
from timingwheel.errors import TimingWheelError
from timingwheel.server import HttpServer
from timingwheel.server.serving import DEFAULT_PORT

app = Scheduler("./timingwheel-demo")  # opened by main, or by `timingwheel serve`


@app.task(name="heartbeat")
def heartbeat(ctx: Context) -> str:
    ctx.log.info("all services answered")
    return "ok"


@app.task(name="report", timeout="2m", queue="reports")
def report(ctx: Context, region: str, pages: int = 12) -> str:
    for page in range(1, pages + 1):
        ctx.check()  # a cancel asked for on the page ends it here
        ctx.log.info("page %d of %d for %s", page, pages, region)
        time.sleep(0.25)
    return f"{pages} pages for {region}"


@app.task(name="send_mail", retry=Retry(4, backoff="2s..20s"), queue="mail")
def send_mail(to: str, subject: str = "Your invoice") -> str:
    if random.random() < 0.3:
        raise ConnectionError("451 mail server busy, try again")
    return f"{subject!r} to {to}"


@app.task(name="charge_card", retry=Retry(2, backoff="1s..2s"))
def charge_card(invoice: str, cents: int) -> None:
    raise ValueError(f"card expired: invoice {invoice} over {cents / 100:.2f}")


@app.task(name="import_orders", queue="imports")
def import_orders(ctx: Context, source: str) -> int:
    ctx.log.info("asking %s", source)
    time.sleep(random.uniform(0.5, 3))
    return random.randrange(200)


@app.task(name="rebuild_index", queue="imports")
def rebuild_index() -> str:
    time.sleep(1)
    return "index is up to date"


def add_jobs(app: Scheduler) -> None:
    """Add what a service adds at each start: a name finds its job again."""
    app.queue("mail").set(limit=4, rate=5)
    app.queue("reports").set(limit=2)
    app.add(heartbeat.call(), every="5s", name="heartbeat", tags={"team": "ops"})
    app.add(
        send_mail.call("ann@example.com", subject="What happened this minute"),
        every="7s",
        name="digest",
        tags={"team": "growth"},
    )
    app.add(
        charge_card.call("inv-2026-117", 4_900),
        every="90s",
        name="dunning",
        tags={"team": "billing"},
    )
    for region, zone in (("north", "Europe/Berlin"), ("west", "America/New_York")):
        app.add(
            report.call(region),
            cron="30 2 * * *",
            tz=zone,
            name=f"nightly-report-{region}",
            misfire="latest",
            tags={"team": "bi", "region": region},
        )
    app.add(
        report.call("everywhere", pages=8),
        cron="*/2 * * * *",
        name="live-report",
        overlap="skip",
        tags={"team": "bi"},
    )
    orders = app.add(import_orders.call("shop"), every="20s", name="import-orders")
    app.add(
        rebuild_index.call(),
        after=After(orders.id, on="success"),
        name="rebuild-index",
        tags={"team": "search"},
    )
    # What everybody schedules at midnight, for the page "Load ahead".
    for customer in range(40):
        app.add(
            report.call(f"customer {customer}", pages=1),
            cron="0 0 * * *",
            name=f"statement-{customer:02}",
            tags={"team": "billing"},
        )
    for hour in range(1, 9):
        at = datetime.now(UTC) + timedelta(hours=hour * 2.5)
        app.add(
            send_mail.call("bob@example.com", subject=f"Reminder {hour}"),
            at=at.replace(second=0, microsecond=0),
            key=f"reminder-{hour}",
        )
    paused = app.add(
        import_orders.call("old shop"), cron="*/15 * * * *", name="import-old-shop"
    )
    if paused.created:
        app.pause(paused.id, note="the old shop is being moved", until="3d")


def main() -> int:
    parser = argparse.ArgumentParser(description="The dashboard, with sample jobs.")
    parser.add_argument("directory", nargs="?", default="./timingwheel-demo")
    parser.add_argument("--port", type=int, default=DEFAULT_PORT)
    asked = parser.parse_args()
    # Handlers that fail are on the page; in the terminal they would hide its address.
    logging.basicConfig(level=logging.ERROR)
    logging.getLogger("timingwheel").setLevel(logging.CRITICAL)
    logging.getLogger("timingwheel.server").setLevel(logging.ERROR)
    scheduler = Scheduler(asked.directory, tasks=app.tasks)
    server = HttpServer(scheduler, port=asked.port, grace=2)
    try:
        server.open()
    except TimingWheelError as error:
        print(f"{error}\nTry: python {sys.argv[0]} {asked.directory} --port 0")
        return 1
    add_jobs(scheduler)
    print(f"the dashboard: {server.url}    (jobs in {asked.directory}; Ctrl-C ends it)")
    sys.stdout.flush()
    server.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
