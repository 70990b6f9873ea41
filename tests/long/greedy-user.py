#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# does: one user takes all connections, texts, attaches, pipelines and jobs; what do others get?
# build: release spdld spdlctl
"""greedy-user.py [SECONDS]: as root. One user holds 512 connections, texts of a pipeline's largest
size, 200 attaches at a time and answers that it does not read, and makes 300 pipelines and 2,000
jobs. Meanwhile another user attaches again and again, and root asks how the daemon is. Fails if an
attach of the other user takes more than 1 s, root is kept out, or the daemon has more than 1 GiB
beside its arenas."""

from __future__ import annotations

import pathlib
import resource
import statistics
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from daemon import Daemon
from greedy import PIPELINE, Greedy

ANN, BOB = 54_321, 54_322
MOST_ATTACH_S = 1.0
MOST_BYTES = 1 << 30


class OtherUser:
    """Attaches once every 100 ms until it is stopped, in processes of the other user."""

    PROGRAM = """
import sys, time
for _ in sys.stdin:
    began = time.monotonic()
    bare = Bare(sys.argv[1])
    told = bare.greet()
    if not told:
        bare.attach("images")
        kind, frame = bare.answer()
        told = "" if kind == ATTACHED else text_of(kind, frame)
        bare.send(struct.pack("<II", 6, 8))
    print(time.monotonic() - began, told, flush=True)
    bare.socket.close()
"""

    def __init__(self, address: str) -> None:
        source = pathlib.Path(__file__).parent.parent / "greedy.py"
        program = source.read_text().replace("    main()\n", self.PROGRAM.replace("\n", "\n    "))
        self.took_s: list[float] = []
        self.refused: list[str] = []
        self._process = Greedy.start(program, BOB, address)

    def attach(self) -> None:
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        took, _, told = self._process.stdout.readline().strip().partition(" ")
        self.took_s.append(float(took))
        if told:
            self.refused.append(told)

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def main() -> int:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    resource.setrlimit(resource.RLIMIT_NOFILE, (16384, 16384))
    daemon = Daemon(settings={"arena": {"budget": "1GiB"}})
    try:
        return run(daemon, seconds)
    finally:
        daemon.close()


def run(daemon: Daemon, seconds: float) -> int:
    daemon.directory.chmod(0o755)
    daemon.runtime_dir.chmod(0o755)
    data = daemon.directory / "data"
    data.mkdir(mode=0o755)
    for i in range(64):
        (data / f"{i}.bin").write_bytes(b"bytes" * 100)
    daemon.start()
    daemon.ctl("apply", "-f", "-", stdin=PIPELINE.format(name="images", root=data))
    other = OtherUser(daemon.address)
    for _ in range(20):
        other.attach()
    alone = statistics.median(other.took_s)
    print(f"alone: an attach takes {alone * 1000:.1f} ms (median of {len(other.took_s)})")
    other.took_s.clear()

    failures: list[str] = []
    largest = 0
    flood = ["--connections", "200", "--texts", "110", "--attaches", "200", "--queries", "7"]
    making = ["--pipelines", "300", "--jobs", "2000", "--root", str(data)]
    with (
        Greedy(daemon.address, ANN, *flood) as first,
        Greedy(daemon.address, ANN, *making) as second,
    ):
        answers: list[object] = []
        waits = [
            threading.Thread(target=lambda greedy=greedy: answers.append(greedy.answers()))
            for greedy in (first, second)
        ]
        for thread in waits:
            thread.start()
        end = time.monotonic() + seconds
        while time.monotonic() < end or any(thread.is_alive() for thread in waits):
            other.attach()
            largest = max(largest, daemon.resident_bytes())
            if daemon.ctl("get", "users", check=False).returncode != 0:
                failures.append("root could not ask for the users")
            time.sleep(0.1)
        print(f"the greedy user was told: {answers}")
        print(daemon.ctl("get", "users").stdout)
        if daemon.ctl("consume", "images", "--batches", "1", check=False).returncode != 0:
            failures.append("root could not attach")
    took = sorted(other.took_s)
    print(
        f"beside it: {len(took)} attaches, median {statistics.median(took) * 1000:.1f} ms, "
        f"longest {took[-1] * 1000:.1f} ms; the daemon had up to {largest >> 20} MiB beside arenas"
    )
    if took[-1] > MOST_ATTACH_S:
        failures.append(f"an attach took {took[-1]:.2f} s")
    if largest > MOST_BYTES:
        failures.append(f"the daemon had {largest >> 20} MiB")
    failures += [f"the other user was refused: {told}" for told in sorted(set(other.refused))]
    other.close()
    for failure in failures:
        print(f"FAILED: {failure}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
