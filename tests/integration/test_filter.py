# SPDX-License-Identifier: Apache-2.0
"""The stage 'filter': rows that are rejected by what stands in their JSON, and which others come."""

from __future__ import annotations

import io
import json
import pathlib
import tarfile
from collections.abc import Callable
from typing import Any

import pytest
import spdld
from PIL import Image

ITEMS, BATCH = 600, 8
Rows = list[tuple[int, bool]]  # item, and whether it is valid

DECODE = {
    "decode_json": {"field": "meta", "values": {"score": {"pointer": "/score", "type": "float64"}}}
}
FEW = "score > 0.8"


def has_document(item: int) -> bool:
    return item % 7 != 0


def score(item: int) -> float:
    """Of an item without a document: what a condition reads then."""
    return item * 37 % 100 / 100 if has_document(item) else 0.0


def passes(item: int) -> bool:
    return score(item) > 0.8


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    path = tmp_path_factory.mktemp("shards") / "train-0.tar"
    with tarfile.open(path, "w") as tar:
        for item in range(ITEMS):
            image = io.BytesIO()
            Image.new("RGB", (16, 12), (item % 256, item // 256, 7)).save(image, "png")
            parts = {"png": image.getvalue()}
            if has_document(item):
                parts["json"] = json.dumps({"score": score(item)}).encode()
            for ending, content in parts.items():
                info = tarfile.TarInfo(f"{item:04}.{ending}")
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    return path


@pytest.fixture
def write(shard: pathlib.Path, tmp_path: pathlib.Path) -> Callable[..., pathlib.Path]:
    def write(where: str | None = FEW, name: str = "few", **options: Any) -> pathlib.Path:
        filters = [{"filter": {"where": where, **options}}] if where is not None else []
        fields = {"image": "png", "meta": "json"}
        spec = {
            "pipeline": name,
            "seed": 7,
            "source": {
                "webdataset": {"shards": str(shard), "fields": fields, "optional": ["meta"]}
            },
            "shuffle": "global",
            "stages": ["fetch", DECODE, *filters, "decode_image"],
            "batch": {"size": BATCH, "last": "keep"},
        }
        path = tmp_path / f"{name}.yaml"
        path.write_text("".join(f"{key}: {json.dumps(value)}\n" for key, value in spec.items()))
        return path

    return write


def rows_of(batch: Any) -> Rows:
    """After a look at what the batch holds of them."""
    for item, image, stored in zip(batch.indices, batch["image"], batch["score"], strict=True):
        assert image[:2, 0, 0].tolist() == [item % 256, item // 256]
        assert stored == score(int(item))
    return list(zip(batch.indices.tolist(), batch.valid.tolist(), strict=True))


def epoch_of(daemon: Any, pipeline: pathlib.Path, ranks: int = 1, **options: Any) -> Rows:
    """All rows of an epoch in its order."""
    loaders = [
        spdld.Loader(
            pipeline, address=daemon.address, job=f"{ranks}", rank=rank, world_size=ranks, **options
        )
        for rank in range(ranks)
    ]
    per_rank = [[rows_of(batch) for batch in loader] for loader in loaders]
    for loader in loaders:
        loader.close()
    return [row for step in zip(*per_rank, strict=True) for rows in step for row in rows]


def test_rows_that_pass_stay_and_others_give_way_to_such(
    daemon: Any, write: Callable[..., pathlib.Path]
) -> None:
    everything = epoch_of(daemon, write(None, name="all"))
    few = epoch_of(daemon, write())
    assert sorted(item for item, _ in everything) == list(range(ITEMS))
    assert len(few) == ITEMS
    for (before, _), (item, valid) in zip(everything, few, strict=True):
        assert valid and passes(item)
        assert not passes(before) or item == before


def test_rejected_rows_are_counted_apart_from_failures(
    daemon: Any, write: Callable[..., pathlib.Path]
) -> None:
    pipeline = write()
    with spdld.Loader(pipeline, address=daemon.address, job="run") as loader:
        for _ in range(2):
            for batch in loader:
                assert batch.valid.all()
        assert daemon.ctl_json("get", "failures") == []
        assert daemon.ctl_json("get", "jobs", "run")["replaced"] == 0
        fetch, process = daemon.ctl_json("get", "stages")
        assert process["stage"] == "decode_json + filter + decode_image"
        assert (fetch["rejected"], fetch["failures"], process["failures"]) == (None, 0, 0)
        assert process["rejected"] > ITEMS
        assert process["tasks"] + process["rejected"] <= fetch["tasks"]
        header, *lines = daemon.ctl("get", "stages").stdout.splitlines()
        assert "REJECTED" in header and str(process["rejected"]) in lines[1]
        assert "spdld_stage_rejected_total{" in daemon.ctl("metrics").stdout
        daemon.await_log("items, which are read all the same: 'source.select' leaves items out")
    assert daemon.log().count("its filters and functions have rejected") == 1


def test_rows_are_the_same_for_any_world_size_and_number_of_workers(
    make_daemon: Callable[..., Any], write: Callable[..., pathlib.Path]
) -> None:
    seen = []
    for threads in (1, 4):
        daemon = make_daemon(settings={"executor": {"cpu_threads": threads}})
        for ranks, batch_size in ((1, BATCH), (3, 5)):
            seen.append(epoch_of(daemon, write(), ranks, batch_size=batch_size))
    assert all(rows == seen[0] for rows in seen[1:])


def test_a_run_goes_on_in_mid_epoch_and_after_a_restart_with_the_same_rows(
    daemon: Any, write: Callable[..., pathlib.Path]
) -> None:
    pipeline = write()
    undisturbed = epoch_of(daemon, pipeline)
    with spdld.Loader(pipeline, address=daemon.address) as loader:
        batches = iter(loader)
        begun = [row for _ in range(9) for row in rows_of(next(batches))]
        state = loader.state_dict()
    daemon.restart()
    with spdld.Loader(pipeline, address=daemon.address, batch_size=5) as loader:
        loader.load_state_dict(state)
        assert begun + [row for batch in loader for row in rows_of(batch)] == undisturbed


def test_rejected_rows_may_stay_and_are_not_valid(
    daemon: Any, write: Callable[..., pathlib.Path]
) -> None:
    everything = epoch_of(daemon, write(None, name="all"))
    marked = epoch_of(daemon, write(rejected="invalid"))
    assert marked == [(item, passes(item)) for item, _ in everything]


def test_whether_a_row_has_a_document_can_be_asked(
    daemon: Any, write: Callable[..., pathlib.Path]
) -> None:
    rows = epoch_of(daemon, write("meta_present and score < 0.5"))
    assert all(valid and has_document(item) and score(item) < 0.5 for item, valid in rows)
    rows = epoch_of(daemon, write("not meta_present", name="none"))
    assert not any(has_document(item) for item, _ in rows)


def test_shown_and_previewed_rows_are_those_that_ranks_are_given(
    daemon: Any, write: Callable[..., pathlib.Path]
) -> None:
    pipeline = write()
    with spdld.Loader(pipeline, address=daemon.address, job="run") as loader:
        batches = [rows_of(batch) for batch in loader]
        for step in (0, 30):
            shown = daemon.ctl_json("show", "run", "--step", f"0/{step}")["rows"]
            assert [(row["item"], row["valid"]) for row in shown] == batches[step]
    rows = daemon.ctl_json("preview", "-f", pipeline)["rows"]
    assert [row["item"] for row in rows] == [item for item, _ in batches[0]][: len(rows)]
    assert f"filter   {FEW}; another item" in daemon.ctl("explain", "-f", pipeline).stdout


def test_a_filter_that_nothing_passes_is_refused_by_its_place(
    daemon: Any, write: Callable[..., pathlib.Path]
) -> None:
    pipeline = write("score > 2")
    refused = daemon.ctl("apply", "-f", pipeline, check=False)
    assert refused.returncode == 1
    assert f"{pipeline}:5:" in refused.stderr and ": filter: for position" in refused.stderr
    assert "257 items were tried and rejected" in refused.stderr
    assert "'source.select.where'" in refused.stderr and "'rejected: invalid'" in refused.stderr


def test_another_condition_is_another_content(
    daemon: Any, write: Callable[..., pathlib.Path]
) -> None:
    digests = set()
    for options in ({}, {"where": "score > 0.81"}, {"rejected": "invalid"}):
        daemon.ctl("apply", "-f", write(**options))
        digests.add(daemon.ctl_json("get", "pipelines", "few")["content_digest"])
    assert len(digests) == 3
