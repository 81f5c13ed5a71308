"""The command line: parse, call, print. `timingwheel --help` is its front page."""

from timingwheel.cli.program import main

__all__ = ["main"]
