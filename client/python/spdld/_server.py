# SPDX-License-Identifier: Apache-2.0
"""A private daemon that ends with its starter: ``spdld.launch()``."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import _launch
from ._pipeline import is_file, read

if TYPE_CHECKING:
    from ._loader import Loader

_STOP_SECONDS = 35.0  # the daemon's own deadline is 30 s


class Server:
    """A private daemon that ends with its starter: what ``spdld.launch()`` gives.

    ``address`` is its runtime directory, for ``Loader(address=…)`` and ``spdlctl --address``.
    It ends by stop(), at the end of a ``with``, when the object is dropped, or when this process
    ends in whatever way; its directory goes with it.
    """

    def __init__(
        self,
        pipeline: str | os.PathLike[str] | None,
        *,
        vars: Mapping[str, object] | None = None,
        prefix: str = "spdld-",
    ) -> None:
        self._pipeline = None if pipeline is None else Path(read(pipeline).file)
        self._vars = dict(vars or {})
        directory = Path(tempfile.mkdtemp(prefix=prefix, dir=_launch.base_directory()))
        self.address = str(directory)
        parent_read, parent_write = os.pipe()
        alive_read, alive_write = os.pipe()
        try:
            # With variables it is the first loader that brings it.
            applied = self._pipeline is not None and not self._vars
            pipelines = [str(self._pipeline)] if applied else []
            process = _launch.spawn(
                _launch.command_for(directory, parent_fd=parent_read, pipelines=pipelines),
                directory / _launch.LOG,
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
            outcome = _launch.wait_ready(directory, alive_read)
        finally:
            os.close(alive_read)
        if outcome is not _launch.Start.READY:
            failure = _launch.start_failure(directory)
            self.stop()
            raise failure

    @property
    def log(self) -> str:
        """Path of the daemon's log; gone once it has stopped."""
        return str(Path(self.address) / _launch.LOG)

    def loader(self, pipeline: str | os.PathLike[str] | None = None, **options: Any) -> Loader:
        """``spdld.Loader`` at this daemon; by default of the pipeline and vars given to launch()."""
        from ._loader import Loader

        if pipeline is not None:
            return Loader(pipeline, address=self.address, **options)
        if self._pipeline is None:
            raise ValueError("this server was launched without a pipeline: give one")
        given = {**self._vars, **(options.pop("vars", None) or {})}
        return Loader(self._pipeline, address=self.address, vars=given, **options)

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


def launch(
    pipeline: str | os.PathLike[str] | None = None, *, vars: Mapping[str, object] | None = None
) -> Server:
    """Starts a private daemon, for scripts and tests; it ends with its starter.

    >>> with spdld.launch("pipeline.yaml") as server:
    ...     for batch in server.loader():
    ...         ...

    ``pipeline`` is the path of a YAML file that the daemon applies at its start; with ``vars``, in
    place of what the file says, ``server.loader()`` applies it.
    Raises ConnectionError if it does not come up, with the end of its log; PipelineError if the
    file cannot be read.
    """
    if pipeline is not None and not is_file(pipeline):
        raise ValueError(f"launch() takes the path of a YAML file, not the name {pipeline!r}")
    if vars and pipeline is None:
        raise ValueError("vars are a pipeline's: give launch() its file, too")
    return Server(pipeline, vars=vars)
