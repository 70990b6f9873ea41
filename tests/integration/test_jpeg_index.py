# SPDX-License-Identifier: Apache-2.0
"""Indexes of JPEG files spare work and change no pixel, whatever becomes of the files."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable
from typing import Any

import pytest
from PIL import Image

STAGES = ["fetch", "decode_image", {"random_resized_crop": {"size": [32, 32]}}]
EPOCHS = 3


def digests(daemon: Any, pipeline: str, job: str) -> list[str]:
    done = daemon.ctl(
        *("consume", pipeline, "--job", job, "--digest", "--epochs", str(EPOCHS)),
    )
    return done.stdout.splitlines()


@pytest.fixture
def data(make_dataset: Callable[..., Any]) -> Any:
    return make_dataset(count=16, size=(320, 240), texture=True, name="indexed")


def test_later_epochs_and_other_jobs_read_by_the_index(
    data: Any, write_pipeline: Callable[..., pathlib.Path], make_daemon: Callable[..., Any]
) -> None:
    daemon = make_daemon(pipelines=[write_pipeline(data, name="p", stages=STAGES)])
    first = digests(daemon, "p", "a")
    assert digests(daemon, "p", "b") == first
    seen = daemon.ctl_json("status")["jpeg"]
    assert seen["files"] == 16
    assert seen["images"]["indexed"] >= 2 * 16
    assert seen["images"]["by_libjpeg"] == 0


def test_stages_say_how_their_jpegs_were_read(
    data: Any, write_pipeline: Callable[..., pathlib.Path], make_daemon: Callable[..., Any]
) -> None:
    daemon = make_daemon(pipelines=[write_pipeline(data, name="p", stages=STAGES)])
    digests(daemon, "p", "a")
    digests(daemon, "p", "b")
    stages = daemon.ctl_json("get", "stages", "--ended")
    images = {stage["job"]: stage["jpeg"] for stage in stages if stage["stage"] != "fetch"}
    assert len(images) == 2
    assert all(stage["jpeg"] is None for stage in stages if stage["stage"] == "fetch")
    # An image may come again, in the next epoch, before it has been read for the first time.
    assert 16 <= images["a"]["from_begin"] < 2 * 16
    assert images["a"]["from_begin"] + images["a"]["indexed"] >= EPOCHS * 16
    assert images["b"]["from_begin"] == 0
    assert images["b"]["indexed"] >= EPOCHS * 16


def test_a_file_that_is_rewritten_with_its_size_and_time_kept_is_another_file(
    data: Any, write_pipeline: Callable[..., pathlib.Path], make_daemon: Callable[..., Any]
) -> None:
    pipelines = [write_pipeline(data, name="p", stages=STAGES)]
    daemon = make_daemon(pipelines=pipelines)
    before = digests(daemon, "p", "a")
    for number, target in enumerate(data.files):
        told = target.stat()
        # The other image is of the same size, so that the old index would fit it.
        with Image.open(target) as image:
            other = image.transpose(Image.Transpose.FLIP_TOP_BOTTOM)
        new = target.with_suffix(".new")
        quality = 95
        while quality == 95 or new.stat().st_size > told.st_size:
            other.save(new, "jpeg", quality=quality)
            quality -= 3
        content = new.read_bytes().ljust(told.st_size, b"\0")
        new.unlink()
        with target.open("r+b") as file:
            file.write(content)
        os.utime(target, ns=(told.st_atime_ns, told.st_mtime_ns))
        assert (target.stat().st_size, target.stat().st_mtime_ns) == (
            told.st_size,
            told.st_mtime_ns,
        ), number
    after = digests(daemon, "p", "b")
    assert not set(after) & set(before)
    # As a daemon has them that has never seen the old ones.
    assert after == digests(make_daemon(pipelines=pipelines), "p", "b")
