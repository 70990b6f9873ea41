# SPDX-License-Identifier: Apache-2.0
"""Sound out of wav, flac and mp3, as FFmpeg's command line decodes and resamples it."""

from __future__ import annotations

import pathlib
import subprocess
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import spdld

RATE = 16000
Array = np.ndarray[Any, Any]
# What FFmpeg is told to make of a file, as the pipelines below make it.
FILTER = f"aresample={RATE}:ochl=mono:rematrix_maxval=1"
KINDS = [
    ("wav", 44100, ["-ac", "2", "-c:a", "pcm_s16le"]),
    ("wav", RATE, ["-c:a", "pcm_f32le"]),
    ("flac", 48000, ["-ac", "2", "-c:a", "flac"]),
    ("mp3", 22050, ["-c:a", "libmp3lame"]),
]


def ffmpeg(*arguments: str | pathlib.Path) -> bytes:
    command = ["ffmpeg", "-nostdin", "-v", "error", "-y", *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, timeout=60).stdout


def heard(path: pathlib.Path, *options: str) -> Array:
    return np.frombuffer(ffmpeg("-i", path, *options, "-f", "f32le", "-"), dtype=np.float32)


@pytest.fixture
def root(tmp_path: pathlib.Path) -> pathlib.Path:
    root = tmp_path / "sounds"
    root.mkdir()
    for i in range(8):
        suffix, rate, options = KINDS[i % len(KINDS)]
        tone = f"aevalsrc=0.4*sin({300 + 100 * i}*2*PI*t*(1+t)):s={rate}:d={0.2 + 0.1 * i}"
        ffmpeg("-f", "lavfi", "-i", tone, *options, root / f"{i:03}.{suffix}")
    return root


@pytest.fixture
def load(daemon: Any, root: pathlib.Path) -> Callable[..., spdld.Loader]:
    def make(
        stages: str = f"fetch, {{decode_audio: {{sample_rate: {RATE}, channels: 1}}}}",
        batch: str = "size: 4, max_bytes: 16MiB",
        on_error: str = "decode: fail",
    ) -> spdld.Loader:
        path = root.parent / "sounds.yaml"
        path.write_text(
            "pipeline: sounds\n"
            'source: {files: {root: sounds, pattern: "*.*", field: audio}}\n'
            f"stages: [{stages}]\nbatch: {{{batch}}}\non_error: {{{on_error}}}\n"
        )
        return spdld.Loader(path, address=daemon.address, replace=True)

    return make


def files(root: pathlib.Path) -> list[pathlib.Path]:
    return sorted(root.iterdir())


def test_ragged_rows_are_what_ffmpeg_makes(load: Callable[..., Any], root: pathlib.Path) -> None:
    paths = files(root)
    seen = 0
    with load() as loader:
        for batch in loader:
            for i, row in zip(batch.indices, batch["audio"], strict=True):
                expected = heard(paths[i], "-af", FILTER)
                assert row.dtype == np.float32
                assert row.shape == (1, len(expected))
                np.testing.assert_allclose(row[0], expected, atol=1e-6, rtol=0)
                seen += 1
    assert seen == len(paths)


def test_padded_rows_know_how_long_they_were(load: Callable[..., Any], root: pathlib.Path) -> None:
    paths = files(root)
    batch_spec = "size: 4, max_bytes: 16MiB, collate: {audio: {pad: 0, multiple_of: 100}}"
    with load(batch=batch_spec) as loader:
        for batch in loader:
            rows = np.asarray(batch["audio"])
            assert rows.ndim == 3 and rows.shape[2] % 100 == 0
            for i, row, length in zip(batch.indices, rows, batch["audio_length"], strict=True):
                expected = heard(paths[i], "-af", FILTER)
                assert length == len(expected)
                np.testing.assert_allclose(row[0, :length], expected, atol=1e-6, rtol=0)
                assert (row[0, length:] == 0).all()


def test_files_are_delivered_as_they_are(load: Callable[..., Any], root: pathlib.Path) -> None:
    paths = files(root)
    with load(stages="fetch") as loader:
        for batch in loader:
            for i, row in zip(batch.indices, batch["audio"], strict=True):
                assert bytes(row) == paths[i].read_bytes()


def test_resample_follows_decode_audio(load: Callable[..., Any], root: pathlib.Path) -> None:
    paths = files(root)
    stages = "fetch, {decode_audio: {channels: 1}}, {resample: {sample_rate: 8000}}"
    with load(stages=stages) as loader:
        for batch in loader:
            for i, row in zip(batch.indices, batch["audio"], strict=True):
                expected = heard(paths[i], "-af", FILTER.replace(str(RATE), "8000"))
                np.testing.assert_allclose(row[0], expected, atol=1e-6, rtol=0)


def test_stages_tell_decoding_apart_from_the_stages_behind_it(
    load: Callable[..., Any], daemon: Any
) -> None:
    stages = "fetch, {decode_audio: {channels: 1}}, {resample: {sample_rate: 8000}}"
    with load(stages=stages) as loader:
        for _ in loader:
            pass
        [ops] = [stage["ops"] for stage in daemon.ctl_json("get", "stages") if stage["ops"]]
    assert [(of["field"], of["ops"]) for of in ops] == [
        ("audio", "decode_audio"),
        ("audio", "resample"),
    ]
    assert all(of["spent_s"] > 0 for of in ops)


def test_a_damaged_file_is_replaced(load: Callable[..., Any], root: pathlib.Path) -> None:
    damaged = files(root)[2]
    content = bytearray(damaged.read_bytes())
    for i in range(len(content) // 2, len(content) // 2 + 100):
        content[i] ^= 0x55
    damaged.write_bytes(content)
    on_error = "decode: replace, budget: {fraction: 1.0, min: 100}"
    valid = []
    with load(on_error=on_error) as loader:
        for batch in loader:
            valid += list(np.asarray(batch.valid))
    assert len(valid) == 8
    assert valid.count(False) == 1


def test_a_damaged_file_is_named(load: Callable[..., Any], root: pathlib.Path) -> None:
    damaged = files(root)[0]
    damaged.write_bytes(damaged.read_bytes()[:-1000])
    with (
        pytest.raises(spdld.Error, match=r"000\.wav.*'audio'.*corrupt WAV: it is cut off"),
        load() as loader,
    ):
        for _ in loader:
            pass


def test_a_playlist_named_mp3_is_refused(load: Callable[..., Any], root: pathlib.Path) -> None:
    other = root.parent / "other.wav"
    ffmpeg("-f", "lavfi", "-i", "sine=duration=1", other)
    files(root)[3].write_text(f"#EXTM3U\n#EXTINF:1,\n{other}\n")
    with pytest.raises(spdld.Error, match=r"003\.mp3.*names other files"), load() as loader:
        for _ in loader:
            pass


def test_rows_without_a_bound_ask_for_one(load: Callable[..., Any]) -> None:
    with (
        pytest.raises(spdld.Error, match="max_bytes"),
        load(stages="fetch, decode_audio", batch="size: 4") as loader,
    ):
        next(iter(loader))


def write(root: pathlib.Path, source: str, stages: str, batch: str) -> pathlib.Path:
    path = root.parent / "sounds.yaml"
    path.write_text(
        "pipeline: sounds\n"
        f'source: {{files: {{root: sounds, pattern: "*.*", field: audio}}, {source}}}\n'
        f"stages: [fetch, {stages}]\nbatch: {{{batch}}}\non_error: {{decode: fail}}\n"
    )
    return path


def expect_slices(daemon: Any, root: pathlib.Path, seconds: float) -> set[tuple[str, float]]:
    seen = set()
    path = write(root, f"windows: {{seconds: {seconds}}}", "decode_audio", "size: 5, last: keep")
    whole = {file.name: heard(file) for file in files(root)}
    with spdld.Loader(path, address=daemon.address) as loader:
        for batch in loader:
            rows = zip(batch.uris, batch["audio"], batch["start"], strict=True)
            for uri, row, start in rows:
                name = pathlib.PurePath(uri.rsplit("@", 1)[0]).name
                channels, samples = row.shape
                rate = round(samples / seconds)
                begin = round(start * rate)
                expected = whole[name].reshape(-1, channels).T[:, begin : begin + samples]
                # An mp3 decoder that begins in mid-file rounds otherwise than one from its begin.
                np.testing.assert_allclose(row, expected, atol=1e-4, rtol=0)
                seen.add((name, round(start, 6)))
    return seen


def test_windows_are_slices_of_what_ffmpeg_makes(daemon: Any, root: pathlib.Path) -> None:
    seconds = 0.1
    seen = expect_slices(daemon, root, seconds)
    lengths = [0.2 + 0.1 * i for i in range(len(files(root)))]
    assert len(seen) == pytest.approx(
        sum(int(length / seconds + 1e-6) for length in lengths), abs=4
    )


def test_windows_of_joined_and_lying_mp3s_are_slices_too(daemon: Any, root: pathlib.Path) -> None:
    tone = "aevalsrc=0.4*sin(500*2*PI*t*(1+t)):s=44100:d=1.5"
    ffmpeg("-f", "lavfi", "-i", tone, "-c:a", "libmp3lame", "-q:a", "4", root / "one.mp3")
    one = (root / "one.mp3").read_bytes()
    for file in files(root):
        file.unlink()
    count_at = one.index(b"Xing") + 8
    (root / "lying.mp3").write_bytes(one[:count_at] + (20).to_bytes(4, "big") + one[count_at + 4 :])
    (root / "joined.mp3").write_bytes(one * 3)
    assert len(expect_slices(daemon, root, 0.1)) >= 14 + 44


def test_windows_of_several_rates_are_stacked_once_resampled(
    daemon: Any, root: pathlib.Path
) -> None:
    for stages in (
        "{decode_audio: {sample_rate: 16000, channels: 1}}",
        "{decode_audio: {channels: 1}}, {resample: {sample_rate: 16000}}",
    ):
        path = write(root, "windows: {seconds: 0.1}", stages, "size: 64, last: keep")
        assert "float32 [64, 1, 1600]" in daemon.ctl("explain", "-f", path).stdout
        with spdld.Loader(path, address=daemon.address, replace=True) as loader:
            for batch in loader:
                assert batch["audio"].shape == (len(batch.indices), 1, 1600)


def test_a_preview_draws_each_row_of_sound(
    daemon: Any, root: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    from PIL import Image

    path = write(root, "select: {take: 4}", "decode_audio", "size: 4, max_bytes: 16MiB")
    printed = daemon.ctl("preview", "-f", path, "-o", tmp_path / "grid.png").stdout
    assert "tensor 'audio', 4 rows in 1 column" in printed
    with Image.open(tmp_path / "grid.png") as grid:
        colours = {grid.getpixel((x, 31)) for x in range(grid.width)}
    assert (70, 240, 240) in colours
