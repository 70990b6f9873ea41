# SPDX-License-Identifier: Apache-2.0
"""Starts a daemon where there is none: one for all ranks of a user on a node."""

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
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from ._errors import ConnectionError

SYSTEM_DIRECTORY = "/run/spdld"
IDLE_SECONDS = 2
_START_SECONDS = 30.0
_SOCKET = "data.sock"
LOG = "spdld.log"
# A daemon that was started here removes its directory in the end, and all that is in it.
_CONTENTS = {_SOCKET, LOG, "control.sock", "runner.sock", "lock", "lock.next", "state"}
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
    return base_directory() / name


def base_directory() -> Path:
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
            pid, alive_fd = _spawn_detached(command_for(directory, idle=True), directory / LOG)
            try:
                outcome = wait_ready(directory, alive_fd)
            finally:
                os.close(alive_fd)
            if outcome is Start.READY:
                return
            if outcome is Start.TIMEOUT:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if outcome is Start.TIMEOUT or attempt == attempts:
                raise start_failure(directory)


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
                    raise _unsafe(
                        directory,
                        f"it holds {foreign[0]!r} and is no runtime_dir; if a daemon runs with one "
                        f"below it, SPDLD_ADDRESS={directory / foreign[0]} leads there",
                        mend="",
                    )
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


def _unsafe(directory: Path, why: str, mend: str = "remove it, or ") -> ConnectionError:
    return ConnectionError(
        f"no daemon answers at {directory}, and none is started there, because {why}; {mend}"
        "give another directory by address= or $SPDLD_ADDRESS"
    )


def find_binary() -> str:
    """The daemon's program: $SPDLD_BIN, beside the package, in its build tree, of the wheel
    spdld-daemon beside it, in its prefix, on PATH."""
    named = os.environ.get("SPDLD_BIN")
    if named:
        if os.access(named, os.X_OK) and os.path.isfile(named):
            return os.path.abspath(named)
        raise ConnectionError(f"no daemon can be started: $SPDLD_BIN is {named}: no such program")
    package = Path(__file__).absolute().parent
    beside = [
        package / "bin" / "spdld",
        package.parent.parent / "bin" / "spdld",
        # Before the prefix, where that wheel's entry point is, which takes Python's start longer.
        package.parent / "spdld_daemon" / "bin" / "spdld",
        # Of an installed package: PREFIX/lib/python3.11/site-packages/spdld.
        *(prefix / "bin" / "spdld" for prefix in package.parents[3:4]),
        Path(sys.executable).parent / "spdld",
    ]
    refused = ""
    for candidate in beside:
        if candidate.is_file():
            if os.access(candidate, os.X_OK):
                return str(candidate)
            refused = f"; {candidate} may not be executed: its mode, or a mount with noexec"
    on_path = shutil.which("spdld")
    if on_path is None:
        raise ConnectionError(
            "no daemon can be started: there is no program 'spdld' beside the package or on PATH"
            f"{refused}; the wheel spdld-daemon brings it; or say where it is by $SPDLD_BIN"
        )
    return on_path


def command_for(
    directory: Path, *, idle: bool = False, parent_fd: int = -1, pipelines: Sequence[str] = ()
) -> list[str]:
    settings = {
        "runtime_dir": str(directory),
        "state_dir": str(directory / "state"),
        "pipelines": [glob.escape(pipeline) for pipeline in pipelines],
    }
    command = [find_binary(), "--own-runtime-dir"]
    if idle:
        command += ["--exit-when-idle", str(IDLE_SECONDS)]
    if parent_fd >= 0:
        command += ["--parent-fd", str(parent_fd)]
    for key, value in settings.items():
        command += ["--set", f"{key}={json.dumps(value)}"]
    return command


def spawn(command: list[str], log: Path, pass_fds: Sequence[int]) -> subprocess.Popen[bytes]:
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
        # In a session of its own, where there are autogroups, its niceness counts.
        lead = 'if command -v setsid >/dev/null; then set -- setsid "$@"; fi'
        script = f'{lead}; "$@" & echo $! >/dev/fd/{alive_write}'
        spawn(["/bin/sh", "-c", script, "sh", *command], log, [alive_write]).wait()
    except BaseException:
        os.close(alive_read)
        raise
    finally:
        os.close(alive_write)
    told = os.read(alive_read, 32)
    if not told.strip().isdigit():
        os.close(alive_read)
        raise start_failure(log.parent)
    return int(told), alive_read


def _possible_cpus() -> int:
    with contextlib.suppress(OSError, ValueError):
        text = Path("/sys/devices/system/cpu/possible").read_text()
        return int(re.split("[-,]", text.strip())[-1]) + 1
    return os.cpu_count() or 1


class Start(enum.Enum):
    READY = enum.auto()
    ENDED = enum.auto()
    TIMEOUT = enum.auto()


def wait_ready(directory: Path, alive_fd: int) -> Start:
    """Until a daemon answers, or ``alive_fd`` says that it has ended, or it took too long."""
    give_up = time.monotonic() + _START_SECONDS
    while time.monotonic() < give_up:
        if answers(directory):
            return Start.READY
        ended, _, _ = select.select([alive_fd], [], [], 0.005)
        if ended:
            return Start.ENDED
    return Start.TIMEOUT


def start_failure(directory: Path) -> ConnectionError:
    log = directory / LOG
    last = ""
    with contextlib.suppress(OSError):
        last = "\n".join(log.read_text(errors="replace").splitlines()[-5:])
    said = f"; it said:\n{last}" if last else ""
    return ConnectionError(f"a daemon was started at {directory} and did not come up{said}")
