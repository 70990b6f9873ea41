# SPDX-License-Identifier: Apache-2.0
"""``python -m spdld.runner`` by itself; what it does for a daemon is in tests/unit/delivery/runners."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "spdld.runner", *arguments], capture_output=True, text=True
    )


def test_alone_it_tells_its_usage() -> None:
    done = _run()
    assert done.returncode == 2
    assert "usage: python -m spdld.runner" in done.stderr
    assert "--address" in done.stderr and "--pool" in done.stderr


def test_without_a_daemon_it_ends_and_says_where_it_looked(tmp_path: Path) -> None:
    done = _run("--address", str(tmp_path), "--pool", "0" * 32)
    assert done.returncode == 1
    assert str(tmp_path) in done.stderr


def test_it_needs_no_compiled_part() -> None:
    code = (
        "import sys; sys.modules['spdld._core'] = None; "
        "import spdld, spdld.runner, spdld._runner_child; spdld.BadSample"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
