"""Take the pictures of docs/dashboard.md anew: `python docs/images/make.py`.

The sample jobs of `make serve`, in a directory that is thrown away, run until all that
the pictures show is there; Debian's chromium looks at them. It needs the extra `test`.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from playwright.sync_api import sync_playwright

from timingwheel.client import Client

HERE: Final = Path(__file__).resolve().parent
SAMPLE: Final = HERE.parent / "examples" / "dashboard_jobs.py"
CHROMIUM: Final = shutil.which("chromium") or "/usr/bin/chromium"
WIDE: Final = {"width": 960, "height": 600}
NARROW: Final = {"width": 360, "height": 740}
BYTES_MAX: Final = 100_000
JOB: Final = "/jobs/import-orders"
PICTURES: Final = {
    # name: path, colours, size
    "overview": ("/", "light", WIDE),
    "load-ahead": ("/load-ahead", "light", WIDE),
    "jobs": ("/jobs", "dark", WIDE),
    "job": (JOB, "light", WIDE),
    "dead-letter": ("/dead-letter", "dark", WIDE),
    "narrow": ("/", "light", NARROW),
}


@contextmanager
def served() -> Iterator[str]:
    """Serve the sample jobs on a free port; yield the URL."""
    with tempfile.TemporaryDirectory() as place:
        process = subprocess.Popen(
            [sys.executable, str(SAMPLE), f"{place}/data", "--port", "0"],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout is not None
            found = re.search(r"http://\S+", process.stdout.readline())
            assert found is not None, "the sample does not serve"
            yield found[0]
        finally:
            process.terminate()
            process.communicate()


def fill(url: str) -> None:
    """Have enough runs of all kinds that the pages have something to show."""
    with Client(url) as app:
        runs = [
            app.trigger(name)
            for _ in range(8)
            for name in ("heartbeat", "digest", "import-orders")
        ]
        runs += [app.trigger("dunning") for _ in range(3)]
        for run in runs:
            run.wait("2m")


def main() -> int:
    """Take all pictures; return the exit code."""
    with served() as url, sync_playwright() as playwright:
        fill(url)
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        for name, (path, colours, size) in PICTURES.items():
            page = browser.new_page(color_scheme=colours, viewport=size)
            page.goto(url + path)
            page.locator("h1").wait_for()
            file = HERE / f"dashboard-{name}.png"
            page.screenshot(path=str(file), animations="disabled")
            page.close()
            size_bytes = file.stat().st_size
            print(f"wrote {file.name}, {size_bytes:,} bytes")
            assert size_bytes <= BYTES_MAX, "too large for the repository"
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
