# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: ANN001 - fixtures
"""The package and the real daemon: skipped where the program has not been built."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import spdld
from spdld import _launch

Image = pytest.importorskip("PIL.Image")
try:
    _launch.find_binary()
except spdld.ConnectionError:
    pytest.skip("the program spdld has not been built", allow_module_level=True)

_COUNT, _BATCH = 24, 4


@pytest.fixture(autouse=True)
def runtime(tmp_path, monkeypatch) -> Path:
    """Daemons that are launched live here, and nothing of them may stay."""
    directory = tmp_path / "run"
    directory.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(directory))
    monkeypatch.setattr(_launch, "SYSTEM_DIRECTORY", str(tmp_path / "none"))
    return directory


@pytest.fixture
def yaml(tmp_path) -> Path:
    """A pipeline over images of one colour each: image i is (10 * i, 0, 0), labels by turns."""
    for index in range(_COUNT):
        path = tmp_path / "data" / ("cat", "dog")[index % 2] / f"{index:02}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (160, 160), (10 * index, 0, 0)).save(path, quality=95)
    path = tmp_path / "train.yaml"
    path.write_text(
        textwrap.dedent(
            f"""\
            pipeline: colours
            vars: {{side: 160}}
            seed: 3
            source:
              files: {{root: data, pattern: "**/*.jpg", label: parent_dir}}
            shuffle: global
            stages: [fetch, decode_image, {{center_crop: {{size: ["${{side}}", "${{side}}"]}}}}]
            batch: {{size: {_BATCH}, last: drop, layout: NCHW}}
            """
        )
    )
    return path


def reds(image: np.ndarray) -> list[int]:
    """The red value of each row, back from JPEG, in tens."""
    return [round(float(row[0].mean()) / 10) for row in image]


def colours_of(indices: np.ndarray) -> list[int]:
    """The listing is sorted: cat/00, cat/02, … dog/01, dog/03, …"""
    half = _COUNT // 2
    return [2 * i if i < half else 2 * (i - half) + 1 for i in indices.tolist()]


def wait_ended(pidfd: int) -> None:
    assert select.select([pidfd], [], [], 30)[0], "the daemon did not end"
    os.close(pidfd)


def daemon_pid(directory: str) -> int:
    return int(Path(directory, "lock").read_text().split()[1])


def test_a_private_daemon_gives_each_item_once_an_epoch(yaml, runtime) -> None:
    with spdld.launch(yaml) as server:
        loader = server.loader()
        assert len(loader) == _COUNT // _BATCH
        assert loader.class_to_idx == {"cat": 0, "dog": 1}
        orders = []
        for _ in range(2):
            seen: list[int] = []
            for batch in loader:
                assert batch["image"].shape == (_BATCH, 3, 160, 160)
                assert reds(batch["image"]) == colours_of(batch.indices)
                assert batch["label"].tolist() == [c % 2 for c in colours_of(batch.indices)]
                assert batch.valid.all()
                seen += batch.indices.tolist()
                del batch
            assert sorted(seen) == list(range(_COUNT))
            orders.append(seen)
        assert orders[0] != orders[1]
        loader.close()
    assert list(runtime.iterdir()) == []


def test_a_state_goes_on_at_another_daemon_with_another_batch_size(yaml) -> None:
    with spdld.launch(yaml) as server:
        loader = server.loader()
        whole = [index for batch in loader for index in batch.indices.tolist()]
        loader.set_epoch(0)
        batches = iter(loader)
        first = next(batches).indices.tolist() + next(batches).indices.tolist()
        state = loader.state_dict()
    with spdld.launch(yaml) as server:
        loader = server.loader(batch_size=8)
        loader.load_state_dict(state)
        rest = [index for batch in loader for index in batch.indices.tolist()]
    assert first + rest == whole


def test_writes_stay_out_of_the_daemons_memory(yaml) -> None:
    torch = pytest.importorskip("torch")
    with spdld.launch(yaml) as server:
        loader = server.loader(output="torch", prefetch=2)
        for _ in range(4):
            for batch in loader:
                assert reds(batch["image"].numpy()) == colours_of(batch.indices)
                batch["image"].fill_(255)
                assert torch.all(batch["image"] == 255)
                del batch


def test_a_killed_daemon_is_started_again_and_no_batch_is_lost(yaml) -> None:
    loader = spdld.Loader(yaml, launch=True)
    batches = iter(loader)
    seen = next(batches).indices.tolist() + next(batches).indices.tolist()
    first = daemon_pid(loader.address)
    pidfd = os.pidfd_open(first)
    os.kill(first, signal.SIGKILL)
    wait_ended(pidfd)
    for batch in batches:
        seen += batch.indices.tolist()
    assert sorted(seen) == list(range(_COUNT))
    # The rest of the epoch may have been on its way already; the next one was not.
    batch = next(iter(loader))
    assert (batch.epoch, batch.step) == (1, 0)
    assert loader.stats()["reconnects"] == 1
    second = daemon_pid(loader.address)
    assert second != first
    del batch
    pidfd = os.pidfd_open(second)
    loader.close()
    wait_ended(pidfd)


def test_after_all_ranks_were_killed_nothing_stays(yaml, runtime) -> None:
    code = f"""
        import os, sys, spdld
        from spdld import _launch
        _launch.SYSTEM_DIRECTORY = "/none"
        rank = int(sys.argv[1])
        loader = spdld.Loader({str(yaml)!r}, launch=True, job="run", rank=rank, world_size=2)
        batches = iter(loader)
        batch = next(batches)
        print(loader.address, sorted(batch.indices.tolist()), flush=True)
        os.read(0, 1)
    """
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(code), str(rank)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    said = [rank.stdout.readline().split(maxsplit=1) for rank in ranks]
    assert said[0][0] == said[1][0], "one daemon feeds both"
    assert said[0][1] != said[1][1], "each has its own shard"
    pidfd = os.pidfd_open(daemon_pid(said[0][0]))
    for rank in ranks:
        rank.kill()
        rank.communicate()
    wait_ended(pidfd)
    assert list(runtime.iterdir()) == []


def test_another_yaml_under_the_same_name_is_refused(yaml, tmp_path) -> None:
    with spdld.launch(yaml) as server:
        len(server.loader())
        other = tmp_path / "other.yaml"
        other.write_text(yaml.read_text().replace("seed: 3", "seed: 4"))
        with pytest.raises(spdld.PipelineError, match="colours"):
            len(server.loader(other))


def test_what_the_environment_names_mean_is_the_callers_to_say(yaml, tmp_path, monkeypatch) -> None:
    by_environment = tmp_path / "env.yaml"
    by_environment.write_text(yaml.read_text().replace("root: data", 'root: "${env:MY_DATA}"'))
    with spdld.launch() as server:
        monkeypatch.setenv("MY_DATA", str(tmp_path / "data"))
        assert server.loader(by_environment).num_items == _COUNT


def test_a_pipeline_that_nobody_knows_is_refused_by_name(yaml) -> None:
    with spdld.launch(yaml) as server, pytest.raises(spdld.PipelineError, match="imagenet"):
        len(server.loader("imagenet"))


def test_a_wrong_yaml_is_refused_with_its_place(yaml) -> None:
    yaml.write_text(yaml.read_text().replace("shuffle: global", "shufle: global"))
    with spdld.launch() as server, pytest.raises(spdld.PipelineError, match=r"yaml:6:1.*shuffle"):
        len(server.loader(yaml))


def test_a_running_job_changes_at_an_epochs_start_and_each_item_comes_once(yaml) -> None:
    with spdld.launch(yaml) as server:
        loader = server.loader()
        batches = iter(loader)
        sides, seen = [], []

        def take(batch: spdld.Batch) -> None:
            assert reds(batch["image"]) == colours_of(batch.indices)
            sides.append(batch["image"].shape[-1])
            seen.extend(batch.indices.tolist())

        take(next(batches))
        applied = loader.apply({"side": 96}, allow_schema_change=True)
        assert applied.step == 0 and applied.epoch > 0 and not applied.tuned
        for _ in range(applied.epoch + 1):
            for batch in batches:
                take(batch)
                del batch
            batches = iter(loader)
        steps = _COUNT // _BATCH
        assert sides == [160] * steps * applied.epoch + [96] * steps
        for epoch in range(applied.epoch + 1):
            assert sorted(seen[epoch * _COUNT : (epoch + 1) * _COUNT]) == list(range(_COUNT))


def test_what_was_applied_to_a_named_job_survives_the_daemons_death(yaml) -> None:
    loader = spdld.Loader(yaml, launch=True, job="run-7")
    batches = iter(loader)
    seen = next(batches).indices.tolist()
    applied = loader.apply({"side": 96}, allow_schema_change=True)
    pidfd = os.pidfd_open(daemon_pid(loader.address))
    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    wait_ended(pidfd)
    sides = [160]
    for _ in range(applied.epoch + 1):
        for batch in batches:
            assert reds(batch["image"]) == colours_of(batch.indices)
            seen += batch.indices.tolist()
            sides.append(batch["image"].shape[-1])
            del batch
        batches = iter(loader)
    assert loader.stats()["reconnects"] == 1
    assert sides == [160] * (_COUNT // _BATCH) * applied.epoch + [96] * (_COUNT // _BATCH)
    for epoch in range(applied.epoch + 1):
        assert sorted(seen[epoch * _COUNT : (epoch + 1) * _COUNT]) == list(range(_COUNT))
    pidfd = os.pidfd_open(daemon_pid(loader.address))
    loader.close()
    wait_ended(pidfd)


def test_what_cannot_be_applied_says_why_and_changes_nothing(yaml) -> None:
    with spdld.launch(yaml) as server:
        loader = server.loader()
        batches = iter(loader)
        next(batches)
        with pytest.raises(spdld.PipelineError, match="sdie"):
            loader.apply({"sdie": 96})
        with pytest.raises(spdld.PipelineError, match=r"allow.schema.change"):
            loader.apply({"side": 96})
        with pytest.raises(spdld.PipelineError, match="passed"):
            loader.apply({"side": 96}, at="step:0/0", allow_schema_change=True)
        shapes = set()
        for _ in range(3):
            for batch in batches:
                shapes.add(batch["image"].shape)
                del batch
            batches = iter(loader)
        assert shapes == {(_BATCH, 3, 160, 160)}


def test_skipped_steps_are_those_that_would_have_come(yaml) -> None:
    with spdld.launch(yaml) as server:
        loader = server.loader()
        steps = [batch.indices.tolist() for batch in loader]
        loader.set_epoch(0)
        batches = iter(loader)
        assert next(batches).indices.tolist() == steps[0]
        loader.skip_steps(2)
        assert loader.state_dict()["position"] == 3 * _BATCH
        assert [batch.indices.tolist() for batch in batches] == steps[3:]
        loader.set_epoch(0)
        loader.skip_steps(len(steps))
        assert list(loader) == []
        assert loader.epoch == 1
