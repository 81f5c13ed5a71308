"""Programs for a log: one written by hand that meets everything, and random ones."""

from __future__ import annotations

import random
from typing import Final, Literal, get_args

from tests.crash.log_driver import Options, Step
from wal.frame import ALIGN_BYTES, MAGIC

SEGMENT_SIZES: Final = (5120, 6144, 8192, 16384)
_HEAD_AND_CLOSE_BYTES: Final = 4096 + 2 * 64


def room_bytes(options: Options) -> int:
    """Return the largest body that a frame of such a log can have."""
    return options.segment_size_bytes - _HEAD_AND_CLOSE_BYTES


Kind = Literal["text", "zeros", "bit", "magic", "ones"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)


def payload(kind: Kind, size: int) -> bytes:
    """Return bytes that a log might take for its own, or for nothing."""
    match kind:
        case "zeros":  # as a sector that was never written
            return bytes(size)
        case "bit":  # nearly so
            return ((b"\x01" + bytes(511)) * (size // 512 + 1))[:size]
        case "magic":  # as the start of a frame, wherever it is aligned
            whole = MAGIC + bytes(ALIGN_BYTES - len(MAGIC))
            return (whole * (size // ALIGN_BYTES + 1))[:size]
        case "ones":
            return b"\xff" * size
        case "text":
            return bytes(33 + i % 90 for i in range(size))


def scripted() -> list[Step]:
    """Return the program that meets each kind of disk call at least twice.

    Rotations, groups, lost and kept tails, four snapshots (so that retention drops both
    snapshots and segments), a close, kills with something un-synced, interval mode.
    """
    small, large = Options(5120), Options(8192)
    relaxed = Options(5120, "interval")
    text = [payload("text", size) for size in (0, 1, 40, 100, 200, 450, 700, 880)]
    return [
        Step("append", (text[3],)),
        Step("commit"),
        Step("append", (payload("zeros", 600),)),
        Step("sync"),
        Step("group", (text[2], text[0], payload("zeros", 300))),
        Step("append", (text[1],)),
        Step("commit"),
        Step("begin"),
        Step("append", (text[4],)),
        Step("block"),
        Step("append", (payload("bit", 512),)),
        Step("finish"),
        Step("append", (text[6],)),
        Step("kill", options=small),
        Step("append", (text[7],)),
        Step("commit"),
        Step("append", (text[2],)),
        Step("append", (payload("zeros", 700),)),
        Step("kill", options=small),
        Step("group", (text[2],) * 5),
        Step("begin"),
        Step("finish"),
        Step("append", (text[5],)),
        Step("append", (text[5],)),
        Step("commit"),
        Step("reopen", options=relaxed),
        Step("append", (text[4],)),
        Step("commit"),
        Step("append", (text[4],)),
        Step("sync"),
        Step("append", (text[6],)),
        Step("append", (text[6],)),
        Step("append", (text[1],)),
        Step("commit"),
        Step("begin"),
        Step("append", (text[3],)),
        Step("finish"),
        Step("append", (payload("magic", 500),)),
        Step("kill", options=large),
        Step("append", (payload("zeros", 2000),)),
        Step("commit"),
        Step("begin"),
        Step("finish"),
        Step("append", (text[3],)),
        Step("append", (payload("ones", 3000),)),
        Step("commit"),
        Step("append", (text[3],)),
    ]


def short() -> list[Step]:
    """Return the shortest program in which every promise of a log can be broken.

    Rotations, a kill that loses something, and three snapshots.
    """
    steps = [
        Step("group", (b"one", bytes(500))),
        Step("commit"),
        Step("append", (payload("text", 600),)),
        Step("commit"),
        Step("begin"),
        Step("finish"),
        Step("append", (bytes(200),)),
        Step("kill"),
    ]
    for size in (880, 300):
        steps += [Step("append", (payload("text", size),)), Step("commit")]
        steps += [Step("begin"), Step("finish")]
    return [*steps, Step("append", (b"last",)), Step("commit")]


def random_program(rng: random.Random, steps: int) -> tuple[Options, list[Step]]:
    """Return the options of the first open, and what is done then."""
    first = options = _random_options(rng)
    program: list[Step] = []
    while len(program) < steps:
        match rng.choices(
            ["append", "group", "commit", "sync", "snapshot", "reopen", "kill"],
            [10, 4, 7, 2, 1.5, 0.7, 1.2],
        ):
            case ["append"]:
                program.append(Step("append", (_random_payload(rng, options),)))
            case ["group"]:
                program.append(Step("group", _random_group(rng, options)))
            case ["commit"]:
                program.append(Step("commit"))
            case ["sync"]:
                program.append(Step("sync"))
            case ["snapshot"]:
                program.append(Step("begin"))
                while rng.random() < 0.4:
                    program.append(Step("append", (_random_payload(rng, options),)))
                    program.append(Step(rng.choice(("block", "commit"))))
                if rng.random() < 0.9:
                    program.append(Step("finish"))
            case [verb]:
                options = _random_options(rng)
                program.append(
                    Step("kill" if verb == "kill" else "reopen", options=options)
                )
    return first, program


def _random_options(rng: random.Random) -> Options:
    size = rng.choice(SEGMENT_SIZES)
    return Options(size, rng.choice(("durable", "durable", "interval")))


def _random_payload(rng: random.Random, options: Options) -> bytes:
    room = room_bytes(options) - 4
    size = rng.choice((rng.randint(0, 60), rng.randint(0, room), rng.randint(0, 600)))
    size = min(size, room)
    if rng.random() < 0.2:
        return rng.randbytes(size)
    return payload(rng.choice(KINDS), size)


def _random_group(rng: random.Random, options: Options) -> tuple[bytes, ...]:
    count = rng.randint(2, 6)
    room = room_bytes(options) // count - 4
    payloads = [_random_payload(rng, options) for _ in range(count)]
    return tuple(payload[:room] for payload in payloads)
