"""How to test a program with jobs: a simulated clock, disk and worker, and no waiting.

Run it with pytest, or as it is.

# test: run
"""

from timingwheel import Context, Retry, Scheduler
from timingwheel.testing import Sim

# -- the program to be tested ----------------------------------------------------------

app = Scheduler("./data")  # building it opens nothing
sent: list[str] = []


class Relay:
    """The world outside."""

    is_down = False


@app.task(retry=Retry(5, backoff="1m..1h"))
def remind(ctx: Context, account: str) -> None:
    if Relay.is_down:
        raise ConnectionError("the relay is down")
    sent.append(f"{account}, day {ctx.nominal.day}")


def set_up(scheduler: Scheduler) -> None:
    scheduler.add(remind.call("ada"), cron="0 6 * * *", name="remind ada")


# -- its tests -------------------------------------------------------------------------


def test_a_reminder_is_sent_each_morning() -> None:
    sent.clear()
    with Sim(set_up, tasks=app) as sim:
        sim.advance("3d")
        assert sent == ["ada, day 1", "ada, day 2", "ada, day 3"]


def test_a_reminder_waits_until_the_relay_is_back() -> None:
    sent.clear()
    with Sim(set_up, tasks=app) as sim:
        Relay.is_down = True
        sim.advance("6h 1m")
        assert sent == []
        Relay.is_down = False
        sim.advance("1h")
        assert sent == ["ada, day 1"]


def test_after_two_days_without_power_one_reminder_is_sent() -> None:
    sent.clear()
    with Sim(set_up, tasks=app) as sim:
        sim.crash()
        sim.advance("2d")
        sim.restart()
        assert sent == ["ada, day 2"]


if __name__ == "__main__":
    test_a_reminder_is_sent_each_morning()
    test_a_reminder_waits_until_the_relay_is_back()
    test_after_two_days_without_power_one_reminder_is_sent()
    print("ok")
