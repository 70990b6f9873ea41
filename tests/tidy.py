# SPDX-License-Identifier: Apache-2.0
"""clang-tidy for one source, unless it has passed before: what it would read is the same.

    tests/tidy.py BUILD_DIR SOURCE [OPTION ...]

The key is the source as the preprocessor leaves it, with comments (NOLINT is one) and without this
checkout's path, the options and .clang-tidy. What has passed is kept as empty files below
CCACHE_DIR, or ~/.cache/ccache, for 30 days.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pathlib
import shlex
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TIDY = "clang-tidy-14"
KEPT_S = 30 * 24 * 3600


def preprocessed(build_dir: pathlib.Path, source: str) -> bytes | None:
    """None: it is not among the sources that are compiled, as headers are not."""
    commands = json.loads((build_dir / "compile_commands.json").read_text())
    path = os.path.abspath(source)
    for entry in commands:
        if os.path.join(entry["directory"], entry["file"]) != path:
            continue
        words = entry.get("arguments") or shlex.split(entry["command"])
        words = [word for word in words if word != "-c"]
        if "-o" in words:
            del words[words.index("-o") : words.index("-o") + 2]
        done = subprocess.run(
            [*words, "-E", "-C", "-dD"], cwd=entry["directory"], stdout=subprocess.PIPE, check=True
        )
        return done.stdout
    return None


def key(text: bytes, options: list[str]) -> str:
    version = subprocess.run([TIDY, "--version"], stdout=subprocess.PIPE, check=True).stdout
    config = (ROOT / ".clang-tidy").read_bytes()
    digest = hashlib.sha256()
    for part in (version, config, "\0".join(options).encode(), text):
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()


def passed_before() -> pathlib.Path:
    at = os.environ.get("CCACHE_DIR") or pathlib.Path.home() / ".cache" / "ccache"
    kept = pathlib.Path(at) / "tidy"
    kept.mkdir(parents=True, exist_ok=True)
    for old in kept.iterdir():
        with contextlib.suppress(FileNotFoundError):  # others tidy up, too
            if time.time() - old.stat().st_mtime > KEPT_S:
                old.unlink()
    return kept


def main(build_dir: str, source: str, *options: str) -> int:
    command = [TIDY, "-p", build_dir, *options, source]
    text = preprocessed(pathlib.Path(build_dir), source)
    if text is None:
        return subprocess.run(command).returncode
    passed = passed_before() / key(text.replace(str(ROOT).encode(), b""), list(options))
    if not passed.exists() and (status := subprocess.run(command).returncode) != 0:
        return status
    passed.touch()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
