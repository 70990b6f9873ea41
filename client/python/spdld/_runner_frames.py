# SPDX-License-Identifier: Apache-2.0
"""Frames of the runner socket, as proto/spdld/runner.h has them, and the way to the daemon."""

from __future__ import annotations

import contextlib
import hashlib
import os
import pwd
import socket
import struct

MAGIC = 0x4E525053
VERSION = 3
MAX_FRAME_BYTES = 32768
CELLS = 2
MAX_CALL_ROWS = 64
ALIGNMENT = 64
DESCRIBE = 0xFFFFFFFFFFFFFFFF  # the item of a row that asks what a dataset is
IN_RUNNER = "SPDLD_IN_RUNNER"  # in the environment of processes that run functions
IMPORT_FAILED = 87  # an exit status of the supervisor's processes; what stderr has is why

FRAMES = {
    "RunnerHeader": struct.Struct("<2I"),
    "SupervisorHello": struct.Struct("<2I 2I 32s 56s i I"),
    "ChildHello": struct.Struct("<2I 2I 32s 16s I i 2I 16s"),
    "PoolOpen": struct.Struct("<2I 16s Q"),
    "TurnedAway": struct.Struct("<2I 2I"),
    "CellsOpen": struct.Struct("<2I 2Q"),
    "Call": struct.Struct("<2I Q 2I"),
    "Answer": struct.Struct("<2I Q 2I"),
    "Kill": struct.Struct("<2I I i"),
    "ChildEnded": struct.Struct("<2I I 2i 3I"),
    "ImportFailed": struct.Struct("<2I 2I"),
    "Look": struct.Struct("<2I"),
    "Looked": struct.Struct("<2I"),
    "End": struct.Struct("<2I"),
    "RowEntry": struct.Struct("<4Q"),
    "ArgumentEntry": struct.Struct("<2Q 8q"),
    "AnswerEntry": struct.Struct("<2I 2Q"),
    "FieldEntry": struct.Struct("<2Q 8q"),
}
TYPES = {
    "SupervisorHello": 1,
    "ChildHello": 2,
    "Answer": 3,
    "ChildEnded": 4,
    "ImportFailed": 5,
    "Looked": 6,
    "TurnedAway": 64,
    "PoolOpen": 65,
    "CellsOpen": 66,
    "Call": 67,
    "Kill": 68,
    "End": 69,
    "Look": 70,
}
ANSWERS = {
    "Fields": 1,
    "Rejected": 2,
    "Raised": 3,
    "BadSample": 4,
    "Unavailable": 5,
    "NoRoom": 6,
    "Description": 7,
}
REASONS = {"Itself": 0, "Killed": 1, "Grew": 2}
_NAMES = {number: name for name, number in TYPES.items()}


def digest_of(text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=16).digest()


def file_digest(path: str) -> bytes:
    """Of one that cannot be read, zeros."""
    try:
        with open(path, "rb") as file:
            return digest_of(file.read())
    except OSError:
        return bytes(16)


def code_digest(paths: list[str], known: dict[str, bytes] | None = None) -> bytes:
    """Of the files that a function comes from, some of whose digests are known; of none, zeros."""
    digests = [(known or {}).get(path) or file_digest(path) for path in paths]
    return digest_of(b"".join(digests)) if any(map(any, digests)) else bytes(16)


class TurnedAway(Exception):  # noqa: N818 - the frame's name
    """The daemon's word that it has nothing to do with this process."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


def send(link: socket.socket, name: str, *values: object, text: bytes = b"") -> None:
    form = FRAMES[name]
    link.send(form.pack(TYPES[name], form.size + len(text), *values) + text)


def receive(link: socket.socket) -> tuple[str, tuple, list[int]]:
    """The next frame: its name, its values behind the header, its descriptors. EOFError: none."""
    try:
        data, fds, _, _ = socket.recv_fds(link, MAX_FRAME_BYTES, 2)
    except ConnectionResetError:  # the daemon had not read all of ours; its last words may follow
        data, fds, _, _ = socket.recv_fds(link, MAX_FRAME_BYTES, 2)
    if not data:
        raise EOFError
    name = _NAMES.get(int.from_bytes(data[:4], "little"), "End")
    form = FRAMES[name]
    values = form.unpack_from(data)[2:]
    if name == "TurnedAway":
        raise TurnedAway(values[0], data[form.size :].decode(errors="replace"))
    return name, values, fds


def connect(address: str) -> socket.socket:
    """A connection to the daemon at ``address``, its runtime directory.

    PermissionError: whoever listens there could have any function run here, and is neither root nor
    this user nor the packaged service.
    """
    link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        link.connect(os.path.join(address, "runner.sock"))
        peer = struct.unpack("3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]
        trusted = {0, os.getuid()}
        with contextlib.suppress(KeyError):
            trusted.add(pwd.getpwnam("spdld").pw_uid)
        if peer not in trusted:
            raise PermissionError(
                f"the daemon at {address} runs as uid {peer}, and this process does what it says "
                "only for root, the user spdld and its own user"
            )
    except BaseException:
        link.close()
        raise
    return link
