# SPDX-License-Identifier: Apache-2.0
"""``spdld.Loader``: one rank's view of a job."""

from __future__ import annotations

import json
import logging
import os
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from . import _core, _habits, _launch, _pipeline, _rank, _runner_start
from ._apply import Applied, parse_at
from ._arguments import device_name, known, seconds, text, whole
from ._feed import END, Feed
from ._map import StopCheck
from ._output import maker
from ._runner_frames import IN_RUNNER
from ._state import Cursor, cursor_of, state_of
from ._version import __version__

if TYPE_CHECKING:
    from torch.utils.data import IterableDataset

_log = logging.getLogger("spdld")

# What scripts ask of a DataLoader, and what to write here.
_OF_A_DATALOADER = {
    "dataset": "the rows of the dataset are loader.num_items",
    "sampler": "order and shard are the pipeline's: loader.set_epoch(), loader.num_shards",
    "batch_sampler": "order and shard are the pipeline's: loader.set_epoch(), loader.num_shards",
    "num_workers": "the daemon's threads work for it: 'concurrency' in the pipeline's stages",
}


class Loader:
    """Reads one shard of a job: ``for batch in loader`` is one epoch.

    The daemon works ahead, into the next epoch too. Nothing is sent before the first batch (or
    ``len()``) is asked for. When the daemon goes away, the loader reconnects and goes on with the
    next batch: none is lost and none comes twice.

    Args:
        pipeline: a pipeline that the daemon knows (NAME: the caller's own or the shared one, /NAME:
            the shared one, USER/NAME), or the path of a YAML file, which is sent along. Its text
            is used if the daemon has none of its name, or if only others share one that differs.
        job: the training run. None: the launcher's id, or a private one for a single process.
        rank, world_size: None: an initialised torch.distributed, else the launcher's environment
            (torchrun's, Slurm's, an MPI's), else 0 of 1. The logger "spdld" says at INFO which.
        shard, num_shards: which disjoint part of the order; by default rank and world_size. -1
            leaves it to the daemon, for jobs that were made by ``spdlctl job create``.
        replicas: consumers of one shard that see the same batches (tensor parallelism); needs
            ``job``, ``shard`` and ``num_shards``.
        replica: which of them this is, from 0.
        seed, batch_size, vars: in place of what the pipeline says.
        start: "fresh" begins at epoch 0, "ledger" where the daemon's record says the shard was.
        output: "batch" for numpy (Batch), "torch" (TorchBatch), or a tuple of field names for
            tuples of torch tensors; "valid", "indices" and "uris" may be among them.
        prefetch: batches that this rank holds or that wait for it, 2 to 64.
        device: "cuda" or "cuda:N" (or a torch.device): fields larger than 64 KiB come on that GPU.
            Either they are copied ahead on a stream of the loader's own, straight from the daemon's
            memory, or the pipeline says ``delivery: {device: cuda}`` and the daemon has copied them.
            "cuda" is torch's current device, or the first one without torch.
        address: the daemon's runtime directory; $SPDLD_ADDRESS, else /run/spdld.
        launch: start a daemon if none answers at the address. A daemon that was started so takes a
            file that has changed, if no other loader reads what it had before.
        replace: the file's pipeline takes the place of the daemon's of that name, if it differs or
            lists other data by now. Jobs that read that one go on with it.
        timeout: seconds of silence of the daemon, and of its absence, before an error.
        map: a function for each batch, run in threads, results in order. What it returns is what
            the loader gives. If it has a parameter ``rng``, it is given a numpy Generator seeded by
            (seed, epoch, step, shard): draws that a restarted run repeats.
        map_threads: how many threads run it.

    Raises:
        ConnectionError: no daemon, for ``timeout`` seconds (5 s at first).
        PipelineError: the daemon refuses or the pipeline failed.
        LeaseError: the caller holds all batches that it may hold, and asks for another.
        TimeoutError: the daemon said nothing, or nothing of the next batch came, for ``timeout``
            seconds.
        TypeError, ValueError: wrong arguments.

    Threads: one at a time; others wait for their turn. In a forked child make another one.
    """

    def __new__(cls, *positional: Any, **options: Any) -> Loader:
        known(cls.__init__, options)
        return super().__new__(cls)

    def __init__(
        self,
        pipeline: str | os.PathLike[str],
        *,
        job: str | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        shard: int | None = None,
        num_shards: int | None = None,
        replica: int | None = None,
        replicas: int = 1,
        seed: int | None = None,
        batch_size: int | None = None,
        vars: Mapping[str, object] | None = None,
        start: Literal["fresh", "ledger"] = "fresh",
        output: Literal["batch", "torch"] | Sequence[str] = "batch",
        prefetch: int | None = None,
        device: object = None,
        address: str | os.PathLike[str] | None = None,
        launch: bool = False,
        replace: bool = False,
        timeout: float = 60.0,
        map: Callable[..., Any] | None = None,
        map_threads: int = 2,
    ) -> None:
        if start not in ("fresh", "ledger"):
            raise ValueError(f"start is {start!r}: it is 'fresh' or 'ledger'")
        if IN_RUNNER in os.environ:
            raise RuntimeError(
                "a loader is made by the script that a pipeline calls a function or dataset of, and "
                "would wait for itself: put the training under if __name__ == '__main__':"
            )
        timeout = seconds("timeout", timeout)
        if map is not None and not callable(map):
            raise TypeError(f"map is {map!r}, a {type(map).__name__}: give a function")
        rank, world_size = whole(rank=rank, world_size=world_size).values()
        numbers = whole(
            shard=shard,
            num_shards=num_shards,
            replica=replica,
            replicas=replicas,
            seed=seed,
            batch_size=batch_size,
            prefetch=prefetch,
        )
        if replicas is None:
            raise TypeError("replicas is None: give a whole number")
        if whole(map_threads=map_threads)["map_threads"] is None or map_threads < 1:
            raise ValueError(f"map_threads is {map_threads}: at least one thread runs map")
        device_text = device_name(device)
        make = maker(output, device_text)
        self._iteration = 0
        self._in_epoch = False  # a batch of the epoch was handed out, and its end was not
        self._at_ledger = start == "ledger"  # the position is the daemon's to say yet
        self._chosen = self._at_ledger  # somebody said where the next loop begins

        if replica is not None and not 0 <= replica < replicas:
            raise ValueError(f"replica {replica} of replicas {replicas}: replicas count from 0")
        if replicas > 1 and replica is None:
            raise ValueError(f"replicas is {replicas}: say by replica which of them this is")

        source = _pipeline.read(pipeline)
        if replace and not source.yaml:
            raise ValueError(
                f"replace=True is for a pipeline's file, and {pipeline!r} is a name: give the path "
                "of the YAML file, or leave replace out"
            )
        given = rank, world_size
        rank, world_size = _rank.resolve(rank, world_size, shard, num_shards)
        where = "" if address is None else os.fspath(address)
        launcher = None
        if launch:
            where, launcher = _launch.choose(where)
        self._pipeline = source.name
        check = StopCheck()
        self._core = _core.Loader(
            source.name,
            job=text("job", job),
            rank=rank,
            world_size=world_size,
            vars=_pipeline.vars_as_text(vars),
            pipeline_yaml=source.yaml,
            pipeline_file=source.file,
            replace="always" if replace else "unread" if launcher is not None else "never",
            env=source.env,
            device=device_text,
            ledger=start == "ledger",
            address=where,
            timeout_s=timeout,
            connect_timeout_s=timeout if launch else min(5.0, timeout),
            client_name=f"spdld-python {__version__}",
            on_wait=check,
            on_notice=_log.warning,
            on_unreachable=launcher,
            start_runners=_runner_start.starter(where),
            **numbers,
        )
        self._feed = Feed(self._core, make, map, map_threads, check)
        self._left = weakref.finalize(self, _habits.loader_is_left, self._key, self._feed)
        self._left.atexit = False
        _log.info(
            "shard %s of %s of %s, by %s",
            self.shard if self.shard >= 0 else "any",
            self.num_shards if self.num_shards > 0 else "those",
            f"job '{self.job}'" if self.job else "a private job",
            "torch.distributed" if (rank, world_size) != given else self._core.placed_by,
        )

    def __iter__(self) -> Iterator[Any]:
        """One epoch: the rest of the present one after load_state_dict(), else a whole one.

        If the iteration before was left by ``break``, its epoch is over. It also ends every
        earlier iterator of this loader.
        """
        if self._in_epoch:
            self.set_epoch(self.epoch + 1)
        if not self._at_ledger:
            _, _, epoch, _, step, *_ = self._feed.cursor
            place = _habits.Place(epoch, step, self._chosen)
            if self._iteration == 0:
                _habits.check_first_loop(self._key, place)
            _habits.check_loop(self._key, place)
        self._iteration += 1
        return _Epoch(self, self._iteration)

    def __len__(self) -> int:
        """Steps of a whole epoch: the same on every rank. Attaches."""
        return self._feed.facts[0]

    def __getattr__(self, name: str) -> NoReturn:
        told = f"{type(self).__name__!r} object has no attribute {name!r}"
        if name in _OF_A_DATALOADER:
            told += f": {_OF_A_DATALOADER[name]}"
        raise AttributeError(told)

    def __getitem__(self, index: object) -> NoReturn:
        raise TypeError(
            "a loader cannot be indexed: write 'for batch in loader', and to give it to "
            "torch's DataLoader, DataLoader(loader.as_dataset(), batch_size=None)"
        )

    def as_dataset(self) -> IterableDataset:
        """This loader as a torch IterableDataset whose items are batches.

        For what insists on a DataLoader: ``DataLoader(loader.as_dataset(), batch_size=None)``, with
        ``num_workers=0``. It is of this rank's shard already: it must not be sharded again.

        Raises ImportError if torch is not installed.
        """
        from ._dataset import LoaderDataset

        return LoaderDataset(self)

    @property
    def epoch(self) -> int:
        """The epoch of the last batch, or after an epoch's end the one to come. From 0."""
        return self._feed.epoch

    def set_epoch(self, epoch: int) -> None:
        """What comes next is the start of ``epoch``. Costs nothing if it would be anyway."""
        if epoch < 0:
            raise ValueError(f"epoch is {epoch}: epochs count from 0")
        self._chosen = True
        in_run = [0, 0, 0]
        if not self._at_ledger:
            _, _, at_epoch, _, step, *in_run = self._feed.cursor
            if not self._in_epoch and (at_epoch, step) == (epoch, 0):
                return
        # Not the core's set_epoch(), which counts from where map has come to.
        self._go_to(("", 0, epoch, 0, 0, *in_run))

    def state_dict(self) -> dict[str, int | str]:
        """The position after the last batch handed out, as numbers and texts; exact in mid-epoch.

        It does not depend on the number of ranks or the batch size: all may change between saving
        and loading. Every rank's state of the same step says the same. Attaches if it was not yet
        and only the ledger knows the position.
        """
        if self._at_ledger and not self._core.attached:
            _ = self._feed.facts
        return state_of(self._feed.cursor)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes to a position that state_dict() gave. The next batch attaches there anew.

        Raises ValueError if ``state`` is none, PipelineError if it is of another order (other
        data, seed or shuffle): at once where this loader has seen no such order of its job, else
        at the next batch.
        """
        self._go_to(cursor_of(state))

    def skip_steps(self, steps: int) -> None:
        """Leaves out the next ``steps`` steps of this epoch, at most to its end.

        They are counted from the last batch handed out; what ``map`` has made ahead is dropped. The
        other ranks do not skip by it: each calls it for itself. Waits for the daemon, which knows
        at which position that is.

        Raises ValueError if ``steps`` is negative, ConnectionError if the daemon is too old for it
        or gone for ``timeout`` seconds.
        """
        if steps < 0:
            raise ValueError(f"steps is {steps}: there is no way back but load_state_dict()")
        if steps == 0:
            return
        self._feed.skip_steps(steps)
        self._at_ledger = False

    def apply(
        self,
        vars: Mapping[str, object],
        at: str = "next-epoch",
        *,
        allow_schema_change: bool = False,
    ) -> Applied:
        """The job goes on with other ``vars`` of its pipeline, on all its shards from one step on.

        The daemon prepares the new pipeline beside the old one, up to its first batch, and this
        waits for it; batches that come meanwhile are kept for the loop. Whatever fails leaves the
        job as it was. All ranks may say the same: it is done once.

        Args:
            vars: the variables that change; the others stay.
            at: "next-epoch", the first epoch that no shard has begun; "now", the first step that
                no shard has begun; "step:E/N", step N of epoch E, from 0.
            allow_schema_change: fields of other names, dtypes or shapes are not refused.

        Returns:
            Applied(version, epoch, step, tuned): from which step on it is so. ``len(loader)``,
            ``batch_size`` and the like change with the first batch of that version.

        Raises:
            PipelineError: the daemon refuses: an unknown variable, an impossible value, a point
                that has passed, another schema.
            ConnectionError: the daemon is too old for it, or gone for ``timeout`` seconds.
            TimeoutError: the daemon said nothing for ``timeout`` seconds.
            TypeError, ValueError: wrong arguments.
        """
        point, epoch, step = parse_at(at)
        texts = _pipeline.vars_as_text(vars)
        if not texts:
            raise ValueError("vars is empty: there is nothing to change")
        with self._feed.paused():
            return Applied(
                *self._core.apply(
                    texts,
                    at=point,
                    epoch=epoch,
                    step=step,
                    allow_schema_change=allow_schema_change,
                )
            )

    @property
    def classes(self) -> list[str]:
        """Names of the labels, by index. Empty if the source has none. Attaches."""
        return self._core.classes()

    @property
    def class_to_idx(self) -> dict[str, int]:
        """Index of each label's name, as an ImageFolder has it. Attaches."""
        return {name: index for index, name in enumerate(self._core.classes())}

    @property
    def fingerprint(self) -> str:
        """One line that is the same wherever the same data come in the same order. Attaches."""
        return self._core.fingerprint()

    @property
    def batch_size(self) -> int:
        """Rows of a full batch of one rank. Attaches."""
        return self._feed.facts[2]

    @property
    def num_items(self) -> int:
        """Items in the dataset. Attaches."""
        return self._feed.facts[1]

    @property
    def pipeline_version(self) -> int:
        """Version of the pipeline that the last batch is of; it counts what was applied. Attaches."""
        return self._feed.facts[3]

    @property
    def pipeline(self) -> str:
        """The pipeline's name."""
        return self._pipeline

    @property
    def job(self) -> str:
        """The job as resolved; empty for a private one."""
        return self._core.job

    @property
    def shard(self) -> int:
        """The shard as resolved; -1 until the daemon has said which."""
        return self._core.shard

    @property
    def num_shards(self) -> int:
        """The number of shards as resolved; -1 until the daemon has said how many."""
        return self._core.num_shards

    @property
    def address(self) -> str:
        """The daemon's runtime directory."""
        return self._core.address

    def stats(self) -> dict[str, Any]:
        """What was counted: here since the loader was made, and by the daemon under "server".

        batches · waits (next() found none ready) · waited_s · between_s (from a batch until the
        next one was asked for: the loop's own work) · map_s (for which ``map`` ran, in all its
        threads together) · reconnects · held (leases that this process holds now) · credits (the
        most it may hold) · delivery (of the last batch: "host", "pinned": copied to the device from
        pinned slots, "cuda ipc": brought there by the daemon) · staged, staged_why (with
        ``device``: how many batches this process's CPU copied to pinned memory, as the driver could
        not register the daemon's, and why not). With ``map``, its threads ask, ahead of the loop:
        batches, waits, waited_s and between_s are theirs. Attaches.
        """
        return {**self._core.stats(), "server": json.loads(self._core.server_stats() or "{}")}

    def close(self) -> None:
        """Detaches. What is still held stays readable. Idempotent.

        Waits for streams that read batches which the daemon brought to the device.
        """
        self._left()
        self._feed.stop()
        self._iteration += 1
        if not self._core.closed:
            self._core.close()

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return (
            f"<spdld.Loader {self._pipeline!r} shard {self.shard} of {self.num_shards} "
            f"at {self.address}, epoch {self.epoch}>"
        )

    def _go_to(self, cursor: Cursor) -> None:
        self._feed.go_to(cursor)
        self._in_epoch = False
        self._at_ledger = False
        self._chosen = True

    @property
    def _key(self) -> _habits.Job:
        return self.address, self.job, self._pipeline, self.shard


class _Epoch(Iterator[Any]):
    """The batches of one epoch."""

    __slots__ = ("_iteration", "_loader")

    def __init__(self, loader: Loader, iteration: int) -> None:
        self._loader: Loader | None = loader
        self._iteration = iteration

    def __next__(self) -> Any:
        loader = self._loader
        if loader is None:
            raise StopIteration
        if loader._iteration != self._iteration:
            raise RuntimeError(
                "this iterator is over: the loader was closed, or another iteration of it has begun"
            )
        batch = loader._feed.take()
        loader._at_ledger = False
        if batch is END:
            self._loader = None
            loader._in_epoch = False
            raise StopIteration
        loader._in_epoch = True
        return batch
