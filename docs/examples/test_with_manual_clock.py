"""How to test a program that lives by timers: turn the clock by hand, and never sleep.

Run it with pytest, or as it is.

# test: run
"""

from timingwheel import Clock, SystemClock, TimerEngine
from timingwheel.testing import ManualClock

DAY_S = 86_400


class Trial:
    """The program to be tested: a trial account that ends after 14 days."""

    def __init__(self, path: str, clock: Clock | None = None) -> None:
        self.ended: list[str] = []
        self.engine = TimerEngine(path, on_fire=self._end, clock=clock or SystemClock())

    def begin(self, account: str) -> None:
        self.engine.schedule(14 * DAY_S, account.encode())

    def _end(self, _: int, payload: bytes) -> None:
        self.ended.append(payload.decode())


def test_a_trial_ends_after_14_days_and_not_before() -> None:
    clock = ManualClock()
    trial = Trial(":memory:", clock)
    with trial.engine:
        trial.begin("ada")

        clock.advance(14 * DAY_S - 1)
        clock.settle()  # wait until every thread of the engine has nothing to do
        assert trial.ended == []

        clock.advance(1.001)
        clock.settle()
        trial.engine.close()  # waits for the handlers
        assert trial.ended == ["ada"]


def test_setting_the_wall_clock_ends_no_trial() -> None:
    clock = ManualClock()
    trial = Trial(":memory:", clock)
    with trial.engine:
        trial.begin("ada")
        clock.step(365 * DAY_S * 10**9)
        clock.settle()
        trial.engine.close()
        assert trial.ended == []


if __name__ == "__main__":
    test_a_trial_ends_after_14_days_and_not_before()
    test_setting_the_wall_clock_ends_no_trial()
    print("ok")
