# SPDX-License-Identifier: Apache-2.0
"""Debian's newest packages and their sources, by apt, from where this machine has its own."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
from collections.abc import Iterable


def output_of(*command: str | os.PathLike[str], **options: object) -> str:
    done = subprocess.run(command, capture_output=True, text=True, **options)
    if done.returncode != 0:
        raise SystemExit(f"'{' '.join(map(str, command))}' failed:\n{done.stderr}{done.stdout}")
    return done.stdout


@dataclasses.dataclass(frozen=True)
class Package:
    name: str
    source: str
    version: str  # of the source


class Debian:
    """Lists of packages and sources of their own, below `directory`, and what was got by them."""

    def __init__(self, directory: pathlib.Path) -> None:
        self._got = directory / "got"
        state = directory / "apt"
        shutil.rmtree(state, ignore_errors=True)
        for path in (self._got, state / "lists/partial", state / "cache", state / "parts"):
            path.mkdir(parents=True, exist_ok=True)
        line = "$(ORIGIN) $(REPO_URI) $(RELEASE) $(COMPONENT)"
        targets = output_of("apt-get", "indextargets", "--format", line, "Created-By: Packages")
        places = {target[len("Debian ") :] for target in re.findall("(?m)^Debian .*", targets)}
        if not places:
            raise SystemExit("apt has no sources of Debian's packages here")
        (state / "sources.list").write_text(
            "".join(f"{kind} {place}\n" for place in sorted(places) for kind in ("deb", "deb-src"))
        )
        settings = {
            "Dir::Etc::SourceList": state / "sources.list",
            "Dir::Etc::SourceParts": state / "parts",
            "Dir::State::Lists": state / "lists",
            "Dir::Cache": state / "cache",
            "APT::Sandbox::User": "root",  # who writes into these directories
        }
        self._apt = ["apt-get", "-qq", *(f"-o{name}={value}" for name, value in settings.items())]
        output_of(*self._apt, "update")

    def extract(self, names: Iterable[str], to: pathlib.Path) -> list[Package]:
        """The newest of these binary packages, their files below `to`."""
        found = []
        for deb in self._fetch("download", *sorted(names)):
            output_of("dpkg-deb", "--extract", deb, to)
            fields = output_of("dpkg-deb", "--field", deb, "Package", "Source", "Version")
            values = dict(line.split(": ", 1) for line in fields.splitlines())
            # "NAME (VERSION)" where they are not the binary package's.
            source, _, version = values.get("Source", values["Package"]).partition(" (")
            version = version.rstrip(")") or values["Version"]
            found.append(Package(values["Package"], source, version))
        return found

    def source_files(self, sources: Iterable[str]) -> dict[str, str]:
        """SHA256 by name of the files that these source packages, NAME=VERSION, are made of."""
        told = output_of(*self._apt, "source", "--print-uris", *sources)
        return dict(re.findall(r"'\S+' (\S+) \d+ SHA256:(\w+)", told))

    def unpack_source(self, source: str, version: str, dsc_sha256: str, to: pathlib.Path) -> None:
        """With Debian's patches. What the .dsc names is checked by the hashes in it."""
        files = self._fetch("source", "--download-only", f"{source}={version}")
        (dsc,) = (file for file in files if file.suffix == ".dsc")
        if hashlib.sha256(dsc.read_bytes()).hexdigest() != dsc_sha256:
            raise SystemExit(f"{dsc.name} is not the one with the SHA256 {dsc_sha256}")
        shutil.rmtree(to, ignore_errors=True)
        output_of("dpkg-source", "--extract", dsc, to)

    def _fetch(self, *arguments: str) -> list[pathlib.Path]:
        names = re.findall(r"'\S+' (\S+) \d+", output_of(*self._apt, *arguments, "--print-uris"))
        files = [self._got / name for name in names]
        if not all(file.exists() for file in files):
            output_of(*self._apt, *arguments, cwd=self._got)
        return files
