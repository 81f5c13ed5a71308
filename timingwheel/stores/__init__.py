"""Where jobs and runs are kept: the stores, and the history of what has ended."""

from timingwheel.stores.embedded import EmbeddedStore
from timingwheel.stores.history_errors import HistoryError
from timingwheel.stores.history_retention import Retention

__all__ = ["EmbeddedStore", "HistoryError", "Retention"]
