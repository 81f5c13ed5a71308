"""A store on a real ext4 over images of its disk: what was promised by a flush is there.

The work is done by `block_images`, in namespaces of its own: whatever ends it, no mount and
no server of a file is left behind. It needs root, FUSE and loop devices; where they are
missing these tests are skipped, and say so.
"""

from __future__ import annotations

import os
import random
import re
import select
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.block_images import RECORDING

IMAGES_PER_FLUSH = 3
IMAGES_MIN = 200
SECONDS_MAX = 60
"""That the kernel has to tidy up; it needs less than one."""


def what_is_missing() -> str:
    """Return why block images cannot be made here; "" if they can."""
    programs = ("mkfs.ext4", "mount", "umount", "setpriv", "unshare")
    lacks = [f"the program {name}" for name in programs if not shutil.which(name)]
    devices = ("/dev/fuse", "/dev/loop-control")
    lacks += [path for path in devices if not Path(path).exists()]
    if os.geteuid() != 0:
        lacks.insert(0, "root")
    return ", ".join(lacks)


pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(
        what_is_missing() != "",
        reason=f"NO IMAGES OF A REAL EXT4 ARE TRIED HERE: missing {what_is_missing()}",
    ),
]


def start(
    work: Path,
    seed: int,
    per_flush: int,
    kind: str,
    stdout: int | None = subprocess.PIPE,
) -> subprocess.Popen[str]:
    """Start the program so that it dies with us, and all that it started with it."""
    words = ["setpriv", "--pdeathsig", "KILL"]
    words += ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
    words += [sys.executable, "-m", "tests.crash.block_images"]
    return subprocess.Popen(
        [*words, str(work), str(seed), str(per_flush), kind],
        stdout=stdout,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_every_image_that_a_power_loss_may_leave_holds_what_was_promised(
    tmp_path: Path, rng: random.Random
) -> None:
    program = start(tmp_path, rng.getrandbits(32), IMAGES_PER_FLUSH, "sync")
    told, _ = program.communicate()
    print(told)
    assert program.returncode == 0
    found = re.search(r"^(\d+) images held what was promised$", told, re.MULTILINE)
    assert found is not None
    assert int(found[1]) >= IMAGES_MIN


def test_a_log_that_does_not_sync_is_seen_in_an_image(
    tmp_path: Path, rng: random.Random
) -> None:
    program = start(tmp_path, rng.getrandbits(32), 1, "no-sync")
    told, _ = program.communicate()
    print(told)
    assert program.returncode == 1
    assert re.search(
        r"^AssertionError: flush \d+, none of .*: .* is lost", told, re.MULTILINE
    )


def test_nothing_is_left_of_a_run_whose_starter_was_killed(tmp_path: Path) -> None:
    code = f"from tests.crash import {Path(__file__).stem} as it; it.start_and_wait()"
    words = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        while (line := starter.stdout.readline()).strip() != RECORDING:
            assert line, "it ended before the disk was mounted"
        family = descendants(starter.pid)
        mounts = Path(f"/proc/{family[1]}/mounts").read_text()
        watched = [os.pidfd_open(pid) for pid in family]
        starter.kill()
    assert len(family) == 3  # unshare, block_images, block_device
    assert mounts.count(f" {tmp_path}") == 3  # a tmpfs, FUSE, ext4
    for process in watched:
        ended, _, _ = select.select([process], [], [], SECONDS_MAX)
        os.close(process)
        assert ended, "it outlived the one who had started it"
    assert str(tmp_path) not in Path("/proc/mounts").read_text()


def start_and_wait() -> None:
    """Be the one who starts the program, and is killed."""
    start(Path(sys.argv[1]), 1, 1, "sync", stdout=None).wait()


def descendants(pid: int) -> list[int]:
    """Return a process's child, its child's child and so on, where each has but one."""
    words = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(words[0]), *descendants(int(words[0]))] if words else []
