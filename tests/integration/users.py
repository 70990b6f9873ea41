# SPDX-License-Identifier: Apache-2.0
"""A daemon that several users ask, each with its own rights. Needs root."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from typing import Any

import daemon as daemon_module

ANN, BOB, MEMBERS, OTHERS = 31001, 31002, 32001, 32002


class Place:
    """A directory that everybody may enter, a daemon in it, of root's if it is not `uid`'s, and
    users who ask it."""

    def __init__(self, settings: dict[str, Any] | None = None, uid: int | None = None) -> None:
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="spdld-access-", dir="/tmp"))
        self.directory.chmod(0o755)
        self.daemon = daemon_module.Daemon(settings=settings, uid=uid)
        self.daemon.directory.chmod(0o755)
        self.daemon.runtime_dir.chmod(0o755)
        # The build may lie where only its owner may go.
        self.program = self.directory / "spdlctl"
        shutil.copy(daemon_module.build_dir() / "bin/spdlctl", self.program)
        self.daemon.start()

    def close(self) -> None:
        self.daemon.close()
        shutil.rmtree(self.directory)

    def dataset(self, name: str, *, owner: int, mode: int = 0o755, group: int | None = None) -> Any:
        """Files `d/0` to `d/7` below a directory of that mode, all of them readable by everybody."""
        root = self.directory / name
        (root / "d").mkdir(parents=True)
        for index in range(8):
            (root / "d" / str(index)).write_text(f"{name} {index}")
        for path in [root, root / "d", *(root / "d").iterdir()]:
            os.chown(path, owner, owner if group is None else group)
            path.chmod(0o644 if path.is_file() else 0o755)
        root.chmod(mode)
        return root

    def pipeline(self, name: str, root: pathlib.Path | str, **sections: Any) -> pathlib.Path:
        spec: dict[str, Any] = {
            "pipeline": name,
            "source": {"files": {"root": str(root), "pattern": "**"}},
            "stages": ["fetch"],
            "batch": {"size": 1, "max_bytes": "64KiB"},
        }
        spec.update(sections)
        path = self.directory / f"{name}.yaml"
        path.write_text(json.dumps(spec))  # JSON is YAML
        path.chmod(0o644)
        return path

    def ctl(
        self, user: int, *arguments: str | pathlib.Path, groups: list[int] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.program, "--address", self.daemon.address, *arguments],
            user=user,
            group=user,
            extra_groups=groups or [],
            capture_output=True,
            text=True,
            timeout=daemon_module.WATCHDOG_S,
            cwd="/",
        )

    def apply(self, user: int, path: pathlib.Path, groups: list[int] | None = None) -> str:
        """What it says against it; empty if nothing. Warnings are not against it."""
        done = self.ctl(user, "apply", "-f", path, groups=groups)
        told = done.stderr.splitlines(keepends=True)
        against = "".join(line for line in told if not line.startswith("spdlctl: warning: "))
        assert (done.returncode == 0) == (against == ""), done
        return against

    def consume(self, user: int, name: str, *more: str, groups: list[int] | None = None) -> str:
        done = self.ctl(user, "consume", name, "--epochs", "1", *more, groups=groups)
        assert done.returncode in (0, 1), done
        return "" if done.returncode == 0 else done.stderr


# Imported by root: the checkout may lie where only its owner may go.
LOADER = """
import os, sys, spdld
address, pipeline, user, job = sys.argv[1:]
os.setgroups([])
os.setgid(int(user))
os.setuid(int(user))
with spdld.Loader(pipeline, address=address, job=job or None) as loader:
    print(loader.pipeline, len(list(loader)))
"""


def load(place: Place, user: int, pipeline: pathlib.Path | str, job: str = "") -> str:
    """The pipeline's name and its batches, or the error."""
    done = subprocess.run(
        [sys.executable, "-c", LOADER, place.daemon.address, str(pipeline), str(user), job],
        capture_output=True,
        text=True,
        cwd="/",
        timeout=daemon_module.WATCHDOG_S,
    )
    return done.stdout.strip() or done.stderr
