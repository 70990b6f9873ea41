# SPDX-License-Identifier: Apache-2.0
"""Libraries built from Debian's sources, less than Debian builds of them.

They take the place of Debian's, which are of the same version.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import pathlib
import subprocess
import sys

import debian_packages


@dataclasses.dataclass(frozen=True)
class Source:
    name: str
    version: str
    dsc_sha256: str
    options: list[str]  # of its configure
    install: str  # the target that installs its libraries

    def build(self, debian: debian_packages.Debian, directory: pathlib.Path) -> pathlib.Path:
        """The directory with its libraries, made in `directory`, where it is kept."""
        made, source, log = directory / "made", directory / "source", directory / "log"
        stamp = made / "made-from"
        recipe = "\n".join([self.version, self.dsc_sha256, *self.options])
        digest = hashlib.sha256(recipe.encode()).hexdigest()
        if stamp.exists() and stamp.read_text() == digest:
            return made / "lib"
        print(f"building {self.name}", file=sys.stderr)
        directory.mkdir(parents=True, exist_ok=True)
        debian.unpack_source(self.name, self.version, self.dsc_sha256, source)
        jobs = len(os.sched_getaffinity(0))
        commands = (
            ["./configure", f"--prefix={made}", *self.options],
            ["make", f"-j{jobs}"],
            ["make", self.install],
        )
        with log.open("w") as out:
            for command in commands:
                if subprocess.run(command, cwd=source, stdout=out, stderr=out).returncode != 0:
                    raise SystemExit(f"{self.name} was not built: {log}")
        stamp.write_text(digest)
        return made / "lib"
