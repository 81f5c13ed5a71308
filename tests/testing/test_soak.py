"""soak: seeds until the time is over, and what a failing one prints."""

from __future__ import annotations

import pytest

from tests.crash.planted_stores import HastyCancel
from timingwheel.clock import Clock
from timingwheel.testing import ManualClock, __main__
from timingwheel.testing.soak import soak


class LateClock(ManualClock):
    """Each look at it is a second later."""

    def monotonic_ns(self) -> int:
        self.advance(1)
        return super().monotonic_ns()


class CtrlC(ManualClock):
    """Somebody presses it at the second look."""

    looks = 0

    def monotonic_ns(self) -> int:
        self.looks += 1
        if self.looks > 1:
            raise KeyboardInterrupt
        return super().monotonic_ns()


def test_a_soak_ends_when_its_time_is_over_and_tells_of_its_seeds() -> None:
    lines: list[str] = []
    tally = soak(12 * 10**9, seed=5, steps=1, tell=lines.append, clock=LateClock())
    assert (tally.seeds, tally.steps, tally.failures) == (12, 12, {})
    assert [line.split(" s ")[0].strip() for line in lines] == ["10"]
    assert "10 seeds" in lines[0]
    assert not tally.was_stopped


def test_a_failing_seed_is_told_at_once_with_the_command_that_repeats_it() -> None:
    lines: list[str] = []
    clock: Clock = LateClock()
    tally = soak(1, seed=0, store=HastyCancel, tell=lines.append, clock=clock)
    assert list(tally.failures) == [0]
    assert "simulate --seed 0 --steps 60" in lines[0]
    assert "1 failed" in str(tally)


def test_ctrl_c_ends_a_soak_with_its_tally() -> None:
    tally = soak(10**9, steps=1, tell=print, clock=CtrlC())
    assert (tally.seeds, tally.was_stopped) == (1, True)


def test_the_commands_print_and_end_with_0_when_all_is_kept(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert __main__.main(["simulate", "--seed", "7", "--steps", "2"]) == 0
    assert "2 steps" in capsys.readouterr().out
    assert __main__.main(["soak", "--for", "0s", "--steps", "1", "--seed", "7"]) == 0
    assert "done: 1 seeds, 1 steps" in capsys.readouterr().out


@pytest.mark.long
def test_processes_beside_each_other_share_the_seeds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["soak", "--for", "0s", "--steps", "3", "--seed", "7", "--workers", "2"]
    assert __main__.main(words) == 0
    assert "0 failed" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words", [["--for", "soon"], ["--workers", "0"], ["--steps", "many"]]
)
def test_arguments_that_cannot_be_meant_are_refused(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        __main__.main(["soak", *words])
    assert ended.value.code == 2
    assert words[0] in capsys.readouterr().err
