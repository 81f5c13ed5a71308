# The contract is told in timingwheel/engine/lane.py.
from timingwheel.engine.core import EngineCore
from timingwheel.engine.records import TimerId

__all__ = ["Lane"]

class Lane:
    def __init__(self, core: EngineCore) -> None: ...
    def schedule(self, delay: float, payload: bytes) -> TimerId: ...
    def schedule_many(self, delays: object, payloads: object) -> int: ...
