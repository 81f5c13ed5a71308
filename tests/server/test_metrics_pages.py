"""What is written about the metrics names those that the server tells, and no others."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from timingwheel.server.exposition import METRICS
from timingwheel.server.metric import PREFIX

DOCS = Path(__file__).resolve().parents[2] / "docs"
NAME = re.compile(rf"\b{PREFIX}[a-z_]+\b")
LABELS = re.compile(rf"\b({PREFIX}[a-z_]+)\{{([^}}]*)\}}")
ADDED_BY_SCRAPING = {"instance", "job", "le"}


def sample_names() -> dict[str, set[str]]:
    """Each name that a query may use, with its labels."""
    found = {}
    for metric in METRICS:
        parts = ("_bucket", "_sum", "_count") if metric.kind == "histogram" else ("",)
        for part in parts:
            found[metric.full_name + part] = set(metric.labels)
    return found


def faults(expression: str) -> list[str]:
    """What an expression asks for that no server tells."""
    known = sample_names()
    found = [name for name in NAME.findall(expression) if name not in known]
    for name, labels in LABELS.findall(expression):
        asked = set(re.findall(r"(\w+)\s*(?:=|!=|=~|!~)\s*\"", labels))
        found += sorted(asked - ADDED_BY_SCRAPING - known.get(name, set()))
    return found


def rules() -> list[dict[str, Any]]:
    read = yaml.safe_load((DOCS / "deploy/alerts.yml").read_text())
    return [rule for group in read["groups"] for rule in group["rules"]]


def panels() -> Iterator[dict[str, Any]]:
    read = json.loads((DOCS / "deploy/grafana-dashboard.json").read_text())
    yield from read["panels"]


def generator() -> ModuleType:
    path = DOCS / "reference/make_metrics.py"
    spec = importlib.util.spec_from_file_location("docs_reference_make_metrics", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_that_of_the_table() -> None:
    """If not: python docs/reference/make_metrics.py."""
    page: str = generator().page()
    assert (DOCS / "reference/metrics.md").read_text() == page


def test_a_name_or_a_label_that_nobody_tells_is_seen() -> None:
    assert faults("rate(timingwheel_runs_total[5m])") == []
    assert faults('timingwheel_runs_total{outcome="failed"}') == []
    assert faults("timingwheel_runs") == ["timingwheel_runs"]
    assert faults("timingwheel_wal_fsync_seconds") == ["timingwheel_wal_fsync_seconds"]
    assert faults('timingwheel_runs_total{task="x"}') == ["task"]


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: str(rule["alert"]))
def test_an_alert_asks_for_what_is_told(rule: dict[str, Any]) -> None:
    assert faults(rule["expr"]) == []
    assert rule["expr"].count("(") == rule["expr"].count(")")
    assert rule["labels"]["severity"] in {"page", "ticket"}
    assert set(rule["annotations"]) == {"summary", "action"}


def test_each_alert_says_why_its_threshold_is_what_it_is() -> None:
    lines = (DOCS / "deploy/alerts.yml").read_text().splitlines()
    alerts = [n for n, line in enumerate(lines) if "- alert:" in line]
    assert len(alerts) == len(rules()) > 10
    assert [lines[n] for n in alerts if not lines[n - 1].lstrip().startswith("#")] == []


def test_the_dashboard_asks_for_what_is_told() -> None:
    shown = [panel for panel in panels() if panel["type"] != "row"]
    assert len(shown) > 15
    asked = [target["expr"] for panel in shown for target in panel["targets"]]
    assert [expression for expression in asked if faults(expression)] == []
    assert len({panel["id"] for panel in panels()}) == len(list(panels()))


def test_the_dashboard_shows_every_metric_that_an_alert_rests_on() -> None:
    shown = (DOCS / "deploy/grafana-dashboard.json").read_text()
    asked = {name for rule in rules() for name in NAME.findall(rule["expr"])}
    assert asked - set(NAME.findall(shown)) == {"timingwheel_wal_disk_full"}
