# SPDX-License-Identifier: Apache-2.0
"""A file system whose calls hang until a test lets them go: to the kernel, a server that is away."""

from __future__ import annotations

import ctypes
import errno
import heapq
import os
import pathlib
import stat
import struct
import threading
import time
from collections.abc import Callable

MS_RDONLY, MS_NOSUID, MS_NODEV = 1, 2, 4
MNT_FORCE, MNT_DETACH = 1, 2
ROOT = 1  # its node's number
DIRECT_IO = 1  # what was read once is asked for again
REQUEST_BYTES = 1 << 20

LOOKUP, FORGET, GETATTR, OPEN, READ, STATFS, RELEASE = 1, 2, 3, 14, 15, 17, 18
FLUSH, INIT, OPENDIR, READDIR, RELEASEDIR, INTERRUPT, BATCH_FORGET = 25, 26, 27, 28, 29, 36, 42

IN_HEADER = struct.Struct("<IIQQIIIHH")
OUT_HEADER = struct.Struct("<IiQ")
READ_IN = struct.Struct("<QQII")
INIT_IN = struct.Struct("<IIII")
INIT_OUT = struct.Struct("<IIIIHHIIHHI28x")
ENTRY_HEAD = struct.Struct("<QQQQII")
ATTR_HEAD = struct.Struct("<QII")
ATTR = struct.Struct("<6Q10I")
OPEN_OUT = struct.Struct("<QII")
DIRENT = struct.Struct("<QQII")
INTERRUPT_IN = struct.Struct("<Q")


class HungMount:
    """The files below `source`, mounted read-only at `at` by root, served by a thread (FUSE).

    All is answered at once until hang(); from then on each read, or call of another kind, waits until
    it is let go. Reads that do not hang take `read_s` seconds each, however many there are. A process that waits so cannot be killed: close the mount before. If the mount is
    `interruptible`, a signal ends the wait, as it does on a network file system. What the kernel was
    told of names and sizes it asks for anew after `valid_s` seconds.
    """

    def __init__(
        self,
        source: pathlib.Path,
        at: pathlib.Path,
        *,
        interruptible: bool = False,
        valid_s: int = 3600,
        read_s: float = 0,
    ) -> None:
        self._read_s = read_s
        self._ended = False
        self._late: list[tuple[float, int, bytes]] = []  # reads: when each is answered
        self._interruptible = interruptible
        self._valid_s = valid_s
        self._source = source
        self._at = at
        self._lock = threading.Condition()
        self._hangs = False
        self._only = ""
        self._call = READ
        self._waiting: list[tuple[int, bytes]] = []  # request, answer
        self._paths: dict[int, pathlib.Path] = {ROOT: source}
        self._nodes: dict[pathlib.Path, int] = {source: ROOT}
        self._device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        try:
            self._mount()
        except OSError:
            os.close(self._device)
            raise
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        self._late_thread = threading.Thread(target=self._answer_late, daemon=True)
        self._late_thread.start()

    def hang(self, only: str = "", call: int = READ) -> None:
        """Calls of this kind, from now on; with `only`, those about files of this name, and lookups below
        directories of it."""
        with self._lock:
            self._hangs, self._only, self._call = True, only, call

    @property
    def waiting(self) -> int:
        """Calls that hang now."""
        with self._lock:
            return len(self._waiting)

    def let_go(self) -> None:
        """All that hang, and all to come."""
        with self._lock:
            self._hangs = False
            gone, self._waiting = self._waiting, []
        for unique, data in gone:
            self._answer(unique, data)

    def let_one_go(self) -> None:
        """The one that hangs longest."""
        with self._lock:
            unique, data = self._waiting.pop(0)
        self._answer(unique, data)

    def close(self) -> None:
        # Force ends every read and this thread's, though who has the directory open keeps it.
        for flags in (MNT_FORCE, MNT_DETACH):
            ctypes.CDLL(None).umount2(os.fsencode(self._at), flags)
        self._thread.join()
        with self._lock:
            self._ended = True
            self._lock.notify()
        self._late_thread.join()
        os.close(self._device)

    def _mount(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        options = f"fd={self._device},rootmode=40000,user_id=0,group_id=0,allow_other"
        flags = MS_RDONLY | MS_NOSUID | MS_NODEV
        failed = libc.mount(
            b"hung", os.fsencode(self._at), b"fuse", ctypes.c_ulong(flags), options.encode()
        )
        if failed:
            raise OSError(ctypes.get_errno(), f"mount: {os.strerror(ctypes.get_errno())}")

    def _serve(self) -> None:
        while True:
            try:
                request = os.read(self._device, REQUEST_BYTES)
            except OSError as error:
                if error.errno in (errno.EINTR, errno.EAGAIN, errno.ENOENT):
                    continue
                return
            _, opcode, unique, node, *_ = IN_HEADER.unpack_from(request)
            body = request[IN_HEADER.size :]
            if opcode == INTERRUPT and self._interruptible:
                self._interrupt(INTERRUPT_IN.unpack_from(body)[0])
            if opcode in (FORGET, BATCH_FORGET, INTERRUPT):
                continue
            self._reply(opcode, unique, node, body)

    def _reply(self, opcode: int, unique: int, node: int, body: bytes) -> None:
        known: dict[int, Callable[[int, bytes], bytes]] = {
            INIT: self._init,
            LOOKUP: self._look_up,
            GETATTR: lambda node, _: ATTR_HEAD.pack(self._valid_s, 0, 0) + self._attributes(node),
            OPEN: lambda node, _: OPEN_OUT.pack(node, DIRECT_IO, 0),
            OPENDIR: lambda node, _: OPEN_OUT.pack(node, 0, 0),
            READ: self._read,
            READDIR: self._list,
            STATFS: lambda *_: struct.pack("<5Q4I24x", 0, 0, 0, 0, 0, 4096, 255, 4096, 0),
            RELEASE: lambda *_: b"",
            RELEASEDIR: lambda *_: b"",
            FLUSH: lambda *_: b"",
        }
        if opcode not in known:
            self._answer(unique, b"", errno.ENOSYS)
            return
        try:
            data = known[opcode](node, body)
        except OSError as error:
            self._answer(unique, b"", error.errno or errno.EIO)
            return
        with self._lock:
            if self._hangs and opcode == self._call and self._only in ("", self._paths[node].name):
                self._waiting.append((unique, data))
                return
            if self._read_s > 0 and opcode == READ:
                heapq.heappush(self._late, (time.monotonic() + self._read_s, unique, data))
                self._lock.notify()
                return
        self._answer(unique, data)

    def _answer_late(self) -> None:
        while True:
            with self._lock:
                while not self._ended and (not self._late or self._late[0][0] > time.monotonic()):
                    left = self._late[0][0] - time.monotonic() if self._late else None
                    self._lock.wait(left)
                if self._ended:
                    return
                _, unique, data = heapq.heappop(self._late)
            self._answer(unique, data)

    def _interrupt(self, unique: int) -> None:
        with self._lock:
            found = [one for one in self._waiting if one[0] == unique]
            self._waiting = [one for one in self._waiting if one[0] != unique]
        for _ in found:
            self._answer(unique, b"", errno.EINTR)

    def _answer(self, unique: int, data: bytes, error: int = 0) -> None:
        try:
            os.write(
                self._device, OUT_HEADER.pack(OUT_HEADER.size + len(data), -error, unique) + data
            )
        except OSError as failed:
            # Whoever asked is gone, or the whole mount.
            if failed.errno not in (errno.ENOENT, errno.EINVAL, errno.ENODEV, errno.EPERM):
                raise

    @staticmethod
    def _init(_: int, body: bytes) -> bytes:
        _, _, readahead, _ = INIT_IN.unpack_from(body)
        return INIT_OUT.pack(7, 31, readahead, 0, 64, 48, 1 << 17, 1, 0, 0, 0)

    def _look_up(self, node: int, body: bytes) -> bytes:
        path = self._paths[node] / os.fsdecode(body.split(b"\0", 1)[0])
        path.lstat()
        found = self._nodes.setdefault(path, len(self._nodes) + 1)
        self._paths[found] = path
        valid_s = self._valid_s
        return ENTRY_HEAD.pack(found, 0, valid_s, valid_s, 0, 0) + self._attributes(found)

    def _attributes(self, node: int) -> bytes:
        info = self._paths[node].lstat()
        times = [divmod(ns, 10**9) for ns in (info.st_atime_ns, info.st_mtime_ns, info.st_ctime_ns)]
        return ATTR.pack(
            *(node, info.st_size, info.st_blocks, *(second for second, _ in times)),
            *(*(rest for _, rest in times), info.st_mode, info.st_nlink, 0, 0, 0, 4096, 0),
        )

    def _read(self, node: int, body: bytes) -> bytes:
        _, offset, size, _ = READ_IN.unpack_from(body)
        with self._paths[node].open("rb") as file:
            return os.pread(file.fileno(), size, offset)

    def _list(self, node: int, body: bytes) -> bytes:
        _, offset, size, _ = READ_IN.unpack_from(body)
        entries = sorted(self._paths[node].iterdir())[offset:]
        listed = b""
        for number, path in enumerate(entries, start=offset + 1):
            name = os.fsencode(path.name)
            kind = stat.S_IFMT(path.lstat().st_mode) >> 12
            entry = DIRENT.pack(number + ROOT, number, len(name), kind) + name
            entry += bytes(-len(entry) % 8)
            if len(listed) + len(entry) > size:
                break
            listed += entry
        return listed
