"""Benchmarks: `python -m bench` for the table, `pytest -n 0 bench` to compare two states."""
