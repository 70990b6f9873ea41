# SPDX-License-Identifier: Apache-2.0
"""A user who takes all that the daemon gives, with bare sockets: for tests of what others get.

As a program it does so for whoever runs it, prints what came of it as one JSON object, and keeps
what it has until its standard input ends. Greedy starts it as another user, which takes root.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import pathlib
import resource
import socket
import struct
import subprocess
import sys

ERROR, WELCOME, PROGRESS, ATTACHED, BLOB = 65, 64, 66, 67, 128
YAML_KIND, CLASSES_QUERY = 1, 1
PART = 32768 - 24
PYTHON = "/usr/bin/python3"  # that of a virtual environment may lie where others may not go


PIPELINE = """pipeline: {name}
source: {{files: {{root: {root}, pattern: "*.bin", label: none}}}}
stages: [fetch]
batch: {{size: 2, max_bytes: 4KiB, last: drop}}
"""


class Bare:
    """One connection that says what it is told; receive() is a frame's type and bytes."""

    def __init__(self, address: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.connect(f"{address}/data.sock")

    def send(self, frame: bytes) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.socket.send(frame)

    def receive(self) -> tuple[int, bytes]:
        """(0, b"") when the daemon has hung up."""
        try:
            frame = self.socket.recv(65536)
        except ConnectionResetError:
            return self.receive()  # what came before is still to be read
        return (struct.unpack_from("<I", frame)[0] if frame else 0), frame

    def answer(self) -> tuple[int, bytes]:
        """The next frame that is no Progress."""
        kind, frame = self.receive()
        while kind == PROGRESS:
            kind, frame = self.receive()
        return kind, frame

    def greet(self) -> str:
        """Empty if it is welcome, else what it is told."""
        self.send(struct.pack("<IIIIII48s", 1, 72, 0x4C445053, 5, 5, 0, b"greedy 1.0"))
        kind, frame = self.answer()
        return "" if kind == WELCOME else text_of(kind, frame)

    def send_yaml(self, text: bytes, total: int | None = None) -> None:
        total = len(text) if total is None else total
        for offset in range(0, len(text), PART):
            part = text[offset : offset + PART]
            head = struct.pack("<IIIIII", BLOB, 24 + len(part), YAML_KIND, 0, offset, total)
            self.send(head + part)

    def attach(
        self, pipeline: str, job: str = "", yaml_bytes: int = 0, shard: int = 0, num_shards: int = 1
    ) -> None:
        texts = b""
        for key, value in ((1, pipeline.encode()), (2, job.encode())):
            texts += struct.pack("<II", key, len(value)) + value + b"\0" * (-len(value) % 4)
        place = (shard, num_shards, 1, 4)  # replicas, credits
        numbers = (-1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)  # of no batch size, and no cursor
        head = struct.pack(
            *("<IIiiiIqqIIIIQQQQQIIII", 2, 112 + len(texts), *place, *numbers, 2, yaml_bytes)
        )
        self.send(head + texts)

    def query(self, kind: int = CLASSES_QUERY) -> None:
        self.send(struct.pack("<IIII", 5, 16, kind, 0))


def text_of(kind: int, frame: bytes) -> str:
    if kind != ERROR:
        return f"frame {kind}" if kind else "hung up"
    code, _, size = struct.unpack_from("<III", frame, 8)
    return f"{code}: {frame[24 : 24 + size].decode()}"


def tally(answers: list[str]) -> dict[str, int]:
    return {answer: answers.count(answer) for answer in sorted(set(answers))}


class Greedy:
    """The program as user `uid`; answers() once it has all that it can get. Ends with its block."""

    def __init__(self, address: str, uid: int, *arguments: str) -> None:
        self._process = self.start(pathlib.Path(__file__).read_text(), uid, address, *arguments)

    @staticmethod
    def start(program: str, uid: int, *arguments: str) -> subprocess.Popen[str]:
        # By its text: the checkout may lie where only its owner may go.
        return subprocess.Popen(
            [PYTHON, "-c", program, *arguments],
            **dict(user=uid, group=uid, extra_groups=[]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd="/",
        )

    def answers(self) -> dict[str, dict[str, int]]:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def __enter__(self) -> Greedy:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("--pipeline", default="images")
    parser.add_argument("--connections", type=int, default=0, help="that say Hello and wait")
    parser.add_argument("--texts", type=int, default=0, help="that send a text and no Attach")
    parser.add_argument("--text-bytes", type=int, default=1 << 20)
    parser.add_argument("--attaches", type=int, default=0, help="at once, of private jobs")
    parser.add_argument("--pipelines", type=int, default=0, help="each with an attach of its own")
    parser.add_argument("--jobs", type=int, default=0, help="that have a name")
    parser.add_argument("--root", default="", help="of the pipelines' data")
    parser.add_argument("--queries", type=int, default=0, help="of each, that nobody reads")
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    held: list[Bare] = []
    done: dict[str, dict[str, int]] = {}

    greeted = []
    for _ in range(options.connections):
        held.append(Bare(options.address))
        greeted.append(held[-1].greet())
    done["connections"] = tally(greeted)

    texts = []
    for _ in range(options.texts):
        bare = Bare(options.address)
        held.append(bare)
        told = bare.greet()
        if not told:
            # All but the last byte, so that it is heard of only if it is refused.
            bare.send_yaml(b"#" * (options.text_bytes - 1), options.text_bytes)
            bare.socket.settimeout(0.2)
            try:
                told = text_of(*bare.answer())
            except TimeoutError:
                told = ""
        texts.append(told)
    done["texts"] = tally(texts)

    attaching = [Bare(options.address) for _ in range(options.attaches)]
    held += attaching
    welcome = [bare for bare in attaching if not bare.greet()]
    for bare in welcome:
        bare.attach(options.pipeline)
    made = []
    for i in range(max(options.pipelines, options.jobs)):
        bare = Bare(options.address)
        told = bare.greet()
        if not told:
            text = b""
            if i < options.pipelines:
                text = PIPELINE.format(name=f"greedy-{i}", root=options.root).encode()
                bare.send_yaml(text)
            name = f"greedy-{i}" if text else options.pipeline
            bare.attach(name, f"job-{i}" if i < options.jobs else "", len(text))
            kind, frame = bare.answer()
            told = "" if kind == ATTACHED else text_of(kind, frame)
        made.append(told[:200])
        bare.socket.close()
    done["made"] = tally(made)
    print(json.dumps(done), flush=True)  # its attaches wait, and it goes on
    for bare in welcome:
        if bare.answer()[0] == ATTACHED:
            for _ in range(options.queries):
                bare.query()
    sys.stdin.read()


if __name__ == "__main__":
    main()
