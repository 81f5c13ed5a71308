"""What the figures were measured on: the build, Python, the processors, the disk."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path

import timingwheel
from bench.disk import is_memory, kind_of


def about(directory: Path) -> dict[str, object]:
    """Return what decides the figures; nothing in it names the machine."""
    return {
        "date": time.strftime("%Y-%m-%d"),
        "compiled": timingwheel.COMPILED,
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "processors": len(os.sched_getaffinity(0)),
        "processor": _processor(),
        "memory_gib": round(
            os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / (1 << 30)
        ),
        "file_system": kind_of(directory),
    }


def first_lines(about: dict[str, object], directory: Path) -> list[str]:
    """Return what is printed before anything is measured."""
    build = (
        "the compiled bodies"
        if about["compiled"]
        else "the PLAIN PYTHON bodies: they are the reference and set no record"
    )
    kind = str(about["file_system"])
    lines = [
        f"build       {build}",
        f"python      {about['python']}, {about['system']}",
        f"processors  {about['processors']} x {about['processor']}",
        f"memory      {about['memory_gib']} GiB",
        f"disk        {directory} ({kind})",
    ]
    if is_memory(kind):
        lines.append(
            "            THIS IS MEMORY, NOT A DISK: a sync costs nothing here,"
        )
        lines.append("            so no durable figure means anything; see --dir")
    return lines


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.machine() or "unknown"
