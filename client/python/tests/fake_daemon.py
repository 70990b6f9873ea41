# SPDX-License-Identifier: Apache-2.0
"""A daemon's data socket in a thread: speaks proto/spdld/wire.h, and makes batches of numbers.

Row r of step s in epoch e is item s * batch + r of that epoch, and its fields say so: see
``expected_image``. Slots are used again as soon as they are released, like the real daemon's.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import mmap
import os
import selectors
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from fake_gpu import SharedMemory

HEADER = struct.Struct("<II")
# The fixed parts, header included: test_wire.py compares them with the C++ ones.
FRAMES = {
    "HelloFrame": struct.Struct("<2I 4I 48s"),
    "WelcomeFrame": struct.Struct("<2I 4I 16s 48s"),
    "ErrorFrame": struct.Struct("<2I 4I"),
    "AttachFrame": struct.Struct("<2I 3i I 2q 4I 5Q 4I"),
    "ProgressFrame": struct.Struct("<2I 2Q 2I"),
    "AttachedFrame": struct.Struct("<2I 4Q q 3i I 5Q 2I Q 2I"),
    "ArenaOpenFrame": struct.Struct("<2I 2I Q 16s"),
    "ArenaRetireFrame": struct.Struct("<2I 2I"),
    "SchemaFrame": struct.Struct("<2I 4I"),
    "VersionFrame": struct.Struct("<2I 3Q 4I"),
    "BatchFrame": struct.Struct("<2I Q 2I 6Q 4I"),
    "DeviceArenaFrame": struct.Struct("<2I 2I Q"),
    "DeviceBatchFrame": struct.Struct("<2I Q 2I 6Q 4I 2Q"),
    "EpochEndFrame": struct.Struct("<2I 2Q 2I"),
    "ReleaseFrame": struct.Struct("<2I Q"),
    "HandedFrame": struct.Struct("<2I Q"),
    "SeekFrame": struct.Struct("<2I 2Q 2I"),
    "ResetFrame": struct.Struct("<2I 4Q I 2i I"),
    "QueryFrame": struct.Struct("<2I 2I"),
    "UrisPart": struct.Struct("<2I"),
    "WaitedFrame": struct.Struct("<2I 12Q"),
    "NoticeFrame": struct.Struct("<2I 2I"),
    "ApplyFrame": struct.Struct("<2I 2I 2Q 2I"),
    "AppliedFrame": struct.Struct("<2I 2I 2Q 2I"),
    "RefusedFrame": struct.Struct("<2I 4I"),
    "BlobFrame": struct.Struct("<2I 4I"),
    "DetachFrame": struct.Struct("<2I"),
    "ByeFrame": struct.Struct("<2I 2I"),
    "TextHeader": struct.Struct("<2I"),
    "ArenaHeader": struct.Struct("<Q 4I Q 16s 2Q 2I"),
    "FieldLayout": struct.Struct("<48s 4I 8q 4Q"),
}
TYPES = {
    "Hello": 1,
    "Attach": 2,
    "Release": 3,
    "Seek": 4,
    "Query": 5,
    "Detach": 6,
    "Apply": 7,
    "Waited": 8,
    "Handed": 9,
    "Welcome": 64,
    "Error": 65,
    "Progress": 66,
    "Attached": 67,
    "ArenaOpen": 68,
    "ArenaRetire": 69,
    "Schema": 70,
    "Batch": 71,
    "EpochEnd": 72,
    "Reset": 73,
    "Bye": 74,
    "Version": 75,
    "Standstill": 76,
    "Notice": 77,
    "DeviceArena": 78,
    "DeviceBatch": 79,
    "RunnersWanted": 82,
    "Applied": 80,
    "Refused": 81,
    "Blob": 128,
}
NAMES = {number: name for name, number in TYPES.items()}
PROTOCOL = 5
MAGIC = 0x4C445053
ARENA_MAGIC = 0x414E455241445053
TEXT_KEYS = {
    1: "pipeline",
    2: "job",
    3: "var",
    4: "replica",
    5: "order_digest",
    6: "client",
    7: "pipeline_file",
    8: "env",
    9: "replace",
    10: "command",
    11: "host",
    12: "pid",
    13: "warning",
    14: "device",
}
DENSE, RAGGED, BYTES = 1, 2, 3
DTYPES = {
    "bool": 1,
    "uint8": 2,
    "int64": 6,
    "float16": 7,
    "bfloat16": 8,
    "float32": 9,
    "uint16": 11,
}
SEALS = 0x1 | 0x2 | 0x4 | 0x10  # SEAL, SHRINK, GROW, FUTURE_WRITE
PAGE = 4096
RUN = 2**40 + 77  # of each fake daemon's job
GRANULE = 2 << 20
CAPTIONS = ["a cat", "", "zwölf Boxkämpfer"]


def expected_image(epoch: int, step: int, rows: int, shape: tuple[int, ...]) -> np.ndarray:
    """The image field of that batch: each row one value everywhere."""
    value = (epoch * 100 + step * rows + np.arange(rows)) % 251
    return np.broadcast_to(
        value.astype(np.uint8).reshape(-1, *([1] * len(shape))), (rows, *shape)
    ).copy()


@dataclass
class Options:
    """What the daemon has and how it behaves."""

    server: str = "fake 1.0"
    protocol: int = PROTOCOL
    rows: int = 4
    steps: int = 3
    image_shape: tuple[int, ...] = (3, 96, 96)
    extra_fields: bool = False  # caption, boxes, mask, half, brain
    text_fields: bool = False  # title (text), tokens (padded)
    uneven_padding: bool = False  # of tokens
    depth_field: bool = False  # depth, of uint16
    classes: tuple[str, ...] = ("cat", "dog")
    epochs: int = 0
    credits: int = 4
    order_digest: str = "order-1"
    warnings: tuple[str, ...] = ()  # of the pipeline
    notice: str = ""  # told after Attached
    branch: int = 0  # of the job's run
    tell: tuple[int, ...] = ()  # turns of batches that ask to be told with Handed
    refuse: str = ""  # answer to an attach
    silent: bool = False  # no answer to an attach
    batches_before_hangup: int = 0
    refuse_uris: str = ""  # answer to a query for them
    # To an apply: code and text. None: the job swaps at the next epoch.
    refuse_apply: tuple[int, str] | None = None
    unready: int = 0  # so many applies are answered by "not yet" first
    mute: bool = False  # no answer to an apply
    rows_after_swap: int = 6
    silent_after: int = -1  # batches, and then nothing more comes
    ragged_capacity: int = 4096  # of each field whose rows differ in size
    # Makes so many bytes of a device's memory, as fake_gpu has it: large fields are brought there.
    device_memory: Callable[[int], SharedMemory] | None = None


@dataclass
class _Field:
    name: str
    kind: int
    dtype: str
    shape: tuple[int, ...]
    meta: bool = False
    text: bool = False
    padded: bool = False
    on_device: bool = False
    offset: int = 0
    offsets_offset: int = 0
    shapes_offset: int = 0
    capacity: int = 0


@dataclass
class _Consumer:
    socket: socket.socket
    memory: mmap.mmap | None = None
    device_memory: SharedMemory | None = None
    free: list[int] = field(default_factory=list)
    leased: dict[int, int] = field(default_factory=dict)
    yaml: bytes = b""
    epoch: int = 0
    step: int = 0
    turn: int = 0  # of the next batch
    sent: dict[int, tuple[int, int]] = field(default_factory=dict)  # epoch and step, by turn
    seek: int = 0
    schema: int = 1  # and the pipeline's version
    arena: int = 1
    slot_bytes: int = 0
    device_bytes: int = 0  # of a batch there
    fields: list[_Field] = field(default_factory=list)
    rows: int = 0
    swap_epoch: int | None = None
    ended: bool = False
    detached: bool = False


class Waited(NamedTuple):
    """What a consumer told of its loop."""

    waited_ms: int
    waits: int
    core_waited_ms: int
    steps: int
    between_ms: int
    map_ms: int
    waits_by_length: tuple[int, ...]


class FakeDaemon:
    """Listens at ``directory`` until close(). ``attaches`` and ``log`` tell what consumers sent."""

    def __init__(self, directory: str | os.PathLike[str], options: Options | None = None) -> None:
        self.options = options or Options()
        self.directory = os.fspath(directory)
        self.attaches: list[dict] = []
        self.yaml: list[bytes] = []
        self.released = 0
        self.outstanding = 0
        self.seeks: list[tuple[int, int]] = []  # turn and epoch
        self.skips: list[tuple[int, int]] = []  # turn and steps
        self.handed: list[int] = []  # turns
        self.applies: list[dict] = []
        self.asked_uris: list[tuple[str, tuple[int, ...]]] = []  # digest and indices, by query
        self.waited: list[Waited] = []
        self._next_lease = 1
        self._changed = threading.Condition()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        path = os.path.join(self.directory, "data.sock")
        if os.path.exists(path):
            os.unlink(path)
        self._listener.bind(path)
        self._listener.listen(8)
        self._wake_read, self._wake_write = os.pipe()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        self._consumers: dict[int, _Consumer] = {}
        self._thread = threading.Thread(target=self._run, name="fake-daemon", daemon=True)
        self._thread.start()

    def close(self) -> None:
        os.write(self._wake_write, b"x")
        self._thread.join()
        os.close(self._wake_read)
        os.close(self._wake_write)

    def __enter__(self) -> FakeDaemon:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def wait_until(self, condition) -> None:  # noqa: ANN001
        """Waits until ``condition()`` holds, which is asked after every frame. Fails in 20 s."""
        with self._changed:
            assert self._changed.wait_for(condition, 20), "the daemon never came to that state"

    def move(self, epoch: int, step: int) -> None:
        """What was not sent yet comes from there, as when an operator seeks."""
        with self._changed:
            for consumer in list(self._consumers.values()):
                consumer.epoch, consumer.step, consumer.ended = epoch, step, False
                position = step * consumer.rows
                steps, serial = self.options.steps, consumer.seek
                self._send(consumer, "Reset", epoch, position, step, steps, serial, 0, 1, 0)
                self._feed(consumer)

    def _run(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._listener:
                    accepted, _ = self._listener.accept()
                    self._consumers[accepted.fileno()] = _Consumer(accepted)
                    self._selector.register(accepted, selectors.EVENT_READ)
                elif key.fd == self._wake_read:
                    for consumer in list(self._consumers.values()):
                        self._drop(consumer)
                    self._listener.close()
                    self._selector.close()
                    return
                elif key.fd in self._consumers:
                    with self._changed:
                        self._read(self._consumers[key.fd])
                        self._changed.notify_all()

    def _drop(self, consumer: _Consumer) -> None:
        self.outstanding -= len(consumer.leased)
        self._consumers.pop(consumer.socket.fileno())
        self._selector.unregister(consumer.socket)
        consumer.socket.close()

    def _read(self, consumer: _Consumer) -> None:
        try:
            frame = consumer.socket.recv(65536)
        except ConnectionResetError:
            frame = consumer.socket.recv(65536)  # its last frames come after the error
        if not frame:
            self._drop(consumer)
            return
        kind, size = HEADER.unpack_from(frame)
        assert size == len(frame)
        getattr(self, f"_on_{NAMES[kind].lower()}")(consumer, frame)

    def _send(
        self, consumer: _Consumer, kind: str, *values: object, tail: bytes = b"", fds: tuple = ()
    ) -> None:
        layout = FRAMES[f"{kind}Frame"]
        frame = layout.pack(TYPES[kind], layout.size + len(tail), *values) + tail
        # To one that has gone it is in vain: its hang-up is read next.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            socket.send_fds(consumer.socket, [frame], list(fds))

    def _on_hello(self, consumer: _Consumer, frame: bytes) -> None:
        assert FRAMES["HelloFrame"].unpack(frame)[2] == MAGIC
        protocols, server = [self.options.protocol] * 3, self.options.server.encode()
        self._send(consumer, "Welcome", MAGIC, *protocols, b"g" * 16, server)

    def _on_blob(self, consumer: _Consumer, frame: bytes) -> None:
        consumer.yaml += frame[FRAMES["BlobFrame"].size :]

    def _on_attach(self, consumer: _Consumer, frame: bytes) -> None:
        options = self.options
        names = [
            "shard",
            "num_shards",
            "replicas",
            "credits",
            "batch_size",
            "seed",
            "has_seed",
            "incarnation",
            "start",
            "reconnect",
            "epoch",
            "position",
            "step",
            "run",
            "turn",
            "branch",
            "starts_runners",
            "text_count",
            "blob_bytes",
        ]
        layout = FRAMES["AttachFrame"]
        request = dict(zip(names, layout.unpack_from(frame)[2:], strict=True))
        request["texts"] = _texts(frame, layout.size, request["text_count"])
        self.attaches.append(request)
        self.yaml.append(consumer.yaml)
        if options.silent:
            return
        if options.refuse:
            text = options.refuse.encode()
            self._send(consumer, "Error", 9, 1, len(text), 0, tail=text)
            return
        if request["start"] == 1:
            consumer.epoch, consumer.step = request["epoch"], request["step"]
        if request["start"] == 2:
            consumer.epoch, consumer.step = 7, 0
        of_this_run = request["run"] == RUN
        consumer.turn = request["turn"] if of_this_run else 0
        credits = request["credits"] or options.credits
        texts = [_text(5, options.order_digest)]
        texts += [_text(13, warning) for warning in options.warnings]
        if options.device_memory is not None:
            texts += [_text(14, uuid) for key, uuid in request["texts"] if key == "device"]
        seed = request["seed"] if request["has_seed"] else 42
        self._send(
            consumer,
            "Attached",
            1,
            options.steps * options.rows,
            options.steps,
            options.rows,
            seed,
            max(request["shard"], 0),
            max(request["num_shards"], 1),
            request["replicas"],
            credits,
            consumer.epoch,
            consumer.step,
            consumer.step * options.rows,
            RUN,
            consumer.turn,
            request["branch"] if of_this_run else 0,
            0,
            options.epochs,
            1,
            len(texts),
            tail=b"".join(texts),
        )
        if options.notice:
            notice = options.notice.encode()
            self._send(consumer, "Notice", len(notice), 0, tail=notice)
        consumer.rows = options.rows
        self._announce(consumer, credits)
        self._feed(consumer)

    def _announce(self, consumer: _Consumer, slots: int) -> None:
        """The memory and the layout of the batches that follow."""
        consumer.fields, consumer.slot_bytes, consumer.device_bytes = _lay_out(
            self.options, consumer.rows
        )
        self._open_arena(consumer, slots)
        layouts = b"".join(_layout(each) for each in consumer.fields)
        count = len(consumer.fields)
        self._send(consumer, "Schema", consumer.schema, consumer.schema, count, 0, tail=layouts)

    def _swap(self, consumer: _Consumer) -> None:
        options = self.options
        consumer.swap_epoch = None
        consumer.rows = options.rows_after_swap
        consumer.schema += 1
        self._send(
            consumer,
            "Version",
            options.steps * consumer.rows,
            options.steps,
            consumer.rows,
            consumer.schema,
            1,
            options.credits,
            0,
            tail=_text(5, options.order_digest + "-swapped"),
        )
        retired, consumer.arena = consumer.arena, consumer.arena + 1
        consumer.leased = dict.fromkeys(consumer.leased)  # of the retired arena: no slot comes back
        self._announce(consumer, options.credits)
        self._send(consumer, "ArenaRetire", retired, 0)

    def _open_arena(self, consumer: _Consumer, slots: int) -> None:
        total = PAGE + slots * consumer.slot_bytes
        fd = os.memfd_create("fake-arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, total)
        consumer.memory = mmap.mmap(fd, total)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
        generation = b"a" * 16
        FRAMES["ArenaHeader"].pack_into(
            consumer.memory,
            0,
            ARENA_MAGIC,
            1,
            0,
            PAGE,
            PAGE,
            total,
            generation,
            PAGE,
            consumer.slot_bytes,
            slots,
            consumer.arena,
        )
        self._send(consumer, "ArenaOpen", consumer.arena, 1, total, generation, fds=(fd,))
        os.close(fd)
        consumer.free = list(range(slots))
        if self.options.device_memory is not None:
            total = -(-slots * consumer.device_bytes // GRANULE) * GRANULE
            consumer.device_memory = self.options.device_memory(total)
            fds = (consumer.device_memory.fd,)
            self._send(consumer, "DeviceArena", consumer.arena, 1, total, fds=fds)

    def _feed(self, consumer: _Consumer) -> None:
        options = self.options
        while not consumer.ended and not consumer.detached:
            if consumer.step == options.steps:
                last = consumer.epoch + 1 == options.epochs
                self._send(
                    consumer, "EpochEnd", consumer.epoch, options.steps, consumer.seek, int(last)
                )
                consumer.epoch, consumer.step = consumer.epoch + 1, 0
                consumer.ended = last
                continue
            if consumer.swap_epoch is not None and consumer.epoch >= consumer.swap_epoch:
                self._swap(consumer)
            if not consumer.free or options.silent_after == 0:
                return
            options.silent_after -= 1
            slot = consumer.free.pop(0)
            offset = PAGE + slot * consumer.slot_bytes
            self._fill(consumer, offset, slot)
            lease, self._next_lease = self._next_lease, self._next_lease + 1
            consumer.leased[lease] = slot
            self.outstanding += 1
            on_device = consumer.device_memory is not None
            self._send(
                consumer,
                "DeviceBatch" if on_device else "Batch",
                lease,
                consumer.arena,
                consumer.schema,
                offset,
                consumer.slot_bytes,
                consumer.epoch,
                consumer.step,
                (consumer.step + 1) * consumer.rows,
                consumer.turn,
                consumer.rows,
                consumer.seek,
                options.branch,
                int(consumer.turn in options.tell),
                *((slot * consumer.device_bytes, consumer.device_bytes) if on_device else ()),
            )
            consumer.sent[consumer.turn] = consumer.epoch, consumer.step
            consumer.turn += 1
            consumer.step += 1
            if options.batches_before_hangup:
                options.batches_before_hangup -= 1
                if not options.batches_before_hangup:
                    self._drop(consumer)
                    return

    def _fill(self, consumer: _Consumer, slot: int, number: int) -> None:
        options, epoch, step = self.options, consumer.epoch, consumer.step
        rows = consumer.rows
        content = {
            "image": expected_image(epoch, step, rows, options.image_shape),
            "label": np.arange(rows, dtype=np.int64) + step,
            "__index": np.arange(rows, dtype=np.int64) + step * rows,
            "__valid": np.arange(rows) != rows - 1,
            "mask": np.arange(rows) % 2 == 0,
            "half": np.full((rows, 2), 0.5, np.float16),
            "brain": np.full((rows, 2), 0x3FC0, np.uint16),  # 1.5
            "depth": np.full((rows, 2), 60000, np.uint16),
        }
        captions = [CAPTIONS[r % len(CAPTIONS)].encode() for r in range(rows)]
        boxes = [np.full((r, 2), r, np.float32) for r in range(rows)]
        tokens = [np.full((step + 2,), r, np.int64) for r in range(rows)]
        if options.uneven_padding:
            tokens[-1] = tokens[-1][1:]
        for each in consumer.fields:

            def write_values(values: bytes, each: _Field = each) -> None:
                if each.on_device:
                    at = number * consumer.device_bytes + each.offset
                    consumer.device_memory.write(at, values)
                else:
                    self._write(consumer, slot + each.offset, values)

            if each.kind == DENSE:
                write_values(content[each.name].tobytes())
                continue
            ragged = tokens if each.padded else boxes
            values = captions if each.kind == BYTES else [row.tobytes() for row in ragged]
            sizes = [len(c) for c in captions] if each.kind == BYTES else [r.size for r in ragged]
            write_values(b"".join(values))
            offsets = np.cumsum([0, *sizes]).astype(np.int64)
            self._write(consumer, slot + each.offsets_offset, offsets.tobytes())
            if each.kind == RAGGED:
                shapes = np.array([row.shape for row in ragged], np.int64)
                self._write(consumer, slot + each.shapes_offset, shapes.tobytes())

    @staticmethod
    def _write(consumer: _Consumer, at: int, content: bytes) -> None:
        consumer.memory[at : at + len(content)] = content

    def _on_release(self, consumer: _Consumer, frame: bytes) -> None:
        lease = FRAMES["ReleaseFrame"].unpack(frame)[2]
        slot = consumer.leased.pop(lease)
        if slot is not None:
            consumer.free.append(slot)
            if consumer.device_memory is not None:  # what reads it now reads something else
                at = slot * consumer.device_bytes
                consumer.device_memory.write(at, b"\xee" * consumer.device_bytes)
        self.outstanding -= 1
        self.released += 1
        self._feed(consumer)

    def _on_seek(self, consumer: _Consumer, frame: bytes) -> None:
        _, _, turn, epoch, serial, skip = FRAMES["SeekFrame"].unpack(frame)
        step = 0
        if skip:
            self.skips.append((turn, skip))
            epoch, step = consumer.sent.get(turn, (consumer.epoch, consumer.step))
            step = min(step + skip, self.options.steps)
        else:
            self.seeks.append((turn, epoch))
        consumer.epoch, consumer.step, consumer.seek = epoch, step, serial
        consumer.turn = turn
        consumer.sent = {before: at for before, at in consumer.sent.items() if before < turn}
        consumer.ended = False
        position = step * consumer.rows
        self._send(consumer, "Reset", epoch, position, step, self.options.steps, serial, 0, 1, 0)
        self._feed(consumer)

    def _on_handed(self, consumer: _Consumer, frame: bytes) -> None:
        self.handed.append(FRAMES["HandedFrame"].unpack(frame)[2])

    def _on_apply(self, consumer: _Consumer, frame: bytes) -> None:
        names = ["serial", "at", "epoch", "step", "allow_schema_change", "text_count"]
        layout = FRAMES["ApplyFrame"]
        wish = dict(zip(names, layout.unpack_from(frame)[2:], strict=True))
        wish["vars"] = [text for _, text in _texts(frame, layout.size, wish["text_count"])]
        self.applies.append(wish)
        refusal = self.options.refuse_apply
        if self.options.mute:
            return
        if self.options.unready > 0:
            self.options.unready -= 1
            refusal = (14, "shard 1 is not back; try again")
        if refusal is not None:
            self._refuse(consumer, wish["serial"], *refusal)
            return
        consumer.swap_epoch = consumer.epoch + 1
        self._send(
            consumer, "Applied", wish["serial"], consumer.schema + 1, consumer.swap_epoch, 0, 0, 0
        )

    def _refuse(self, consumer: _Consumer, serial: int, code: int, why: str) -> None:
        text = why.encode()
        self._send(consumer, "Refused", serial, code, len(text), 0, tail=text)

    def _on_query(self, consumer: _Consumer, frame: bytes) -> None:
        _, _, kind, serial = FRAMES["QueryFrame"].unpack_from(frame)
        blob = {1: 2, 2: 3, 3: 4}[kind]
        if kind == 1:
            text = "\0".join(self.options.classes)
        elif kind == 2:
            text = json.dumps({"stages": []})
        elif self.options.refuse_uris:
            self._refuse(consumer, serial, 9, self.options.refuse_uris)
            return
        else:
            at = FRAMES["QueryFrame"].size
            count, digest_bytes = FRAMES["UrisPart"].unpack_from(frame, at)
            items = struct.unpack_from(f"<{count}q", frame, at + 8)
            digest = frame[at + 8 + 8 * count :][:digest_bytes].decode()
            self.asked_uris.append((digest, items))
            text = "".join(f"class/{item}.jpg\0" for item in items)
        data = os.fsencode(text)
        for offset in range(0, max(len(data), 1), 16384):
            self._send(
                consumer, "Blob", blob, serial, offset, len(data), tail=data[offset:][:16384]
            )

    def _on_waited(self, consumer: _Consumer, frame: bytes) -> None:
        _, _, *told = FRAMES["WaitedFrame"].unpack(frame)
        self.waited.append(Waited(*told[:6], tuple(told[6:])))

    def _on_detach(self, consumer: _Consumer, frame: bytes) -> None:
        consumer.detached = True


def _text(key: int, text: str) -> bytes:
    data = text.encode()
    return FRAMES["TextHeader"].pack(key, len(data)) + data + b"\0" * (-len(data) % 4)


def _texts(frame: bytes, at: int, count: int) -> list[tuple[str, str]]:
    found = []
    for _ in range(count):
        key, size = FRAMES["TextHeader"].unpack_from(frame, at)
        at += 8
        found.append((TEXT_KEYS[key], frame[at : at + size].decode()))
        at += (size + 3) // 4 * 4
    return found


def _lay_out(options: Options, rows: int) -> tuple[list[_Field], int, int]:
    fields = [
        _Field("image", DENSE, "uint8", options.image_shape),
        _Field("label", DENSE, "int64", ()),
        _Field("__index", DENSE, "int64", (), meta=True),
        _Field("__valid", DENSE, "bool", (), meta=True),
    ]
    if options.extra_fields:
        fields += [
            _Field("mask", DENSE, "bool", ()),
            _Field("half", DENSE, "float16", (2,)),
            _Field("brain", DENSE, "bfloat16", (2,)),
            _Field("caption", BYTES, "uint8", (-1,)),
            _Field("boxes", RAGGED, "float32", (-1, 2)),
        ]
    if options.text_fields:
        fields += [
            _Field("title", BYTES, "uint8", (-1,), text=True),
            _Field("tokens", RAGGED, "int64", (-1,), padded=True),
        ]
    if options.depth_field:
        fields.append(_Field("depth", DENSE, "uint16", (2,)))
    ends = {False: 0, True: 0}  # in the slot, and on the device

    def take(size: int, on_device: bool = False) -> int:
        start = ends[on_device]
        ends[on_device] = (start + size + 255) // 256 * 256
        return start

    for each in fields:
        width = {"bool": 1, "uint8": 1, "uint16": 2, "float16": 2, "bfloat16": 2}
        width |= {"float32": 4, "int64": 8}
        each.capacity = (
            rows * int(np.prod(each.shape, dtype=int)) * width[each.dtype]
            if each.kind == DENSE
            else options.ragged_capacity
        )
        each.on_device = (
            options.device_memory is not None
            and each.capacity > 65536
            and each.kind != BYTES
            and not each.meta
        )
        each.offset = take(each.capacity, each.on_device)
        if each.kind != DENSE:
            each.offsets_offset = take(8 * (rows + 1))
        if each.kind == RAGGED:
            each.shapes_offset = take(8 * rows * len(each.shape))
    return fields, (ends[False] + PAGE - 1) // PAGE * PAGE, ends[True]


def _layout(each: _Field) -> bytes:
    shape = each.shape + (0,) * (8 - len(each.shape))
    return FRAMES["FieldLayout"].pack(
        each.name.encode(),
        each.kind,
        DTYPES[each.dtype],
        len(each.shape),
        int(each.meta) + 2 * int(each.text) + 4 * int(each.padded) + 8 * int(each.on_device),
        *shape,
        each.offset,
        each.capacity,
        each.offsets_offset,
        each.shapes_offset,
    )
