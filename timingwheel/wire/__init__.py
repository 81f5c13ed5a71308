"""What server and client say to each other, as types that both know.

Neither imports the other, so what they agree on lies below both: bodies and answers,
and how an error travels.
"""

from timingwheel.wire.problems import AccessError, Problem, RefusedByServerError

__all__ = ["AccessError", "Problem", "RefusedByServerError"]
