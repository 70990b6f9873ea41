# SPDX-License-Identifier: Apache-2.0
"""Roots of Debian in which packages are installed and tried: made, copied, booted under systemd-nspawn; as root."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import subprocess
import tempfile
import textwrap
import time
from collections.abc import Iterator

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
ROOTS = REPOSITORY / "build/roots"
ITEMS, BATCH = 448, 4  # of a pipeline
BOOT_S = 60.0
COMMAND_S = 300  # of which one hangs
MAKE_IMAGES = """
import pathlib, struct, sys, zlib
root = pathlib.Path(sys.argv[1])
root.mkdir()
for n in range(int(sys.argv[2])):
    rows = b"".join(b"\\0" + bytes((7 * x + 3 * y + n) % 256 for x in range(96)) for y in range(24))
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", 32, 24, 8, 2, 0, 0, 0)), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    data = b"".join(struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d)) for k, d in chunks)
    (root / f"{n:04}.png").write_bytes(b"\\x89PNG\\r\\n\\x1a\\n" + data)
"""


class CannotBoot(SystemExit):
    """This machine lets no root be booted; why, in a line."""


def check(holds: bool, what: str) -> None:
    if not holds:
        raise SystemExit(f"FAILED: {what}")
    print(f"ok: {what}", flush=True)


def run(*command: str | os.PathLike[str], **options: object) -> str:
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options
    )
    if done.returncode != 0:
        raise SystemExit(f"FAILED: {' '.join(map(str, command))}\n{done.stdout}")
    return done.stdout


def run_quietly(*command: str) -> str:
    return subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ).stdout


def bootstrap(suite: str, name: str, wanted: str) -> pathlib.Path:
    """A root of Debian with these packages, made once, as build/roots/`name`."""
    root = ROOTS / name
    if (root / "ready").exists():
        return root
    shutil.rmtree(root, ignore_errors=True)
    ROOTS.mkdir(parents=True, exist_ok=True)
    mirror = run("apt-get", "indextargets", "--format", "$(REPO_URI)").splitlines()[0]
    run("debootstrap", "--variant=minbase", f"--include={wanted}", suite, root, mirror)
    (root / "ready").touch()
    return root


def base() -> pathlib.Path:
    """A root with systemd and Python, and where packages come from as on this machine."""
    root = bootstrap("bookworm", "bookworm", "systemd,systemd-sysv,dbus,python3,ca-certificates")
    for part in ("sources.list.d", "apt.conf.d"):
        shutil.copytree(f"/etc/apt/{part}", root / "etc/apt" / part, dirs_exist_ok=True)
    return root


def copy_of(root: pathlib.Path, name: str) -> pathlib.Path:
    """As build/roots/`name`, in the place of one that is there."""
    copy = ROOTS / name
    shutil.rmtree(copy, ignore_errors=True)
    run("cp", "--archive", "--reflink=auto", root, copy)
    return copy


@contextlib.contextmanager
def over_this_machine() -> Iterator[pathlib.Path]:
    """This machine's own root; what is changed in it lies in memory, and goes. Only its file system."""
    with tempfile.TemporaryDirectory(prefix="spdld-root-") as made:
        _mount(["-t", "tmpfs", "tmpfs", made])
        try:
            upper, work, root = (pathlib.Path(made, name) for name in ("upper", "work", "root"))
            for directory in (upper, work, root):
                directory.mkdir(mode=0o755)
            layers = f"lowerdir=/,upperdir={upper},workdir={work}"
            _mount(["-t", "overlay", "overlay", "-o", layers, str(root)])
            try:
                yield root
            finally:
                run("umount", "--lazy", root)
        finally:
            run("umount", "--lazy", made)


def _mount(words: list[str]) -> None:
    try:
        done = subprocess.run(["mount", *words], capture_output=True, text=True)
    except OSError as error:
        raise CannotBoot(f"mount: {error.strerror}") from None
    if done.returncode != 0:
        raise CannotBoot(done.stderr.partition("\n")[0] or "mount fails")


def take_packages(made: pathlib.Path, root: pathlib.Path) -> list[pathlib.Path]:
    """Copies them to /packages of the root; where they lie there."""
    (root / "packages").mkdir()
    wanted = [package for package in made.glob("*.deb") if "-dbgsym" not in package.name]
    return [pathlib.Path(shutil.copy(package, root / "packages")) for package in wanted]


def in_chroot(root: pathlib.Path, *command: str) -> str:
    nspawn = ("systemd-nspawn", "--register=no", "--keep-unit", "--quiet", "--pipe", "-D", root)
    return run(*nspawn, *command, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})


class Node:
    """The root, booted. Its processes end with it."""

    def __init__(self, root: pathlib.Path, target: str = "") -> None:
        """Up to `target`, or what the root says. Raises CannotBoot."""
        # nspawn refuses mlock to a container without this capability; a machine does not.
        options = ("--register=no", "--keep-unit", "--quiet", "--capability=CAP_IPC_LOCK")
        self._readers: list[subprocess.Popen[str]] = []
        self._said = tempfile.TemporaryFile("w+")  # noqa: SIM115  # as long as the node
        try:
            self._nspawn = subprocess.Popen(
                ["systemd-nspawn", *options, "--console=passive", "-D", root, "--boot"]
                + (["--", f"--unit={target}"] if target else []),
                stdin=subprocess.DEVNULL,
                stdout=self._said,
                stderr=subprocess.STDOUT,
            )
        except OSError as error:
            raise CannotBoot(f"systemd-nspawn: {error.strerror}") from None
        self._deadline = time.monotonic() + BOOT_S
        children = pathlib.Path(f"/proc/{self._nspawn.pid}/task/{self._nspawn.pid}/children")
        state = "not there"
        while state != "running":
            self._wait_on(f"systemd is {state}")
            # Its first child is soon replaced by the one that becomes systemd.
            if init := children.read_text().split():
                self._enter = (
                    "nsenter",
                    "-t",
                    init[0],
                    "-a",
                    "env",
                    "-i",
                    "PATH=/usr/sbin:/usr/bin",
                )
                state = self.say("systemctl", "is-system-running").strip()
            if state == "degraded":
                units = self.say("systemctl", "--failed", "--plain", "--no-legend", "--no-pager")
                state = f"degraded by {units.split()}"

    def _wait_on(self, state: str) -> None:
        if self._nspawn.poll() is not None:
            self._said.seek(0)
            raise CannotBoot(f"systemd-nspawn: {' '.join(self._said.read().split()[-40:])}")
        if time.monotonic() > self._deadline:
            self.close()
            raise CannotBoot(f"after {BOOT_S:.0f} s, {state}")
        time.sleep(0.1)

    def close(self) -> None:
        for process in self._readers:
            process.kill()
        self._nspawn.terminate()  # it powers off
        try:
            self._nspawn.wait(60)
        except subprocess.TimeoutExpired:
            self._nspawn.kill()

    def command(self, *command: str, user: str = "") -> list[str]:
        return [*self._enter, *(self.as_user(user, *command) if user else command)]

    @staticmethod
    def as_user(user: str, *command: str) -> tuple[str, ...]:
        return ("runuser", "-u", user, "--", "env", f"HOME=/home/{user}", *command)

    def run(self, *command: str, user: str = "") -> str:
        limited = ("timeout", "--kill-after=5", "--verbose", str(COMMAND_S))
        return run(*self.command(*limited, *command, user=user))

    def begin(self, *command: str) -> subprocess.Popen[str]:
        """Beside the test, by the user `trainer`."""
        self._readers.append(
            subprocess.Popen(
                self.command(*command, user="trainer"),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        return self._readers[-1]

    def say(self, *command: str) -> str:
        return run_quietly(*self.command(*command))


@contextlib.contextmanager
def booted(root: pathlib.Path, target: str = "") -> Iterator[Node]:
    node = Node(root, target)
    try:
        yield node
    finally:
        node.close()


def write_pipeline(node: Node, root: pathlib.Path, user: str) -> str:
    """A new user with images, and a pipeline's file for them."""
    node.run("useradd", "--create-home", user)
    node.run("chmod", "755", f"/home/{user}")
    images = f"/home/{user}/images"
    node.run("python3", "-c", MAKE_IMAGES, images, str(ITEMS), user=user)
    file = f"home/{user}/images.yaml"
    text = f"""\
        pipeline: images
        source: {{files: {{root: {images}, pattern: "*.png"}}}}
        shuffle: global
        stages: [fetch, decode_image]
        batch: {{size: {BATCH}}}
        """
    (root / file).write_text(textwrap.dedent(text))
    return f"/{file}"
