"""What tests of programs that use timingwheel are made of: clocks and simulations.

`ManualClock` is a clock that the test turns by hand, for an engine or a scheduler with
its real threads. `Sim` is a whole scheduler without threads, on a clock and a disk of its
own: it goes from one due time to the next in no time, sets the clock, crashes, restarts.
`simulate` leads one through a random life and holds it to its promises; to do so for an
hour: `python -m timingwheel.testing soak --for 1h`.
"""

from timingwheel.manual_clock import ManualClock
from timingwheel.scheduler.simulation import Sim
from timingwheel.testing.simulating import Simulation, SimulationFailedError, simulate

__all__ = ["ManualClock", "Sim", "Simulation", "SimulationFailedError", "simulate"]
