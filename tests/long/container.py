#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# does: the daemon's container image: made without a registry, run as uid 10001, read by root of another container
"""container.py [PACKAGES]: deploy/container/Containerfile, with buildah; as root.

PACKAGES: as debian.py takes them. The image is made from the root that debian.py makes, too, and its
containers run under systemd-nspawn in namespaces of their own, without a network. It prints figures,
and fails with the line that did not hold.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator, Sequence
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import roots
from roots import check, run, run_quietly

import debian

IMAGE, BASE = "localhost/spdld", "localhost/debian:12"
CONTAINERFILE = roots.REPOSITORY / "deploy/container/Containerfile"
USER = 10001
READ = """
import json, sys, spdld
with spdld.Loader(sys.argv[1], job="run") as loader:
    for batch in loader:
        print(json.dumps(batch.indices.tolist()), flush=True)
        if len(sys.argv) > 2:
            sys.stdin.readline()
"""


def buildah(*words: str | os.PathLike[str]) -> str:
    # Its images lie below build/, and it needs no file system that lays one over the other.
    store = roots.ROOTS / "images"
    place = ("--root", store / "root", "--runroot", store / "run", "--storage-driver", "vfs")
    return run("buildah", *place, *words).strip()


def image_of(made: pathlib.Path) -> tuple[pathlib.Path, dict[str, Any]]:
    """Builds it; its root, and how containers of it are started."""
    shutil.rmtree(roots.ROOTS / "images", ignore_errors=True)
    base = buildah("from", "scratch")
    run("cp", "--archive", f"{roots.base()}/.", buildah("mount", base))
    buildah("commit", "--rm", base, BASE)
    began = time.monotonic()
    buildah(
        "bud", "--isolation", "chroot", "--format", "docker", "--build-arg", f"BASE={BASE}",
        "--tag", IMAGE, "--file", CONTAINERFILE, made,
    )  # fmt: skip
    print(f"the image is built in {time.monotonic() - began:.1f} s")
    config = json.loads(buildah("inspect", "--type", "image", IMAGE))["Docker"]["config"]
    return pathlib.Path(buildah("mount", buildah("from", IMAGE))), config


class Container:
    """A root whose first process is a command. It ends with it."""

    def __init__(
        self, root: pathlib.Path, mounts: dict[str, tuple[str, pathlib.Path]], user: str
    ) -> None:
        for at in mounts:
            (root / at[1:]).mkdir(parents=True, exist_ok=True)
        binds = [f"--{how}={path}:{at}" for at, (how, path) in mounts.items()]
        options = ("--register=no", "--keep-unit", "--quiet", "--private-network", "--as-pid2")
        self._words = [
            "systemd-nspawn", *options, "--read-only", "--tmpfs=/tmp", *binds, f"--user={user}",
            "-D", str(root),
        ]  # fmt: skip
        self._processes: list[subprocess.Popen[str]] = []

    def begin(self, *command: str) -> subprocess.Popen[str]:
        self._processes.append(
            subprocess.Popen(
                [*self._words, "--pipe", *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
        return self._processes[-1]

    def run(self, *command: str) -> tuple[int, str]:
        process = self.begin(*command)
        out, _ = process.communicate()
        return process.returncode, out

    def close(self) -> None:
        for process in self._processes:
            process.terminate()
            process.wait()


def enter(process: subprocess.Popen[str], user: int, command: Sequence[str]) -> tuple[int, str]:
    """As `docker exec` does in the container of the process."""
    (first,) = run("pgrep", "-P", str(process.pid)).split()
    done = subprocess.run(
        ["nsenter", "-t", first, "-a", "setpriv", "--reuid", str(user), "--regid", str(user),
         "--clear-groups", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )  # fmt: skip
    return done.returncode, done.stdout


@contextlib.contextmanager
def closing(containers: Sequence[Container]) -> Iterator[None]:
    try:
        yield
    finally:
        for container in containers:
            container.close()


def main() -> int:
    made = debian.packages(sys.argv[1:])
    root, config = image_of(made)
    check(config["User"].split(":")[0] == str(USER), "the image's user is not root")
    mounted = roots.ROOTS / "mounted"
    shutil.rmtree(mounted, ignore_errors=True)
    state, data, shared = mounted / "state", mounted / "data", mounted / "run"
    for directory in (state, data, shared):
        directory.mkdir(parents=True)
    for directory in (state, shared):
        os.chown(directory, USER, USER)
    run("python3", "-c", roots.MAKE_IMAGES, data / "images", str(roots.ITEMS))
    run("python3", "-c", roots.MAKE_IMAGES, data / "secret", "8")
    for path in [data / "secret", *(data / "secret").iterdir()]:
        os.chown(path, USER, USER)
        path.chmod(0o700)
    (data / "root-alone").mkdir(mode=0o700)
    for name in ("images", "secret", "root-alone"):
        (data / f"{name}.yaml").write_text(
            textwrap.dedent(f"""\
                pipeline: {name}
                source: {{files: {{root: /data/{name}, pattern: "*.png"}}}}
                stages: [fetch, decode_image]
                batch: {{size: {roots.BATCH}}}
                """)
        )

    trainers = roots.copy_of(roots.base(), "trainer")
    roots.take_packages(made, trainers)
    roots.in_chroot(trainers, "apt-get", "update", "--quiet")
    roots.in_chroot(trainers, "sh", "-c", "apt-get install --yes /packages/*spdld*.deb")

    images = {"/data": ("bind-ro", data)}
    own = {"/run/spdld": ("bind", shared), "/var/lib/spdld": ("bind", state)}
    daemons = Container(root, {**own, **images}, "spdld")
    trainer = Container(trainers, {"/run/spdld": ("bind-ro", shared), **images}, "root")
    with closing([trainer, daemons]):
        began = time.monotonic()
        daemon = daemons.begin(*config["Entrypoint"])
        health = config["Healthcheck"]["Test"][1:]
        while True:
            if daemon.poll() is not None:
                raise SystemExit(f"FAILED: {daemon.communicate()[0]}")
            if run_quietly("pgrep", "-P", str(daemon.pid)) and enter(daemon, USER, health)[0] == 0:
                break
            time.sleep(0.05)
        print(f"healthy {time.monotonic() - began:.1f} s after its start")
        (first,) = run("pgrep", "-P", str(daemon.pid)).split()
        owner = pathlib.Path(f"/proc/{first}").stat().st_uid
        inner = run("pgrep", "-u", str(USER), "-x", "spdld").split()
        check(len(inner) == 1, f"spdld runs as uid {USER}, below a first process of uid {owner}")

        reader = trainer.begin("python3", "-c", READ, "/data/images.yaml", "slowly")
        assert reader.stdout is not None
        rows = json.loads(reader.stdout.readline())
        _, told = enter(daemon, USER, ["spdlctl", "get", "sessions", "-o", "json"])
        seen = [(one["job"], one["uid"], one["pid"]) for one in json.loads(told)]
        check(seen == [("run", 0, 0)], "a trainer of another container is counted, by its own pid")
        out, _ = reader.communicate("\n" * roots.ITEMS)
        if reader.returncode != 0:
            raise SystemExit(f"FAILED: {out}")
        for line in out.splitlines():
            if line.startswith("["):  # the client's notices are among them
                rows += json.loads(line)
        check(sorted(rows) == list(range(roots.ITEMS)), f"and reads each row once: {len(rows)}")
        for name in ("secret", "root-alone"):
            code, told = trainer.run("python3", "-c", READ, f"/data/{name}.yaml")
            # nspawn has lines of its own
            why = [line for line in told.splitlines() if f"/data/{name}" in line]
            read = any(line.startswith("[") for line in told.splitlines())
            check(
                code != 0 and not read and bool(why),
                f"its root reads nothing of /data/{name}: {(why or [told])[-1]}",
            )
        code, told = enter(daemon, USER, ["spdlctl", "apply", "-f", "/data/secret.yaml"])
        check(code == 0, "the daemon's own user applies a pipeline for all")
        code, told = trainer.run("spdlctl", "delete", "pipeline", "secret")
        check(code == 1 and "access.trust_root" in told, f"and administers nothing: {told.strip()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
