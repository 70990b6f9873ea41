# SPDX-License-Identifier: Apache-2.0
"""A daemon's metrics as Prometheus reads them, and what deploy/prometheus asks of them."""

from __future__ import annotations

import json
import pathlib
import re

DIRECTORY = pathlib.Path(__file__).resolve().parent.parent / "deploy/prometheus"
SAMPLE = re.compile(r'(\w+)(?:\{((?:\w+="(?:[^"\\\n]|\\["\\n])*",?)*)\})? (\S+)')
LABEL = re.compile(r'(\w+)="((?:[^"\\\n]|\\["\\n])*)"')
ESCAPES = {r"\n": "\n", r"\"": '"', r"\\": "\\"}

Labels = frozenset[tuple[str, str]]


def read(text: str) -> dict[str, dict[Labels, float]]:
    """The samples of each metric, by their labels; a line that is not of the format fails."""
    metrics: dict[str, dict[Labels, float]] = {}
    for line in text.splitlines():
        if re.fullmatch(r"# HELP \w+ .+|# TYPE \w+ (counter|gauge|histogram)", line):
            continue
        sample = SAMPLE.fullmatch(line)
        assert sample, line
        labels = frozenset(
            (name, re.sub(r"\\.", lambda escape: ESCAPES[escape[0]], value))
            for name, value in LABEL.findall(sample[2] or "")
        )
        of_metric = metrics.setdefault(sample[1], {})
        assert labels not in of_metric, f"twice: {line}"
        of_metric[labels] = float(sample[3])
    return metrics


def jobs_in(metrics: dict[str, dict[Labels, float]]) -> set[tuple[str, str, str]]:
    return {
        (dict(labels)["owner"], dict(labels)["job"], dict(labels)["pipeline"])
        for samples in metrics.values()
        for labels in samples
        if "job" in dict(labels)
    }


def alerts() -> list[str]:
    """Their expressions."""
    return re.findall(r"(?m)^ +expr: (.*)$", (DIRECTORY / "spdld.rules.yml").read_text())


def dashboard() -> list[tuple[str, str]]:
    """Each expression, with the legend of its lines."""
    panels = json.loads((DIRECTORY / "spdld.dashboard.json").read_text())["panels"]
    return [
        (target["expr"], target["legendFormat"])
        for panel in panels
        for target in panel.get("targets", [])
    ]


def names(expression: str) -> set[str]:
    """The daemon's metrics in it."""
    return set(re.findall(r"\bspdld_\w+", expression))
