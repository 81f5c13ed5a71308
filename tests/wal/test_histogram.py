from __future__ import annotations

from wal.histogram import Histogram


def test_a_bound_belongs_to_the_bucket_below_it() -> None:
    histogram = Histogram((10, 100))

    for duration_ns in (0, 10, 11, 100, 101):
        histogram.add(duration_ns)

    assert histogram.counts == (2, 2, 1)
    assert histogram.sum_ns == 222
    assert histogram.max_ns == 101


def test_a_duration_below_nothing_counts_as_none() -> None:
    histogram = Histogram((10,))

    histogram.add(-5)

    assert (histogram.counts, histogram.sum_ns) == ((1, 0), 0)


def test_the_longest_of_none_is_nothing_and_a_nanosecond_is_longer() -> None:
    histogram = Histogram((10,))
    assert (histogram.max_ns, histogram.sum_ns) == (0, 0)

    histogram.add(1)

    assert (histogram.max_ns, histogram.sum_ns) == (1, 1)
