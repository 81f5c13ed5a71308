"""What a metric is: its name, its kind, what is said of it, and one value of it."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)

from timingwheel.jobs.figures import HistogramSnapshot

PREFIX: Final = "timingwheel_"
NS: Final = 1e9

Labels = tuple[str, ...]
Value = float | HistogramSnapshot
Reading = tuple[str, Labels, Value]
"""A metric's name without its prefix, the values of its labels, and its value."""


_Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily
_FAMILIES: Final[dict[str, type[_Family]]] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}


class Metric(NamedTuple):
    """One metric: what a scrape says of it beside its value.

    Attributes:
        name: without the prefix; a counter's with its `_total`, else with its unit.
        kind: of Prometheus.
        help: one sentence.
        labels: names of its labels.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: Labels = ()

    @property
    def full_name(self) -> str:
        """The name that queries use; a histogram's samples add to it."""
        return PREFIX + self.name

    def new_family(self) -> _Family:
        """Return an empty family of this metric."""
        return _FAMILIES[self.kind](self.full_name, self.help, labels=self.labels)
