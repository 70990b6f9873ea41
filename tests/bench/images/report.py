# SPDX-License-Identifier: Apache-2.0
"""Turns the figures of run.py into a table and a picture."""

from __future__ import annotations

import pathlib
import statistics
from typing import Any

NAMES = {
    "spdld": "spdld",
    "pytorch": "PyTorch DataLoader",
    "spdl": "SPDL",
    "floor": "libjpeg-turbo alone",
}
TASKS = {"rrc": "RandomResizedCrop + flip", "resize": "Resize"}
COLOURS = {"spdld": "#2a6f97", "pytorch": "#ee9b5c", "spdl": "#8cb369", "floor": "#bbbbbb"}


def spread(values: list[float], digits: int = 0) -> str:
    median, low, high = values
    return f"{median:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def ratio(result: dict[str, Any], task: str, side: str, other: str, metric: str) -> float | None:
    """Median over the rounds of side / other."""
    pairs = [
        (one[f"{task}/{side}"][metric], one[f"{task}/{other}"][metric])
        for one in result["rounds"]
        if f"{task}/{side}" in one and f"{task}/{other}" in one
    ]
    return statistics.median(mine / theirs for mine, theirs in pairs) if pairs else None


def heading(result: dict[str, Any]) -> list[str]:
    about = result["about"]
    machine = about["machine"]
    return [
        f"`{about['command'].strip()}`  ",
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gb']} GB, Linux"
        f" {machine['kernel']}, load {machine['load_at_start']:.1f} at the start",
        "",
    ]


def loading_table(result: dict[str, Any]) -> str:
    options = result["about"]["options"]
    lines = [
        *heading(result),
        f"Median of {options['rounds']} rounds of {options['seconds']:g} s (least to most);"
        f" batch {options['batch']}, {options['workers']} workers.",
        "",
        "| task | loader | images/s | CPU ms per image | PSS MB | first batch ms | of the floor |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for key, figures in result["summary"].items():
        task, side = key.split("/")
        share = ratio(result, task, side, "floor", "images_per_s")
        lines.append(
            f"| {TASKS[task]} | {NAMES[side]} | {spread(figures['images_per_s'])}"
            f" | {spread(figures['cpu_ms_per_image'], 2)}"
            f" | {spread(figures['pss_mb']) if 'pss_mb' in figures else ''}"
            f" | {spread(figures['first_batch_ms']) if 'first_batch_ms' in figures else ''}"
            f" | {f'{100 * share:.0f} %' if share is not None else ''} |"
        )
    ratios = []
    for task, task_name in TASKS.items():
        for other in ("pytorch", "spdl"):
            speed = ratio(result, task, "spdld", other, "images_per_s")
            cpu = ratio(result, task, "spdld", other, "cpu_ms_per_image")
            pss = ratio(result, task, "spdld", other, "pss_mb")
            if speed is not None and cpu is not None and pss is not None:
                ratios.append(
                    f"- {task_name}: spdld / {NAMES[other]}: {speed:.2f} in images/s,"
                    f" {cpu:.2f} in CPU per image, {pss:.2f} in memory"
                )
    return "\n".join([*lines, "", *ratios, ""])


def memory_table(result: dict[str, Any]) -> str:
    figures = result["memory"]
    rows = [
        ("spdld: ranks and daemon", figures["spdld_mb"], figures["spdld_added_mb"]),
        ("PyTorch DataLoader, 2 workers each", figures["pytorch_mb"], figures["pytorch_added_mb"]),
    ]
    lines = [
        *heading(result),
        f"{figures['ranks']} ranks; added: beyond ranks that import the same and load nothing.",
        "",
        "| loader | PSS MB | added MB | added per rank MB |",
        "|---|---:|---:|---:|",
    ]
    for name, total, added in rows:
        lines.append(f"| {name} | {total:.0f} | {added:.0f} | {added / figures['ranks']:.0f} |")
    added_ratio = figures["spdld_added_mb"] / figures["pytorch_added_mb"]
    return "\n".join([*lines, "", f"- spdld / PyTorch, added: {added_ratio:.2f}", ""])


def picture(result: dict[str, Any], path: pathlib.Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    metrics = [("images_per_s", "images/s"), ("cpu_ms_per_image", "CPU ms per image")]
    tasks = [task for task in TASKS if any(key.startswith(f"{task}/") for key in result["summary"])]
    figure, grid = pyplot.subplots(
        len(metrics), len(tasks), figsize=(4.5 * len(tasks), 4.6), squeeze=False
    )
    for row, (metric, title) in enumerate(metrics):
        for column, task in enumerate(tasks):
            axes = grid[row][column]
            keys = [key for key in result["summary"] if key.startswith(f"{task}/")]
            sides = [key.split("/")[1] for key in keys]
            medians, lows, highs = zip(
                *(result["summary"][key][metric] for key in keys), strict=True
            )
            errors = [
                [median - low for median, low in zip(medians, lows, strict=True)],
                [high - median for median, high in zip(medians, highs, strict=True)],
            ]
            axes.barh(
                [NAMES[side] for side in sides],
                medians,
                xerr=errors,
                color=[COLOURS[side] for side in sides],
                error_kw={"elinewidth": 1, "ecolor": "#555555"},
            )
            axes.invert_yaxis()
            axes.set_title(f"{TASKS[task]}: {title}", fontsize=9)
            axes.tick_params(labelsize=8)
            axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path)
