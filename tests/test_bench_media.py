# SPDX-License-Identifier: Apache-2.0
"""The benchmarks of sound and video: what sides deliver is alike, and what is asked for is compared."""

from __future__ import annotations

import json
import pathlib
import random
import subprocess
from typing import Any

import audio_bench
import audio_data
import audio_sides
import comparison
import generated
import pytest
import run
import video_bench
import video_data
import video_sides


def result_of(
    of: comparison.Comparison, speeds: dict[str, list[float]], packages: dict[str, str]
) -> dict[str, Any]:
    """A result with rows/s per `TASK/SIDE` and round, everything else 1."""
    rounds = [
        {
            key: {of.speed: values[one], of.cpu: 1.0, "pss_mb": 1.0, "first_batch_ms": 1.0}
            for key, values in speeds.items()
        }
        for one in range(len(next(iter(speeds.values()))))
    ]
    machine = {"cpu": "x", "cores": 2, "memory_gb": 8, "kernel": "6", "load_at_start": 0.0}
    options = {"rounds": len(rounds), "seconds": 1.0, "workers": 2}
    about = {"command": "x", "machine": machine, "options": options, "packages": packages}
    return {"about": about, "summary": run.summarize(rounds), "rounds": rounds}


def audio_options(files: list[tuple[str, float]], task: str = "wav") -> audio_sides.Options:
    return audio_sides.Options(task, "/data", files, batch=4, workers=2, seed=1)


def video_options(**changed: Any) -> video_sides.Options:
    options: dict[str, Any] = {
        "root": "/data",
        "files": ["/data/1.mp4", "/data/2.mp4"],
        "width": 320,
        "height": 180,
        "fps": 25,
        "frames": 250,
        "stride": 4,
        "batch": 8,
        "workers": 2,
        "seed": 1,
    }
    return video_sides.Options(**{**options, **changed})


def looks_like(**changed: Any) -> dict[str, Any]:
    return {"shape": [8, 16], "dtype": "torch.float32", "mean": 0.1, "std": 1.0, **changed}


def test_sides_that_draw_from_the_same_are_alike() -> None:
    looks = {
        "a/spdld": looks_like(),
        "a/spdl": looks_like(mean=0.2, std=1.1),
        "b/spdl": looks_like(shape=[1024, 1]),
    }
    assert comparison.unlike(looks) == []


@pytest.mark.parametrize(
    "changed", [{"shape": [16, 8]}, {"dtype": "torch.uint8"}, {"mean": 0.6}, {"std": 2.0}]
)
def test_sides_that_deliver_different_things_are_named(changed: dict[str, Any]) -> None:
    looks = {"a/spdld": looks_like(), "a/spdl": looks_like(**changed)}
    (line,) = comparison.unlike(looks)
    assert line.startswith("a/spdl: {") and "but a/spdld: {" in line


def test_tasks_are_compared_each_with_what_is_asked_of_it() -> None:
    speeds = {"180-short/spdld": [25.0, 2.5], "180-short/spdl": [10.0, 1.0]}
    speeds |= {f"180-long/{key.split('/')[1]}": values for key, values in speeds.items()}
    lines = comparison.missed(video_bench.COMPARISON, result_of(video_bench.COMPARISON, speeds, {}))
    assert lines == ["320x180, 10 min: spdld / SPDL: 2.500, asked for 3"]


def test_a_rate_that_is_asked_for_is_missed_whatever_peers_do() -> None:
    result = result_of(audio_bench.COMPARISON, {"windows/spdld": [40000, 49000, 90000]}, {})
    assert comparison.missed(audio_bench.COMPARISON, result) == [
        "wav, 10 ms: spdld: 49000 windows/s, asked for 50000"
    ]


def test_the_table_says_what_is_asked_and_what_was_reached() -> None:
    speeds = {"mp3/spdld": [300.0], "mp3/spdl": [100.0], "wav/spdl": [10.0]}
    result = result_of(audio_bench.COMPARISON, speeds, {"spdl": "0.8.0"})
    table = comparison.table(audio_bench.COMPARISON, result, "batch 32").splitlines()
    assert "batch 32, 2 workers; spdl 0.8.0." in table[3]
    (spdl,) = [line for line in table if line.startswith("| mp3") and "| SPDL |" in line]
    assert spdl.endswith("| 3.00 | ≥ 2 | 1.00 | 1.00 |")
    assert table[-1].startswith("| wav") and table[-1].endswith("|  |  |  |  |")


def test_a_side_whose_module_is_not_there_is_left_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    of = comparison.Comparison(
        **{**vars(audio_bench.COMPARISON), "modules": {"spdld": (), "dali": ("no.such_module",)}}
    )
    arguments = audio_bench.parse(["--sides", "spdld,dali", "--tasks", "wav"])
    comparison.leave_out_missing(of, arguments)
    assert comparison.chosen(of, arguments) == [("wav", "spdld")]
    assert "DALI, CPU is not installed, and left out" in capsys.readouterr().err


def test_an_unknown_task_is_refused_with_those_there_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        audio_bench.parse(["--tasks", "wav,ogg"])
    assert "there is no task 'ogg': wav, mp3, windows" in capsys.readouterr().err


def test_windows_lie_within_their_files() -> None:
    for task in ("wav", "windows"):
        options = audio_options([("/a", 10.2), ("/b", 15.0)], task)
        for _ in range(200):
            path, start = audio_sides.draw(options, random.Random())
            assert 0 <= start <= dict(options.files)[path] - options.seconds


def test_clips_and_crops_lie_within_their_videos() -> None:
    options = video_options(frames=61)
    assert options.span == 61 and options.resized == (227, 128)
    for _ in range(200):
        drawn = video_sides.draw(options, random.Random())
        assert drawn.first == 0 and drawn.path in options.files
        assert 0 <= drawn.left <= 227 - 112 and 0 <= drawn.top <= 128 - 112


def test_sound_is_generated_in_the_length_that_sides_are_told(tmp_path: pathlib.Path) -> None:
    out = tmp_path / "0.wav"
    generated.ffmpeg(*("-f", "lavfi", "-i", audio_data.voice(5), "-t", "0.5"), out)
    probed = subprocess.run(
        ["ffprobe", "-v", "error", "-show_streams", "-of", "json", out],
        capture_output=True,
        check=True,
    )
    (stream,) = json.loads(probed.stdout)["streams"]
    assert (stream["sample_rate"], stream["duration_ts"]) == ("16000", 8000)


def test_a_generator_that_fails_leaves_nothing_that_is_taken_for_whole(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generated, "REPOSITORY", tmp_path)

    def fail(directory: pathlib.Path) -> None:
        (directory / "half").touch()
        generated.ffmpeg("-i", "/nonexistent", directory / "out.wav")

    with pytest.raises(RuntimeError, match="nonexistent"):
        generated.kept("some", fail)
    directory = generated.kept("some", lambda new: (new / "whole").touch())
    assert [path.name for path in directory.iterdir()] == ["whole"]
    assert generated.kept("some", fail) == directory


def test_names_of_videos_say_all_that_they_depend_on() -> None:
    videos = video_data.Videos(320, 180, seconds=600, count=2)
    assert videos.name == "video-320x180-600s-2"
    assert (videos.frames, videos.duration) == (15000, "10 min")
