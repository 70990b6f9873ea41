# SPDX-License-Identifier: Apache-2.0
"""The processes that run a user's function on rows: see proto/spdld/runner.h."""

from __future__ import annotations

import asyncio
import gc
import grp
import hashlib
import importlib
import importlib.util
import inspect
import json
import mmap
import os
import pwd
import random
import socket
import struct
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ._errors import BadSample
from ._runner_dataset import Items
from ._runner_frames import (
    ALIGNMENT,
    ANSWERS,
    CELLS,
    DESCRIBE,
    FRAMES,
    IMPORT_FAILED,
    MAGIC,
    MAX_CALL_ROWS,
    TYPES,
    VERSION,
    TurnedAway,
    code_digest,
    connect,
    digest_of,
    file_digest,
    receive,
    send,
)

try:
    from ml_dtypes import bfloat16 as _bfloat16
except ImportError:
    _bfloat16 = "uint16"

_TEXT_BYTES = 8192
_MOST_FILES = 400  # whose changes are noticed
_GROUP_S = 0.0002  # answers of rows that are quicker are told together
_NUMBERS = {
    "int64": struct.Struct("<q"),
    "float64": struct.Struct("<d"),
    "bool": struct.Struct("<?"),
}
_ENTRY = "2Q8q"
_NO_SHAPE = (0,) * 8
_imported: dict[str, bytes] = {}  # digests of files, as they were before they were executed


def load(call: str) -> Any:
    """What "package.module:name" or "/path/file.py:name" names."""
    place, _, name = call.rpartition(":")
    if place.endswith(".py"):
        path = Path(place)
        _check_own(path.parent, os.stat(path.parent))
        sys.path.append(str(path.parent))
        known = path.stem if path.stem not in sys.modules else f"spdld_{path.stem}"
        # Jobs share the processes: what a relative path means must not hang on who started them.
        os.chdir(path.parent)
        spec = importlib.util.spec_from_file_location(known, path)
        target = sys.modules[known] = importlib.util.module_from_spec(spec)
        exec(compile(_own_text(path), path, "exec"), target.__dict__)
    else:
        os.chdir("/")
        _note_origins(place)
        target = importlib.import_module(place)
    for part in name.split("."):
        target = getattr(target, part)
    return target


def _own_text(path: Path) -> bytes:
    with path.open("rb") as file:
        _check_own(path, os.fstat(file.fileno()))
        text = file.read()
    _imported[str(path)] = digest_of(text)
    return text


def _note_origins(module: str) -> None:
    """Of the module and the packages that it is in. Imports none of them."""
    name, path = "", None
    for part in module.split("."):
        name = f"{name}.{part}" if name else part
        found = (finder.find_spec(name, path) for finder in sys.meta_path)
        spec = next((spec for spec in found if spec is not None), None)
        if spec is None:
            return
        if spec.has_location:
            _imported[spec.origin] = file_digest(spec.origin)
        path = spec.submodule_search_locations
        if path is None:
            return


def _files_with(file: str, place: str) -> list[str]:
    """The files that were imported of the function's package, or from beside its file."""
    if not file:
        return []
    root = os.path.dirname(file)
    package = getattr(sys.modules.get(place.partition(".")[0]), "__path__", None)
    if package and not place.endswith(".py"):
        root = next(iter(package))
    found = {file}
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if isinstance(path, str) and path.startswith(root + os.sep):
            within = path[len(root) :]
            if "site-packages" not in within and (package or "site-packages" not in root):
                found.add(path)
    return sorted(found)[:_MOST_FILES]


def _check_own(path: Path, info: os.stat_result) -> None:
    """PermissionError: others than this user and root can have written it."""
    if info.st_uid not in (os.geteuid(), 0):
        raise PermissionError(
            f"{path} belongs to uid {info.st_uid}, and code runs as uid {os.geteuid()} only "
            "from what is that user's or root's: make a copy of your own"
        )
    if info.st_mode & 0o002 or (info.st_mode & 0o020 and not _is_private(info.st_gid)):
        raise PermissionError(
            f"{path} can be written by others than you (mode {info.st_mode & 0o777:03o}), and "
            f"what is there would run as you: chmod go-w {path}"
        )


def _is_private(gid: int) -> bool:
    """Whether it is the group that this user has alone."""
    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(gid)
    except KeyError:
        return False
    return (
        user.pw_gid == gid and group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}
    )


def load_or_exit(pool: dict[str, Any]) -> Rows:
    failed = "cannot be imported"
    try:
        named = load(pool["call"])
        failed = "was imported, and cannot be made or called"
        return Rows(pool, named)
    except BaseException:
        version = ".".join(map(str, sys.version_info[:3]))
        print(
            f"{pool['call']} {failed} by {sys.executable} (Python {version}), whose sys.path is "
            f"{sys.path}, in {os.getcwd()}:\n{traceback.format_exc()}",
            file=sys.stderr,
            flush=True,
        )
        os._exit(IMPORT_FAILED)


class _Mismatch(Exception):  # noqa: N818 - what a row gave is not what is declared
    pass


class _NoRoom(Exception):  # noqa: N818 - no error of the function
    pass


def _declared(field: dict[str, Any]) -> str:
    if field["kind"] != "array":
        return field["kind"]
    return f"{field['dtype']}{json.dumps(field['shape'])}"


def _came(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{json.dumps(value.shape)}"
    return type(value).__name__


class Rows:
    """Calls the function on the rows of one Call after the other."""

    def __init__(self, pool: dict[str, Any], named: Any) -> None:
        self.call = pool["call"]
        self.args = json.loads(pool["args"])
        place = self.call.rpartition(":")[0]
        # Of an instance, what its class's module has is not what made it.
        is_defined = isinstance(named, type) or inspect.isroutine(named)
        module = sys.modules.get(getattr(named, "__module__", "") if is_defined else place)
        if pool["dataset"]:
            function = Items(self.call, named, self.args)
            self.args = {}
        elif callable(named):
            function = named
        else:
            raise TypeError(f"{self.call} is a {type(named).__name__}, and no function")
        self.function = function
        file = str(Path(place)) if place.endswith(".py") else getattr(module, "__file__", "")
        self.files = _files_with(file, place)
        self.code = code_digest(self.files, _imported)
        self.names = [field["name"] for field in pool["out"]]
        self.awaits = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004 - whether it is a coroutine's
        )
        parameters = _parameters(function)
        given = {field["name"] for field in pool["in"]} | self.args.keys()
        self._with_rng = "rng" in parameters and "rng" not in given
        self._rngs: list[_Rng] = []
        self._readers = [
            (field["name"], self._optional_reader(field, 4 + 10 * i))
            for i, field in enumerate(pool["in"])
        ]
        self._encoders = [_encoder(field) for field in pool["out"]]
        self._row = struct.Struct("<4Q" + _ENTRY * len(pool["in"]))
        self._fields = struct.Struct("<2Q" + _ENTRY * len(pool["out"]))
        self._no_fields = [0] * (10 * len(pool["out"]))
        self._entry_bytes = 8 + self._fields.size
        self._pid = os.getpid()
        self._loop: asyncio.AbstractEventLoop | None = None

    def open_cells(self, input_bytes: int, answer_bytes: int, fds: list[int]) -> None:
        # A view that the function has kept keeps the old mapping.
        self._input = mmap.mmap(fds[0], CELLS * input_bytes, prot=mmap.PROT_READ)
        self._answers = mmap.mmap(fds[1], CELLS * answer_bytes)
        self._cell_bytes = (input_bytes, answer_bytes)
        for fd in fds:
            os.close(fd)

    def run(self, link: socket.socket, call: int, cell: int, rows: int) -> None:
        self._pid = os.getpid()
        self._call = call
        self._from, self._to = (cell * size for size in self._cell_bytes)
        table = MAX_CALL_ROWS * self._entry_bytes
        self._at = self._to + (table + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
        self._end = self._to + self._cell_bytes[1]
        if self.awaits:
            self._loop = self._loop or asyncio.new_event_loop()
            self._loop.run_until_complete(self._run_at_once(link, rows))
            return
        answer = FRAMES["Answer"]
        told = 0
        last = time.perf_counter()
        full = False
        for i in range(rows):
            if full:
                self._put_plain(i, "NoRoom", 0, 0)
            else:
                try:
                    arguments = self._arguments(i)
                    describes = self._item == DESCRIBE
                    result = (
                        self.function.description() if describes else self.function(**arguments)
                    )
                except BaseException as error:
                    self._check_process()
                    self._fail(i, error)
                else:
                    self._check_process()
                    if describes:
                        self._put_text(i, "Description", result)
                    else:
                        full = not self._answer(i, result)
            now = time.perf_counter()
            if now - last > _GROUP_S or i + 1 == rows:
                link.send(answer.pack(TYPES["Answer"], answer.size, call, told, i + 1 - told))
                told = i + 1
                last = now

    async def _run_at_once(self, link: socket.socket, rows: int) -> None:
        async def run(i: int) -> None:
            try:
                result = await self.function(**self._arguments(i))
            except BaseException as error:
                self._check_process()
                self._fail(i, error)
            else:
                self._check_process()
                self._answer(i, result)
            send(link, "Answer", self._call, i, 1)

        await asyncio.gather(*[run(i) for i in range(rows)])

    def _check_process(self) -> None:
        if os.getpid() != self._pid:  # the function has forked, and both came back
            os._exit(0)

    def _arguments(self, i: int) -> dict[str, Any]:
        values = self._row.unpack_from(self._input, self._from + i * self._row.size)
        self._item = values[3]
        arguments = {name: read(values) for name, read in self._readers}
        if self.args:
            arguments.update(self.args)
        if self._with_rng:
            at = i if self.awaits else 0
            while len(self._rngs) <= at:
                self._rngs.append(_Rng())
            arguments["rng"] = self._rngs[at].at(values[0], values[1], values[2])
        else:
            _seed_all(values[0], values[1], values[2])
        return arguments

    def _optional_reader(self, field: dict[str, Any], at: int) -> Callable[[tuple], Any]:
        read = self._reader(field, at)
        if not field["optional"]:
            return read
        return lambda values: read(values) if values[at] != 0 else None

    def _reader(self, field: dict[str, Any], at: int) -> Callable[[tuple], Any]:
        kind = field["kind"]

        def raw(values: tuple) -> bytes:
            start = self._from + values[at]
            return self._input[start : start + values[at + 1]]

        if kind == "array":
            dtype = _dtype(field)
            ndim = len(field["shape"])
            first, end = at + 2, at + 2 + ndim

            def array(values: tuple) -> np.ndarray:
                return np.ndarray(values[first:end], dtype, self._input, self._from + values[at])

            return array
        if kind == "bytes":
            return raw
        if kind == "text":
            return lambda values: raw(values).decode(errors="replace")
        return lambda values: _NUMBERS[kind].unpack_from(self._input, self._from + values[at])[0]

    def _values(self, result: object) -> list[Any]:
        names = self.names
        if isinstance(result, dict):
            for name in names:
                if name not in result:
                    raise _Mismatch(f"gave no {name!r}, which 'out' declares")
            for name in result:
                if name not in names:
                    raise _Mismatch(f"gave {name!r}, which 'out' does not declare")
            return [result[name] for name in names]
        listed = isinstance(result, list) and len(names) != 1
        if listed or (isinstance(result, tuple) and (len(names) != 1 or len(result) == 1)):
            if len(result) != len(names):
                raise _Mismatch(f"gave {len(result)} values, and 'out' declares {len(names)}")
            return list(result)
        if len(names) != 1:
            raise _Mismatch(
                f"gave a {type(result).__name__}, and 'out' declares {', '.join(names)}: give a "
                "dict, or a tuple in that order"
            )
        return [result]

    def _answer(self, i: int, result: object) -> bool:
        """False: its cell is full."""
        if result is None:
            self._put_plain(i, "Rejected", 0, 0)
            return True
        try:
            if type(result) is np.ndarray and len(self._encoders) == 1:
                coded = [self._encoders[0](result)]
            else:
                values = self._values(result)
                coded = [code(v) for code, v in zip(self._encoders, values, strict=True)]
        except _Mismatch as error:
            self._put_error(i, "Raised", f"{self.call} {error}")
            return True
        except BaseException as error:
            self._fail(i, error)
            return True
        flat = [0, 0]
        at = self._at
        for _, size, shape in coded:
            flat += (at - self._to, size, *shape)
            at += (size + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
        if at > self._end:
            self._put_plain(i, "NoRoom", 0, at - self._at)
            return False
        answers = self._answers
        at = self._at
        for data, size, _ in coded:
            if type(data) is np.ndarray:
                np.copyto(np.ndarray(data.shape, data.dtype, answers, at), data)
            else:
                answers[at : at + size] = data
            at += (size + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
        self._at = at
        self._put(i, "Fields", flat)
        return True

    def _fail(self, i: int, error: BaseException) -> None:
        if isinstance(error, BadSample):
            self._put_error(i, "BadSample", f"{self.call} raised BadSample: {error}")
        elif isinstance(error, (ConnectionError, TimeoutError, asyncio.TimeoutError)):
            self._put_error(i, "Unavailable", f"{self.call} raised {type(error).__name__}: {error}")
        else:
            frames = error.__traceback__
            while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
                frames = frames.tb_next
            lines = traceback.format_exception(type(error), error, frames)
            self._put_error(i, "Raised", f"{self.call} raised\n{''.join(lines).rstrip()}")

    def _put_error(self, i: int, kind: str, text: str) -> None:
        data = text.encode(errors="replace")
        if len(data) > _TEXT_BYTES:
            data = data[: _TEXT_BYTES // 2] + b"\n...\n" + data[-_TEXT_BYTES // 2 :]
        self._put_text(i, kind, data)

    def _put_text(self, i: int, kind: str, data: bytes) -> None:
        if self._at + len(data) > self._end:
            self._put_plain(i, "NoRoom", 0, len(data))
            return
        self._answers[self._at : self._at + len(data)] = data
        self._put_plain(i, kind, self._at - self._to, len(data))
        self._at += (len(data) + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT

    def _put_plain(self, i: int, kind: str, offset: int, size: int) -> None:
        self._put(i, kind, [offset, size, *self._no_fields])

    def _put(self, i: int, kind: str, flat: list[int]) -> None:
        entry = self._to + i * self._entry_bytes
        self._fields.pack_into(self._answers, entry + 8, *flat)
        # Last and at once, as the entry counts from then on.
        _MARK.pack_into(self._answers, entry, (self._call & 0xFFFFFFFF) << 32 | ANSWERS[kind])


_MARK = struct.Struct("<Q")


def _parameters(function: Callable[..., Any]) -> set[str]:
    try:
        return set(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return set()


def _dtype(field: dict[str, Any]) -> np.dtype:
    return np.dtype(_bfloat16 if field["dtype"] == "bfloat16" else field["dtype"])


def _encoder(field: dict[str, Any]) -> Callable[[Any], tuple[Any, int, tuple[int, ...]]]:
    """Of a value: its bytes or array, how many bytes that is, and its shape."""
    name, kind, most = field["name"], field["kind"], field["max_bytes"]

    def wrong(value: object) -> _Mismatch:
        return _Mismatch(f"gave {name!r} as {_came(value)}, and 'out' declares {_declared(field)}")

    def bounded(size: int) -> int:
        if size > most:
            raise _Mismatch(
                f"gave {name!r} of {size} bytes, and a row of it may take {most} (max_bytes)"
            )
        return size

    if kind == "array":
        dtype, shape = _dtype(field), tuple(field["shape"])
        fixed = all(extent >= 0 for extent in shape)
        pad = (0,) * (8 - len(shape))
        whole = (*shape, *pad)

        def array(value: Any) -> tuple[Any, int, tuple[int, ...]]:
            given = value
            if type(value) is not np.ndarray and (
                type(value) is list
                or hasattr(value, "__array__")
                or hasattr(value, "__array_interface__")
            ):
                value = np.asarray(value, dtype if type(value) is list and not value else None)
            if not isinstance(value, np.ndarray) or value.dtype != dtype:
                raise wrong(given)
            if dtype == np.bool_:  # a byte may be something else
                value = value.view(np.uint8) != 0
            if value.shape == shape:
                return value, value.nbytes, whole
            if fixed or len(value.shape) != len(shape):
                raise wrong(given)
            if any(want >= 0 and want != got for want, got in zip(shape, value.shape, strict=True)):
                raise wrong(given)
            return value, bounded(value.nbytes), (*value.shape, *pad)

        return array
    if kind in ("bytes", "text"):
        of = str if kind == "text" else (bytes, bytearray, memoryview)

        def data(value: Any) -> tuple[Any, int, tuple[int, ...]]:
            if not isinstance(value, of):
                raise wrong(value)
            coded = value.encode() if kind == "text" else bytes(value)
            return coded, bounded(len(coded)), _NO_SHAPE

        return data
    form = _NUMBERS[kind]
    allowed = {
        "int64": (int, np.integer),
        "float64": (float, int, np.floating, np.integer),
        "bool": (bool, np.bool_),
    }[kind]

    def number(value: Any) -> tuple[Any, int, tuple[int, ...]]:
        if getattr(value, "ndim", None) == 0 and not isinstance(value, np.generic):
            value = value.item()  # of a tensor or array of one number
        if not isinstance(value, allowed) or (
            kind != "bool" and isinstance(value, (bool, np.bool_))
        ):
            raise wrong(value)
        try:
            return form.pack(value), form.size, _NO_SHAPE
        except (struct.error, OverflowError):
            raise _Mismatch(f"gave {name!r} as {value!r}, which no {kind} holds") from None

    return number


class _Rng:
    """A numpy Generator whose draws hang on the row's key alone."""

    def __init__(self) -> None:
        self._bits = np.random.Philox(key=0)
        self._generator = np.random.Generator(self._bits)
        self._state = self._bits.state
        # Set for each row: numbers of Python's own are quicker to read than an array's.
        self._state["buffer"] = self._state["buffer"].tolist()

    def at(self, seed: int, epoch: int, position: int) -> np.random.Generator:
        state = self._state["state"]
        # Two keys share no draws: those of one row count the lower half of the counter.
        state["key"] = (seed, epoch)
        state["counter"] = (0, 0, position, 0)  # the last: the stage's number
        self._bits.state = self._state
        return self._generator


def _seed_all(seed: int, epoch: int, position: int) -> None:
    """Seeds what functions draw from that have no ``rng``."""
    key = FRAMES["RowEntry"].pack(seed, epoch, position, 0)
    words = struct.unpack("<4I", hashlib.blake2b(key, digest_size=16).digest())
    random.seed(words[0] << 32 | words[1])
    np.random.seed(words[2])  # of two words it takes five times as long
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(words[0] << 31 ^ words[3])


def serve(rows: Rows, address: str, key: str, token: bytes, number: int) -> None:
    """Never returns."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(line_buffering=True)
    try:
        link = connect(address)
        send(
            link,
            "ChildHello",
            MAGIC,
            VERSION,
            key.encode(),
            token,
            number,
            os.getpid(),
            rows.awaits,
            0,
            rows.code,
        )
        while True:
            name, values, fds = receive(link)
            if name == "Call":
                rows.run(link, *values)
            elif name == "CellsOpen":
                rows.open_cells(*values, fds)
    except (EOFError, OSError):
        os._exit(0)  # the daemon, or what it had this pool for, is gone
    except TurnedAway as why:
        print(f"spdld.runner: {why}", file=sys.stderr, flush=True)
        os._exit(1)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def be_seed(pool: dict[str, Any], orders: socket.socket, start: Callable[[int], None]) -> None:
    """Imports the function once, and forks a child for each order. Never returns.

    A child's parent is to be the supervisor: so it is the child of a process that ends at once.
    ``start(middle)`` waits for that.
    """
    rows = load_or_exit(pool)
    gc.collect()
    gc.freeze()  # the children share its pages for longer
    orders.send(json.dumps({"files": rows.files, "code": rows.code.hex()}).encode())
    while True:
        data, fds, _, _ = socket.recv_fds(orders, 4096, 1)
        if not data:
            os._exit(0)
        order = json.loads(data)
        middle = os.fork()
        if middle == 0:
            middle = os.getpid()
            child = os.fork()
            if child == 0:
                os.dup2(fds[0], 1)
                os.dup2(fds[0], 2)
                os.close(fds[0])
                orders.close()
                start(middle)
                serve(
                    rows,
                    order["address"],
                    order["key"],
                    bytes.fromhex(order["token"]),
                    order["number"],
                )
            orders.send(json.dumps({"number": order["number"], "pid": child}).encode())
            os._exit(0)
        if os.waitpid(middle, 0)[1] != 0:
            orders.send(json.dumps({"number": order["number"], "pid": 0}).encode())
        os.close(fds[0])
