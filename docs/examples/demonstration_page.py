"""What demonstration.py prints: heads, sentences, bars, and the verdict."""

from __future__ import annotations

import sys
import textwrap
import time


class Verdict:
    """The checks, one to a line."""

    def __init__(self) -> None:
        self._rows: list[tuple[str, int, int]] = []

    def add(self, what: str, *, checked: int, broken: int) -> None:
        self._rows.append((what, checked, broken))

    def print(self) -> bool:
        """Show the table; return whether all holds, and was really looked at."""
        print(f"\n{'promise':<56}{'checked':>12}{'broken':>10}\n{'-' * 78}")
        for what, checked, broken in self._rows:
            print(f"{what:<56}{checked:>12,}{broken:>10,}")
        kept = all(checked and not broken for _, checked, broken in self._rows)
        print(f"{'-' * 78}\n{'verdict':<56}{'KEPT' if kept else 'BROKEN':>22}\n")
        return kept


class Bar:
    """Progress: a bar on a terminal, a line at each tenth elsewhere."""

    WIDTH = 30

    def __init__(self, total: int) -> None:
        self._total = total
        self._begun = time.monotonic()
        self._is_terminal = sys.stdout.isatty()
        self._steps = 100 if self._is_terminal else 10
        self._next = 1

    def show(self, done: int) -> None:
        if done * self._steps < self._next * self._total:
            return
        self._next = self._steps * done // self._total + 1
        rate = done / max(time.monotonic() - self._begun, 1e-9)
        text = f"{100 * done // self._total:3} %  {done:9,}  {rate:8,.0f} a second"
        if not self._is_terminal:
            print(f"   {text}", flush=True)
            return
        filled = self.WIDTH * done // self._total
        bar = "#" * filled + "." * (self.WIDTH - filled)
        end = "\n" if done == self._total else ""
        print(f"\r   [{bar}] {text}", end=end, flush=True)


def head(number: int, title: str) -> None:
    print(f"\n{number}  {title}", flush=True)


def say(text: str, indent: str = "   ") -> None:
    print(textwrap.fill(text, 80, initial_indent=indent, subsequent_indent=indent))
    sys.stdout.flush()
