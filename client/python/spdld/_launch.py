# SPDX-License-Identifier: Apache-2.0
"""Starts a daemon where there is none: one for all ranks of a user on a node, or a private one."""

from __future__ import annotations

import contextlib
import enum
import errno
import fcntl
import glob
import json
import os
import re
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._errors import ConnectionError
from ._pipeline import is_file, read

if TYPE_CHECKING:
    from ._loader import Loader

SYSTEM_DIRECTORY = "/run/spdld"
IDLE_SECONDS = 2
_START_SECONDS = 30.0
_STOP_SECONDS = 35.0  # the daemon's own deadline is 30 s
_SOCKET = "data.sock"
_LOG = "spdld.log"
# A daemon that was started here removes its directory in the end, and all that is in it.
_CONTENTS = {_SOCKET, _LOG, "control.sock", "lock", "state"}
_SCHEDULER_JOBS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID", "JOB_ID")
# What a service manager told the trainer and does not mean the daemon.
_NOT_INHERITED = (
    "NOTIFY_SOCKET",
    "WATCHDOG_USEC",
    "WATCHDOG_PID",
    "LISTEN_FDS",
    "LISTEN_PID",
    "LISTEN_FDNAMES",
    "JOURNAL_STREAM",
)


def own_directory() -> Path:
    """Where this user's daemon of this scheduler job lives; need not be there."""
    name = f"spdld-{os.geteuid()}"
    job = next((os.environ[key] for key in _SCHEDULER_JOBS if os.environ.get(key)), None)
    if job is not None:
        name += "-" + re.sub(r"[^A-Za-z0-9._-]", "_", job)[:64]
    return _base_directory() / name


def _base_directory() -> Path:
    given = os.environ.get("XDG_RUNTIME_DIR", "")
    with contextlib.suppress(OSError):
        found = os.stat(given)
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid():
            return Path(given)
    return Path("/tmp")


def answers(directory: str | os.PathLike[str]) -> bool:
    """Whether a daemon accepts connections at this runtime directory."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK) as probe:
        try:
            probe.connect(os.path.join(directory, _SOCKET))
        except BlockingIOError:
            return True  # it listens, and others are before us
        except OSError:
            return False
    return True


def choose(address: str) -> tuple[str, _Starter | None]:
    """The runtime directory to use for launch=True, and what starts a daemon there.

    A given address (or $SPDLD_ADDRESS) is kept. Else it is the system's daemon if that answers,
    with nothing to start, else this user's own.
    """
    given = address or os.environ.get("SPDLD_ADDRESS", "")
    if given:
        return given, _Starter(Path(given))
    if answers(SYSTEM_DIRECTORY):
        return SYSTEM_DIRECTORY, None
    directory = own_directory()
    return str(directory), _Starter(directory)


class _Starter:
    """libspdld calls it when no daemon answers. Any number of processes may do so at once."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def __call__(self, reason: str) -> None:
        ensure(self._directory)


def ensure(directory: Path) -> None:
    """Sees to it that a daemon answers at ``directory``. Raises ConnectionError if none starts.

    Processes take turns by a lock on the directory. A daemon that has just decided to leave may
    take the directory away under a new one: then it is tried again.
    """
    attempts = 3
    for attempt in range(1, attempts + 1):
        with _locked(directory):
            if answers(directory):
                return
            pid, alive_fd = _spawn_detached(_command(directory, idle=True), directory / _LOG)
            try:
                outcome = _wait_ready(directory, alive_fd)
            finally:
                os.close(alive_fd)
            if outcome is _Start.READY:
                return
            if outcome is _Start.TIMEOUT:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if outcome is _Start.TIMEOUT or attempt == attempts:
                raise _start_failure(directory)


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Holds the lock on ``directory``, which is made if need be, and is checked to be ours."""
    while True:
        try:
            os.mkdir(directory, 0o700)
        except FileExistsError:
            pass
        except OSError as error:
            raise ConnectionError(
                f"no daemon answers at {directory}, and none can be started there: cannot make "
                f"the directory: {error.strerror}"
            ) from error
        try:
            fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # a leaving daemon took it away
        except OSError as error:
            raise _unsafe(directory, _why_not_opened(error)) from error
        try:
            found = os.fstat(fd)
            if found.st_uid != os.geteuid():
                raise _unsafe(directory, f"it belongs to uid {found.st_uid}")
            if found.st_mode & 0o077:
                raise _unsafe(
                    directory,
                    f"others may enter it (mode {stat.S_IMODE(found.st_mode):04o}): 'chmod 700' it",
                )
            fcntl.flock(fd, fcntl.LOCK_EX)
            if _is_still(directory, found):
                foreign = sorted(set(os.listdir(fd)) - _CONTENTS)
                if foreign:
                    raise _unsafe(directory, f"it holds {foreign[0]}, which no daemon put there")
                yield
                return
        finally:
            os.close(fd)


def _why_not_opened(error: OSError) -> str:
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return "it is a link or a file"
    return error.strerror or str(error)


def _is_still(directory: Path, opened: os.stat_result) -> bool:
    try:
        now = os.stat(directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return (now.st_dev, now.st_ino) == (opened.st_dev, opened.st_ino)


def _unsafe(directory: Path, why: str) -> ConnectionError:
    return ConnectionError(
        f"no daemon answers at {directory}, and none is started there, because {why}; remove it, "
        "or give another directory by address= or $SPDLD_ADDRESS"
    )


def find_binary() -> str:
    """The daemon's program: $SPDLD_BIN, beside the package, in its build tree, on PATH."""
    named = os.environ.get("SPDLD_BIN")
    if named:
        if os.access(named, os.X_OK) and os.path.isfile(named):
            return os.path.abspath(named)
        raise ConnectionError(f"no daemon can be started: $SPDLD_BIN is {named}: no such program")
    package = Path(__file__).absolute().parent
    beside = [
        package / "bin" / "spdld",
        package.parent.parent / "bin" / "spdld",
        Path(sys.executable).parent / "spdld",
    ]
    for candidate in beside:
        if os.access(candidate, os.X_OK) and candidate.is_file():
            return str(candidate)
    on_path = shutil.which("spdld")
    if on_path is None:
        raise ConnectionError(
            "no daemon can be started: there is no program 'spdld' beside the package or on PATH; "
            "install it, or say where it is by $SPDLD_BIN"
        )
    return on_path


def _command(
    directory: Path, *, idle: bool = False, parent_fd: int = -1, pipelines: Sequence[str] = ()
) -> list[str]:
    settings = {
        "runtime_dir": str(directory),
        "state_dir": str(directory / "state"),
        "pipelines": [glob.escape(pipeline) for pipeline in pipelines],
        "http": None,
    }
    command = [find_binary(), "--own-runtime-dir"]
    if idle:
        command += ["--exit-when-idle", str(IDLE_SECONDS)]
    if parent_fd >= 0:
        command += ["--parent-fd", str(parent_fd)]
    for key, value in settings.items():
        command += ["--set", f"{key}={json.dumps(value)}"]
    return command


def _spawn(command: list[str], log: Path, pass_fds: Sequence[int]) -> subprocess.Popen[bytes]:
    """Starts in a session of its own, on all cores of the cpuset, whichever this rank is bound to.

    A thread does it: it widens its own affinity, which the child inherits, and no one else's.
    """
    result: list[subprocess.Popen[bytes]] = []
    failure: list[BaseException] = []

    def start() -> None:
        try:
            with contextlib.suppress(OSError):
                os.sched_setaffinity(0, range(_possible_cpus()))
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
            output = os.open(log, flags, 0o600)
            try:
                result.append(
                    subprocess.Popen(
                        command,
                        stdin=subprocess.DEVNULL,
                        stdout=output,
                        stderr=output,
                        cwd="/",
                        env={k: v for k, v in os.environ.items() if k not in _NOT_INHERITED},
                        pass_fds=pass_fds,
                        start_new_session=True,
                    )
                )
            finally:
                os.close(output)
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=start, name="spdld-launch")
    thread.start()
    thread.join()
    if failure:
        raise ConnectionError(f"cannot start {command[0]}: {failure[0]}") from failure[0]
    return result[0]


def _spawn_detached(command: list[str], log: Path) -> tuple[int, int]:
    """Leaves a daemon that is nobody's child, so that its end leaves no zombie to a trainer.

    Returns its pid and a file descriptor that reads as ended when the daemon has.
    """
    alive_read, alive_write = os.pipe()
    try:
        script = f'"$@" & echo $! >/dev/fd/{alive_write}'
        _spawn(["/bin/sh", "-c", script, "sh", *command], log, [alive_write]).wait()
    except BaseException:
        os.close(alive_read)
        raise
    finally:
        os.close(alive_write)
    told = os.read(alive_read, 32)
    if not told.strip().isdigit():
        os.close(alive_read)
        raise _start_failure(log.parent)
    return int(told), alive_read


def _possible_cpus() -> int:
    with contextlib.suppress(OSError, ValueError):
        text = Path("/sys/devices/system/cpu/possible").read_text()
        return int(re.split("[-,]", text.strip())[-1]) + 1
    return os.cpu_count() or 1


class _Start(enum.Enum):
    READY = enum.auto()
    ENDED = enum.auto()
    TIMEOUT = enum.auto()


def _wait_ready(directory: Path, alive_fd: int) -> _Start:
    """Until a daemon answers, or ``alive_fd`` says that it has ended, or it took too long."""
    give_up = time.monotonic() + _START_SECONDS
    while time.monotonic() < give_up:
        if answers(directory):
            return _Start.READY
        ended, _, _ = select.select([alive_fd], [], [], 0.005)
        if ended:
            return _Start.ENDED
    return _Start.TIMEOUT


def _start_failure(directory: Path) -> ConnectionError:
    log = directory / _LOG
    last = ""
    with contextlib.suppress(OSError):
        last = "\n".join(log.read_text(errors="replace").splitlines()[-5:])
    said = f"; it said:\n{last}" if last else ""
    return ConnectionError(f"a daemon was started at {directory} and did not come up{said}")


class Server:
    """A private daemon that ends with its starter: what ``spdld.launch()`` gives.

    ``address`` is its runtime directory, for ``Loader(address=…)`` and ``spdlctl --address``.
    It ends by stop(), at the end of a ``with``, when the object is dropped, or when this process
    ends in whatever way; its directory goes with it.
    """

    def __init__(self, pipeline: str | os.PathLike[str] | None, *, prefix: str = "spdld-") -> None:
        self._pipeline = None if pipeline is None else Path(read(pipeline).file)
        directory = Path(tempfile.mkdtemp(prefix=prefix, dir=_base_directory()))
        self.address = str(directory)
        parent_read, parent_write = os.pipe()
        alive_read, alive_write = os.pipe()
        try:
            pipelines = [] if self._pipeline is None else [str(self._pipeline)]
            process = _spawn(
                _command(directory, parent_fd=parent_read, pipelines=pipelines),
                directory / _LOG,
                [parent_read, alive_write],
            )
        except BaseException:
            for fd in (parent_write, alive_read):
                os.close(fd)
            shutil.rmtree(directory, ignore_errors=True)
            raise
        finally:
            for fd in (parent_read, alive_write):
                os.close(fd)
        self.pid = process.pid
        self._stop = weakref.finalize(
            self, _stop_server, process, parent_write, directory, os.getpid()
        )
        try:
            outcome = _wait_ready(directory, alive_read)
        finally:
            os.close(alive_read)
        if outcome is not _Start.READY:
            failure = _start_failure(directory)
            self.stop()
            raise failure

    @property
    def log(self) -> str:
        """Path of the daemon's log; gone once it has stopped."""
        return str(Path(self.address) / _LOG)

    def loader(self, pipeline: str | os.PathLike[str] | None = None, **options: Any) -> Loader:
        """``spdld.Loader`` at this daemon; by default of the pipeline given to launch()."""
        from ._loader import Loader

        chosen = pipeline if pipeline is not None else self._pipeline
        if chosen is None:
            raise ValueError("this server was launched without a pipeline: give one")
        return Loader(chosen, address=self.address, **options)

    def stop(self) -> None:
        """Ends the daemon and waits for it. Idempotent."""
        self._stop()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        state = f"pid {self.pid}" if self._stop.alive else "stopped"
        return f"<spdld.Server at {self.address}, {state}>"


def _stop_server(
    process: subprocess.Popen[bytes], parent_fd: int, directory: Path, starter: int
) -> None:
    os.close(parent_fd)
    if os.getpid() != starter:
        return  # a forked child only lets go of its end
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    shutil.rmtree(directory, ignore_errors=True)


def launch(pipeline: str | os.PathLike[str] | None = None) -> Server:
    """Starts a private daemon, for scripts and tests; it ends with its starter.

    >>> with spdld.launch("pipeline.yaml") as server:
    ...     for batch in server.loader():
    ...         ...

    ``pipeline`` is the path of a YAML file that the daemon applies at its start.
    Raises ConnectionError if it does not come up, with the end of its log; PipelineError if the
    file cannot be read.
    """
    if pipeline is not None and not is_file(pipeline):
        raise ValueError(f"launch() takes the path of a YAML file, not the name {pipeline!r}")
    return Server(pipeline)
