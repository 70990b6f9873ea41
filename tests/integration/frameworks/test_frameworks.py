# SPDX-License-Identifier: Apache-2.0
"""Two ranks train under each framework by the lines of docs/frameworks.md."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import spdld
from http_client import free_port
from PIL import Image

pytest.importorskip("torch")
# Some start a framework on two ranks four times, which takes minutes where others compute, too.
pytestmark = pytest.mark.timeout(900)

TRAIN, RESUME = (pathlib.Path(__file__).with_name(name) for name in ("train.py", "resume.py"))
RANKS, EPOCHS, ITEMS, BATCH, SIDE = 2, 2, 24, 4, 32
EVALUATED = 21  # no multiple of what ranks take in a step
SAVED_STEP = 4  # resume.py's
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
MIDDLE = {"mean": [0.5] * 3, "std": [0.5] * 3}  # what is above 127 is above 0
PACKAGE = {
    "ddp": "torch",
    "dataloader": "torch",
    "default_convert": "torch",
    "default_collate": "torch",
    "lightning": "lightning",
    "accelerate": "accelerate",
    "trainer": "transformers",
}
# `./dev test frameworks` sets it: what is missing is then an error, and torchrun starts the ranks.
EVERYTHING = "SPDLD_FRAMEWORKS" in os.environ
# Those that need no more than torch do the same but for how a batch becomes tensors.
TRAINED = [*PACKAGE] if EVERYTHING else [one for one in PACKAGE if not one.startswith("default_")]


@pytest.fixture
def directory(
    make_daemon: Callable[..., Any],
    write_pipeline: Callable[..., pathlib.Path],
    make_dataset: Callable[..., Any],
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> pathlib.Path:
    """With train.yaml, its images as Pillow has them, and the order of each rank."""
    data = make_dataset(count=ITEMS)
    stages = [
        "fetch",
        "decode_image",
        {"resize": {"size": [SIDE, SIDE]}},
        {"normalize": {"mean": MEAN, "std": STD}},
    ]
    write_pipeline(data, name="train", stages=stages)
    daemon = make_daemon()
    monkeypatch.setenv("SPDLD_ADDRESS", daemon.address)
    images = [
        np.asarray(Image.open(file).convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR))
        for file in data.files
    ]
    pixels = (np.stack(images).astype(np.float32) / 255 - np.float32(MEAN)) / np.float32(STD)
    np.savez(
        tmp_path / "twin.npz",
        image=pixels.transpose(0, 3, 1, 2),
        label=[data.label(index) for index in range(ITEMS)],
    )
    order = []
    for rank in range(RANKS):
        with spdld.Loader(tmp_path / "train.yaml", shard=rank, num_shards=RANKS) as loader:
            order.append([[batch.indices.tolist() for batch in loader] for _ in range(EPOCHS)])
    (tmp_path / "order.json").write_text(json.dumps(order))
    return tmp_path


def by_torchrun(arguments: list[str]) -> list[subprocess.Popen[str]]:
    launcher = ["-m", "torch.distributed.run", f"--nproc_per_node={RANKS}", "--standalone"]
    return [
        subprocess.Popen([sys.executable, *launcher, *arguments], text=True, start_new_session=True)
    ]


def by_hand(arguments: list[str]) -> list[subprocess.Popen[str]]:
    """Debian 12's torchrun starts nothing."""
    master = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    return [
        subprocess.Popen(
            [sys.executable, *arguments],
            env={**os.environ, **master, "RANK": str(rank), "WORLD_SIZE": str(RANKS)},
            text=True,
            start_new_session=True,
        )
        for rank in range(RANKS)
    ]


def run(script: pathlib.Path, framework: str, what: str, directory: pathlib.Path) -> list[Any]:
    """What each rank wrote down."""
    arguments = [str(script), framework, what, str(directory)]
    processes = by_torchrun(arguments) if EVERYTHING else by_hand(arguments)
    try:
        # A rank that has failed leaves the others waiting for it.
        while any(process.poll() is None for process in processes):
            assert not any(process.poll() for process in processes), "a rank has failed"
            time.sleep(0.1)
        assert not any(process.returncode for process in processes)
    finally:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    files = [directory / f"{framework}-{what}-{rank}.json" for rank in range(RANKS)]
    return [json.loads(file.read_text()) for file in files]


def needs(package: str) -> None:
    if not EVERYTHING and importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed; './dev test frameworks' installs it")


@pytest.mark.parametrize("framework", TRAINED)
def test_training_from_a_loader_is_that_of_a_dataloader_in_the_same_order(
    framework: str, directory: pathlib.Path
) -> None:
    needs(PACKAGE[framework])
    ours = run(TRAIN, framework, "loader", directory)
    theirs = run(TRAIN, framework, "twin", directory)
    for rank in range(RANKS):
        assert len(ours[rank]["losses"]) == EPOCHS * ITEMS // RANKS // BATCH
        # The last bits differ: a sum of gradients is rounded as its terms happen to come.
        np.testing.assert_allclose(ours[rank]["losses"], theirs[rank]["losses"], rtol=1e-5)
        np.testing.assert_allclose(ours[rank]["rows"], theirs[rank]["rows"], atol=1e-5)
    for epoch in range(EPOCHS):
        half = slice(epoch * ITEMS // RANKS, (epoch + 1) * ITEMS // RANKS)
        rows = np.array([row for rank in ours for row in rank["rows"][half]])
        whole = np.load(directory / "twin.npz")["image"][:, :, SIDE // 2, SIDE // 2]
        # Each image is of one colour, and no two of the same.
        apart = np.abs(rows[:, None] - whole[None]).sum(axis=2)
        assert sorted(apart.argmin(axis=1).tolist()) == list(range(ITEMS))


@pytest.mark.parametrize("framework", ["accelerate", "trainer", "lightning"])
def test_a_resumed_run_goes_on_with_the_very_next_batch_and_a_naive_one_is_warned(
    framework: str, directory: pathlib.Path
) -> None:
    needs(PACKAGE[framework])
    whole = run(RESUME, framework, "whole", directory)
    part = run(RESUME, framework, "part", directory)
    rest = run(RESUME, framework, "rest", directory)
    saved = SAVED_STEP * BATCH
    for rank in range(RANKS):
        assert part[rank]["rows"][:saved] == whole[rank]["rows"][:saved]
        assert rest[rank]["rows"] == whole[rank]["rows"][saved:]
        assert not rest[rank]["told"]
    if framework == "lightning":  # whose checkpoint has the position without a line
        return
    for rank in run(RESUME, framework, "naive", directory):
        assert len(rank["told"]) == 1, rank["told"]
        assert rank["told"][0].startswith("the loop begins at epoch 0 again, and ")
        assert "call loader.load_state_dict()" in rank["told"][0]


@pytest.mark.parametrize("framework", ["accelerate", "trainer", "lightning"])
def test_evaluation_counts_each_row_once_on_any_number_of_ranks(
    framework: str,
    directory: pathlib.Path,
    make_dataset: Callable[..., Any],
    write_pipeline: Callable[..., pathlib.Path],
) -> None:
    needs(PACKAGE[framework])
    data = make_dataset(count=EVALUATED, classes=2)
    stages = ["fetch", "decode_image", {"resize": {"size": [SIDE, SIDE]}}, {"normalize": MIDDLE}]
    batch = {"size": BATCH, "last": "pad"}
    write_pipeline(data, name="val", shuffle="none", stages=stages, batch=batch)
    right = 0
    for index, file in enumerate(data.files):
        red = np.asarray(Image.open(file).convert("RGB"))[24, 32, 0]
        right += int(red > 127) == data.label(index)
    for rank in run(RESUME, framework, "evaluate", directory):
        assert rank["counted"] == [[right, EVALUATED]] * 2


@pytest.mark.parametrize(
    ("habit", "warning"),
    [
        ("reload", "the loop begins at epoch 0 again, whose batches this process has read"),
        ("overfit", "overfit_batches=1 takes other batches in each epoch"),
    ],
)
def test_habits_of_lightning_that_see_the_wrong_batches_are_warned_about_once(
    habit: str, warning: str, directory: pathlib.Path
) -> None:
    needs("lightning")
    for rank in run(RESUME, "lightning", habit, directory):
        assert len(rank["told"]) == 1, rank["told"]
        assert rank["told"][0].startswith(warning)
