"""A worker that works from afar, in the standard library: join, claim, beat, end.

    python -m timingwheel.server ./data
    python docs/examples/far_worker.py http://127.0.0.1:8765

It runs the tasks of TASKS, one at a time. The protocol: docs/workers.md.
"""

from __future__ import annotations

import json
import sys
import threading
import traceback
import urllib.request
from typing import Any


def greet(name: str) -> str:
    return f"hello, {name}"


TASKS = {"demo:greet": greet}


class FarWorker:
    def __init__(self, url: str) -> None:
        self.url = f"{url}/api/v1/workers"
        joined = self.ask("", {"name": "far", "ttl": "15s"})
        self.id, self.beat_s = joined["id"], joined["beat_ns"] / 1e9
        self.tokens: list[int] = []
        self.ended = threading.Event()

    def ask(self, path: str, body: Any) -> Any:
        kind = {"content-type": "application/json"}
        data = json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, kind)
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.load(response)

    def beat(self) -> None:
        while not self.ended.wait(self.beat_s):
            self.ask(f"/{self.id}/beat", {"tokens": self.tokens})

    def work(self, runs: int | None = None) -> None:
        threading.Thread(target=self.beat, daemon=True).start()
        while runs is None or runs > 0:
            body = {"tasks": list(TASKS), "count": 1, "wait": 20}
            for claim in self.ask(f"/{self.id}/claims", body)["items"]:
                self.tokens = [claim["token"]]
                end = {"run_id": claim["run"]["id"], "token": claim["token"]}
                try:
                    value = TASKS[claim["run"]["task"]](**claim["args"])
                    end |= {"outcome": "ok", "value": value}
                except Exception:  # noqa: BLE001 - whatever it is, the server keeps it
                    end |= {"outcome": "error", "error": traceback.format_exc()}
                self.ask(f"/{self.id}/ends", {"ends": [end]})
                self.tokens = []
                runs = None if runs is None else runs - 1
        self.ended.set()


if __name__ == "__main__":
    FarWorker(sys.argv[1]).work()
