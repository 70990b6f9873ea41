# SPDX-License-Identifier: Apache-2.0
"""'spdlctl probe' tells what media files hold, and opens nothing but them."""

from __future__ import annotations

import json
import os
import pathlib
import shlex
import shutil
import subprocess
from typing import Any

import daemon as daemon_module
import pytest

BIN = daemon_module.build_dir() / "bin"
VIDEO = "-f lavfi -i testsrc2=size=96x64:rate=25,trim=end_frame=50 "
SOUND = "-f lavfi -i sine=frequency=300:sample_rate=16000:duration=2 "


def make(path: pathlib.Path, arguments: str) -> pathlib.Path:
    subprocess.run(
        ["ffmpeg", "-nostdin", "-v", "error", "-y", *shlex.split(arguments), path],
        check=True,
        timeout=daemon_module.WATCHDOG_S,
    )
    return path


def probe(
    *arguments: str | os.PathLike[str], environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """No daemon is there to be asked."""
    return subprocess.run(
        [BIN / "spdlctl", "--address", "/nowhere", "probe", *arguments],
        capture_output=True,
        text=True,
        timeout=daemon_module.WATCHDOG_S,
        env=environment,
    )


def facts_of(path: pathlib.Path) -> Any:
    done = probe(path, "-o", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_probe_tells_streams_frames_and_decoders(tmp_path: pathlib.Path) -> None:
    path = make(tmp_path / "a.mp4", VIDEO + SOUND + "-c:v libx264 -g 10 -c:a aac")
    facts = facts_of(path)
    assert facts["file"] == str(path)
    assert facts["format"] == "mov,mp4,m4a,3gp,3g2,mj2"
    assert facts["bytes"] == path.stat().st_size
    assert facts["faults"] == []
    video, sound = facts["streams"]
    assert (video["codec"], video["decoder"], video["read"]) == ("h264", "h264", "packets")
    assert (video["width"], video["height"]) == (96, 64)
    assert (video["frames"], video["key_frames"]) == (50, 5)
    assert video["mean_frames_per_second"] == pytest.approx(25)
    assert (sound["codec"], sound["sample_rate"], sound["channels"]) == ("aac", 16000, 1)


def test_probe_shows_a_table_and_faults(tmp_path: pathlib.Path) -> None:
    path = make(tmp_path / "a.wav", SOUND)
    path.write_bytes(path.read_bytes()[:-1000])
    done = probe(path)
    assert done.returncode == 0, done.stderr
    assert "pcm_s16le" in done.stdout
    assert "31500 samples" in done.stdout
    assert "fault: the file ends before its header says" in done.stdout


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("a.mp4", b"", "the media file is empty"),
        (
            "b.mp4",
            b"#EXTM3U\n#EXTINF:5,\nother.ts\n",
            "is an HLS or M3U playlist, which names other files",
        ),
        ("c.mp4", b"just text, and a lot of it " * 99, "is no video or audio that is read"),
    ],
)
def test_probe_names_the_file_and_what_is_wrong(
    tmp_path: pathlib.Path, name: str, content: bytes, message: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    done = probe(path)
    assert done.returncode == 1
    assert str(path) in done.stderr
    assert message in done.stderr


def test_probe_refuses_what_is_no_file(tmp_path: pathlib.Path) -> None:
    assert "no regular file" in probe(tmp_path).stderr
    assert "No such file" in probe(tmp_path / "missing.mp4").stderr
    os.mkfifo(tmp_path / "pipe.mp4")
    assert "no regular file" in probe(tmp_path / "pipe.mp4").stderr


def test_probe_says_that_spdld_is_missing(tmp_path: pathlib.Path) -> None:
    path = make(tmp_path / "a.wav", SOUND)
    done = probe(path, environment={**os.environ, "SPDLD_BIN": "/none/spdld"})
    assert done.returncode == 1
    assert "cannot run /none/spdld" in done.stderr
    assert "$SPDLD_BIN" in done.stderr


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_probe_opens_no_file_that_media_name(tmp_path: pathlib.Path) -> None:
    other = make(tmp_path / "other.mp4", VIDEO + "-c:v libx264")
    outside = bytearray(make(tmp_path / "outside.mov", VIDEO + "-c:v libx264").read_bytes())
    reference = outside.index(b"dref") + 12
    outside[reference + 8 : reference + 12] = bytes(4)  # not self-contained
    (tmp_path / "outside.mov").write_bytes(outside)
    texts = {
        "hls.mp4": f"#EXTM3U\n#EXT-X-TARGETDURATION:5\n#EXTINF:5,\n{other}\n#EXT-X-ENDLIST\n",
        "concat.mp4": f"ffconcat version 1.0\nfile {other}\n",
        "edl.mp4": f"# mpv EDL v0\n{other},0,1\n",
        "dash.mp4": f"<?xml version='1.0'?><MPD><BaseURL>{other}</BaseURL></MPD>",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    for name in ["outside.mov", *texts]:
        trace = tmp_path / "trace"
        subprocess.run(
            ["strace", "-f", "-e", "trace=%file,%network", "-s", "4096", "-o", trace]
            + [BIN / "spdld", f"--probe={tmp_path / name}"],
            capture_output=True,
            timeout=daemon_module.WATCHDOG_S,
        )
        calls = trace.read_text()
        assert name in calls
        assert "other.mp4" not in calls
        assert "socket(" not in calls


def test_probe_of_no_name_is_wrong_usage() -> None:
    done = probe("")
    assert done.returncode == 2
    assert "FILE" in done.stderr
    assert "--probe" not in done.stderr
