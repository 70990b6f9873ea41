# SPDX-License-Identifier: Apache-2.0
"""The pipelines of config/pipelines run as they are on data that lie as they say."""

from __future__ import annotations

import io
import json
import pathlib
import subprocess
import tarfile
from collections.abc import Callable
from typing import Any

import daemon as daemon_module
import numpy as np
import pytest
import spdld
from PIL import Image

PIPELINES = daemon_module.REPOSITORY / "config/pipelines"
ROWS = 4
RATE = 22050  # of the sound that is written here
SECONDS = [1.5, 2.0, 1.0, 2.5]


def picture(index: int) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (80, 60), (index * 40, 100, 50)).save(out, "jpeg")
    return out.getvalue()


def ffmpeg(*arguments: object) -> None:
    subprocess.run(["ffmpeg", "-nostdin", "-loglevel", "error", *map(str, arguments)], check=True)


def write_video(path: pathlib.Path, index: int, frames: int) -> None:
    """Of one grey, which is lighter for a larger index."""
    path.parent.mkdir(parents=True, exist_ok=True)
    grey = f"0x{f'{40 + 50 * index:02x}' * 3}"
    ffmpeg(
        *("-f", "lavfi", "-i", f"color=c={grey}:size=96x64:rate=25", "-frames:v", frames),
        *("-c:v", "libx264", "-pix_fmt", "yuv420p", path),
    )


def write_clips(root: pathlib.Path) -> None:
    for i in range(ROWS):
        # The first of them are shorter than a clip of 16 frames with stride 4.
        write_video(root / "train" / ["jump", "run"][i % 2] / f"{i}.mp4", i, 20 + 30 * i)


def write_video_shards(root: pathlib.Path) -> None:
    with tarfile.open(root / "00000.tar", "w") as tar:
        for i in range(ROWS):
            path = root / "videos" / f"{i}.mp4"
            write_video(path, i, 70)
            caption = root / "videos" / f"{i}.txt"
            caption.write_text(f"caption {i}")
            for part in (path, caption):
                tar.add(part, f"{i:06}{part.suffix}")


def write_sound(root: pathlib.Path) -> None:
    lines = []
    for i, seconds in enumerate(SECONDS):
        name = f"{i}.{['wav', 'flac', 'mp3', 'wav'][i]}"
        tone = f"sine=frequency={300 * (i + 1)}:sample_rate={RATE}:duration={seconds}"
        ffmpeg("-f", "lavfi", "-i", tone, "-ac", 2, root / name)
        line = {"audio_filepath": name, "duration": seconds, "text": f"words {i}"}
        lines.append(json.dumps(line))
    # Too long for both pipelines; it is left out before it is read.
    lines.append(json.dumps({"audio_filepath": "none.wav", "duration": 31, "text": "long"}))
    (root / "train.jsonl").write_text("\n".join(lines))


def write_images(root: pathlib.Path) -> None:
    for part in ("train", "val"):
        for i in range(ROWS):
            directory = root / part / ["cat", "dog"][i % 2]
            directory.mkdir(parents=True, exist_ok=True)
            (directory / f"{i}.JPEG").write_bytes(picture(i))


def write_shards(root: pathlib.Path) -> None:
    with tarfile.open(root / "00000.tar", "w") as tar:
        for i in range(ROWS + 1):
            parts = {"jpg": picture(i), "json": b"{}", "txt": f"caption {i}".encode()}
            if i == ROWS:
                del parts["txt"]
            for suffix, content in parts.items():
                info = tarfile.TarInfo(f"{i:06}.{suffix}")
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))


def write_coco(root: pathlib.Path) -> None:
    (root / "annotations").mkdir()
    (root / "train2017").mkdir()
    for i in range(ROWS):
        (root / f"train2017/{i}.jpg").write_bytes(picture(i))
    annotations = [
        # Whatever the crop is, something of a box over all of the image is in it.
        {"id": i, "image_id": i, "category_id": 3, "bbox": [0, 0, 80, 60], "area": 1, "iscrowd": 0}
        for i in range(1, ROWS)
    ]
    images = [{"id": i, "file_name": f"{i}.jpg", "width": 80, "height": 60} for i in range(ROWS)]
    categories = [{"id": 3, "name": "cat"}]
    (root / "annotations/instances_train2017.json").write_text(
        json.dumps({"images": images, "annotations": annotations, "categories": categories})
    )


WRITERS = {
    "images-encoded": write_images,
    "images-train": write_images,
    "images-val": write_images,
    "image-text": write_shards,
    "detection": write_coco,
    "kinetics-clips": write_clips,
    "video-text": write_video_shards,
    "whisper-log-mel": write_sound,
    "wav2vec2-buckets": write_sound,
}
WITHOUT_SIZE = {"images-encoded", "whisper-log-mel", "wav2vec2-buckets"}


@pytest.fixture
def load(daemon: Any, tmp_path: pathlib.Path) -> Callable[[str], list[Any]]:
    def make(name: str) -> list[Any]:
        if not any(tmp_path.iterdir()):
            WRITERS[name](tmp_path)
        path = PIPELINES / f"{name}.yaml"
        values = {"root": str(tmp_path), "batch_size": 2, "size": 32}
        if name in WITHOUT_SIZE:
            del values["size"]
        with spdld.Loader(path, vars=values, address=daemon.address) as loader:
            return list(loader)

    return make


def test_each_pipeline_is_run_by_a_test() -> None:
    assert {path.stem for path in PIPELINES.glob("*.yaml")} == WRITERS.keys()


def test_images_are_read_with_their_classes(load: Callable[..., Any]) -> None:
    for name in ("images-train", "images-val"):
        batches = load(name)
        assert [batch["image"].shape for batch in batches] == [(2, 3, 32, 32)] * 2
        labels = [label for batch in batches for label in batch["label"].tolist()]
        assert sorted(labels) == [0, 0, 1, 1]


def test_images_are_read_as_they_are_stored(load: Callable[..., Any]) -> None:
    stored = [bytes(image) for batch in load("images-encoded") for image in batch["image"]]
    assert sorted(stored) == sorted(picture(i) for i in range(ROWS))


def test_images_are_read_with_their_captions(load: Callable[..., Any]) -> None:
    batches = load("image-text")
    captions = {
        int(item): batch["caption"][row]
        for batch in batches
        for row, item in enumerate(batch.indices)
    }
    assert captions == {i: f"caption {i}" for i in range(ROWS)}
    assert all(batch["image"].shape == (2, 3, 32, 32) for batch in batches)


def test_images_are_read_with_their_boxes(load: Callable[..., Any]) -> None:
    rows = 0
    for batch in load("detection"):
        assert batch["image"].shape == (2, 3, 32, 32)
        for row, item in enumerate(batch.indices):
            boxes = np.reshape(batch["boxes"][row], (-1, 4))
            assert boxes.tolist() == ([] if item == 0 else [[0, 0, 32, 32]])
            assert batch["labels"][row].tolist() == [0] * len(boxes)
            rows += 1
    assert rows == ROWS


def test_clips_are_read_with_their_classes(load: Callable[..., Any]) -> None:
    batches = load("kinetics-clips")
    assert [batch["video"].shape for batch in batches] == [(2, 16, 3, 32, 32)] * 2
    labels = {}
    for batch in batches:
        for row, item in enumerate(batch.indices):
            labels[int(item)] = int(batch["label"][row])
            clip = batch["video"][row]
            # Each frame is of the video's one grey, those that came around again, too.
            assert np.ptp(clip) < 0.1
    assert labels == {0: 0, 1: 0, 2: 1, 3: 1}


def test_clips_of_different_videos_have_their_own_pixels(load: Callable[..., Any]) -> None:
    greys = {
        int(item): float(batch["video"][row].mean()) * 0.225 + 0.45
        for batch in load("kinetics-clips")
        for row, item in enumerate(batch.indices)
    }
    # Listed by path: jump/0, jump/2, run/1, run/3.
    for item, index in enumerate([0, 2, 1, 3]):
        assert greys[item] == pytest.approx((40 + 50 * index) / 255, abs=0.02)


def test_videos_are_read_with_their_captions(load: Callable[..., Any]) -> None:
    batches = load("video-text")
    assert all(batch["video"].shape == (2, 8, 3, 32, 32) for batch in batches)
    rows = {
        int(item): (batch["caption"][row], float(batch["video"][row, :, 0].mean()))
        for batch in batches
        for row, item in enumerate(batch.indices)
    }
    assert {item: caption for item, (caption, _) in rows.items()} == {
        i: f"caption {i}" for i in range(ROWS)
    }
    greys = [rows[i][1] for i in range(ROWS)]
    assert greys == sorted(greys) and greys[-1] > greys[0] + 1


def test_sound_becomes_the_spectra_that_whisper_takes(load: Callable[..., Any]) -> None:
    loudest = {}
    for batch in load("whisper-log-mel"):
        assert batch["audio"].shape == (2, 1, 80, 3000)
        for row, item in enumerate(batch.indices):
            assert batch["text"][row] == f"words {item}"
            spectrum = batch["audio"][row, 0]
            end = round(100 * SECONDS[item])
            # A tone for as long as the recording is, and then silence.
            assert spectrum[:, : end - 5].max() > spectrum[:, end + 5 :].max() + 1
            loudest[int(item)] = int(spectrum[:, end // 2].argmax())
    # The higher the tone, the higher its band.
    bands = [loudest[i] for i in range(ROWS)]
    assert bands == sorted(set(bands)) and len(bands) == ROWS


def test_raw_sound_is_padded_to_the_longest_of_like_lengths(load: Callable[..., Any]) -> None:
    items = []
    for batch in load("wav2vec2-buckets"):
        lengths = batch["audio_length"].reshape(2)
        assert batch["audio"].shape == (2, 1, lengths.max())
        for row, item in enumerate(batch.indices):
            items.append(int(item))
            assert batch["text"][row] == f"words {item}"
            assert lengths[row] == pytest.approx(16000 * SECONDS[item], abs=2)
            wave = batch["audio"][row, 0]
            assert wave[: lengths[row]].std() == pytest.approx(1, abs=1e-3)
            assert not wave[lengths[row] :].any()
    assert sorted(items) == list(range(ROWS))
