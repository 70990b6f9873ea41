# SPDX-License-Identifier: Apache-2.0
"""The source 'python': items come from a dataset of the user's own, in processes that ranks start."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import signal
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import runners
import spdld
from integration.users import ANN, BOB, Place, load

ITEMS, BATCH = 24, 4
FIELDS = {"value": "int64", "pixels": "uint8[2,3]"}
Write = Callable[..., pathlib.Path]
Load = Callable[..., spdld.Loader]
Rows = list[tuple[int, ...]]

PLAIN = """
    import numpy as np

    class Data:
        classes = ["even", "odd"]

        def __init__(self, items=24):
            self.items = items

        def __len__(self):
            return self.items

        def __getitem__(self, i):
            return i * i, np.full((2, 3), i, np.uint8)

        def columns(self):
            return {
                "length": np.arange(self.items) % 5,
                "label": [i % 2 for i in range(self.items)],
                "name": [f"item {i}" for i in range(self.items)],
            }
"""
# Draws of its own, as transforms within a dataset make them.
RANDOM = """
    import random
    import numpy as np

    class Data:
        def __len__(self):
            return 24

        def __getitem__(self, i):
            drawn = random.randrange(1 << 40) + np.random.randint(1 << 30)
            return drawn, np.full((2, 3), i, np.uint8)
"""


@pytest.fixture
def daemon(daemon_of_code: Any) -> Any:
    return daemon_of_code


@pytest.fixture
def write(tmp_path: pathlib.Path) -> Write:
    """write(code, name=…, fields=…, stages=…, **source): a pipeline of `Data` of a file beside it."""

    def make(
        code: str,
        name: str = "own",
        fields: dict[str, str] | None = None,
        stages: tuple[Any, ...] = (),
        select: dict[str, Any] | None = None,
        shuffle: Any = "global",
        **source: Any,
    ) -> pathlib.Path:
        data = tmp_path / f"data_{name}.py"
        data.write_text(textwrap.dedent(code))
        data.chmod(0o644)
        call = {"call": f"{data.name}:Data", "fields": fields or FIELDS, "concurrency": 2} | source
        spec = {
            "pipeline": name,
            "seed": 7,
            "source": {"python": call} | ({"select": select} if select else {}),
            "shuffle": shuffle,
            "stages": ["fetch", *stages],
            "batch": {"size": BATCH, "last": "keep", "max_bytes": "1MiB"},
        }
        path = tmp_path / f"{name}.yaml"
        path.write_text("".join(f"{key}: {json.dumps(value)}\n" for key, value in spec.items()))
        return path

    return make


def rows(batch: Any) -> Rows:
    items, values = batch.indices.tolist(), np.array(batch["value"]).tolist()
    return list(zip(items, values, np.array(batch["pixels"])[:, 0, 0].tolist(), strict=True))


def epoch(loader: spdld.Loader) -> Rows:
    return [row for batch in loader for row in rows(batch)]


def test_an_epoch_has_each_item_of_a_dataset_once_with_the_fields_of_its_tuple(
    load_here: Load, write: Write
) -> None:
    loader = load_here(write(PLAIN))
    got = epoch(loader)
    assert sorted(got) == [(i, i * i, i) for i in range(ITEMS)]
    assert [item for item, *_ in got] != list(range(ITEMS))
    assert loader.classes == ["even", "odd"]
    with pytest.raises(KeyError):
        next(iter(loader))["length"]


def test_select_goes_by_the_columns_and_the_index_and_asks_for_the_right_items(
    load_here: Load, write: Write
) -> None:
    where = "label == 'odd' and length != 0 and index < 20 and name != 'item 3'"
    file = write(PLAIN, select={"where": where})
    wanted = [i for i in range(20) if i % 2 == 1 and i % 5 != 0 and i != 3]
    assert sorted(value for _, value, _ in epoch(load_here(file))) == [i * i for i in wanted]


def test_a_field_may_have_the_name_of_a_column(load_here: Load, write: Write) -> None:
    fields = {"label": "int64", "pixels": "uint8[2,3]"}
    file = write(PLAIN, fields=fields, select={"where": "label == 'odd'"})
    got = [label for batch in load_here(file) for label in batch["label"].tolist()]
    assert sorted(got) == [i * i for i in range(1, ITEMS, 2)]


def test_relative_paths_start_at_the_file(
    load_here: Load, write: Write, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "size").write_text("24")
    code = PLAIN.replace("self.items = items", "self.items = int(open('size').read())")
    assert len(epoch(load_here(write(code)))) == ITEMS


def test_repeated_items_are_numbered(load_here: Load, write: Write) -> None:
    file = write(PLAIN)
    file.write_text(file.read_text() + "repeat: {rows: 2, adjacent: false}\n")
    got = [
        (value, part)
        for batch in load_here(file)
        for value, part in zip(batch["value"].tolist(), batch["part"].tolist(), strict=True)
    ]
    assert sorted(got) == sorted((i * i, part) for i in range(ITEMS) for part in range(2))


def test_a_restart_without_the_kept_listing_waits_for_nobody(
    load_here: Load, write: Write, daemon: Any
) -> None:
    file = write(PLAIN)
    daemon.ctl("apply", "-f", file, "--python", sys.executable)
    daemon.stop()
    runners.kill_supervisors(daemon.address)
    shutil.rmtree(daemon.state_dir / "listings")
    daemon.start()
    assert "nor a process of its user's answers" in str(daemon.log())
    assert sorted(epoch(load_here(file, job="later", replace=True)))[3] == (3, 9, 3)


def test_buckets_go_by_a_column(load_here: Load, write: Write) -> None:
    bucket = {"global": {"bucket": {"by": "length", "window": 24, "run": 4}}}
    for batch in load_here(write(PLAIN, shuffle=bucket)):
        lengths = [pixel % 5 for _, _, pixel in rows(batch)]
        assert max(lengths) - min(lengths) <= 1


def test_bytes_of_a_dataset_are_decoded_by_the_ops_behind_it(load_here: Load, write: Write) -> None:
    code = """
        import io
        import numpy as np
        from PIL import Image

        class Data:
            def __len__(self):
                return 24

            def __getitem__(self, i):
                file = io.BytesIO()
                Image.fromarray(np.full((9, 9, 3), i, np.uint8)).save(file, "png")
                return {"image": file.getvalue(), "label": i}
    """
    fields = {"image": "bytes", "label": "int64"}
    file = write(code, fields=fields, stages=("decode_image", {"center_crop": 5}))
    seen = set()
    for batch in load_here(file):
        for image, label in zip(np.array(batch["image"]), batch["label"].tolist(), strict=True):
            assert image.shape == (3, 5, 5)
            assert (image == label).all()
            seen.add(label)
    assert seen == set(range(ITEMS))


def test_images_lists_and_numbers_are_taken_as_libraries_give_them(
    load_here: Load, write: Write
) -> None:
    code = """
        import numpy as np
        from PIL import Image

        class Data:
            def __len__(self):
                return 24

            def __getitem__(self, i):
                image = Image.new("RGB", (3, 2), (i, 0, 0))
                return [image, list(range(i)), np.array(i), f"ä{i}"]
    """
    fields = {"image": "uint8[2,3,3]", "ids": "int64[-1]", "n": "int64", "caption": "text"}
    for batch in load_here(write(code, fields=fields)):
        for row, n in enumerate(batch["n"].tolist()):
            assert np.array(batch["image"])[row, 0, 0, 0] == n
            assert batch["ids"][row].tolist() == list(range(n))
            assert batch["caption"][row] == f"ä{n}"


def test_what_a_dataset_draws_hangs_on_its_row_alone(
    load_here: Load, write: Write, daemon: Any
) -> None:
    file = write(RANDOM)
    one = load_here(file, job="one")
    first = epoch(one)
    assert epoch(one) != first
    runners.kill_supervisors(daemon.address)
    ranks = [load_here(file, job="two", rank=rank, world_size=2) for rank in range(2)]
    assert sorted(row for rank in ranks for row in epoch(rank)) == sorted(first)


def test_a_job_goes_on_in_mid_epoch_after_a_restart_of_the_daemon(
    load_here: Load, write: Write, daemon: Any
) -> None:
    file = write(RANDOM)
    whole = epoch(load_here(file, job="whole"))
    loader = load_here(file, job="run", prefetch=2)
    begun = iter(loader)
    got = [row for _ in range(2) for row in rows(next(begun))]
    state = loader.state_dict()
    loader.close()
    daemon.restart()
    later = load_here(file, job="run", prefetch=2)
    later.load_state_dict(state)
    assert got + epoch(later) == whole


def test_processes_and_daemons_that_are_killed_cost_no_row(
    load_here: Load, write: Write, daemon: Any
) -> None:
    file = write(RANDOM)
    whole = epoch(load_here(file, job="whole"))
    got: Rows = []
    for number, batch in enumerate(load_here(file, job="run", prefetch=2)):
        got += rows(batch)
        for pid in runners.of(daemon.address):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if number == 2:
            daemon.kill()
            daemon.start()
    assert got == whole


def test_jobs_on_the_same_rows_share_what_the_dataset_has_made(
    load_here: Load, write: Write, daemon: Any
) -> None:
    file = write(RANDOM.replace("24", "400"))
    one, other = (iter(load_here(file, job=f"job {n}", prefetch=2)) for n in range(2))
    for _ in range(50):
        assert rows(next(one)) == rows(next(other))
    assert sum(job["shared_rows"] for job in daemon.ctl_json("get", "jobs")) > 0


def test_a_dataset_of_another_size_ends_the_job_and_says_so(
    load_here: Load, write: Write, daemon: Any, tmp_path: pathlib.Path
) -> None:
    size = tmp_path / "size"
    size.write_text("24")
    code = PLAIN.replace("self.items = items", f"self.items = int(open({str(size)!r}).read())")
    file = write(code)
    epoch(load_here(file, job="one"))
    runners.kill_supervisors(daemon.address)
    size.write_text("25")
    with pytest.raises(spdld.PipelineError, match=r"has 25 items now, and the .* with 24"):
        epoch(load_here(file, job="two"))
    again = load_here(file, job="three", replace=True)
    assert len(epoch(again)) == 25


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("class Data:\n  def __iter__(self): return iter([])", "without __len__: an order"),
        ("class Data:\n  def __len__(self): return 3", "without __getitem__: an order"),
        ("class Data(list):\n  pass", "it has no items"),
        ("def Data(): raise KeyError('root')", "KeyError: 'root'"),
        ("Data = 3", "neither a dataset nor what makes one"),
        ("import nowhere", "No module named 'nowhere'"),
        (PLAIN.replace('"label"', '"index"'), "a column 'index' already"),
        (PLAIN.replace("% 5", "% 5 + 1j"), "holds complex128, and a column holds integers"),
        (PLAIN.replace('f"item {i}"', "i if i else 'none'"), "holds int, str, and a column"),
        (PLAIN.replace("i % 2 for i", "2**63 for i"), "too"),
        (
            PLAIN.replace(
                'range(self.items)],\n                "name"', 'range(3)],\n                "name"'
            ),
            "needs one value for each of 24",
        ),
    ],
)
def test_what_is_no_dataset_is_refused_with_the_reason(
    load_here: Load, write: Write, code: str, why: str
) -> None:
    with pytest.raises(spdld.PipelineError) as raised:
        epoch(load_here(write(code)))
    assert why in str(raised.value)


def test_a_dataset_that_can_only_be_iterated_over_is_told_the_way_out(
    load_here: Load, write: Write
) -> None:
    pytest.importorskip("torch")
    code = """
        import torch.utils.data

        class Data(torch.utils.data.IterableDataset):
            def __iter__(self):
                return iter(range(3))
    """
    with pytest.raises(spdld.PipelineError, match=r"can only be iterated over.*tar shards"):
        epoch(load_here(write(code)))


@pytest.mark.parametrize(
    ("result", "why"),
    [
        ("i * i", "gave a int, and 'out' declares value, pixels"),
        ("(i, 'x')", "gave 'pixels' as str"),
        ("{'value': i}", "gave no 'pixels'"),
    ],
)
def test_items_that_are_not_what_is_declared_end_the_job(
    load_here: Load, write: Write, result: str, why: str
) -> None:
    code = PLAIN.replace("return i * i, np.full((2, 3), i, np.uint8)", f"return {result}")
    with pytest.raises(spdld.PipelineError) as raised:
        epoch(load_here(write(code)))
    assert why in str(raised.value)


def test_bad_items_are_replaced_and_named_and_none_is_rejected(
    load_here: Load, write: Write, daemon: Any
) -> None:
    code = PLAIN.replace(
        "return i * i",
        "if i == 5: raise __import__('spdld').BadSample('blurred')\n"
        "            if i == 6: return None\n"
        "            return i * i",
    )
    got = epoch(load_here(write(code), job="run"))
    assert len(got) == ITEMS
    assert not {5, 6} & {item for item, *_ in got}
    failures = daemon.ctl("get", "failures", "run").stdout
    assert "data_own.py:Data[5]" in failures
    assert "blurred" in failures


def test_spdlctl_says_how_to_have_processes_started_and_starts_them_if_it_is_told(
    write: Write, daemon: Any
) -> None:
    file = write(PLAIN)
    refused = daemon.ctl("apply", "-f", file, check=False)
    assert refused.returncode == 1
    assert "no process runs" in refused.stderr
    assert "--python .venv/bin/python" in refused.stderr
    applied = daemon.ctl("apply", "-f", file, "--python", sys.executable)
    assert f"{ITEMS} items, 2 classes" in applied.stdout
    plan = daemon.ctl("explain", "-f", file, "--python", sys.executable).stdout
    assert "Data(index, items) gives value int64, pixels uint8[2,3]" in plan
    daemon.restart()
    assert f"{ITEMS}" in daemon.ctl("get", "pipelines").stdout


def test_a_dataset_of_hugging_faces_is_taken_as_it_is(load_here: Load, write: Write) -> None:
    pytest.importorskip("datasets")
    code = """
        import datasets

        def Data():
            rows = {"text": [f"t{i}" for i in range(24)], "ids": [[i] * i for i in range(24)]}
            return datasets.Dataset.from_dict(rows)
    """
    seen = []
    for batch in load_here(write(code, fields={"text": "text", "ids": "int64[-1]"})):
        seen += [
            (text, ids.tolist()) for text, ids in zip(batch["text"], batch["ids"], strict=True)
        ]
    assert sorted(seen) == sorted((f"t{i}", [i] * i) for i in range(ITEMS))


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")
MARKED = """
import os

class Data:
    def __init__(self):
        with open({mark!r}, "a") as file:
            file.write(f"{{os.getuid()}}\\n")

    def __len__(self):
        return 8

    def __getitem__(self, i):
        return str(i).encode()
"""


@needs_root
def test_a_dataset_is_made_as_the_user_who_brings_it_and_for_nobody_else() -> None:
    with contextlib.closing(Place({"access": {"admins": [str(BOB)]}})) as place:
        try:
            mark = place.directory / "mark"
            mark.touch()
            mark.chmod(0o666)
            code = place.directory / "data.py"
            code.write_text(MARKED.format(mark=str(mark)))
            os.chown(code, BOB, BOB)
            code.chmod(0o644)
            call = {"call": "data.py:Data", "fields": {"data": "bytes"}, "concurrency": 1}
            file = place.pipeline("own", "", source={"python": call})
            applied = place.ctl(BOB, "apply", "-f", file, "--python", sys.executable)
            assert applied.returncode == 0, applied.stderr
            assert set(mark.read_text().split()) == {str(BOB)}
            told = load(place, ANN, "own")
            assert f"uid {BOB} applied it" in told
            assert set(mark.read_text().split()) == {str(BOB)}
        finally:
            for pid in runners.of(place.daemon.address):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
