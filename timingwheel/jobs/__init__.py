"""What to do and when, without doing it: no I/O, no threads, and no look at the clock."""

from timingwheel.jobs.cron import Cron
from timingwheel.jobs.every import CalendarEvery, Every
from timingwheel.jobs.schedule import DstMark, Firing, Schedule

__all__ = [
    "CalendarEvery",
    "Cron",
    "DstMark",
    "Every",
    "Firing",
    "Schedule",
]
