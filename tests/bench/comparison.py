# SPDX-License-Identifier: Apache-2.0
"""What the benchmarks beside peers share: sides in turns, rounds, a table, and what was missed.

Sides take turns in rounds, each in a fresh process, so that a machine that changes its speed does
so for all of them. Figures are medians over the rounds; ratios are medians of each round's ratio.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.metadata
import importlib.util
import itertools
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "images"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import report
import run
import system_calls
from daemon import REPOSITORY, build_dir


@dataclasses.dataclass(frozen=True)
class Task:
    """What several sides do with the same data."""

    title: str
    sides: tuple[str, ...]
    # What spdld's rows/s are to be at least, as a multiple of another side's.
    asked: Mapping[str, float]
    least: float = 0  # what they are to be at least, whatever the others do


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A benchmark `./dev bench NAME` of several sides, which `script` runs one at a time.

    The script's arguments are a side's name and its options as JSON, and then either the seconds
    that are measured and those of the warm-up, or, where sides are looked at before, "look".
    """

    name: str
    about: str
    script: pathlib.Path
    unit: str  # what a row of a batch is: "image"
    names: Mapping[str, str]  # of all sides
    modules: Mapping[str, tuple[str, ...]]  # that a side imports beyond torch
    packages: tuple[str, ...]  # whose versions the result tells
    tasks: Mapping[str, Task]
    # Sides that are no loaders, but what a loader costs at least: they have no batches to look at.
    floors: frozenset[str] = frozenset()
    light: bool = False  # rows take microseconds, and system calls are told

    @property
    def speed(self) -> str:
        return f"{self.unit}s_per_s"

    @property
    def cpu(self) -> str:
        return f"cpu_ms_per_{self.unit}"


# The options of a side by task, side and round.
OptionsOf = Callable[[str, str, int], dict[str, Any]]
# What a result tells beyond the table, and what of that is asked for and was not reached.
Also = Callable[[dict[str, Any]], tuple[str, list[str]]]


def parser_of(comparison: Comparison, warmup: float = 4) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"./dev bench {comparison.name}", description=comparison.about
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=8, help="measured, per side and round")
    parser.add_argument("--warmup", type=float, default=warmup, help="before that")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--sides", default=",".join(comparison.names))
    parser.add_argument("--out", default=str(REPOSITORY / f"build/bench/{comparison.name}"))
    if len(comparison.tasks) > 1:
        parser.add_argument("--tasks", default=",".join(comparison.tasks))
    return parser


def parsed(
    comparison: Comparison, parser: argparse.ArgumentParser, argv: list[str]
) -> argparse.Namespace:
    """The arguments, with `sides` and `tasks` as lists of names that there are."""
    arguments = parser.parse_args(argv)
    if len(comparison.tasks) == 1:
        arguments.tasks = next(iter(comparison.tasks))
    for key, known in (("sides", comparison.names), ("tasks", comparison.tasks)):
        chosen = getattr(arguments, key).split(",")
        for name in chosen:
            if name not in known:
                parser.error(f"there is no {key[:-1]} '{name}': {', '.join(known)}")
        setattr(arguments, key, chosen)
    return arguments


def is_missing(comparison: Comparison, side: str) -> bool:
    """Whether a module that a side needs is not there: DALI has no wheel for every machine."""
    try:
        return any(importlib.util.find_spec(name) is None for name in comparison.modules[side])
    except ModuleNotFoundError:
        return True


def leave_out_missing(comparison: Comparison, arguments: argparse.Namespace) -> None:
    for side in [side for side in arguments.sides if is_missing(comparison, side)]:
        print(f"{comparison.names[side]} is not installed, and left out", file=sys.stderr)
        arguments.sides.remove(side)


def chosen(comparison: Comparison, arguments: argparse.Namespace) -> list[tuple[str, str]]:
    """Tasks and sides in the order of the table."""
    return [
        (task, side)
        for task in arguments.tasks
        for side in comparison.tasks[task].sides
        if side in arguments.sides
    ]


def call_side(comparison: Comparison, side: str, options: dict[str, Any], *words: str) -> Any:
    done = subprocess.run(
        [sys.executable, comparison.script, side, json.dumps(options), *words],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(build_dir() / "python")},
    )
    return run.last_json(done, side)


def look(
    comparison: Comparison, arguments: argparse.Namespace, options_of: OptionsOf
) -> dict[str, dict[str, Any]]:
    """What the first batches of each side are; ends the program where sides of a task differ.

    A look has the batch's `shape` and `dtype`, and the `mean` and `std` of its values.
    """
    looks = {}
    for task, side in chosen(comparison, arguments):
        if side in comparison.floors:
            continue
        found = call_side(comparison, side, options_of(task, side, 0), "look")
        print(f"{task}/{side}: {found}", file=sys.stderr, flush=True)
        looks[f"{task}/{side}"] = found
    if differing := unlike(looks):
        sys.exit("\n".join(["sides of one task deliver different things:", *differing]))
    return looks


def unlike(looks: dict[str, dict[str, Any]]) -> list[str]:
    """The sides whose batches are not like those of their task's first side."""
    first: dict[str, tuple[str, dict[str, Any]]] = {}
    found = []
    for key, one in looks.items():
        other_key, other = first.setdefault(key.split("/")[0], (key, one))
        same = (one["shape"], one["dtype"]) == (other["shape"], other["dtype"])
        # Draws differ; what they are drawn from does not.
        near = abs(one["mean"] - other["mean"]) <= 0.35 * max(one["std"], other["std"])
        spread = 0.7 * other["std"] <= one["std"] <= 1.43 * other["std"]
        if not (same and near and spread):
            found.append(f"{key}: {one}, but {other_key}: {other}")
    return found


def rounds(
    comparison: Comparison, arguments: argparse.Namespace, options_of: OptionsOf
) -> list[dict[str, Any]]:
    """Of each round, the figures by `TASK/SIDE`."""
    pairs = chosen(comparison, arguments)
    if not pairs:
        sys.exit("no side left that does one of these tasks")
    done = []
    for number in range(arguments.rounds):
        # Each round starts with another side: no one is always first after a pause.
        shift = number % len(pairs)
        figures = {}
        for task, side in itertools.chain(pairs[shift:], pairs[:shift]):
            key = f"{task}/{side}"
            figures[key] = call_side(
                comparison,
                side,
                options_of(task, side, number),
                str(arguments.seconds),
                str(arguments.warmup),
            )
            load = os.getloadavg()[0]
            print(
                f"round {number + 1} {key}: {figures[key]}, load {load:.1f}",
                file=sys.stderr,
                flush=True,
            )
        done.append({f"{task}/{side}": figures[f"{task}/{side}"] for task, side in pairs})
    return done


def table(comparison: Comparison, result: dict[str, Any], said: str) -> str:
    """`said`: what the data and the options are, in words."""
    options = result["about"]["options"]
    packages = ", ".join(
        f"{name} {version}" for name, version in result["about"]["packages"].items()
    )
    several = len(comparison.tasks) > 1
    lines = [
        *report.heading(result),
        f"Median of {options['rounds']} rounds of {options['seconds']:g} s (least to most);"
        f" {said}, {options['workers']} workers; {packages}.",
        "",
        ("| task " if several else "")
        + f"| loader | {comparison.unit}s/s | CPU {'us' if comparison.light else 'ms'} per"
        f" {comparison.unit}{' | system calls' if comparison.light else ''} | PSS MB"
        f" | first batch ms | spdld / it: {comparison.unit}s/s | asked for | CPU | PSS |",
        ("|---" if several else "")
        + "|---|---:|---:|---:|---:|---:|---:|---:|---:|"
        + ("---:|" if comparison.light else ""),
    ]
    for key, figures in result["summary"].items():
        task, side = key.split("/")
        ratios = [""] * 4
        asked = comparison.tasks[task].asked.get(side)
        speed, cpu, pss = (
            report.ratio(result, task, "spdld", side, metric)
            for metric in (comparison.speed, comparison.cpu, "pss_mb")
        )
        if side != "spdld" and speed and cpu and pss:
            wanted = f"≥ {asked:g}" if asked else ""
            ratios = [f"{speed:.2f}", wanted, f"{cpu:.2f}", f"{pss:.2f}"]
        lines.append(
            (f"| {comparison.tasks[task].title} " if several else "")
            + f"| {comparison.names[side]} | {report.spread(figures[comparison.speed])}"
            f" | {cpu_cells(comparison, figures)}"
            f" | {report.spread(figures['pss_mb'])} | {report.spread(figures['first_batch_ms'])}"
            f" | {' | '.join(ratios)} |"
        )
    return "\n".join([*lines, ""])


def cpu_cells(comparison: Comparison, figures: dict[str, list[float]]) -> str:
    if not comparison.light:
        return report.spread(figures[comparison.cpu], 2)
    calls = figures.get(system_calls.key(comparison.unit))
    spent = report.spread([1000 * ms for ms in figures[comparison.cpu]], 2)
    return f"{spent} | {f'{calls[0]:.3f}' if calls else ''}"


def missed(comparison: Comparison, result: dict[str, Any]) -> list[str]:
    """What is asked for and was not reached."""
    found = []
    for name, task in comparison.tasks.items():
        of_task = f"{task.title}: " if len(comparison.tasks) > 1 else ""
        for side, asked in task.asked.items():
            ratio = report.ratio(result, name, "spdld", side, comparison.speed)
            if ratio is not None and ratio < asked:
                found.append(
                    f"{of_task}spdld / {comparison.names[side]}: {ratio:.3f}, asked for {asked:g}"
                )
        mine = result.get("summary", {}).get(f"{name}/spdld")
        if mine and mine[comparison.speed][0] < task.least:
            found.append(
                f"{of_task}spdld: {mine[comparison.speed][0]:.0f} {comparison.unit}s/s,"
                f" asked for {task.least:.0f}"
            )
    return found


def versions(packages: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for name in packages:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def about(comparison: Comparison, argv: list[str], arguments: argparse.Namespace) -> dict[str, Any]:
    return {
        "command": f"./dev bench {comparison.name} " + " ".join(argv),
        "machine": run.machine(),
        "packages": versions(comparison.packages),
        "options": vars(arguments),
    }


def compare(
    comparison: Comparison,
    arguments: argparse.Namespace,
    argv: list[str],
    roots: Mapping[str, pathlib.Path],
    options_of: OptionsOf,
    said: str,
    also: Also | None = None,
) -> int:
    """All of a benchmark whose data lie in the directories `roots`, from looking at sides to the result."""
    of_all = about(comparison, argv, arguments)
    of_all["data_mb"] = {
        name: round(run.warm_page_cache(str(root)) / 1e6) for name, root in roots.items()
    }
    of_all["batches"] = look(comparison, arguments, options_of)
    done = rounds(comparison, arguments, options_of)
    return finish(comparison, arguments, of_all, done, said, also)


def finish(
    comparison: Comparison,
    arguments: argparse.Namespace,
    about: dict[str, Any],
    done: list[dict[str, Any]],
    said: str,
    also: Also | None = None,
) -> int:
    """Writes and prints the result; returns 1 if something that is asked for was missed."""
    result = {"about": about, "summary": run.summarize(done), "rounds": done}
    about["load_at_end"] = os.getloadavg()[0]
    text = table(comparison, result, said)
    lines = missed(comparison, result)
    if also is not None:
        told, not_reached = also(result)
        text += f"\n{told}"
        lines += not_reached
    out = pathlib.Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{comparison.name}.json").write_text(json.dumps(result, indent=2) + "\n")
    (out / f"{comparison.name}.md").write_text(text)
    print(text)
    print(f"written to {out}", file=sys.stderr)
    for line in lines:
        print(f"missed: {line}", file=sys.stderr)
    return 1 if lines else 0
