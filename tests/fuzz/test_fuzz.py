"""Every target of the fuzzer, on what is kept for it and on bytes that come at random.

`make fuzz` goes further: a fuzzer that follows which lines are reached.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.targets import CORPUS, MEMORY_MAX_BYTES, TARGETS, bounded, corpus_of

EXAMPLES = 20
EXAMPLES_LONG = 20_000
SPLICES_MAX = 4

target_names = pytest.mark.parametrize("name", sorted(TARGETS))


def spliced(kept: list[bytes]) -> st.SearchStrategy[bytes]:
    """Kept inputs, cut and put together anew, with bytes that are in none of them."""
    piece = st.builds(
        lambda data, start, size: data[start : start + size],
        st.sampled_from(kept),
        st.integers(0, 200),
        st.integers(0, 200),
    )
    odd = st.sampled_from([b"\0" * 8, b"\xff" * 8, b"\x7f", b"\xff\xff\xff\x7f"])
    parts = st.lists(piece | odd | st.binary(max_size=8), max_size=SPLICES_MAX)
    return st.builds(
        lambda head, rest: head + b"".join(rest), st.sampled_from(kept), parts
    )


def test_every_target_has_a_corpus_and_every_corpus_a_target() -> None:
    assert {path.stem for path in CORPUS.iterdir()} == set(TARGETS)
    assert all(corpus_of(name) for name in TARGETS)


@target_names
def test_a_target_bears_all_that_is_kept_for_it_within_its_memory(name: str) -> None:
    check = bounded(TARGETS[name])
    for data in corpus_of(name):
        check(data)


def test_a_target_that_believes_a_length_is_found_out() -> None:
    def believing(data: bytes) -> None:
        bytes(int.from_bytes(data, "little"))

    check = bounded(believing)
    check((MEMORY_MAX_BYTES // 2).to_bytes(4, "little"))
    with pytest.raises(AssertionError, match="bytes for 4 of input"):
        check((MEMORY_MAX_BYTES + 1).to_bytes(4, "little"))


@target_names
def test_a_target_bears_spliced_inputs(name: str) -> None:
    run_spliced(name, EXAMPLES)


@pytest.mark.long
@target_names
def test_a_target_bears_many_spliced_inputs(name: str) -> None:
    run_spliced(name, EXAMPLES_LONG)


def run_spliced(name: str, examples: int) -> None:
    target = TARGETS[name]

    @settings(max_examples=examples, suppress_health_check=list(HealthCheck))
    @given(spliced(corpus_of(name)))
    def run(data: bytes) -> None:
        target(data)

    run()
