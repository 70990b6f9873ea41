# SPDX-License-Identifier: Apache-2.0
"""What a program says of itself."""

from __future__ import annotations

import pathlib
import subprocess

import daemon as daemon_module
import spdld


def ask(*options: str) -> subprocess.CompletedProcess[str]:
    program = daemon_module.build_dir() / "bin/spdld"
    return subprocess.run([program, *options], capture_output=True, text=True, timeout=60)


def test_the_daemon_has_the_packages_version() -> None:
    assert ask("--version").stdout == f"spdld {spdld.__version__}\n"


def test_a_verbose_version_names_libraries_codecs_and_loaded_files() -> None:
    done = ask("--version", "--verbose")
    about, loaded = done.stdout.split("loaded:\n")
    lines = about.splitlines()
    assert lines[0] == f"spdld {spdld.__version__}"
    assert any(line.startswith("FFmpeg ") and "libavcodec" in line for line in lines)
    assert any(line.startswith("decodes video: h264 ") for line in lines)
    files = [pathlib.Path(line.strip()) for line in loaded.splitlines()]
    assert all(file.exists() for file in files)
    assert any(file.name.startswith("libavcodec") for file in files)


def test_verbose_is_nothing_without_version() -> None:
    done = ask("--verbose")
    assert done.returncode == 2 and "--version" in done.stderr
