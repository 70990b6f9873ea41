# SPDX-License-Identifier: Apache-2.0
"""'spdlctl init' writes pipelines that run as they are."""

from __future__ import annotations

import io
import json
import os
import pathlib
import re
import subprocess
import tarfile
from collections.abc import Callable
from typing import Any

import daemon as daemon_module
import numpy as np
import pytest
import spdld
from PIL import Image

ROWS = 6


def picture(grey: int) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (40, 30), (grey,) * 3).save(out, "jpeg", quality=95)
    return out.getvalue()


def init(*arguments: str | os.PathLike[str]) -> subprocess.CompletedProcess[str]:
    """No daemon is there to be asked."""
    return subprocess.run(
        [daemon_module.build_dir() / "bin/spdlctl", "--address", "/nowhere", "init", *arguments],
        capture_output=True,
        text=True,
        timeout=daemon_module.WATCHDOG_S,
    )


@pytest.fixture
def load(daemon: Any, tmp_path: pathlib.Path) -> Callable[..., Any]:
    """load(PATH, OPTION...): the first batch of what init writes for it."""

    def make(path: pathlib.Path, *options: str) -> Any:
        file = tmp_path / "written" / "pipeline.yaml"
        file.parent.mkdir()
        done = init(path, "-o", file, *options)
        assert done.returncode == 0, done.stderr
        with spdld.Loader(file, address=daemon.address) as loader:
            batch = next(iter(loader))
            assert len(batch.uris) == len(batch.indices)  # asked while the loader is there
            return batch

    return make


@pytest.fixture
def load_uncommented(daemon: Any, tmp_path: pathlib.Path) -> Callable[..., Any]:
    """load(PATH, WORD...): likewise, with the comments that have one of these words made YAML."""

    def make(path: pathlib.Path, *words: str) -> Any:
        lines = init(path).stdout.splitlines()
        for i, line in enumerate(lines):
            if line.lstrip().startswith("# ") and any(word in line for word in words):
                lines[i] = line.replace("# ", "", 1)
                if line.startswith("# batch:"):
                    lines = [each for each in lines if not each.startswith("batch: {size: 6}   #")]
        file = tmp_path / "uncommented.yaml"
        file.write_text("\n".join(lines) + "\n")
        with spdld.Loader(file, address=daemon.address) as loader:
            return next(iter(loader))

    return make


def check_images(batch: Any, rows: int = ROWS, size: int = 224) -> None:
    assert batch["image"].shape == (rows, 3, size, size)
    assert batch["image"].dtype == np.float32


def write_samples(path: pathlib.Path, first: int, count: int = ROWS) -> None:
    with tarfile.open(path, "w") as tar:
        for i in range(first, first + count):
            for suffix, content in (
                ("jpg", picture(i)),
                ("txt", f"caption {i} ä".encode()),
                ("json", json.dumps({"row": i}).encode()),
                ("cls", b"%d" % i),
                ("npy", b"\x93NUMPY"),
            ):
                info = tarfile.TarInfo(f"dir/{i:04}.{suffix}")
                info.size, info.mtime = len(content), 1.5
                tar.addfile(info, io.BytesIO(content))


@pytest.mark.parametrize("name", ["shards", "sh{a..b}[r]ds $x ${y}"])
def test_a_folder_of_shards(load: Callable[..., Any], tmp_path: pathlib.Path, name: str) -> None:
    (tmp_path / name).mkdir()
    for shard in range(3):
        write_samples(tmp_path / name / f"train-{shard:04}.tar", shard * ROWS)
    batch = load(tmp_path / name)
    check_images(batch, rows=18)
    for row, item in enumerate(batch.indices):
        assert batch["caption"][row] == f"caption {item} ä"
        assert json.loads(batch["meta"][row]) == {"row": item}
        assert batch["label"][row] == item


def test_one_shard(load: Callable[..., Any], tmp_path: pathlib.Path) -> None:
    write_samples(tmp_path / "a.tar", 0)
    write_samples(tmp_path / "b.tar", 100)
    batch = load(tmp_path / "a.tar")
    check_images(batch)
    assert sorted(batch["label"]) == list(range(ROWS))


def test_a_folder_of_classes(load: Callable[..., Any], tmp_path: pathlib.Path) -> None:
    for i in range(ROWS):
        file = tmp_path / "pets" / ["cat", "dog"][i % 2] / f"{i}.JPEG"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(picture(i))
    (tmp_path / "pets/cat/notes.txt").write_text("no image")
    batch = load(tmp_path / "pets")
    check_images(batch)
    assert sorted(batch["label"]) == [0, 0, 0, 1, 1, 1]


def mask(path: pathlib.Path, number: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (40, 30), number).save(path)


def test_masks_in_a_folder_of_their_own(load: Callable[..., Any], tmp_path: pathlib.Path) -> None:
    for i in range(ROWS):
        file = tmp_path / f"seg/images/{'ab'[i % 2]}/{i}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(picture(i))
        mask(tmp_path / f"seg/labels/{'ab'[i % 2]}/{i}.png", 100 + i)
    batch = load(tmp_path / "seg")
    check_images(batch)
    assert batch["mask"].shape == (ROWS, 1, 224, 224)
    for row, uri in enumerate(batch.uris):
        assert set(np.unique(batch["mask"][row])) == {100 + int(pathlib.Path(uri).stem)}
    assert "label" not in batch


def test_masks_and_captions_as_cityscapes_names_them(
    load: Callable[..., Any], tmp_path: pathlib.Path
) -> None:
    for i in range(ROWS):
        below = f"{['train', 'val'][i % 2]}/ulm/ulm_{i}"
        file = tmp_path / f"city/leftImg8bit/{below}_leftImg8bit.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (40, 30)).save(file)
        mask(tmp_path / f"city/gtFine/{below}_gtFine_labelIds.png", i)
        (tmp_path / f"city/gtFine/{below}_gtFine_text.txt").write_text(f"caption {i} ä")
    batch = load(tmp_path / "city")
    check_images(batch, rows=3)
    numbers = batch["mask"][:, 0, 0, 0].tolist()
    assert sorted(numbers) == [0, 2, 4]
    assert batch["caption"] == [f"caption {i} ä" for i in numbers]


def test_validation_has_the_class_numbers_of_training(daemon: Any, tmp_path: pathlib.Path) -> None:
    for name in ("train/cat/1", "train/dog/2", "train/eel/3", "val/cat/4", "val/eel/5"):
        file = tmp_path / f"pets/{name}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(picture(9))
    pets = tmp_path / "pets"
    done = init(pets / "train", "--val", pets / "val", "-o", tmp_path / "p.yaml")
    assert done.returncode == 0, done.stderr
    with spdld.Loader(tmp_path / "p.yaml", address=daemon.address) as training:
        check_images(next(iter(training)), rows=3)
        classes = training.class_to_idx
    with spdld.Loader(tmp_path / "p-val.yaml", address=daemon.address) as validation:
        (batch,) = validation
        check_images(batch, rows=2)
        assert batch.uris == ["cat/4.jpg", "eel/5.jpg"]
        assert batch["label"].tolist() == [0, 2]
        assert validation.class_to_idx == classes


@pytest.mark.parametrize("where", ["relative", "absolute", "far"])
def test_a_table(load: Callable[..., Any], tmp_path: pathlib.Path, where: str) -> None:
    images = tmp_path / ("far/away/there" if where == "far" else "images")
    images.mkdir(parents=True)
    lines = ["path,caption,species,score"]
    for i in range(ROWS):
        (images / f"{i}.jpg").write_bytes(picture(i))
        name = images / f"{i}.jpg" if where == "absolute" else f"{i}.jpg"
        lines.append(f'{name},"a, {i}",{["cat", "dog"][i % 2]},{i / 2}')
    (tmp_path / "pairs.csv").write_text("\n".join(lines) + "\n")
    options = ["--root", str(images)] if where == "far" else []
    batch = load(tmp_path / "pairs.csv", *options)
    check_images(batch)
    for row, item in enumerate(batch.indices):
        assert batch["caption"][row] == f"a, {item}"
        assert batch["label"][row] == item % 2
        assert batch["score"][row] == item / 2


def test_json_lines(load: Callable[..., Any], tmp_path: pathlib.Path) -> None:
    with open(tmp_path / "items.jsonl", "w") as file:
        for i in range(ROWS):
            (tmp_path / f"{i}.jpg").write_bytes(picture(i))
            row = {"image": f"{i}.jpg", "tokens": [i] * i, "extra": {"x": 1}, "no": i}
            file.write(json.dumps(row) + "\n")
    batch = load(tmp_path / "items.jsonl")
    check_images(batch)
    for row, item in enumerate(batch.indices):
        assert batch["no"][row] == item
        assert batch["tokens"][row].tolist() == [item] * item


def test_json_lines_of_which_a_third_has_no_image(
    load: Callable[..., Any], tmp_path: pathlib.Path
) -> None:
    turns = [{"from": "human", "value": "<image>"}]
    with open(tmp_path / "chats.jsonl", "w") as file:
        for i in range(ROWS):
            row: dict[str, Any] = {"id": i if i % 2 else f"x{i}", "conversations": turns}
            if i % 3 != 0:
                (tmp_path / f"{i}.jpg").write_bytes(picture(i))
                row |= {"image": f"{i}.jpg", "score": i / 2}
            file.write(json.dumps(row) + "\n")
    batch = load(tmp_path / "chats.jsonl")
    assert len(batch.indices) == ROWS
    for row, item in enumerate(batch.indices.tolist()):
        there = item % 3 != 0
        assert batch["image_present"][row] == batch["score_present"][row] == there
        assert batch["image"][row].any() == there
        assert batch["score"][row] == (item / 2 if there else 0)
        assert batch["id"][row] == (str(item) if item % 2 else f"x{item}")
        assert json.loads(batch["conversations"][row]) == turns


def test_boxes_of_json_lines_follow_their_images(
    load_uncommented: Callable[..., Any], tmp_path: pathlib.Path
) -> None:
    with open(tmp_path / "items.jsonl", "w") as file:
        for i in range(ROWS):
            (tmp_path / f"{i}.jpg").write_bytes(picture(i))
            file.write(json.dumps({"image": f"{i}.jpg", "bbox": [0, 0, 40, 30] * i}) + "\n")
    batch = load_uncommented(tmp_path / "items.jsonl", "bounding_boxes:")
    check_images(batch)
    for row, item in enumerate(batch.indices):
        assert batch["bbox"][row].tolist() == [[0, 0, 224, 224]] * item


def test_boxes_in_the_json_of_samples_follow_their_images(
    load_uncommented: Callable[..., Any], tmp_path: pathlib.Path
) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for i in range(ROWS):
            document = {"boxes": [[0, 0, 40, 30]] * i, "id": i, "tokens": [i] * (i + 1)}
            parts = (("rgb.jpg", picture(i)), ("json", json.dumps(document).encode()))
            for suffix, content in parts:
                info = tarfile.TarInfo(f"{i}.{suffix}")
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    words = ("bounding_boxes:", "- decode_json:", "batch: {")
    batch = load_uncommented(tmp_path / "a.tar", *words)
    check_images(batch)
    for row, item in enumerate(batch.indices):
        assert batch["boxes"][row].tolist() == [[0, 0, 224, 224]] * item
        assert batch["tokens"][row].tolist() == [item] * (item + 1)


def test_a_shard_that_is_cut_off_is_refused_as_the_daemon_refuses_it(
    daemon: Any, tmp_path: pathlib.Path
) -> None:
    write_samples(tmp_path / "a.tar", 0)
    done = init(tmp_path / "a.tar", "-o", tmp_path / "a.yaml")
    assert done.returncode == 0, done.stderr
    with open(tmp_path / "a.tar", "r+b") as file:
        file.truncate(1024 + 512 + 100)  # behind a pax header and its own
    told = init(tmp_path / "a.tar").stderr
    assert "a.tar: at byte 1024, member 'dir/0000.jpg': it is cut off: it has" in told
    refused = daemon.ctl("apply", "-f", tmp_path / "a.yaml", check=False)
    assert told.removeprefix("spdlctl: ").strip() in refused.stderr


def test_the_lines_that_start_a_daemon_are_those_of_the_readme(tmp_path: pathlib.Path) -> None:
    write_samples(tmp_path / "a.tar", 0)
    printed = init(tmp_path / "a.tar", "-o", tmp_path / "a.yaml").stdout
    lines = [line for line in printed.splitlines() if line.startswith("    ")]
    assert len(lines) == 4
    readme = (daemon_module.REPOSITORY / "README.md").read_text()
    assert all(line in readme for line in lines)


def test_annotations_of_coco(load: Callable[..., Any], tmp_path: pathlib.Path) -> None:
    (tmp_path / "annotations").mkdir()
    (tmp_path / "train2017").mkdir()
    images, annotations = [], []
    for i in range(ROWS):
        (tmp_path / f"train2017/{i}.jpg").write_bytes(picture(i))
        images.append({"id": i, "file_name": f"{i}.jpg", "width": 40, "height": 30})
        for box in range(i):
            annotations.append(
                {
                    "id": len(annotations),
                    "image_id": i,
                    "category_id": 7,
                    "bbox": [box, 2, 3, 4],
                    "area": 12,
                    "iscrowd": 0,
                }
            )
    categories = [{"id": 7, "name": "cat"}]
    file = tmp_path / "annotations/instances_train2017.json"
    file.write_text(
        json.dumps({"images": images, "annotations": annotations, "categories": categories})
    )
    batch = load(file)
    check_images(batch, size=640)
    for row, item in enumerate(batch.indices):
        # A crop may lose some of them.
        assert len(batch["labels"][row]) <= item
        assert batch["boxes"][row].shape == (len(batch["labels"][row]), 4)


def test_what_is_wrong_is_told_without_a_daemon(tmp_path: pathlib.Path) -> None:
    done = init(tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"below {tmp_path} there are neither images" in done.stderr


def tone(path: pathlib.Path, rate: int, seconds: float) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        ["ffmpeg", "-v", "error", "-f", "lavfi", "-i", f"sine=440:sample_rate={rate}"]
        + ["-t", str(seconds), str(path)],
        check=True,
        timeout=daemon_module.WATCHDOG_S,
    )


def test_a_folder_of_sound(load: Callable[..., Any], tmp_path: pathlib.Path) -> None:
    tone(tmp_path / "sounds/dog/a.wav", 44100, 4.5)
    tone(tmp_path / "sounds/dog/b.flac", 16000, 1)
    tone(tmp_path / "sounds/cat/c.mp3", 22050, 3)
    (tmp_path / "sounds/cat/cover.txt").write_text("no sound")
    batch = load(tmp_path / "sounds")
    # Files of three rates are windows of four seconds, and stacked.
    assert batch["audio"].shape == (3, 1, 80, 400)
    assert batch["audio"].dtype == np.float32
    assert set(batch["label"]) <= {0, 1}
    text = init(tmp_path / "sounds").stdout
    assert "# 3 files of sound: 1 .flac, 1 .mp3 and 1 .wav." in text
    assert "They lie in 2 folders, which are taken as classes: cat and dog." in text
    assert "Left out: 1 other file, such as cat/cover.txt." in text


@pytest.mark.parametrize("is_spectrum", [True, False])
def test_whole_files_of_sound_are_batched_as_the_comment_says(
    daemon: Any, tmp_path: pathlib.Path, is_spectrum: bool
) -> None:
    seconds = [0.5, 1, 2, 0.5, 1, 2, 0.5, 1, 2]
    for i, each in enumerate(seconds):
        tone(tmp_path / f"sounds/{i}.wav", 16000, each)
    text = init(tmp_path / "sounds").stdout
    (windows,) = re.findall(r"# (windows: .*whole.*)\n", text)
    (batch,) = re.findall(r"# (batch: .*pad.*)\n", text)
    text = re.sub(r"(\n *)windows: .*", rf"\1{windows}", text)
    text = re.sub(r"\nbatch: .*", f"\n{batch}", text)
    if not is_spectrum:
        text = text.replace("  - log_mel\n", "")
    file = tmp_path / "whole.yaml"
    file.write_text(text)
    with spdld.Loader(file, address=daemon.address) as loader:
        rows = next(iter(loader))
    longest = 200 if is_spectrum else 32000
    assert rows["audio"].shape == ((8, 1, 80, 200) if is_spectrum else (8, 1, 32000))
    lengths = [round(longest * seconds[i] / 2) for i in rows.indices]
    assert np.ravel(rows["audio_length"]).tolist() == lengths


def film(path: pathlib.Path, size: str, frames: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        ["ffmpeg", "-v", "error", "-f", "lavfi", "-i", f"testsrc2=size={size}:rate=25"]
        + ["-frames:v", str(frames), "-c:v", "mpeg4", str(path)],
        check=True,
        timeout=daemon_module.WATCHDOG_S,
    )


def test_a_folder_of_videos(load: Callable[..., Any], tmp_path: pathlib.Path) -> None:
    film(tmp_path / "films/swim/a.mp4", "320x240", 70)
    film(tmp_path / "films/swim/b.mkv", "240x320", 65)
    for i in range(6):
        film(tmp_path / f"films/climb/{i}.avi", "320x240", 5)  # less than a clip
    (tmp_path / "films/climb/broken.mp4").write_bytes(b"no video")
    (tmp_path / "films/climb/e.jpg").write_bytes(picture(1))
    batch = load(tmp_path / "films")
    # All but the broken one.
    assert batch["video"].shape == (8, 16, 3, 224, 224)
    assert batch["video"].dtype == np.float32
    assert sorted(batch["label"]) == [0] * 6 + [1] * 2
    assert np.ptp(batch["video"][0]) > 1
    text = init(tmp_path / "films").stdout
    assert "# 9 videos: 6 .avi, 1 .mkv and 2 .mp4." in text
    assert "They lie in 2 folders, which are taken as classes: climb and swim." in text
    assert "Left out: 1 image, such as climb/e.jpg" in text


def test_what_is_drafted_of_videos_passes_a_check(daemon: Any, tmp_path: pathlib.Path) -> None:
    film(tmp_path / "films/a.mp4", "320x240", 20)
    assert init(tmp_path / "films", "-o", tmp_path / "films.yaml").returncode == 0
    applied = daemon.ctl("apply", "--dry-run", "-f", tmp_path / "films.yaml").stdout
    assert "video float32[16, 3, 224, 224]" in applied


def test_a_file_of_sound_is_refused_by_name(tmp_path: pathlib.Path) -> None:
    tone(tmp_path / "sounds/a.wav", 8000, 0.1)
    done = init(tmp_path / "sounds/a.wav")
    assert done.returncode == 2
    assert f"is one file of sound; name its folder: spdlctl init {tmp_path}/sounds" in done.stderr


def test_sound_beside_images_is_told_of(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a.jpg").write_bytes(picture(1))
    tone(tmp_path / "b.wav", 8000, 0.1)
    text = init(tmp_path).stdout
    assert "- decode_image" in text and "decode_audio" not in text
    assert "# Left out: 1 file of sound, such as b.wav" in text
