"""What all tests share: how random they are, and that a failure can be repeated."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Verbosity, settings

from tests.postgres import FAST, SMALL, Postgres, running_postgres

SEED_VARIABLE = "TIMINGWHEEL_SEED"
# A red `make test` means that the change broke something, so it draws the same numbers
# each time; `make test-long` explores: it sets the variable to this word.
ANY_SEED = "random"
SEED_DEFAULT = "873129205"

# A shared machine can stall any one example, so none is timed; slow examples are the
# nature of crash tests.
settings.register_profile(
    "house",
    deadline=None,
    derandomize=True,
    print_blob=True,
    verbosity=Verbosity.normal,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "long", settings.get_profile("house"), derandomize=False, max_examples=2_000
)
settings.load_profile("house")  # `--hypothesis-profile=long` is applied after this


def pytest_configure() -> None:
    # Hundreds of tests start processes, and each would compile all it imports anew where
    # this is set, as in most containers; the workers and those processes inherit it.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    # The first process chooses; the workers of pytest-xdist inherit it.
    if os.environ.setdefault(SEED_VARIABLE, SEED_DEFAULT) == ANY_SEED:
        os.environ[SEED_VARIABLE] = str(random.SystemRandom().getrandbits(32))


def pytest_report_header() -> str:
    return f"random tests: repeat with {SEED_VARIABLE}={os.environ[SEED_VARIABLE]}"


@pytest.fixture
def rng() -> random.Random:
    """Random numbers whose seed is shown when the test fails."""
    seed = int(os.environ[SEED_VARIABLE])
    print(f"{SEED_VARIABLE}={seed}")
    return random.Random(seed)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL server; the data of each test go into a schema of its own."""
    with running_postgres(*FAST, *SMALL) as server:
        yield server
