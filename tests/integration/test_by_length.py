# SPDX-License-Identifier: Apache-2.0
"""An order by length: rows of like length come together, and all else is as without it."""

from __future__ import annotations

import csv
import itertools
import pathlib
import random
from collections.abc import Callable
from typing import Any

import pytest
from integration.ranks import Rank, group, indices

ITEMS, WINDOW, BATCH, RUN = 3001, 1024, 32, 128
BUCKET = f"{{by: duration, window: {WINDOW}}}"
Write = Callable[..., pathlib.Path]
StartRank = Callable[..., Rank]


def durations() -> list[float]:
    """Seconds of speech, in the items' order."""
    drawn = random.Random(5)
    return [round(min(max(drawn.lognormvariate(2.5, 0.35), 1), 35), 3) for _ in range(ITEMS)]


@pytest.fixture
def write(tmp_path: pathlib.Path) -> Write:
    """write(bucket=…, seconds=…): a pipeline over a table of clips."""

    def make(
        bucket: str = BUCKET,
        seconds: list[Any] | None = None,
        shuffle: str = "",
        size: str = str(BATCH),
        more: str = "",
    ) -> pathlib.Path:
        clip = tmp_path / "clip"
        if not clip.exists():  # what a daemon reads now is not cut to nothing
            clip.write_bytes(b"a clip")
        with (tmp_path / "clips.csv").open("w", newline="") as file:
            table = csv.writer(file)
            table.writerow(["path", "duration", "text"])
            table.writerows(["clip", length, "words"] for length in seconds or durations())
        path = tmp_path / "clips.yaml"
        path.write_text(
            "pipeline: clips\nseed: 3\n"
            "source:\n  table:\n    file: clips.csv\n    uri: {data: path}\n"
            "    values: {duration: duration, text: text}\n"
            f"shuffle: {shuffle or f'{{global: {{bucket: {bucket}}}}}'}\n"
            f"stages: [fetch]\nbatch: {{size: {size}, last: keep, max_bytes: 1MiB}}\n" + more
        )
        return path

    return make


@pytest.fixture
def daemon(make_daemon: Callable[..., Any], write: Write) -> Any:
    return make_daemon(pipelines=[write()])


def valid(batch: dict[str, Any]) -> list[int]:
    return [row for row, is_valid in zip(batch["indices"], batch["valid"], strict=True) if is_valid]


def rows(per_rank: list[list[dict[str, Any]]]) -> list[int]:
    """Of the ranks' steps one after the other, in each by shard: the order of the epoch."""
    return [row for step in zip(*per_rank, strict=True) for batch in step for row in valid(batch)]


def close(ranks: list[Rank]) -> None:
    for rank in ranks:
        rank.do("close")
        rank.close()


def epoch_of(daemon: Any, start_rank: StartRank, job: str = "whole", epochs: int = 1) -> list[int]:
    rank = start_rank(daemon, "clips", job=job)
    order = [indices(rank.rest_of_epoch()) for _ in range(epochs)][-1]
    close([rank])
    return order


def test_runs_hold_neighbours_by_length_and_every_item_comes_once(
    daemon: Any, start_rank: StartRank
) -> None:
    order, seconds = epoch_of(daemon, start_rank), durations()
    assert sorted(order) == list(range(ITEMS))
    for begin in range(0, ITEMS, WINDOW):
        window = [seconds[item] for item in order[begin : begin + WINDOW]]
        runs = sorted(
            (min(run), max(run))
            for run in (window[first : first + RUN] for first in range(0, len(window), RUN))
        )
        assert all(one[1] <= other[0] for one, other in itertools.pairwise(runs))


def test_other_shards_and_another_batch_go_on_in_mid_window(
    daemon: Any, start_rank: StartRank
) -> None:
    whole = epoch_of(daemon, start_rank)
    before = group(start_rank, daemon, 3, pipeline="clips", job="before")
    order = rows([rank.take(4) for rank in before])
    assert len(order) % WINDOW != 0
    state = before[0].do("state")["state"]
    close(before)
    daemon.restart()
    after = group(start_rank, daemon, 2, pipeline="clips", job="after", batch_size=48)
    for rank in after:
        rank.do("load", state=state)
    order += rows([rank.rest_of_epoch() for rank in after])
    assert order == whole
    assert sorted(order) == list(range(ITEMS))


def test_a_live_resize_in_mid_window_gives_each_row_once(
    daemon: Any, start_rank: StartRank
) -> None:
    ranks = group(start_rank, daemon, 3, pipeline="clips", prefetch=2)
    given = [row for rank in ranks for batch in rank.take(4) for row in valid(batch)]
    daemon.ctl("job", "resize", "run", "--shards", "2")
    leaver = ranks.pop()
    while "error" not in (batch := leaver.do("next")):
        given += valid(batch)
    assert "resized to 2 shards" in batch["message"]
    given += [row for rank in ranks for batch in rank.rest_of_epoch() for row in valid(batch)]
    assert sorted(given) == list(range(ITEMS))


@pytest.mark.parametrize("ends", ["kill", "stop"])
def test_a_batch_of_another_size_leaves_the_run_that_was_applied(
    make_daemon: Callable[..., Any], write: Write, start_rank: StartRank, ends: str
) -> None:
    file = write(size="'${rows}'", more=f"vars: {{rows: {BATCH}}}\n")
    daemon = make_daemon(pipelines=[file])
    whole = epoch_of(daemon, start_rank)
    rank = start_rank(daemon, "clips", job="run", vars={"rows": 48}, prefetch=2)
    order = indices(rank.take(11))
    getattr(daemon, ends)()
    rank.ask("next")
    daemon.start()
    batch = rank.answer()
    assert len(batch["indices"]) == 48, batch
    order += batch["indices"] + indices(rank.rest_of_epoch())
    assert order == whole
    assert epoch_of(daemon, start_rank, job="anew") == whole


def test_another_window_begins_with_an_epoch(
    daemon: Any, write: Write, start_rank: StartRank
) -> None:
    rank = start_rank(daemon, "clips", job="run", prefetch=2)
    order = indices(rank.take(20))
    file = write(f"{{by: duration, window: {WINDOW // 2}}}")
    refused = daemon.ctl("apply", "-f", file, "--job", "run", "--at", "now", check=False)
    assert "at an epoch's start only" in refused.stderr
    daemon.ctl("apply", "-f", file, "--job", "run", "--at", "next-epoch")
    order += indices(rank.rest_of_epoch())
    narrow = epoch_of(daemon, start_rank, job="narrow", epochs=2)
    assert indices(rank.rest_of_epoch()) == narrow
    assert sorted(order) == list(range(ITEMS))
    daemon.ctl("apply", "-f", write())
    assert order == epoch_of(daemon, start_rank, job="as-before")


def test_a_state_of_another_order_is_refused_with_what_changed(
    daemon: Any, write: Write, start_rank: StartRank
) -> None:
    def state_of(**changes: Any) -> dict[str, Any]:
        daemon.ctl("apply", "-f", write(**changes))
        rank = start_rank(daemon, "clips", job="saved")
        rank.take(3)
        state = rank.do("state")["state"]
        close([rank])
        return state

    plain, by_length = state_of(shuffle="global"), state_of()
    shorter = [durations()[0] / 2, *durations()[1:]]
    by_words = "{by: duration, window: 1024, run: 64}"
    for state, changes, why in (
        (plain, {}, "the shuffle was another one, now it is {global: {bucket: {by: duration"),
        (by_length, {"shuffle": "global"}, "the shuffle was another one, now it is global"),
        (by_length, {"bucket": by_words}, "window: 1024, run: 64}}}"),
        (by_length, {"seconds": shorter}, "the lengths 'duration', by which the items"),
    ):
        daemon.ctl("apply", "-f", write(**changes))
        rank = start_rank(daemon, "clips", job=f"resumed-{len(why)}")
        rank.do("load", state=state)
        answer = rank.do("next")
        assert why in answer["message"]
        close([rank])


def test_explain_prints_the_padding_that_is_saved(daemon: Any, write: Write) -> None:
    file = write()
    bucket = daemon.ctl_json("explain", "-f", file)["order"]["bucket"]
    assert (bucket["by"], bucket["window"], bucket["run"]) == ("duration", WINDOW, RUN)
    seconds = durations()
    # Of an order that knows nothing of lengths, as a shuffle by hand has it too.
    random.Random(1).shuffle(seconds)
    batches = [seconds[i : i + BATCH] for i in range(0, ITEMS - ITEMS % BATCH, BATCH)]
    padded = sum(max(batch) * BATCH for batch in batches)
    by_hand = 1 - sum(map(sum, batches)) / padded
    assert abs(bucket["padding_without"] - by_hand) < 0.05
    assert 0 < bucket["padding_with"] < 0.15 < 0.3 < bucket["padding_without"]
    text = daemon.ctl("explain", "-f", file).stdout
    assert f"runs of {RUN} rows like 'duration' in windows of {WINDOW}" in text
    assert (
        f"padding  of rows by 'duration': {bucket['padding_without'] * 100:.0f} % without buckets, "
        f"{bucket['padding_with'] * 100:.0f} % with\n" in text
    )


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (
            {"bucket": "{by: durations}"},
            ":8:33: shuffle.global.bucket.by: 'durations' is no field of the source; did you mean "
            "'duration'?",
        ),
        (
            {"bucket": "{by: text}"},
            ":8:33: shuffle.global.bucket.by: 'text' is text, and a length is a number; numbers "
            "are: duration",
        ),
        (
            {"seconds": [3.5, 2, "nan", 4]},
            ":8:33: shuffle.global.bucket.by: item 2, clip, has the length nan, and an order by "
            "length needs one of every item",
        ),
        (
            {"bucket": "{by: duration, window: 100}"},
            ":8:51: shuffle.global.bucket.window: 100 rows are not more than one run of 128, 4 "
            "times batch.size",
        ),
    ],
    ids=["no-field", "no-number", "no-length", "no-room"],
)
def test_an_order_that_cannot_be_is_refused(
    make_daemon: Callable[..., Any], write: Write, changes: dict[str, Any], why: str
) -> None:
    refused = make_daemon().ctl("apply", "-f", write(**changes), check=False)
    assert refused.returncode != 0
    assert why in refused.stderr


def test_items_without_a_length_may_be_left_out(
    make_daemon: Callable[..., Any], write: Write, start_rank: StartRank
) -> None:
    seconds: list[Any] = [*durations()[:500], "nan", "inf", -1]
    file = write(seconds=seconds)
    condition = "select: {where: 'duration >= 0 and duration < 1e30'}"
    file.write_text(file.read_text().replace("shuffle:", f"  {condition}\nshuffle:"))
    order = epoch_of(make_daemon(pipelines=[file]), start_rank)
    assert sorted(order) == list(range(500))
