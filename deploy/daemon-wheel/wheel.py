# SPDX-License-Identifier: Apache-2.0
"""wheel.py BUILD TO: the wheel spdld-daemon of what was built in BUILD, in the directory TO.

Its libraries are the newest of Debian's, but for those that are built here: FFmpeg (`ffmpeg.py`) and
libmicrohttpd (`microhttpd.py`). What is got and built for it is kept in build/daemon-wheel.
"""

from __future__ import annotations

import base64
import hashlib
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import zipfile

import debian_packages
import ffmpeg
import microhttpd
import older_symbols
from debian_packages import Package, output_of

HERE = pathlib.Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
KEPT = REPOSITORY / "build/daemon-wheel"
PROGRAMS = ("spdld", "spdlctl")
PLATFORM = "manylinux_2_34_x86_64"
MOST_BYTES = 25 << 20
BUILT_HERE = (ffmpeg.source(), microhttpd.source())
# What every Linux with this tag has.
OF_THE_SYSTEM = {"libc6", "libgcc-s1", "libstdc++6", "zlib1g"}
METADATA = """\
Metadata-Version: 2.1
Name: spdld-daemon
Version: {version}
Summary: spdld, the per-node data loading daemon, and spdlctl, with the libraries that they need
License: Apache-2.0; of the libraries inside, see the files in licenses/
Requires-Python: >=3.10

spdld feeds every training process of a machine. The package `spdld` is its Python client;
`pip install 'spdld[daemon]'` brings both.
"""
WHEEL = """\
Wheel-Version: 1.0
Generator: spdld
Root-Is-Purelib: false
Tag: py3-none-linux_x86_64
"""
ENTRY_POINTS = "[console_scripts]\n" + "".join(
    f"{program} = spdld_daemon:{program}\n" for program in PROGRAMS
)
SOURCES = """\
The licences of the libraries in this wheel are in the directories beside this file. This is where
their sources are, also those that the GNU Lesser General Public License grants you.

Each is a library of Debian 12, as Debian has built it but for what is said below. On any Debian, with
the sources ("deb-src") of the release bookworm and of its security updates,

    apt-get source NAME=VERSION

gets a source; Debian's snapshot archive keeps each version. To use a changed library, put it in the
place of the one in spdld_daemon.libs, under the same name.

libavcodec, libavformat, libavutil and libswresample are built from the source of ffmpeg below, under
the LGPL 2.1 or later, with

    ./configure {ffmpeg_options}

libmicrohttpd is built from its source below, under the LGPL 2.1 or later, with

    ./configure {microhttpd_options}

Where one of these symbols is used, an older version of it is, for older systems: {symbols}.
All libraries are renamed, and look for each other in their own directory.

"""


def libraries_of(
    programs: list[pathlib.Path], beside: list[pathlib.Path]
) -> dict[str, pathlib.Path]:
    """Where the loader finds all that these programs need, by name, looking there first."""
    environment = {**os.environ, "LD_LIBRARY_PATH": ":".join(map(str, beside))}
    told = output_of("ldd", *programs, env=environment)
    missing = re.findall(r"(\S+) => not found", told)
    if missing:
        raise SystemExit(f"there is no {', '.join(sorted(set(missing)))} here")
    return {name: pathlib.Path(path) for name, path in re.findall(r"(\S+) => (/\S+)", told)}


def packages_of(libraries: dict[str, pathlib.Path]) -> dict[str, str]:
    """Which Debian package has installed each, by name."""
    # It may have been into /lib or into /usr/lib, which are one.
    plain = {name: str(path).removeprefix("/usr") for name, path in libraries.items()}
    paths = [prefix + path for path in plain.values() for prefix in ("", "/usr")]
    told = subprocess.run(["dpkg", "-S", *paths], capture_output=True, text=True).stdout
    package_by_path = {
        path.removeprefix("/usr"): package
        for package, path in re.findall(r"(?m)^([^:,\s]+)[^/]*: (/.*)", told)
    }
    strange = [path for path in plain.values() if path not in package_by_path]
    if strange:
        raise SystemExit(f"of no Debian package, so that their licence is not known: {strange}")
    return {name: package_by_path[path] for name, path in plain.items()}


def write_licence(copyright_file: pathlib.Path, to: pathlib.Path) -> None:
    """With the licences that it names in place of having their text."""
    to.mkdir(parents=True, exist_ok=True)
    shutil.copy(copyright_file, to / "copyright")
    text = copyright_file.read_text(errors="replace")
    for name in re.findall(r"/usr/share/common-licenses/([\w.+-]*\w)", text):
        common = pathlib.Path("/usr/share/common-licenses", name)
        if common.exists():
            shutil.copy(common, to.parent / name)


def pack(tree: pathlib.Path, wheel: pathlib.Path) -> None:
    (information,) = tree.glob("*.dist-info")
    record = information / "RECORD"
    files = sorted(path for path in tree.rglob("*") if path.is_file())
    lines = [f"{record.relative_to(tree)},,\n"]
    for path in files:
        digest = hashlib.sha256(path.read_bytes())
        text = base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode()
        lines.append(f"{path.relative_to(tree)},sha256={text},{path.stat().st_size}\n")
    record.write_text("".join(lines))
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as out:
        for path in [*files, record]:
            out.write(path, path.relative_to(tree))


def check(wheel: pathlib.Path, licensed: dict[str, str]) -> None:
    """That all libraries in it have their licence there, by name and package."""
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
    inside = set()
    for name in names:
        if name.startswith("spdld_daemon.libs/") and not name.endswith("/"):
            plain = re.sub(r"-[0-9a-f]{8}(?=\.so)", "", pathlib.PurePath(name).name)
            package = licensed.get(plain)
            if package is None or not any(
                f"/licenses/{package}/copyright" in other for other in names
            ):
                raise SystemExit(f"{wheel.name}: {plain} is inside without its licence")
            inside.add(package)
    for package in set(licensed.values()) - inside:
        raise SystemExit(f"{wheel.name}: nothing of {package} is inside: add it to OF_THE_SYSTEM")
    if wheel.stat().st_size > MOST_BYTES:
        raise SystemExit(f"{wheel.name} has {wheel.stat().st_size} bytes, more than {MOST_BYTES}")


class Libraries:
    """What the programs need beyond the system's: some as built here, the rest as Debian has it now."""

    def __init__(self, programs: list[pathlib.Path], debian: debian_packages.Debian) -> None:
        made = {source.build(debian, KEPT / source.name): source.name for source in BUILT_HERE}
        root = KEPT / "root"
        shutil.rmtree(root, ignore_errors=True)
        needed = libraries_of(programs, [*made]).items()
        package_by_name = packages_of(
            {name: path for name, path in needed if path.parent not in made}
        )
        self.packages = debian.extract(set(package_by_name.values()) - OF_THE_SYSTEM, root)
        multiarch = output_of("dpkg-architecture", "-qDEB_HOST_MULTIARCH").strip()
        self.directories = [*made, root / "usr/lib" / multiarch, root / "lib" / multiarch]
        self.package_by_file = {}
        self.copyright_by_package = {
            name: KEPT / name / "source/debian/copyright" for name in made.values()
        } | {
            package.name: root / "usr/share/doc" / package.name / "copyright"
            for package in self.packages
        }
        for name, path in libraries_of(programs, self.directories).items():
            if path.parent in self.directories:
                package = made.get(path.parent) or package_by_name[name]
                self.package_by_file[path.resolve().name] = package
                older_symbols.bind_older(path)


def write_programs(build: str, to: pathlib.Path) -> list[pathlib.Path]:
    prefix = KEPT / "prefix"
    output_of("cmake", "--install", build, "--component", "server", "--prefix", prefix)
    to.mkdir()
    programs = []
    for name in PROGRAMS:
        programs.append(pathlib.Path(shutil.copy(prefix / "bin" / name, to)))
        older_symbols.bind_older(programs[-1])
    return programs


def write_sources(
    packages: list[Package], debian: debian_packages.Debian, to: pathlib.Path
) -> None:
    text = SOURCES.format(
        ffmpeg_options=" ".join(ffmpeg.options()),
        microhttpd_options=" ".join(map(shlex.quote, microhttpd.OPTIONS)),
        symbols=", ".join(symbol for symbol, _ in older_symbols.OLDER.values()),
    )
    sources = {f"{package.source}={package.version}" for package in packages}
    sources |= {f"{source.name}={source.version}" for source in BUILT_HERE}
    files = debian.source_files(sorted(sources)).items()
    for source in sorted(sources):
        text += f"{source}\n"
        own = [entry for entry in files if entry[0].startswith(f"{source.split('=')[0]}_")]
        if not own:
            raise SystemExit(f"apt knows no files of the source {source}")
        text += "".join(f"    {digest}  {name}\n" for name, digest in own)
    to.write_text(text)


def main(build: str, to: str) -> None:
    version = re.findall(
        r"(?m)^project\(spdld VERSION (\S+)", (REPOSITORY / "CMakeLists.txt").read_text()
    )[0]
    debian = debian_packages.Debian(KEPT / "debian")
    tree = KEPT / "tree"
    shutil.rmtree(tree, ignore_errors=True)
    package = tree / "spdld_daemon"
    package.mkdir(parents=True)
    shutil.copy(HERE / "spdld_daemon/__init__.py", package)
    programs = write_programs(build, package / "bin")
    libraries = Libraries(programs, debian)

    information = tree / f"spdld_daemon-{version}.dist-info"
    licences = information / "licenses"
    licences.mkdir(parents=True)
    (information / "METADATA").write_text(METADATA.format(version=version))
    (information / "WHEEL").write_text(WHEEL)
    (information / "entry_points.txt").write_text(ENTRY_POINTS)
    shutil.copy(REPOSITORY / "LICENSE", licences)
    for name, copyright_file in libraries.copyright_by_package.items():
        write_licence(copyright_file, licences / name)
    write_sources(libraries.packages, debian, licences / "SOURCES")

    plain = KEPT / f"spdld_daemon-{version}-py3-none-linux_x86_64.whl"
    pack(tree, plain)
    repaired = KEPT / "repaired"
    shutil.rmtree(repaired, ignore_errors=True)
    where = ":".join(map(str, libraries.directories))
    output_of(
        *("auditwheel", "repair", "--plat", PLATFORM, "--only-plat", "-z", "9"),
        *("--wheel-dir", repaired, plain),
        env={**os.environ, "LD_LIBRARY_PATH": where},
    )
    (wheel,) = repaired.glob("*.whl")
    check(wheel, libraries.package_by_file)
    pathlib.Path(to).mkdir(parents=True, exist_ok=True)
    shutil.move(wheel, pathlib.Path(to, wheel.name))


if __name__ == "__main__":
    main(*sys.argv[1:])
