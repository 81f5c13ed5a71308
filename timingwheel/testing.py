"""What tests of programs that use timingwheel are made of: a clock and a simulation.

`ManualClock` is a clock that the test turns by hand, for an engine or a scheduler with
its real threads. `Sim` is a whole scheduler without threads, on a clock and a disk of its
own: it goes from one due time to the next in no time, sets the clock, crashes, restarts.
"""

from timingwheel.manual_clock import ManualClock
from timingwheel.scheduler.simulation import Sim

__all__ = ["ManualClock", "Sim"]
