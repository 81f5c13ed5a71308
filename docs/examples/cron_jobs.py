"""Recurring jobs: cron and calendar, zones, holidays, pause, and what comes next.

# test: run
"""

from datetime import date

from timingwheel import Scheduler, every

app = Scheduler(":memory:")


@app.task
def report(region: str) -> str:
    return f"report of {region}"


with app:
    holidays = app.calendar("holidays")
    holidays.set(dates=[date(2027, 1, 1)], weekdays=["SAT", "SUN"])

    # Added at each start: the name finds the job, and a change updates it.
    app.add(
        report.call("north"),
        cron="30 2 * * *",
        tz="Europe/Berlin",
        name="north",
        calendar="holidays",
        roll="next",  # what falls on a holiday runs on the next business day
        splay="10m",
        tags={"team": "bi"},
    )
    again = app.add(
        report.call("north"),
        cron="30 3 * * *",
        tz="Europe/Berlin",
        name="north",
        calendar="holidays",
        roll="next",
        splay="10m",
        tags={"team": "bi"},
    )
    assert not again.created
    assert again.updated

    # Every second Tuesday at 09:00, which no cron expression can say.
    tuesdays = every(
        weeks=2, at="09:00", tz="America/New_York", anchor=date(2026, 2, 24)
    )
    app.add(report.call("south"), every=tuesdays, name="south")

    for name in ("north", "south"):
        print(app.explain(name))
        for time in app.next_times(name, 3):
            print("  ", time.local, time.mark)

    app.pause("north", note="its data is being mended", until="2h")
    would = app.resume("north", dry_run=True, catch_up="latest")
    print("a resume would start", len(would.starts), "runs and skip", would.skipped)

    # By hand, apart from the schedule and in spite of the pause.
    print(app.trigger("north").result(timeout=10))
