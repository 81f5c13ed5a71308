"""A timer that outlives the program that made it.

# test: run
"""

import tempfile
import threading

from timingwheel import TimerEngine

came = threading.Event()


def on_fire(timer_id: int, payload: bytes) -> None:
    """Called on a worker thread. Returning acknowledges the timer: it is done."""
    print(f"timer {timer_id}: {payload.decode()}")
    came.set()


with tempfile.TemporaryDirectory() as directory:
    # The first life of the program: two timers, of which one is due at once.
    with TimerEngine(directory, on_fire=on_fire) as engine:
        engine.schedule(0.1, b"tea is ready")
        rent = engine.schedule(30 * 86_400, b"pay the rent")
        came.wait()

    # The second life. The rent is still there, and nobody had to write it down.
    with TimerEngine(directory, on_fire=on_fire) as engine:
        timer = engine.get(rent)
        assert timer is not None
        assert timer.payload == b"pay the rent"

        assert engine.cancel(rent)  # true: it will never come, whatever happens
        assert not engine.cancel(rent)  # false: there is no such timer any more
        assert len(engine) == 0
