#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# build: release spdld spdlctl spdld_python
# does: both wheels offline in bare roots of Debian 11 to 13, the client from its sdist, and the same rows as of the build
"""wheels.py [WHEELS]: installs, reads, and compares digests; as root.

WHEELS: what `./dev package wheel` and `./dev package daemon-wheel` have made (build/wheels), and make
first if it is not given. It prints figures, and fails with the line that did not hold.
"""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
from types import ModuleType

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import daemon as daemon_module
from roots import MAKE_IMAGES, REPOSITORY, ROOTS, bootstrap, check, copy_of, run

TAG = "manylinux_2_34_x86_64"
MOST_BYTES = 25 << 20
FIRST_BATCH_S = 30.0
IMAGES = 64
PIPELINE = """\
pipeline: images
source: {files: {root: /home/trainer/images, pattern: "*.png"}}
shuffle: global
stages: [fetch, decode_image]
batch: {size: 4}
"""
THREE_LINES = """
import spdld
loader = spdld.Loader("/home/trainer/images.yaml", launch=True)
print(next(iter(loader))["image"].shape)
"""
# Beside what the pipelines' own test writes: each codec that FFmpeg has an encoder for.
VIDEOS = {
    "h264.mp4": "libx264",
    "hevc.mkv": "libx265 -x265-params log-level=none",
    "vp8.webm": "libvpx",
    "vp9.webm": "libvpx-vp9",
    "av1.mkv": "libaom-av1 -cpu-used 8",
    "mpeg4.avi": "mpeg4",
    "mpeg2.mkv": "mpeg2video",
    "mjpeg.avi": "mjpeg -pix_fmt yuvj420p",
    "ffv1.mkv": "ffv1",
    "prores.mkv": "prores",
}
SOUNDS = {
    "aac.m4a": "aac",
    "aac.ts": "aac",
    "mp3.mp3": "libmp3lame",
    "mp2.mkv": "mp2",
    "opus.ogg": "libopus",
    "vorbis.ogg": "libvorbis",
    "flac.flac": "flac",
    "alac.m4a": "alac",
    "ac3.mkv": "ac3",
    "alaw.wav": "pcm_alaw",
    "f64.wav": "pcm_f64le",
    "s24.mkv": "pcm_s24be",
}
# They hold for the build's programs; here they are given the wheel's.
MEDIA_TESTS = ("test_image_formats", "test_audio", "test_clips", "test_probe", "test_bad_data")
# Has libraries of the same names as the wheel's, which its programs must not take.
HOSTILE = "/hostile"


class Root:
    """A copy of a bare root, with a user `trainer`. Nothing outside it can be reached from it."""

    def __init__(self, base: pathlib.Path) -> None:
        self.path = copy_of(base, f"{base.name}-copy")
        self.run("useradd", "--create-home", "trainer")
        self.run("useradd", "--create-home", "other")
        self.run("chmod", "755", "/home/trainer")

    def command(self, *command: str, user: str = "") -> list[str | os.PathLike[str]]:
        nspawn = ("systemd-nspawn", "--register=no", "--keep-unit", "--quiet", "--pipe")
        isolated = ("--private-network", "--tmpfs=/noexec:mode=1777,noexec", "-D", self.path)
        as_user = ("runuser", "-u", user, "--", "env", f"HOME=/home/{user}") if user else ()
        return [*nspawn, *isolated, *as_user, *command]

    def run(self, *command: str, user: str = "") -> str:
        done = self._done(command, user)
        if done.returncode != 0:
            raise SystemExit(f"FAILED: {' '.join(command)}\n{done.stdout}{done.stderr}")
        return done.stdout

    def refuse(self, *command: str, user: str = "") -> str:
        done = self._done(command, user)
        check(done.returncode != 0, f"refused: {' '.join(command)}")
        return done.stderr

    def _done(self, command: tuple[str, ...], user: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self.command(*command, user=user), capture_output=True, text=True)


def install(root: Root, wheels: list[pathlib.Path], *names: str) -> None:
    (root.path / "wheels").mkdir()
    for wheel in wheels:
        shutil.copy(wheel, root.path / "wheels")
    began = time.monotonic()
    root.run("python3", "-m", "venv", "/home/trainer/venv", user="trainer")
    pip = ("env", "TMPDIR=/noexec", "/home/trainer/venv/bin/pip", "install", "--quiet")
    root.run(*pip, "--no-index", "--find-links=/wheels", *names, user="trainer")
    print(f"venv and 'pip install' offline of {' '.join(names)}: {time.monotonic() - began:.1f} s")


def use_programs(root: Root) -> None:
    """Those of the daemon's wheel, by their entry points."""
    bin_ = "/home/trainer/venv/bin"
    told = root.run(f"{bin_}/spdld", "--version", "--verbose", user="trainer")
    check("no decoder for" not in told and "LGPL" in told, "all codecs are there, under the LGPL")
    loaded = told[told.index("loaded:") :].split()[1:]
    print(
        f"{len(loaded)} libraries loaded, {sum('/venv/' in path for path in loaded)} of the wheel"
    )
    hostile = root.path / HOSTILE.removeprefix("/")
    hostile.mkdir()
    for path in loaded:
        if "/venv/" in path:
            name = pathlib.PurePath(path).name
            plain = name.split("-")[0] + name[name.index(".so") :]
            for garbage in (name, plain):
                (hostile / garbage).write_text("not a library")
    poisoned = ("env", f"LD_LIBRARY_PATH={HOSTILE}", f"{bin_}/spdld", "--version", "--verbose")
    check(root.run(*poisoned, user="trainer") == told, "LD_LIBRARY_PATH changes no library of it")
    check(
        "spdld" in root.run(f"{bin_}/spdld", "--version", user="other"), "another user may start it"
    )
    for program in ("spdld", "spdlctl"):
        root.run("sh", "-c", f"chmod a-x /home/trainer/venv/lib/*/*/spdld_daemon/bin/{program}")
        said = root.refuse(f"{bin_}/{program}", "--version", user="trainer")
        check("noexec" in said, f"{program} that may not be executed says why")


def read_first_batch(root: Root) -> None:
    root.run("python3", "-c", MAKE_IMAGES, "/home/trainer/images", str(IMAGES), user="trainer")
    (root.path / "home/trainer/images.yaml").write_text(PIPELINE)
    python = ("env", "TMPDIR=/noexec", "/home/trainer/venv/bin/python", "-c")
    began = time.monotonic()
    shape = root.run(*python, THREE_LINES, user="trainer").strip()
    took = time.monotonic() - began
    check(shape == "(4, 3, 24, 32)", f"three lines read a batch {shape}")
    check(took <= FIRST_BATCH_S, f"the first batch comes {took:.2f} s after the start of Python")


def rows_of(programs: pathlib.Path, data: pathlib.Path, writers: ModuleType) -> dict[str, str]:
    """What `spdlctl consume` prints for each pipeline of config/pipelines."""
    rows = {}
    with daemon_module.Daemon(programs=programs) as daemon:
        daemon.start()
        for path in sorted(writers.PIPELINES.glob("*.yaml")):
            values = {"root": str(data / path.stem), "batch_size": "2"}
            if path.stem == "images-val":
                values["root"] = str(data / "images-train")
            options = [f"--var={key}={value}" for key, value in values.items()]
            daemon.ctl("apply", "-f", path, *options)
            rows[path.stem] = daemon.ctl("consume", path.stem, "--digest", "--per-row").stdout
    return rows


def write_media(data: pathlib.Path, writers: ModuleType) -> None:
    clips, sounds = data / "kinetics-clips/train/jump", data / "whisper-log-mel"
    for name, codec in VIDEOS.items():
        picture = "testsrc2=size=320x240:rate=25"
        options = ("-frames:v", "80", "-c:v", *codec.split())
        writers.ffmpeg("-f", "lavfi", "-i", picture, *options, clips / name)
    with (sounds / "train.jsonl").open("a") as table:
        for name, codec in SOUNDS.items():
            tone = "anoisesrc=sample_rate=48000:duration=3:seed=1"
            options = ("-ac", "2", "-strict", "-2", "-c:a", codec)
            writers.ffmpeg("-f", "lavfi", "-i", tone, *options, sounds / name)
            row = {"audio_filepath": name, "duration": 3, "text": name}
            table.write("\n" + json.dumps(row))


def compare_with_build(wheel: pathlib.Path) -> None:
    place = REPOSITORY / "tests/integration/test_config_pipelines.py"
    sys.path.insert(0, str(daemon_module.build_dir() / "python"))
    spec = importlib.util.spec_from_file_location("config_pipelines", place)
    writers = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(writers)
    with tempfile.TemporaryDirectory() as directory:
        data = pathlib.Path(directory, "data")
        for name, write in writers.WRITERS.items():
            (data / name).mkdir(parents=True)
            write(data / name)
        write_media(data, writers)
        pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps")
        run(*pip, "--target", f"{directory}/wheel", wheel)
        (pathlib.Path(directory) / "bin").symlink_to("wheel/spdld_daemon/bin")
        files = [REPOSITORY / f"tests/integration/{name}.py" for name in MEDIA_TESTS]
        environment = {**os.environ, "SPDLD_BUILD_DIR": directory}
        told = run(sys.executable, "-m", "pytest", "-q", "-n2", *files, env=environment)
        print(told.splitlines()[-1])
        built = rows_of(daemon_module.build_dir() / "bin", data, writers)
        packaged = rows_of(pathlib.Path(directory, "wheel/spdld_daemon/bin"), data, writers)
    for name, rows in built.items():
        count = len(rows.splitlines())
        check(count >= writers.ROWS and packaged[name] == rows, f"{name}: {count} rows are alike")


def numpy_for(version: str, to: pathlib.Path) -> pathlib.Path:
    found = list(to.glob(f"numpy-*-cp{version}-cp{version}-*.whl"))
    if not found:
        pip = (sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", to)
        run(*pip, "--only-binary=:all:", f"--python-version={version}", "numpy")
        found = list(to.glob(f"numpy-*-cp{version}-cp{version}-*.whl"))
    return found[0]


def refuse_other_systems(root: Root, daemon: pathlib.Path) -> None:
    pip = (
        "/home/trainer/venv/bin/pip",
        "install",
        "--no-index",
        "--only-binary=:all:",
        "--target=/x",
    )
    for platform in ("musllinux_1_2_x86_64", "manylinux_2_34_aarch64"):
        said = root.refuse(*pip, f"--platform={platform}", f"/wheels/{daemon.name}")
        check("not a supported wheel on this platform" in said, f"pip refuses it on {platform}")


def refuse_debian_11(wheels: list[pathlib.Path]) -> None:
    root = Root(bootstrap("bullseye", "bullseye-python", "python3-venv"))
    root.run("python3", "-m", "venv", "/home/trainer/venv", user="trainer")
    for wheel in wheels:
        shutil.copy(wheel, root.path)
        pip = ("/home/trainer/venv/bin/pip", "install", "--no-index", f"/{wheel.name}")
        said = root.refuse(*pip, user="trainer")
        check("not a supported wheel on this platform" in said, f"Debian 11 refuses {wheel.name}")


def build_from_sdist(sdist: pathlib.Path) -> None:
    """By pip, in a bare environment of this machine, with what PyPI has."""
    with tempfile.TemporaryDirectory(prefix="spdld-") as made:
        home = pathlib.Path(made)
        shutil.copy(sdist, home)  # pip knows a file that it has built before by its place
        run("/usr/bin/python3", "-m", "venv", home / "venv")
        pip = (home / "venv/bin/pip", "install", "--quiet", home / sdist.name)
        clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        alone = {**clean, "PATH": f"{home}/venv/bin"}
        done = subprocess.run(pip, env=alone, capture_output=True, text=True)
        said = " ".join(done.stderr.split())
        check(
            done.returncode != 0
            and "there is no C++ compiler here" in said
            and "apt-get install g++ python3-dev" in said,
            "without a compiler, pip says that it takes one, and Python's headers",
        )
        began = time.monotonic()
        run(*pip, env=clean)
        print(f"pip builds and installs {sdist.name} in {time.monotonic() - began:.1f} s")
        run("python3", "-c", MAKE_IMAGES, home / "images", str(IMAGES))
        (home / "images.yaml").write_text(PIPELINE.replace("/home/trainer", made))
        three_lines = THREE_LINES.replace("/home/trainer", made)
        program = str(daemon_module.build_dir() / "bin/spdld")
        here = {**clean, "SPDLD_BIN": program, "SPDLD_ADDRESS": f"{made}/run"}
        shape = run(home / "venv/bin/python", "-c", three_lines, env=here).strip()
        check(shape == "(4, 3, 24, 32)", f"three lines read a batch {shape}")


def client_of_newer_python(to: pathlib.Path) -> pathlib.Path:
    """Made in a root of Debian 13, with what PyPI has, unless it is there."""
    pattern = "spdld-*-cp312-abi3-*.whl"
    if found := list(to.glob(pattern)):
        return found[0]
    wanted = "python3-venv,python3-dev,cmake,ninja-build,libc6-dev"
    root = bootstrap("trixie", "trixie-dev", wanted)
    settings = {key: value for key, value in os.environ.items() if key.startswith("PIP_")}
    nspawn = ("systemd-nspawn", "--register=no", "--keep-unit", "--quiet", "--pipe", "-D", root)
    options = [f"--setenv={key}={value}" for key, value in settings.items()]
    binds = (f"--bind={REPOSITORY}", "--bind-ro=/etc/ssl/certs")
    script = f"""
        set -e
        cd {REPOSITORY}
        [ -d /venv ] || python3 -m venv /venv
        /venv/bin/pip install --quiet -r deploy/requirements-package.txt
        deploy/client-wheel.sh /venv {to}"""
    run(*nspawn, *options, *binds, "sh", "-c", script)
    (wheel,) = to.glob(pattern)
    return wheel


def main() -> int:
    if len(sys.argv) > 1:
        made = pathlib.Path(sys.argv[1]).resolve()
    else:
        for kind in ("wheel", "daemon-wheel"):
            subprocess.run([REPOSITORY / "dev", "package", kind], check=True)
        made = REPOSITORY / "build/wheels"
    (client,) = made.glob("spdld-*-cp311-*.whl")
    (daemon,) = made.glob("spdld_daemon-*.whl")
    check(daemon.name.endswith(f"-py3-none-{TAG}.whl"), f"its tag: {daemon.name}")
    size = daemon.stat().st_size
    check(size <= MOST_BYTES, f"it has {size / (1 << 20):.2f} MiB")
    compare_with_build(daemon)
    (sdist,) = made.glob("spdld-*.tar.gz")
    build_from_sdist(sdist)
    newer = client_of_newer_python(made)
    for suite, python, wheel in (("bookworm", "311", client), ("trixie", "313", newer)):
        print(f"{suite}: {wheel.name}, {wheel.stat().st_size >> 10} KiB")
        root = Root(bootstrap(suite, f"{suite}-python", "python3-venv"))
        install(root, [wheel, daemon, numpy_for(python, ROOTS)], "spdld[daemon]")
        read_first_batch(root)
        use_programs(root)
        refuse_other_systems(root, daemon)
    refuse_debian_11([client, newer, daemon])
    return 0


if __name__ == "__main__":
    sys.exit(main())
