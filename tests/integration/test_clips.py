# SPDX-License-Identifier: Apache-2.0
"""Clips of videos: frame by frame those that FFmpeg's command line gives for the same times."""

from __future__ import annotations

import csv
import pathlib
import subprocess
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import spdld

Array = np.ndarray[Any, Any]
WIDTH, HEIGHT, FPS, FRAMES = 64, 48, 25, 50
EXACT = (
    "scale=flags=bilinear+accurate_rnd+full_chroma_int+full_chroma_inp"
    ":in_h_chr_pos=0:in_v_chr_pos=128,format=rgb24"
)
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
# From a row of this layout to frames x height x width x channels.
LAYOUTS = {"tchw": (0, 2, 3, 1), "cthw": (1, 2, 3, 0), "thwc": (0, 1, 2, 3)}
# All of each picture, whatever is drawn.
WHOLE = (
    f"random_resized_crop: {{size: [{HEIGHT}, {WIDTH}], scale: [1, 1], "
    f"ratio: [{WIDTH / HEIGHT}, {WIDTH / HEIGHT}]}}"
)


def ffmpeg(*arguments: object) -> bytes:
    command = ["ffmpeg", "-nostdin", "-v", "error", "-y", *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, timeout=60).stdout


def make_video(path: pathlib.Path, source: str, frames: int = FRAMES, *options: object) -> None:
    ffmpeg(
        *("-f", "lavfi", "-i", f"{source}=size={WIDTH}x{HEIGHT}:rate={FPS}", "-frames:v", frames),
        *("-c:v", "libx264", "-pix_fmt", "yuv420p", "-g", 10, "-bf", 2, *options, path),
    )


def probed(path: pathlib.Path, *what: str) -> list[list[str]]:
    command = ["ffprobe", "-v", "error", "-select_streams", "v", "-of", "csv=p=0"]
    out = subprocess.run([*command, *what, path], check=True, capture_output=True, text=True)
    return [row for row in csv.reader(out.stdout.splitlines()) if row]


class Shown:
    """What FFmpeg decodes: frames x height x width x channels, and their times in seconds."""

    def __init__(self, path: pathlib.Path) -> None:
        raw = ffmpeg("-i", path, "-vf", EXACT, "-fps_mode", "passthrough", "-f", "rawvideo", "-")
        self.frames: Array = np.frombuffer(raw, np.uint8).reshape(-1, HEIGHT, WIDTH, 3)
        self.times = [float(row[0]) for row in probed(path, "-show_entries", "frame=pts_time")]
        assert len(self.times) == len(self.frames)

    def at(self, times: Array) -> list[int]:
        """The numbers of the frames of exactly these times."""
        return [self.times.index(pytest.approx(time, abs=1e-6)) for time in times]


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    root = tmp_path_factory.mktemp("clips") / "videos"
    root.mkdir()
    make_video(root / "a.mp4", "testsrc2")
    make_video(root / "b.mkv", "testsrc", FRAMES, "-color_range", "pc", "-colorspace", "bt709")
    return root


@pytest.fixture(scope="module")
def shown(videos: pathlib.Path) -> dict[str, Shown]:
    return {path.name: Shown(path) for path in videos.iterdir()}


@pytest.fixture
def load(daemon: Any, videos: pathlib.Path, tmp_path: pathlib.Path) -> Callable[..., spdld.Loader]:
    def make(
        clips: str,
        *stages: str,
        root: pathlib.Path = videos,
        batch: str = "size: 2, last: keep",
        on_error: str = "decode: fail",
    ) -> spdld.Loader:
        path = tmp_path / "clips.yaml"
        path.write_text(
            "pipeline: clips\n"
            f'source: {{files: {{root: {root}, pattern: "*.*", field: video}}, clips: {{{clips}}}}}\n'
            f"stages: [fetch, {', '.join(f'{{{stage}}}' for stage in stages)}]\n"
            f"batch: {{{batch}}}\non_error: {{{on_error}}}\n"
        )
        return spdld.Loader(path, address=daemon.address, replace=True)

    return make


def file_of(uri: str) -> str:
    return pathlib.PurePath(uri).name.partition("@")[0].partition("#")[0]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_frames_are_ffmpegs_at_their_times(
    load: Callable[..., Any], shown: dict[str, Shown], layout: str
) -> None:
    decode = f"decode_video: {{layout: {layout}, pts: pts, duration: duration}}"
    normalize = f"normalize: {{mean: {MEAN}, std: {STD}}}"
    seen = set()
    with load(
        "frames: 4, stride: 3, sampling: random, per_file: 3", decode, WHOLE, normalize
    ) as it:
        for batch in it:
            rows = zip(batch.uris, batch["video"], batch["pts"], batch["duration"], strict=True)
            for uri, row, times, durations in rows:
                of = shown[file_of(uri)]
                numbers = of.at(times)
                assert np.diff(numbers).tolist() == [3, 3, 3]
                np.testing.assert_allclose(durations, 1 / FPS, atol=1e-6)
                levels = (np.transpose(row, LAYOUTS[layout]) * STD + MEAN) * 255
                np.testing.assert_allclose(levels, of.frames[numbers], atol=1.01, rtol=0)
                seen.add((file_of(uri), numbers[0]))
    assert {name for name, _ in seen} == {"a.mp4", "b.mkv"} and len(seen) > 2


def test_gray_is_the_luma(load: Callable[..., Any], videos: pathlib.Path) -> None:
    raw = ffmpeg(
        "-i", videos / "a.mp4", "-vf", "scale=flags=accurate_rnd,format=gray", "-f", "rawvideo", "-"
    )
    luma = np.frombuffer(raw, np.uint8).reshape(-1, 1, HEIGHT, WIDTH)
    with load("frames: 5, stride: 12", "decode_video: {mode: gray}") as loader:
        (batch,) = loader
        assert batch["video"].dtype == np.uint8
        first = [file_of(uri) for uri in batch.uris].index("a.mp4")
        difference = batch["video"][first].astype(int) - luma[:49:12]
        assert np.abs(difference).max() <= 1


def test_clips_of_a_file_are_evenly_spread(
    load: Callable[..., Any], shown: dict[str, Shown]
) -> None:
    begins: dict[str, list[float]] = {}
    with load(
        "frames: 4, stride: 2, sampling: uniform, per_file: 3", "decode_video: {pts: pts}"
    ) as loader:
        for batch in loader:
            for uri, start, times in zip(batch.uris, batch["start"], batch["pts"], strict=True):
                assert start == pytest.approx(times[0])
                begins.setdefault(file_of(uri), []).append(start)
    # A clip spans 7 of 50 frames.
    for name, of in shown.items():
        assert of.at(np.sort(begins[name])) == [0, 22, 43]


def test_stacked_clips_have_a_leading_dimension(
    load: Callable[..., Any], shown: dict[str, Shown]
) -> None:
    with load(
        "frames: 4, sampling: uniform, per_file: 3, stack: true",
        "decode_video: {pts: pts, layout: cthw}",
    ) as loader:
        (batch,) = loader
        assert batch["video"].shape == (2, 3, 3, 4, HEIGHT, WIDTH)
        assert batch["pts"].shape == (2, 3, 4)
        for uri, clips, times in zip(batch.uris, batch["video"], batch["pts"], strict=True):
            of = shown[file_of(uri)]
            numbers = [of.at(clip) for clip in times]
            assert [clip[0] for clip in numbers] == [0, 23, 46]
            expected = np.transpose(of.frames[numbers], (0, 4, 1, 2, 3)).astype(int)
            assert np.abs(clips.astype(int) - expected).max() <= 1


def test_a_clip_begins_at_each_key_frame(load: Callable[..., Any], videos: pathlib.Path) -> None:
    rows = probed(videos / "a.mp4", "-show_entries", "packet=pts_time,flags")
    keys = [float(row[0]) for row in rows if row[1].startswith("K")]
    assert len(keys) >= 5
    begins = []
    with load("frames: 2, sampling: keyframes", "decode_video") as loader:
        for batch in loader:
            rows_of = zip(batch.uris, batch["start"], strict=True)
            begins += [start for uri, start in rows_of if file_of(uri) == "a.mp4"]
    assert sorted(begins) == pytest.approx(keys)


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        ("drop", {0: [0, 4, 8, 12, 16, 20, 24, 28]}),
        ("pad", {0: [0, 4, 8, 12, 16, 20, 24, 28], 32: [32, 36, 40, 44, 48, 48, 48, 48]}),
        ("loop", {0: [0, 4, 8, 12, 16, 20, 24, 28], 32: [32, 36, 40, 44, 48, 32, 36, 40]}),
    ],
)
def test_what_runs_over_the_end_is_as_the_spec_says(
    load: Callable[..., Any], shown: dict[str, Shown], end: str, expected: dict[int, list[int]]
) -> None:
    found: dict[str, dict[int, list[int]]] = {}
    with load(f"frames: 8, stride: 4, end: {end}", "decode_video: {pts: pts}") as loader:
        for batch in loader:
            for uri, row, times in zip(batch.uris, batch["video"], batch["pts"], strict=True):
                of = shown[file_of(uri)]
                numbers = of.at(times)
                found.setdefault(file_of(uri), {})[numbers[0]] = numbers
                want = np.transpose(of.frames[numbers], (0, 3, 1, 2)).astype(int)
                assert np.abs(row.astype(int) - want).max() <= 1
    assert found == {"a.mp4": expected, "b.mkv": expected}


def rows_at(root: pathlib.Path, videos: pathlib.Path, seconds: list[float]) -> pathlib.Path:
    """A pipeline of clips of a.mp4 at these times, which a table names."""
    table = root / "rows.jsonl"
    table.write_text("".join(f'{{"video": "a.mp4", "at": {at!r}}}\n' for at in seconds))
    path = root / "rows.yaml"
    path.write_text(
        "pipeline: rows\n"
        f"source:\n  table: {{file: {table}, root: {videos}, uri: {{video: video}}, values: {{at: at}}}}\n"
        "  clips: {frames: 1, timestamps: at}\n"
        "stages: [fetch, {decode_video: {pts: times}}]\nbatch: {size: 4, last: keep}\n"
    )
    return path


def test_a_time_of_a_row_names_the_nearest_frame(
    daemon: Any, videos: pathlib.Path, shown: dict[str, Shown], tmp_path: pathlib.Path
) -> None:
    frames = list(range(FRAMES))
    path = rows_at(tmp_path, videos, [frame / FPS + 0.015 * (-1) ** frame for frame in frames])
    with spdld.Loader(path, address=daemon.address) as loader:
        for batch in loader:
            for row, index in enumerate(batch.indices.tolist()):
                expected = shown["a.mp4"].times[index]
                assert batch["times"][row][0] == pytest.approx(expected, abs=1e-6)


def test_a_row_whose_time_lies_outside_its_file_is_an_error(
    daemon: Any, videos: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    path = rows_at(tmp_path, videos, [0.4, 0.8, 1.2, 2.03, 1.6, 0.0])
    said = daemon.ctl("apply", "-f", path)
    assert "1 time outside of their file, each an error of its row" in said.stdout + said.stderr
    with spdld.Loader("rows", address=daemon.address) as loader:
        valid = [bool(one) for batch in loader for one in batch.valid]
        assert sorted(valid) == [False] + [True] * 5
        failures = daemon.ctl_json("get", "failures")
    assert {(one["uri"], one["code"]) for one in failures} == {("a.mp4@2.03s", "DATA_LOSS")}


def test_all_frames_of_a_clip_share_one_draw(
    load: Callable[..., Any], tmp_path: pathlib.Path
) -> None:
    still = tmp_path / "still"
    still.mkdir()
    make_video(still / "a.mkv", "testsrc2", 1, "-qp", 0)
    # The one picture, again and again, without loss.
    ffmpeg(
        *("-stream_loop", 19, "-i", still / "a.mkv", "-vf", "setpts=N/25/TB", "-frames:v", 20),
        *("-c:v", "libx264", "-qp", 0, "-g", 10, still / "still.mp4"),
    )
    (still / "a.mkv").unlink()
    pictures = []
    stages = (
        "random_resized_crop: {size: [16, 16], scale: [0.1, 0.5]}",
        "random_horizontal_flip: {p: 0.5}",
    )
    with load("frames: 5", "decode_video", *stages, root=still) as loader:
        for batch in loader:
            for row in batch["video"]:
                assert (row == row[0]).all()
                pictures.append(row[0].tobytes())
    assert len(pictures) == 4 and len(set(pictures)) == 4


def test_moving_frames_are_cut_at_one_place(
    load: Callable[..., Any], shown: dict[str, Shown]
) -> None:
    places = set()
    high, wide = 24, 32
    crop = f"random_crop: {{size: [{high}, {wide}]}}"
    with load("frames: 5, stride: 4", "decode_video: {pts: pts, layout: thwc}", crop) as loader:
        for batch in loader:
            for uri, row, times in zip(batch.uris, batch["video"], batch["pts"], strict=True):
                of = shown[file_of(uri)]
                whole = of.frames[of.at(times)].astype(int)
                windows = np.lib.stride_tricks.sliding_window_view(whole, (high, wide), (1, 2))
                # frames x tops x lefts x channels x high x wide
                cut = np.transpose(row, (0, 3, 1, 2))[:, np.newaxis, np.newaxis]
                worst = np.abs(windows - cut.astype(int)).max(axis=(0, 3, 4, 5))
                assert worst.min() <= 1, "no place is that of all frames"
                places.add(np.unravel_index(worst.argmin(), worst.shape))
    assert len(places) > 1


def damage(videos: pathlib.Path, root: pathlib.Path, frame: int) -> None:
    """A copy of the videos in which the packet of one frame of a.mp4 is overwritten."""
    root.mkdir()
    for path in videos.iterdir():
        (root / path.name).write_bytes(path.read_bytes())
    path = root / "a.mp4"
    rows = probed(path, "-show_entries", "packet=pts_time,size,pos")
    (packet,) = [row for row in rows if float(row[0]) == pytest.approx(frame / FPS, abs=1e-6)]
    content = bytearray(path.read_bytes())
    size, begin = int(packet[1]), int(packet[2])
    content[begin : begin + size] = b"\xff" * size
    path.write_bytes(content)


def test_a_damaged_clip_is_replaced_and_told(
    daemon: Any, load: Callable[..., Any], videos: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    damage(videos, tmp_path / "damaged", 20)
    on_error = "decode: replace, budget: {fraction: 1.0, min: 100}"
    valid = []
    with load("frames: 10", "decode_video", root=tmp_path / "damaged", on_error=on_error) as loader:
        for batch in loader:
            valid += batch.valid.tolist()
            failures = daemon.ctl_json("get", "failures")
    # Ten clips of two files; the others of a.mp4, which need no damaged frame, are whole.
    assert len(valid) == 10 and valid.count(False) == 1
    (failure,) = [one for one in failures if one["epoch"] == 0]
    assert failure["uri"] == "a.mp4@0.8s"
    assert failure["code"] == "DATA_LOSS"


def test_a_damaged_clip_fails_by_name(
    load: Callable[..., Any], videos: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    damage(videos, tmp_path / "damaged", 20)
    with (
        pytest.raises(spdld.Error, match=r"a\.mp4@0\.8s\): corrupt h264 video at 0\.800 s"),
        load("frames: 10", "decode_video", root=tmp_path / "damaged") as loader,
    ):
        for _ in loader:
            pass


def test_whole_videos_are_not_decoded(
    daemon: Any, videos: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "whole.yaml"
    path.write_text(
        f'pipeline: whole\nsource: {{files: {{root: {videos}, pattern: "*.*", field: video}}}}\n'
        "stages: [fetch, decode_video]\nbatch: {size: 2}\n"
    )
    with (
        pytest.raises(spdld.Error, match="write 'clips:' under the source"),
        spdld.Loader(path, address=daemon.address) as loader,
    ):
        next(iter(loader))


# Sound is missing between 1 and 2 s. Matroska rounds times to milliseconds.
@pytest.mark.parametrize(
    ("name", "codec", "rounds"), [("g.mp4", "aac -aac_pns 0", 0), ("g.mkv", "flac", 1)]
)
def test_sound_beside_clips_keeps_time_over_a_gap(
    load: Callable[..., Any], tmp_path: pathlib.Path, name: str, codec: str, rounds: int
) -> None:
    rate, root = 48000, tmp_path / "gap"
    root.mkdir()
    ffmpeg(
        *("-f", "lavfi", "-i", f"testsrc2=size={WIDTH}x{HEIGHT}:rate={FPS}"),
        *("-f", "lavfi", "-i", f"aevalsrc=0.5*sin(2*PI*(300+100*t)*t):s={rate}:d=4", "-t", 4),
        *("-af", "aselect='not(between(t,1,2))'", "-c:v", "libx264", "-pix_fmt", "yuv420p"),
        *("-c:a", *codec.split(), root / name),
    )
    # With the silence of gaps, as a player has it.
    filled = ("-map", "0:a", "-af", "aresample=async=1", "-f", "f32le", "-")
    heard = np.frombuffer(ffmpeg("-i", root / name, *filled), np.float32)
    assert len(heard) > 3.9 * rate
    starts = []
    clips = "frames: 10, hop: 7, audio: sound"
    with load(clips, "decode_video", WHOLE, "decode_audio: {field: sound}", root=root) as loader:
        for batch in loader:
            for start, row in zip(batch["start"], batch["sound"], strict=True):
                sound, begin = np.asarray(row)[0], round(float(start) * rate)
                assert len(sound) == 10 * rate // FPS
                expected = heard[begin : begin + len(sound)]
                sound = sound[: len(expected)]
                most = rounds * rate // 1000
                off = min(
                    np.abs(np.roll(sound, by) - expected)[most : len(sound) - most].max()
                    for by in range(-most, most + 1)
                )
                assert off < 1e-4, f"{start} s"
                starts.append(float(start))
    within = [start for start in starts if 1.1 <= start <= 1.55]
    assert within and starts[0] < 1 and starts[-1] > 2.5


def test_videos_of_one_upright_size_are_stacked(
    load: Callable[..., Any], videos: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    root = tmp_path / "turned"
    root.mkdir()
    (root / "a.mp4").write_bytes((videos / "a.mp4").read_bytes())
    make_video(tmp_path / "tall.mp4", "testsrc2", FRAMES, "-vf", f"scale={HEIGHT}:{WIDTH}")
    ffmpeg("-i", tmp_path / "tall.mp4", "-c", "copy", "-metadata:s:v", "rotate=90", root / "b.mp4")
    seen = set()
    with load(f"frames: {FRAMES}", "decode_video: {layout: thwc}", root=root) as loader:
        (batch,) = loader
        assert batch["video"].shape == (2, FRAMES, HEIGHT, WIDTH, 3)
        for uri, row in zip(batch.uris, batch["video"], strict=True):
            seen.add(file_of(uri))
            raw = ffmpeg(
                *("-noautorotate", "-i", root / file_of(uri), "-vf", EXACT, "-f", "rawvideo", "-")
            )
            stored = np.frombuffer(raw, np.uint8)
            if file_of(uri) == "b.mp4":
                frames = np.rot90(stored.reshape(FRAMES, WIDTH, HEIGHT, 3), axes=(1, 2))
            else:
                frames = stored.reshape(FRAMES, HEIGHT, WIDTH, 3)
            assert np.abs(row.astype(int) - frames).max() <= 1
    assert seen == {"a.mp4", "b.mp4"}


@pytest.fixture
def growing(videos: pathlib.Path, tmp_path: pathlib.Path) -> pathlib.Path:
    """One video, to which a test adds others."""
    root = tmp_path / "growing"
    root.mkdir()
    (root / "a.mp4").write_bytes((videos / "a.mp4").read_bytes())
    return root


def test_videos_of_two_sizes_are_refused_by_name(
    load: Callable[..., Any], growing: pathlib.Path
) -> None:
    make_video(growing / "small.mp4", "testsrc2", FRAMES, "-vf", "scale=32:24")
    told = r"the clips .* differ in size \(a\.mp4 has 64x48 pixels, small\.mp4 32x24\)"
    with (
        pytest.raises(spdld.Error, match=told + ".* add a resize to .* or let them differ"),
        load("frames: 10", "decode_video", root=growing) as loader,
    ):
        next(iter(loader))
    ragged = "size: 2, collate: {video: {kind: ragged, max_bytes: 1MiB}}"
    with load(f"frames: {FRAMES}", "decode_video", root=growing, batch=ragged) as loader:
        (batch,) = loader
        assert sorted(row.shape[2] for row in batch["video"]) == [24, HEIGHT]


def test_videos_of_one_size_stay_ragged_if_that_is_asked_for(
    load: Callable[..., Any], growing: pathlib.Path
) -> None:
    ragged = "size: 1, collate: {video: {kind: ragged, max_bytes: 1MiB}}"
    with load(f"frames: {FRAMES}", "decode_video", root=growing, batch=ragged) as loader:
        (batch,) = loader
        assert batch.packed("video").values.ndim == 1


def test_a_video_of_another_size_is_refused_at_the_next_apply(
    daemon: Any, load: Callable[..., Any], growing: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    batch = "size: 1, last: keep"
    with load("frames: 10", "decode_video", root=growing, batch=batch) as loader:
        batches = iter(loader)
        next(batches)
        make_video(growing / "small.mp4", "testsrc2", FRAMES, "-vf", "scale=32:24")
        refused = daemon.ctl("apply", "-f", tmp_path / "clips.yaml", check=False)
        assert refused.returncode != 0 and "small.mp4 32x24" in refused.stderr
        # What was applied goes on with what it knows.
        assert [one["video"].shape for one in batches] == [(1, 10, 3, HEIGHT, WIDTH)] * 4


def test_what_was_applied_has_its_size_after_a_restart(
    daemon: Any, load: Callable[..., Any], growing: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    load("frames: 10", "decode_video", root=growing)
    daemon.ctl("apply", "-f", tmp_path / "clips.yaml")
    make_video(growing / "small.mp4", "testsrc2", FRAMES, "-vf", "scale=32:24")
    daemon.restart()
    with spdld.Loader("clips", address=daemon.address) as loader:
        assert [one["video"].shape for one in loader] == [(2, 10, 3, HEIGHT, WIDTH)] * 2 + [
            (1, 10, 3, HEIGHT, WIDTH)
        ]


def test_pictures_that_change_size_in_a_file_are_an_error_of_the_clip(
    daemon: Any, load: Callable[..., Any], growing: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    make_video(tmp_path / "wide.mp4", "testsrc2", FRAMES, "-vf", "scale=96:64")
    (tmp_path / "both.txt").write_text(f"file {growing / 'a.mp4'}\nfile wide.mp4\n")
    ffmpeg("-f", "concat", "-safe", 0, "-i", tmp_path / "both.txt", "-c", "copy", growing / "b.mkv")
    on_error = "decode: replace, budget: {fraction: 1.0, min: 100}"
    valid = 0
    with load("frames: 10", "decode_video", root=growing, on_error=on_error) as loader:
        for batch in loader:
            assert batch["video"].shape[1:] == (10, 3, HEIGHT, WIDTH)
            valid += int(batch.valid.sum())
            failures = daemon.ctl_json("get", "failures")
    assert valid == 5 + 5
    failed = [one for one in failures if one["epoch"] == 0]
    # Each of them was tried, perhaps once more in the place of another.
    assert {one["uri"] for one in failed} == {f"b.mkv@{at}s" for at in (2, 2.4, 2.8, 3.2, 3.6)}
    for failure in failed:
        assert failure["code"] == "DATA_LOSS"
        assert (
            "its pictures change size: one has 96x64 pixels, and its header" in failure["message"]
        )
