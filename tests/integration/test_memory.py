# SPDX-License-Identifier: Apache-2.0
"""Images that take much memory wait for each other, and memory that is lacking is no bad data."""

from __future__ import annotations

import os
import pathlib
import resource
import struct
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from daemon import build_dir, wait_until
from large_jpeg import progressive_jpeg

MIB = 2**20
THREADS = 4
EXECUTOR = {"cpu_threads": THREADS, "io_threads": 2}
ALLOWANCE = 16 * MIB  # a worker's, for what is not counted
LARGE = (6000, 6000)  # 103 MiB of coefficients
HUGE = (14600, 11650)  # 487 MiB


def status_bytes(pid: int, field: str) -> int:
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise KeyError(field)


def wav(samples: int) -> bytes:
    """Silence of 16 bits at 16 kHz."""
    head = struct.pack(
        "<4sI4s4sIHHIIHH",
        b"RIFF",
        2 * samples + 36,
        b"WAVE",
        b"fmt ",
        16,
        1,
        1,
        16000,
        32000,
        2,
        16,
    )
    return head + struct.pack("<4sI", b"data", 2 * samples) + bytes(2 * samples)


@pytest.fixture
def with_large(
    make_dataset: Callable[..., Any], request: pytest.FixtureRequest
) -> Callable[..., Any]:
    """with_large(count, large, size): a dataset whose items of these numbers are that large."""

    def make(count: int, large: range | list[int], size: tuple[int, int]) -> Any:
        data = make_dataset(count=count, name=f"{request.node.name}-{count}")
        for index in large:
            data.files[index].write_bytes(progressive_jpeg(*size))
        return data

    return make


def test_large_images_stay_within_their_memory_while_another_job_goes_on(
    make_daemon: Callable[..., Any],
    write_pipeline: Callable[..., pathlib.Path],
    make_dataset: Callable[..., Any],
    with_large: Callable[..., Any],
) -> None:
    greedy = write_pipeline(with_large(12, range(12), LARGE), name="greedy")
    modest = write_pipeline(make_dataset(), name="modest")
    ceiling = 128 * MIB
    daemon = make_daemon(
        pipelines=[greedy, modest], settings={"executor": {**EXECUTOR, "decode_memory": ceiling}}
    )
    before = status_bytes(daemon.pid, "VmRSS")
    rival = subprocess.Popen(
        [build_dir() / "bin/spdlctl", "--address", daemon.address, "consume", "greedy", "--digest"],
        stdout=subprocess.PIPE,
        text=True,
    )
    for _ in range(3):
        assert daemon.ctl("consume", "modest").returncode == 0
    lines, _ = rival.communicate()
    assert rival.returncode == 0
    assert len(lines.splitlines()) == 3
    grown = status_bytes(daemon.pid, "VmHWM") - before
    assert grown < ceiling + THREADS * ALLOWANCE + 64 * MIB, f"{grown / MIB:.0f} MiB"
    assert daemon.ctl_json("get", "failures") == []

    # The ceiling says when, and changes no byte.
    plenty = make_daemon(
        pipelines=[greedy], settings={"executor": {**EXECUTOR, "decode_memory": "4GiB"}}
    )
    assert plenty.ctl("consume", "greedy", "--digest").stdout == lines


def test_an_image_larger_than_the_ceiling_is_decoded_and_not_replaced(
    make_daemon: Callable[..., Any],
    write_pipeline: Callable[..., pathlib.Path],
    with_large: Callable[..., Any],
) -> None:
    pipeline = write_pipeline(with_large(8, [1, 5], LARGE))
    daemon = make_daemon(
        pipelines=[pipeline],
        settings={
            "executor": {**EXECUTOR, "decode_memory": "1MiB"},
            "limits": {"row_memory": "1GiB"},
        },
    )
    assert daemon.ctl("consume", "images").returncode == 0
    assert daemon.ctl_json("get", "failures") == []


def test_lack_of_memory_ends_the_job_and_never_replaces_an_image(
    make_daemon: Callable[..., Any],
    write_pipeline: Callable[..., pathlib.Path],
    with_large: Callable[..., Any],
) -> None:
    data = with_large(16, [9], HUGE)
    pipeline = write_pipeline(data, on_error={"decode": "replace"})
    settings = {"executor": EXECUTOR, "limits": {"row_memory": "4GiB"}}
    daemon = make_daemon(pipelines=[pipeline], settings=settings)
    rich = daemon.ctl("consume", "images", "--digest").stdout
    assert len(rich.splitlines()) == 4

    # Of each thread's own heap, 64 MiB of addresses would count.
    poor = make_daemon(
        pipelines=[pipeline],
        settings=settings,
        environment={"MALLOC_ARENA_MAX": "1"},
    )
    limit = status_bytes(poor.pid, "VmSize") + 384 * MIB
    resource.prlimit(poor.pid, resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
    done = poor.ctl("consume", "images", check=False)
    assert done.returncode == 1
    assert "item 9 (" in done.stderr, done.stderr
    assert "there is no memory for" in done.stderr
    assert "also when it was tried again by itself" in done.stderr
    (failure,) = poor.ctl_json("get", "failures")
    assert failure["ended_stream"]
    assert failure["replaced_by"] is None

    resource.prlimit(poor.pid, resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert poor.ctl("consume", "images", "--digest").stdout == rich


def test_more_pixels_than_the_admin_allows_are_refused_at_apply(
    make_daemon: Callable[..., Any],
    write_pipeline: Callable[..., pathlib.Path],
    make_dataset: Callable[..., Any],
) -> None:
    stages = ["fetch", {"decode_image": {"max_pixels": 2_000_000}}, {"resize": {"size": [8, 8]}}]
    pipeline = write_pipeline(make_dataset(), stages=stages)
    daemon = make_daemon(settings={"limits": {"max_pixels": 1_999_999}})
    done = daemon.ctl("apply", "-f", pipeline, check=False)
    assert done.returncode == 2
    assert (
        "pipeline 'images': decode_image.max_pixels is 2000000, and the daemon allows 1999999; "
        "lower it, or have limits.max_pixels raised in the daemon's configuration" in done.stderr
    )
    daemon.configure(pipelines=[], settings={"limits": {"max_pixels": 2_000_000}})
    daemon.restart()
    assert daemon.ctl("apply", "-f", pipeline).returncode == 0


@pytest.mark.parametrize("chain", ["resize", "two resizes"])
def test_rows_that_the_text_makes_too_large_are_refused_at_apply(
    chain: str,
    make_daemon: Callable[..., Any],
    write_pipeline: Callable[..., pathlib.Path],
    make_dataset: Callable[..., Any],
) -> None:
    stages: list[Any] = ["fetch", "decode_image", {"resize": {"size": [60000, 50000]}}]
    if chain == "two resizes":
        stages.append({"resize": {"size": [8, 8]}})
    pipeline = write_pipeline(make_dataset(), stages=stages, batch={"size": 1})
    daemon = make_daemon(settings={"limits": {"row_memory": "64MiB"}})
    before = status_bytes(daemon.pid, "VmHWM")
    done = daemon.ctl("apply", "-f", pipeline, check=False)
    assert done.returncode == 2, done.stderr
    bytes_of_row = 60000 * 50000 * 3 + (8 * 8 * 3 if chain == "two resizes" else 0)
    assert (
        f"pipeline 'images': each row takes {bytes_of_row} bytes of memory, most of them for "
        "'image' (decode_image + resize" in done.stderr
    )
    assert "), and limits.row_memory is 67108864: lower the sizes or lengths" in done.stderr
    assert status_bytes(daemon.pid, "VmHWM") - before < 32 * MIB


def test_rows_that_their_data_make_too_large_are_errors_of_their_items(
    make_daemon: Callable[..., Any],
    write_pipeline: Callable[..., pathlib.Path],
    make_dataset: Callable[..., Any],
) -> None:
    # Of 48x40 pixels and so many of padding; of sounds of a second, 16001 spectra of 32769 floats.
    canvas = write_pipeline(
        make_dataset(),
        name="canvas",
        stages=[
            "fetch",
            "decode_image",
            {"random_crop": {"size": [60000, 60000], "padding": 60000}},
            {"resize": {"size": [8, 8]}},
        ],
    )
    sounds = make_dataset(name="sounds", count=4)
    for file in sounds.files:
        file.with_suffix(".wav").write_bytes(wav(16000))
    spectra = write_pipeline(
        sounds,
        name="spectra",
        source={"files": {"root": str(sounds.root), "pattern": "**/*.wav", "field": "audio"}},
        stages=[
            "fetch",
            {"decode_audio": {"sample_rate": 16000}},
            {"spectrogram": {"n_fft": 65536, "hop_length": 1, "pad_mode": "constant"}},
        ],
        batch={"size": 2, "max_bytes": "8GiB"},
    )
    daemon = make_daemon(
        settings={
            "executor": {**EXECUTOR, "decode_memory": "64MiB"},
            "arena": {"budget": "100GiB"},
        }
    )
    before = status_bytes(daemon.pid, "VmHWM")
    for pipeline, stages in (
        (canvas, "decode_image + random_crop + resize"),
        (spectra, "decode_audio + spectrogram"),
    ):
        done = daemon.ctl("apply", "-f", pipeline, check=False)
        assert done.returncode != 0
        assert f"'{stages}' would take " in done.stderr, done.stderr
        assert "and limits.row_memory is 134217728: lower the sizes" in done.stderr
    assert status_bytes(daemon.pid, "VmHWM") - before < 64 * MIB


def test_resampling_takes_little_more_than_the_sound_before_and_after(
    make_daemon: Callable[..., Any],
    write_pipeline: Callable[..., pathlib.Path],
    make_dataset: Callable[..., Any],
) -> None:
    sounds = make_dataset(name="sounds", count=1)
    samples = 8 * MIB
    sounds.files[0].with_suffix(".wav").write_bytes(wav(samples))
    pipeline = write_pipeline(
        sounds,
        source={"files": {"root": str(sounds.root), "pattern": "**/*.wav", "field": "audio"}},
        stages=[
            "fetch",
            "decode_audio",
            {"resample": {"sample_rate": 96000}},
            {"pad_or_trim": {"samples": 1000}},
        ],
        batch={"size": 1},
    )
    daemon = make_daemon(settings={"executor": EXECUTOR, "limits": {"row_memory": "1GiB"}})
    before = status_bytes(daemon.pid, "VmHWM")
    daemon.ctl("apply", "-f", pipeline)
    # As a file, as floats before, and six times as many after.
    expected = (2 + 4 + 6 * 4) * samples
    grown = status_bytes(daemon.pid, "VmHWM") - before
    assert grown < expected + 128 * MIB, f"{grown / MIB:.0f} MiB"


@pytest.fixture
def large_files(
    make_dataset: Callable[..., Any], request: pytest.FixtureRequest
) -> Callable[..., Any]:
    """large_files(bytes): small images in files that long; what follows an image means nothing."""

    def make(length: int) -> Any:
        data = make_dataset(count=12, name=request.node.name)
        for file in data.files:
            os.truncate(file, length)
        return data

    return make


def test_files_wait_until_their_user_has_room_for_what_they_hold(
    make_daemon: Callable[..., Any],
    write_pipeline: Callable[..., pathlib.Path],
    large_files: Callable[..., Any],
) -> None:
    pipeline = write_pipeline(large_files(40 * MIB))
    room = 100 * MIB
    daemon = make_daemon(
        pipelines=[pipeline], settings={"executor": EXECUTOR, "limits": {"files": room}}
    )
    before = status_bytes(daemon.pid, "VmRSS")
    lines = daemon.ctl("consume", "images", "--digest").stdout
    assert len(lines.splitlines()) == 3
    grown = status_bytes(daemon.pid, "VmHWM") - before
    assert grown < room + 64 * MIB, f"{grown / MIB:.0f} MiB"

    def given_back() -> bool:  # what was read ahead, too
        (user,) = daemon.ctl_json("get", "users")
        assert user["file_bytes"]["limit"] == room
        return user["file_bytes"]["used"] == 0

    wait_until(given_back, "room that is given back")

    # A file that alone is larger than all of it is read when no other is.
    narrow = make_daemon(
        pipelines=[pipeline], settings={"executor": EXECUTOR, "limits": {"files": "1MiB"}}
    )
    assert narrow.ctl("consume", "images", "--digest").stdout == lines


def test_looking_at_items_for_a_cache_leaves_their_room_to_the_job(
    make_daemon: Callable[..., Any],
    write_pipeline: Callable[..., pathlib.Path],
    large_files: Callable[..., Any],
) -> None:
    pipeline = write_pipeline(
        large_files(40 * MIB), cache={"form": "decoded", "where": "ram", "size": "100MiB"}
    )
    daemon = make_daemon(
        pipelines=[pipeline],
        settings={
            "executor": EXECUTOR,
            "limits": {"files": 100 * MIB},
            "cache": {"ram": "1GiB"},
        },
    )
    assert len(daemon.ctl("consume", "images", "--digest").stdout.splitlines()) == 3
    assert len(daemon.ctl("consume", "images", "--digest").stdout.splitlines()) == 3


def test_files_of_a_batch_leave_the_room_and_are_bound_by_the_slot(
    make_daemon: Callable[..., Any],
    write_pipeline: Callable[..., pathlib.Path],
    large_files: Callable[..., Any],
) -> None:
    data = large_files(48 * MIB)
    fits = write_pipeline(
        data, name="fits", stages=["fetch"], batch={"size": 4, "max_bytes": "193MiB"}
    )
    beyond = write_pipeline(
        data,
        name="beyond",
        stages=["fetch"],
        batch={"size": 12, "max_bytes": "60MiB"},
        delivery={"prefetch": 2},
    )
    settings = {
        "executor": EXECUTOR,
        "limits": {"files": 64 * MIB},
        "arena": {"budget": "3GiB"},
    }
    daemon = make_daemon(pipelines=[fits], settings=settings)
    assert len(daemon.ctl("consume", "fits", "--digest").stdout.splitlines()) == 3

    daemon = make_daemon(pipelines=[beyond], settings=settings)
    before = status_bytes(daemon.pid, "VmRSS")
    done = daemon.ctl("consume", "beyond", check=False)
    assert done.returncode == 1
    told = f"the rows of 'image' take {12 * 48 * MIB} bytes, and batch.max_bytes is {60 * MIB}: raise it"
    assert told in done.stderr
    grown = status_bytes(daemon.pid, "VmHWM") - before
    assert grown < 400 * MIB, f"{grown / MIB:.0f} MiB, of {12 * 48} MiB of each batch"
