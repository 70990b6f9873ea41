#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether this checkout can be released, for `./dev release --check`.

release.py                 its tree is clean, and one version stands everywhere
release.py PACKAGES WHEELS that version is the built programs' and packages', and the wheels read

Prints what is wrong, a line each, and exits 1 if anything is.
"""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
import tempfile

import roots

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROJECT = "CMakeLists.txt"
VERSION = r"(\d+\.\d+\.\d+)"
# Where the version stands; all else is made from project(VERSION).
PLACES = {
    PROJECT: rf"^project\(spdld VERSION {VERSION} ",
    "CHANGELOG.md": rf"^## \[{VERSION}\] - (?:\d{{4}}-\d\d-\d\d|Unreleased)$",
    "client/python/spdld/_version.py": rf'^__version__ = "{VERSION}"$',
    "debian/changelog": rf"^spdld \({VERSION}-\d+\) ",
    "docs/operate.md": rf"^spdld {VERSION} at /run/spdld, pid ",
    "pyproject.toml": rf'^daemon = \["spdld-daemon=={VERSION}"\]$',
}
# An epoch by the daemon of the wheel, which the loader starts.
READ = """
import sys, spdld
with spdld.Loader(sys.argv[1], launch=True) as loader:
    print(spdld.__version__, sum(batch.rows for batch in loader))
"""
IMAGES = 16


def version_at(root: pathlib.Path, place: str) -> str | None:
    """The first one, which in a changelog is the newest."""
    found = re.search(PLACES[place], (root / place).read_text(), re.MULTILINE)
    return found[1] if found else None


def disagreements(root: pathlib.Path) -> list[str]:
    wanted = version_at(root, PROJECT)
    return [
        f"{place}: it has the version {found or 'nowhere'}, and {PROJECT} {wanted}"
        for place in PLACES
        if (found := version_at(root, place)) != wanted or found is None
    ]


def uncommitted(root: pathlib.Path) -> list[str]:
    """Files that a release would have, and no commit has so."""
    status = subprocess.run(
        ["git", "status", "--porcelain"], cwd=root, check=True, capture_output=True, text=True
    )
    return [f"{line[3:]}: it is not committed" for line in status.stdout.splitlines()]


def misnamed(version: str, packages: pathlib.Path, wheels: pathlib.Path) -> list[str]:
    """Programs, packages and wheels of another version, or missing ones."""
    wrong = []
    for program in ("spdld", "spdlctl"):
        said = subprocess.check_output(
            [ROOT / "build/release/bin" / program, "--version"], text=True
        )
        if said != f"{program} {version}\n":
            wrong.append(f"build/release/bin/{program}: it says {said.strip()!r}")
    made = [(wheels, name) for name in ("spdld-*.whl", "spdld-*.tar.gz", "spdld_daemon-*.whl")]
    for folder, name in [(packages, "*.deb"), *made]:
        files = sorted(folder.glob(name))
        wrong += [f"{path}: it is not of {version}" for path in files if version not in path.name]
        if not files:
            wrong.append(f"{folder}: there is no {name}")
    return wrong


def read_by(wheels: pathlib.Path) -> list[str]:
    """What is wrong with the wheels for this Python: in an environment of their own, they read."""
    version = version_at(ROOT, PROJECT)
    with tempfile.TemporaryDirectory(prefix="spdld-") as made:
        home = pathlib.Path(made)
        subprocess.run(
            ["/usr/bin/python3", "-m", "venv", "--system-site-packages", home / "venv"], check=True
        )
        python = home / "venv/bin/python"
        subprocess.run(
            [
                python,
                "-m",
                "pip",
                "install",
                "--quiet",
                "--ignore-installed",
                "--no-deps",
                "--no-index",
            ]
            + ["--find-links", wheels, f"spdld=={version}", f"spdld-daemon=={version}"],
            check=True,
        )
        subprocess.run([python, "-c", roots.MAKE_IMAGES, home / "images", str(IMAGES)], check=True)
        (home / "images.yaml").write_text(
            f"pipeline: images\nsource: {{files: {{root: {home}/images, pattern: '*.png'}}}}\n"
            "stages: [fetch, decode_image]\nbatch: {size: 4}\n"
        )
        hidden = ("PYTHONPATH", "SPDLD_BIN")
        environment = {
            **{name: value for name, value in os.environ.items() if name not in hidden},
            "SPDLD_ADDRESS": str(home / "run"),
        }
        done = subprocess.run(
            [python, "-c", READ, home / "images.yaml"],
            env=environment, cwd=home, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
    if done.stdout == f"{version} {IMAGES}\n":
        return []
    return [
        f"{wheels}: installed, spdld read {done.stdout!r} in place of {IMAGES} rows\n{done.stderr}"
    ]


def main(arguments: list[str]) -> int:
    if arguments:
        packages, wheels = map(pathlib.Path, arguments)
        wrong = misnamed(version_at(ROOT, PROJECT) or "", packages, wheels)
        wrong = wrong or read_by(wheels)
    else:
        wrong = uncommitted(ROOT) + disagreements(ROOT)
    print("\n".join(wrong), end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
