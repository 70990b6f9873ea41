# SPDX-License-Identifier: Apache-2.0
"""Whole files of sound as items of known length, and an order by it that needs no table."""

from __future__ import annotations

import io
import itertools
import pathlib
import random
import re
import subprocess
import tarfile
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import spdld
from integration.ranks import Rank, group, indices

RATE = 8000
FILES, WINDOW, BATCH, RUN = 150, 64, 4, 16
Array = np.ndarray[Any, Any]
StartRank = Callable[..., Rank]
BUCKET = f"{{global: {{bucket: {{by: duration, window: {WINDOW}}}}}}}"
# Suffix, rate and FFmpeg's options. Those that FFmpeg packs so that only a demuxer can take packets
# out are brought whole. Without -aac_pns 0, AAC has noise that each decoder draws anew.
KINDS = [
    ("wav", 44100, ["-ac", "2", "-c:a", "pcm_s16le"]),
    ("flac", 48000, ["-ac", "2", "-c:a", "flac"]),
    ("mp3", 22050, ["-c:a", "libmp3lame"]),
    ("m4a", 32000, ["-c:a", "aac", "-aac_pns", "0"]),
    ("mkv", 16000, ["-c:a", "flac"]),
    ("webm", 48000, ["-c:a", "libopus"]),
    ("ogg", 44100, ["-c:a", "libvorbis"]),
    ("ts", 48000, ["-c:a", "mp2"]),
    ("aac", 44100, ["-ac", "2", "-c:a", "aac", "-aac_pns", "0"]),
    ("opus", 48000, ["-ac", "2", "-c:a", "libopus"]),
    ("w64", 22050, ["-c:a", "pcm_s24le"]),
    ("avi", 44100, ["-c:a", "libmp3lame"]),
    ("mka", 48000, ["-ac", "2", "-c:a", "ac3"]),
    ("mov", 44100, ["-ac", "2", "-c:a", "alac"]),
]


def ffmpeg(*arguments: object) -> bytes:
    command = ["ffmpeg", "-nostdin", "-v", "error", "-y", *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, timeout=100).stdout


def heard(path: pathlib.Path, channels: int, *options: str) -> Array:
    """Channels x samples, as FFmpeg's command line decodes them."""
    raw = ffmpeg("-i", path, *options, "-f", "f32le", "-")
    return np.frombuffer(raw, dtype=np.float32).reshape(-1, channels).T


def make(path: pathlib.Path, seconds: float, rate: int = RATE, *options: object) -> None:
    tone = f"aevalsrc=0.4*sin(500*2*PI*t*(1+t)):s={rate}:d={seconds}"
    ffmpeg("-f", "lavfi", "-i", tone, *options, path)


def lengths() -> list[int]:
    """Samples of each file, in the items' order."""
    drawn = random.Random(5)
    return [int(RATE * min(max(drawn.lognormvariate(-1, 0.6), 0.05), 2)) for _ in range(FILES)]


@pytest.fixture(scope="module")
def speech(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A folder with flac files and a shard of them."""
    root = tmp_path_factory.mktemp("speech")
    (root / "files").mkdir()
    paths = [root / "files" / f"{i:04}.flac" for i in range(FILES)]
    outputs: list[object] = []
    for path, samples in zip(paths, lengths(), strict=True):
        outputs += ["-t", f"{samples / RATE:.6f}", "-c:a", "flac", path]
    ffmpeg("-f", "lavfi", "-i", f"anoisesrc=r={RATE}:a=0.1:seed=1:d=3", *outputs)
    with tarfile.open(root / "train.tar", "w") as tar:
        for path, samples in zip(paths, lengths(), strict=True):
            for suffix, content in (("flac", path.read_bytes()), ("txt", b"%d" % samples)):
                info = tarfile.TarInfo(f"{path.stem}.{suffix}")
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    return root


def pipeline(
    at: pathlib.Path,
    source: str,
    *,
    windows: str = "sampling: whole",
    decode: str = "decode_audio",
    shuffle: str = "none",
    batch: str = f"size: {BATCH}, last: keep",
    more: str = "on_error: {decode: fail}\n",
) -> pathlib.Path:
    path = at / "speech.yaml"
    path.write_text(
        f"pipeline: speech\nseed: 3\nsource:\n  {source}\n"
        + (f"  windows: {{{windows}}}\n" if windows else "")
        + f"shuffle: {shuffle}\nstages: [fetch, {decode}]\nbatch: {{{batch}}}\n{more}"
    )
    return path


def folder(root: pathlib.Path, field: str = "audio") -> str:
    return f'files: {{root: {root}, pattern: "*", field: {field}}}'


def shard(root: pathlib.Path) -> str:
    return f"webdataset: {{shards: {root}/train.tar, fields: {{audio: flac, text: txt}}}}"


def audio_rows(loader: spdld.Loader) -> dict[str, tuple[Array, float]]:
    """By the name of the item: its sound and its duration."""
    rows = {}
    for batch in loader:
        each = zip(batch.uris, batch["audio"], batch["duration"], batch.valid, strict=True)
        for uri, row, seconds, valid in each:
            if valid:
                rows[uri] = (np.array(row), float(seconds))
    return rows


@pytest.fixture
def sounds(tmp_path: pathlib.Path) -> pathlib.Path:
    """One file of each kind."""
    root = tmp_path / "sounds"
    root.mkdir()
    for i, (suffix, rate, options) in enumerate(KINDS):
        make(root / f"{i}.{suffix}", 0.4 + 0.15 * i, rate, *options)
    return root


def test_rows_are_what_ffmpeg_decodes_of_the_file(daemon: Any, sounds: pathlib.Path) -> None:
    with spdld.Loader(pipeline(sounds.parent, folder(sounds)), address=daemon.address) as loader:
        rows = audio_rows(loader)
    names = {path.name: path for path in sounds.iterdir()}
    assert rows.keys() == {str(path) for path in names.values()} or rows.keys() == names.keys()
    for uri, (row, seconds) in rows.items():
        path = names[pathlib.PurePath(uri).name]
        rate = KINDS[int(path.stem)][1]
        expected = heard(path, row.shape[0])
        assert row.dtype == np.float32
        np.testing.assert_array_equal(row, expected, err_msg=path.name)
        assert seconds == expected.shape[1] / rate


def test_rows_are_those_of_files_without_windows(daemon: Any, sounds: pathlib.Path) -> None:
    decode = "{decode_audio: {sample_rate: 16000, channels: 1}}"
    rows: list[dict[int, Array]] = []
    for windows in ("sampling: whole", ""):
        batch = "size: 3, last: keep, max_bytes: 16MiB"
        path = pipeline(sounds.parent, folder(sounds), windows=windows, decode=decode, batch=batch)
        with spdld.Loader(path, address=daemon.address, replace=True) as loader:
            each = [
                (index, np.array(row))
                for batch in loader
                for index, row in zip(batch.indices.tolist(), batch["audio"], strict=True)
            ]
        rows.append(dict(each))
    whole, plain = rows
    assert whole.keys() == plain.keys() == set(range(len(KINDS)))
    for index, row in whole.items():
        np.testing.assert_array_equal(row, plain[index], err_msg=f"item {index}")


@pytest.mark.parametrize("collate", ["", ", collate: {audio: {pad: 0}}"])
def test_rows_of_one_length_are_collated_as_others_are(
    daemon: Any, tmp_path: pathlib.Path, collate: str
) -> None:
    root = tmp_path / "sounds"
    root.mkdir()
    for name in "abc":
        make(root / f"{name}.flac", 0.5)
    path = pipeline(tmp_path, folder(root), batch="size: 3" + collate)
    with spdld.Loader(path, address=daemon.address) as loader:
        batch = next(iter(loader))
    assert isinstance(batch["audio"], np.ndarray if collate else list)
    assert [row.shape for row in batch["audio"]] == [(1, RATE // 2)] * 3
    if collate:
        assert batch["audio_length"].tolist() == [RATE // 2] * 3


def test_padded_rows_need_no_bound(daemon: Any, speech: pathlib.Path, tmp_path: Any) -> None:
    batch = f"size: {BATCH}, last: keep, collate: {{audio: {{pad: 0}}}}"
    path = pipeline(tmp_path, folder(speech / "files"), batch=batch, shuffle=BUCKET)
    samples = lengths()
    seen = []
    with spdld.Loader(path, address=daemon.address) as loader:
        for batch in loader:
            rows = zip(batch.indices, batch.valid, batch["audio_length"], strict=True)
            given = [(int(i), int(length)) for i, valid, length in rows if valid]
            assert all(samples[i] == length for i, length in given)
            assert batch["audio"].shape[2] == max(length for _, length in given)
            seen += [i for i, _ in given]
    assert sorted(seen) == list(range(FILES))


@pytest.mark.parametrize("source", [folder, shard])
def test_runs_hold_sounds_of_like_length(
    make_daemon: Callable[..., Any],
    start_rank: StartRank,
    speech: pathlib.Path,
    tmp_path: pathlib.Path,
    source: Callable[[pathlib.Path], str],
) -> None:
    root = speech / "files" if source is folder else speech
    windows = "sampling: whole, field: audio"
    path = pipeline(tmp_path, source(root), windows=windows, shuffle=BUCKET)
    daemon = make_daemon(pipelines=[path])
    order = indices(start_rank(daemon, "speech", job="run").rest_of_epoch())[:FILES]
    assert sorted(order) == list(range(FILES)) != order
    samples = lengths()
    for begin in range(0, FILES, WINDOW):
        window = [samples[item] for item in order[begin : begin + WINDOW]]
        runs = sorted(
            (min(run), max(run))
            for run in (window[first : first + RUN] for first in range(0, len(window), RUN))
        )
        assert all(one[1] <= other[0] for one, other in itertools.pairwise(runs))
    bucket = daemon.ctl_json("explain", "-f", path)["order"]["bucket"]
    assert (bucket["by"], bucket["window"], bucket["run"]) == ("duration", WINDOW, RUN)
    assert 0 < bucket["padding_with"] < bucket["padding_without"]
    text = daemon.ctl("explain", "-f", path).stdout
    assert "padding  of rows by 'duration': " in text


def test_other_shards_go_on_in_mid_window(
    make_daemon: Callable[..., Any],
    start_rank: StartRank,
    speech: pathlib.Path,
    tmp_path: pathlib.Path,
) -> None:
    path = pipeline(tmp_path, folder(speech / "files"), shuffle=BUCKET)
    daemon = make_daemon(pipelines=[path])

    def rows(per_rank: list[list[dict[str, Any]]]) -> list[int]:
        return [
            row
            for step in zip(*per_rank, strict=True)
            for batch in step
            for row, valid in zip(batch["indices"], batch["valid"], strict=True)
            if valid
        ]

    whole = rows([start_rank(daemon, "speech", job="whole").rest_of_epoch()])
    before = group(start_rank, daemon, 3, pipeline="speech", job="before")
    order = rows([rank.take(3) for rank in before])
    assert len(order) % WINDOW != 0
    state = before[0].do("state")["state"]
    for rank in before:
        rank.do("close")
    daemon.restart()
    after = group(start_rank, daemon, 2, pipeline="speech", job="after")
    for rank in after:
        rank.do("load", state=state)
    order += rows([rank.rest_of_epoch() for rank in after])
    assert sorted(order) == list(range(FILES))
    assert order == whole


def test_a_state_of_other_lengths_is_refused(
    make_daemon: Callable[..., Any],
    start_rank: StartRank,
    speech: pathlib.Path,
    tmp_path: pathlib.Path,
) -> None:
    source = folder(speech / "files")
    daemon = make_daemon(pipelines=[pipeline(tmp_path, source, shuffle=BUCKET)])
    rank = start_rank(daemon, "speech", job="saved")
    rank.take(3)
    state = rank.do("state")["state"]
    rank.do("close")
    windows = "sampling: whole, max_seconds: 1"
    daemon.ctl("apply", "-f", pipeline(tmp_path, source, windows=windows, shuffle=BUCKET))
    other = start_rank(daemon, "speech", job="resumed")
    other.do("load", state=state)
    assert "dataset" in other.do("next")["message"]


def test_files_of_other_lengths_are_left_out(
    daemon: Any, speech: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    seconds = [samples / RATE for samples in lengths()]
    # A file of just that length stays.
    least, most = sorted(seconds)[20], sorted(seconds)[-20]
    short, long = sum(s < least for s in seconds), sum(s > most for s in seconds)
    windows = f"sampling: whole, min_seconds: {least!r}, max_seconds: {most!r}"
    path = pipeline(tmp_path, folder(speech / "files"), windows=windows)
    done = daemon.ctl("apply", "-f", path)
    told = done.stdout + done.stderr
    assert f"{FILES - short - long} of {FILES} files are left" in told
    assert re.search(rf"{short} shorter than min_seconds, which is {least!r} s, such as 0", told)
    assert re.search(rf"{long} longer than max_seconds, which is {most!r} s, such as 0", told)
    explained = daemon.ctl("explain", "-f", path).stdout
    assert f"windows  whole sounds of {least!r} to {most!r} s\n" in explained
    with spdld.Loader(path, address=daemon.address) as loader:
        left = [duration for _, duration in audio_rows(loader).values()]
    assert left == [s for s in seconds if least <= s <= most]
    none = pipeline(tmp_path, folder(speech / "files"), windows="sampling: whole, min_seconds: 60")
    refused = daemon.ctl("apply", "-f", none, check=False)
    assert refused.returncode != 0
    assert f"none of the {FILES} files has one: {FILES} shorter than min_seconds" in refused.stderr


def test_files_without_sound_are_left_out(daemon: Any, tmp_path: pathlib.Path) -> None:
    root = tmp_path / "sounds"
    root.mkdir()
    make(root / "a.flac", 0.5)
    (root / "b.flac").write_bytes(b"no sound at all")
    silent = ("-f", "lavfi", "-i", "testsrc=size=32x32:rate=5", "-t", 1, "-f", "matroska")
    ffmpeg(*silent, root / "c.flac")
    path = pipeline(tmp_path, folder(root))
    done = daemon.ctl("apply", "-f", path)
    told = done.stdout + done.stderr
    assert "source.windows: 1 of 3 files are left" in told
    assert "1 not readable as media, such as b.flac" in told
    assert "1 without sound, such as c.flac" in told
    with spdld.Loader(path, address=daemon.address) as loader:
        assert [row.shape for row, _ in audio_rows(loader).values()] == [(1, RATE // 2)]
    strict = pipeline(tmp_path, folder(root), windows="sampling: whole, broken: error")
    refused = daemon.ctl("apply", "-f", strict, check=False)
    assert "b.flac" in refused.stderr and "broken: skip" in refused.stderr


def test_a_file_that_was_changed_is_named(
    daemon: Any, start_rank: StartRank, tmp_path: pathlib.Path
) -> None:
    root = tmp_path / "sounds"
    root.mkdir()
    for name in "abc":
        make(root / f"{name}.flac", 0.5)
    daemon.ctl("apply", "-f", pipeline(tmp_path, folder(root)))
    make(root / "b.flac", 0.7)
    with (
        pytest.raises(spdld.Error, match=r"b\.flac has changed since it was indexed"),
        spdld.Loader("speech", address=daemon.address) as loader,
    ):
        for _ in loader:
            pass


def test_files_longer_than_decoded_are_told_of(daemon: Any, tmp_path: pathlib.Path) -> None:
    root = tmp_path / "sounds"
    root.mkdir()
    # What apply tries is the first batch.
    for name in "abcd":
        make(root / f"{name}.flac", 0.5)
    make(root / "e.flac", 1.5)
    path = pipeline(tmp_path, folder(root), decode="{decode_audio: {max_seconds: 1}}")
    done = daemon.ctl("apply", "-f", path)
    assert "the longest file lasts 1.5 s, and sound of more than max_seconds" in (
        done.stdout + done.stderr
    )
    with (
        pytest.raises(spdld.Error, match=r"e\.flac.*longer than decode_audio.max_seconds"),
        spdld.Loader(path, address=daemon.address) as loader,
    ):
        for _ in loader:
            pass


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (
            {"windows": "sampling: whole, seconds: 3"},
            ":5:39: source.windows.seconds: 'sampling: whole' makes one window of each file",
        ),
        (
            {"windows": "seconds: 3, min_seconds: 1"},
            "source.windows.min_seconds: files are left out by their length where windows are whole",
        ),
        (
            {"windows": ""},
            "shuffle.global.bucket.by: 'duration' is no field of the source; the source knows no "
            "number of its items: have it read one, such as 'values' of a table or 'index' of a "
            "webdataset, or write 'windows: {sampling: whole}'",
        ),
        (
            {"windows": "seconds: 0.1"},
            "'duration' is no field of the source; there are: start; 'windows: {sampling: whole}'",
        ),
        (
            {"field": "duration"},
            "source.windows: each has a field 'duration', and so does the source",
        ),
    ],
    ids=["seconds", "bounds", "no-windows", "cut-windows", "taken-name"],
)
def test_what_cannot_be_is_refused(
    daemon: Any,
    speech: pathlib.Path,
    tmp_path: pathlib.Path,
    changes: dict[str, str],
    why: str,
) -> None:
    source = folder(speech / "files", changes.get("field", "audio"))
    batch = f"size: {BATCH}, max_bytes: 16MiB"
    windows = changes.get("windows", "sampling: whole")
    path = pipeline(tmp_path, source, windows=windows, shuffle=BUCKET, batch=batch)
    refused = daemon.ctl("apply", "-f", path, check=False)
    assert refused.returncode != 0
    assert why in refused.stderr
