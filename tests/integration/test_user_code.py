# SPDX-License-Identifier: Apache-2.0
"""The stage 'python': rows go through functions of the user's, in processes that ranks start."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import runners
import spdld
from daemon import build_dir
from integration.users import ANN, BOB, Place, load
from PIL import Image

ITEMS, BATCH = 24, 4
IMAGE = {"image": "uint8[8,8,3]"}
Write = Callable[..., pathlib.Path]
Load = Callable[..., spdld.Loader]
Rows = list[tuple[int, bytes]]

SAME = """
    def f(image):
        return image
"""
INVERT = """
    def f(image):
        return 255 - image
"""
NOISE = """
    def f(image, rng, scale):
        return (image + rng.integers(0, scale, image.shape)).astype("uint8")
"""


def supervisors(daemon: Any) -> list[int]:
    return runners.supervisors(daemon.address)


def children(daemon: Any) -> list[int]:
    return [
        pid for pid, parent in runners.of(daemon.address).items() if parent in supervisors(daemon)
    ]


@pytest.fixture
def daemon(daemon_of_code: Any) -> Any:
    return daemon_of_code


@pytest.fixture
def write(tmp_path: pathlib.Path, make_dataset: Callable[..., Any]) -> Write:
    """write(code, name=…, **stage): a pipeline file, which calls `f` of a file beside it.

    Stages stand `before` and `after` that; without code they are all.
    """

    def make(
        code: str,
        name: str = "images",
        before: Sequence[Any] = ("decode_image", {"resize": {"size": [8, 8]}}),
        after: Sequence[Any] = (),
        **stage: Any,
    ) -> pathlib.Path:
        aug = tmp_path / f"aug_{name}.py"
        aug.write_text(textwrap.dedent(code))
        aug.chmod(0o644)
        data = make_dataset(count=ITEMS, size=(16, 16), texture=bool(after))
        call = {"call": f"{aug.name}:f", "in": ["image"], "out": IMAGE, "concurrency": 2} | stage
        calls = [{"python": call}] if code else []
        spec = {
            "pipeline": name,
            "seed": 7,
            "source": {"files": {"root": str(data.root), "pattern": "**/*.jpg"}},
            "shuffle": "global",
            "stages": ["fetch", *before, *calls, *after],
            "batch": {"size": BATCH, "last": "keep"},
        }
        path = tmp_path / f"{name}.yaml"
        path.write_text("".join(f"{key}: {json.dumps(value)}\n" for key, value in spec.items()))
        return path

    return make


def rows(batch: Any) -> Rows:
    return [
        (int(item), image.tobytes())
        for item, image in zip(batch.indices, np.array(batch["image"]), strict=True)
    ]


def epoch(loader: spdld.Loader) -> Rows:
    return [row for batch in loader for row in rows(batch)]


def test_rows_go_through_a_function_of_a_file_beside_the_pipeline(
    load_here: Load, write: Write
) -> None:
    given = dict(epoch(load_here(write(SAME, "same"))))
    inverted = epoch(load_here(write(INVERT)))
    assert sorted(item for item, _ in inverted) == list(range(ITEMS))
    for item, image in inverted:
        assert image == bytes(255 - value for value in given[item])


def test_what_a_function_draws_hangs_on_its_row_alone(
    load_here: Load, write: Write, daemon: Any
) -> None:
    file = write(NOISE, args={"scale": 40})
    one = load_here(file, job="one")
    first = epoch(one)
    assert epoch(one) != first
    serving = [runner for runner in daemon.ctl_json("get", "runners") if runner["pid"] > 0]
    assert serving and all(runner["pss_bytes"] for runner in serving)
    worked = [runner for runner in serving if runner["rows"] > 0]
    assert worked and all(0 < runner["p50_us"] <= runner["p99_us"] for runner in worked)
    for pid in supervisors(daemon):
        os.kill(pid, signal.SIGKILL)
    assert epoch(load_here(file, job="two")) == first
    ranks = [load_here(file, job="three", rank=rank, world_size=2) for rank in range(2)]
    assert sorted(row for rank in ranks for row in epoch(rank)) == sorted(first)


def test_a_function_goes_on_where_a_rank_or_the_daemon_began_anew(
    load_here: Load, write: Write, daemon: Any
) -> None:
    file = write(NOISE, args={"scale": 40})
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


def test_a_child_that_is_killed_costs_no_row(load_here: Load, write: Write, daemon: Any) -> None:
    file = write(NOISE, args={"scale": 40})
    whole = epoch(load_here(file, job="whole"))
    got: Rows = []
    for batch in load_here(file, job="run", prefetch=2):
        got += rows(batch)
        for pid in children(daemon):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    assert got == whole


def test_a_function_that_raises_ends_the_job_with_its_traceback(
    load_here: Load, write: Write
) -> None:
    file = write("""
        def f(image):
            labels = {}
            return labels["cat"]
    """)
    with pytest.raises(spdld.PipelineError, match="KeyError: 'cat'") as raised:
        epoch(load_here(file))
    assert 'return labels["cat"]' in str(raised.value)
    assert "_runner_child" not in str(raised.value)


@pytest.mark.parametrize("ends", ["raises", "hangs", "exits", "grows"])
def test_a_bad_item_is_replaced_and_told(
    load_here: Load, write: Write, daemon: Any, ends: str
) -> None:
    what = {
        "raises": "raise spdld.BadSample('too dark')",
        "hangs": "time.sleep(3600)",
        "exits": "os._exit(3)",
        "grows": "grow()",
    }[ends]
    file = write(
        f"""
        import os, time
        import numpy as np
        import spdld

        def f(image):
            if image.sum() == darkest:
                {what}
            return image

        def grow():
            kept = []
            while True:
                kept.append(np.ones(1 << 22, np.uint8))
                time.sleep(0.01)

        darkest = int(open(__file__.replace("aug_images.py", "darkest")).read())
        """,
        timeout="60s" if ends == "grows" else "1s",
        max_rss="256MiB",
    )
    sums = {
        item: int(np.frombuffer(image, np.uint8).sum())
        for item, image in epoch(load_here(write(SAME, "same")))
    }
    bad = min(sums, key=sums.__getitem__)
    (file.parent / "darkest").write_text(str(sums[bad]))
    got = [item for item, _ in epoch(load_here(file, job="run"))]
    assert len(got) == ITEMS
    assert bad not in got
    told = daemon.ctl_json("get", "failures", "--job", "run")
    assert {failure["item"] for failure in told} == {bad}
    [of_job] = {
        runner["pool"] for runner in daemon.ctl_json("get", "runners") if "images" in runner["call"]
    }
    assert of_job
    why = {
        "raises": "too dark",
        "hangs": "longer than timeout",
        "exits": "exit",
        "grows": "ended 2 processes: it grew beyond max_rss (256.0 MiB)",
    }[ends]
    assert all(why in failure["message"] for failure in told), told


@pytest.mark.parametrize("failures", [2, 3])
def test_a_row_that_meets_a_server_that_is_down_is_tried_again_after_pauses(
    load_here: Load, write: Write, failures: int
) -> None:
    file = write(
        f"""
        import time

        tried = []  # the first row

        def f(image):
            row = image.tobytes()
            if not tried or tried[0] == row:
                tried.append(row)
                with open(__file__ + ".times", "a") as times:
                    print(time.monotonic(), file=times)
                if len(tried) <= {failures}:
                    raise ConnectionError("refused")
            return image
        """,
        after=[{"random_horizontal_flip": {"p": 0.0}}],  # so that no two images are the same
        concurrency=1,
    )
    with file.open("a") as text:
        text.write("on_error: {io: {retry: 2}}\n")
    loader = load_here(file)
    if failures > 2:
        with pytest.raises(spdld.PipelineError, match="refused, also after 2 retries"):
            epoch(loader)
    else:
        assert len(epoch(loader)) == ITEMS
    times = [float(line) for line in (file.parent / "aug_images.py.times").read_text().split()]
    times = times[:3]  # the next epoch may have begun
    assert len(times) == 3
    assert times[1] - times[0] >= 0.025
    assert times[2] - times[1] >= 0.05


@pytest.mark.parametrize(
    "before", [[], ["decode_image", {"resize": {"size": [8, 8]}}]], ids=["bytes", "pixels"]
)
def test_a_function_is_given_none_for_what_a_row_lacks(
    load_here: Load, write: Write, tmp_path: pathlib.Path, before: list[Any]
) -> None:
    given = {"in": ["image", "score"], "out": {"value": "int64", "scored": "bool"}}
    file = write(
        """
        def f(image, score):
            if image is None:
                return {"value": -1, "scored": score is not None}
            return {"value": len(image), "scored": score is not None}
        """,
        before=before,
        **given,
    )
    lines = []
    for row in range(ITEMS):
        lines.append({"id": row})
        if row % 3:
            Image.new("RGB", (9, 9), (row, 0, 0)).save(tmp_path / f"{row}.png")
            lines[-1]["path"] = f"{row}.png"
        if row % 2:
            lines[-1]["score"] = 0.0
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    table = {"file": "rows.jsonl", "uri": {"image": "path"}, "values": {"score": "score"}}
    source = {"table": table | {"optional": ["image", "score"]}}
    kept = [line for line in file.read_text().splitlines() if not line.startswith("source:")]
    file.write_text("\n".join([*kept, f"source: {json.dumps(source)}\n"]))
    seen = {
        int(item): (int(value), bool(scored))
        for batch in load_here(file)
        for item, value, scored in zip(batch.indices, batch["value"], batch["scored"], strict=True)
    }
    for row in range(ITEMS):
        stored = (tmp_path / f"{row}.png").stat().st_size if row % 3 else -1
        assert seen[row] == (8 if before and row % 3 else stored, row % 2 == 1)


@pytest.mark.parametrize("rejected", ["replace", "invalid"])
def test_a_row_for_which_a_function_gives_none_is_rejected(
    load_here: Load, write: Write, daemon: Any, rejected: str
) -> None:
    sums = {
        item: int(np.frombuffer(image, np.uint8).sum())
        for item, image in epoch(load_here(write(SAME, "same")))
    }
    least = sorted(sums.values())[ITEMS // 2]
    dark = {item for item, total in sums.items() if total < least}
    file = write(
        f"""
        def f(image):
            return image if image.sum() >= {least} else None
        """,
        rejected=rejected,
    )
    got = [
        (int(item), bool(valid), bool(np.array(image).any()))
        for batch in load_here(file, job="run")
        for item, valid, image in zip(batch.indices, batch.valid, batch["image"], strict=True)
    ]
    assert len(got) == ITEMS
    if rejected == "replace":
        assert all(valid and item not in dark for item, valid, _ in got)
    else:
        assert {item for item, valid, _ in got if not valid} == dark
        assert all(there == valid for _, valid, there in got)
    assert daemon.ctl_json("get", "failures", "--job", "run") == []


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_a_module_that_ends_its_process_ends_the_job(
    load_here: Load, write: Write, start: str
) -> None:
    file = write("import os, sys\nprint('no licence', file=sys.stderr)\nos._exit(3)", start=start)
    with pytest.raises(spdld.PipelineError, match="no licence") as raised:
        epoch(load_here(file))
    assert "exit" in str(raised.value)


def test_modules_of_the_working_directory_are_not_imported(
    load_here: Load, write: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    for name in ("argparse", "selectors"):
        (tmp_path / "elsewhere" / f"{name}.py").write_text("raise SystemExit('not asked for')")
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert len(epoch(load_here(write(INVERT)))) == ITEMS


def test_code_that_was_edited_between_two_jobs_counts_in_the_next(
    write: Write, daemon: Any, wait_until: Callable[..., Any]
) -> None:
    file = write(SAME)
    with spdld.Loader(file, address=daemon.address, job="one") as one:
        given = dict(epoch(one))
    write(INVERT)
    inverted = {item: bytes(255 - value for value in image) for item, image in given.items()}

    def made() -> dict[int, bytes]:
        with spdld.Loader(file, address=daemon.address, job="two") as two:
            return dict(epoch(two))

    # A job that follows at once may find the last one's processes still in its hand.
    wait_until(lambda: made() == inverted, "a job with the new code")


@pytest.mark.parametrize("place", ["aug_images.py", "aug_images"])
def test_code_that_was_edited_while_it_was_imported_counts_in_the_next_job(
    write: Write,
    daemon: Any,
    wait_until: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    place: str,
) -> None:
    with spdld.Loader(write(SAME, "same"), address=daemon.address, job="same") as same:
        given = dict(epoch(same))
    code = """
        import pathlib

        here = pathlib.Path(__file__)
        here.write_text(here.read_text().replace("255 - image", "image"))

        def f(image):
            return 255 - image
    """
    file = write(code, call=f"{place}:f")
    monkeypatch.syspath_prepend(file.parent)
    with spdld.Loader(file, address=daemon.address, job="one") as one:
        for item, image in epoch(one):
            assert image == bytes(255 - value for value in given[item])

    def made() -> dict[int, bytes]:
        with spdld.Loader(file, address=daemon.address, job="next") as loader:
            return dict(epoch(loader))

    # A job that follows at once may find the last one's processes still in its hand.
    wait_until(lambda: made() == given, "a job with the new code")


def test_a_module_beside_the_file_that_was_edited_counts_in_the_next_job(
    write: Write, daemon: Any, wait_until: Callable[..., Any], tmp_path: pathlib.Path
) -> None:
    helper = tmp_path / "helper_beside.py"
    helper.write_text("def change(image):\n    return image\n")
    file = write("import helper_beside\n\ndef f(image):\n    return helper_beside.change(image)\n")

    def made() -> dict[int, bytes]:
        with spdld.Loader(file, address=daemon.address, job="run") as loader:
            return dict(epoch(loader))

    given = made()
    helper.write_text("def change(image):\n    return 255 - image\n")
    inverted = {item: bytes(255 - value for value in image) for item, image in given.items()}
    wait_until(lambda: made() == inverted, "a job with the new code")


def test_a_script_that_would_wait_for_itself_is_told_so(load_here: Load, write: Write) -> None:
    code = "import spdld\nspdld.Loader('x')\n\ndef f(image):\n    return image\n"
    with pytest.raises(spdld.PipelineError, match="would wait for itself"):
        epoch(load_here(write(code)))


def test_a_function_that_cannot_be_imported_is_told_with_the_interpreter(
    load_here: Load, write: Write
) -> None:
    with pytest.raises(spdld.PipelineError, match="No module named 'nowhere'") as raised:
        epoch(load_here(write("import nowhere")))
    assert sys.executable in str(raised.value)


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("def f(image): return image[:4]", "gave 'image' as uint8[4, 8, 3]"),
        ("def f(image): return image.astype('float32')", "gave 'image' as float32[8, 8, 3]"),
        ("def f(image): return {'images': image}", "gave no 'image'"),
        ("def f(image): image[0] = 0; return image", "read-only"),
    ],
)
def test_a_function_that_does_not_keep_what_is_declared_ends_the_job(
    load_here: Load, write: Write, code: str, why: str
) -> None:
    with pytest.raises(spdld.PipelineError) as raised:
        epoch(load_here(write(code)))
    assert why in str(raised.value)


def test_a_consumer_that_starts_nothing_is_told_the_command(
    write: Write, daemon: Any, wait_until: Callable[..., Any]
) -> None:
    applied = daemon.ctl("apply", "-f", write(INVERT))
    assert "no process runs its functions yet" in applied.stderr
    consumer = subprocess.Popen(
        [build_dir() / "bin/spdlctl", "--address", daemon.address, "consume", "images", "--job"]
        + ["run", "--epochs", "1"],
        stdout=subprocess.DEVNULL,
    )

    def command() -> str:
        told = daemon.ctl_json("diagnose", "run") if daemon.ctl_json("get", "jobs") else []
        says = "".join(one["says"] for job in told for one in job["findings"])
        return says.partition("start them by '")[2].partition("'")[0]

    told = shlex.split(wait_until(command, "the command"))
    assert told[:3] == ["python", "-m", "spdld.runner"]
    runner = subprocess.Popen([sys.executable, *told[1:]], cwd="/")
    assert consumer.wait() == 0
    runner.kill()
    runner.wait()


def test_spdlctl_starts_what_it_needs_to_try_a_pipeline(
    write: Write, daemon: Any, tmp_path: pathlib.Path
) -> None:
    file = write(INVERT)
    shown = daemon.ctl("preview", "-f", file, "--rows", "4", "--python", sys.executable)
    assert shown.stdout.count(".jpg") == 4
    assert len(supervisors(daemon)) == 1
    broken = write("def f(image): return image[:4]", "other")
    refused = daemon.ctl("apply", "-f", broken, "--python", sys.executable, check=False)
    assert refused.returncode == 1
    assert "gave 'image' as uint8[4, 8, 3]" in refused.stderr
    other = write(INVERT, "third")
    refused = daemon.ctl("apply", "-f", other, "--python", tmp_path / "no-such", check=False)
    assert "it needs the package spdld" in refused.stderr


OPS = (
    {"random_resized_crop": {"size": 8}},
    "random_horizontal_flip",
    {"normalize": {"mean": [0.4, 0.5, 0.6], "std": [0.2, 0.2, 0.3]}},
)
ANY_SIZE = {"image": "uint8[-1,-1,3]"}


@pytest.mark.parametrize("output", ["table", "json"])
def test_a_preview_made_twice_tells_which_fields_hang_on_more_than_the_row(
    write: Write, daemon: Any, output: str
) -> None:
    drawn = {"drawn": "float64", "image": "uint8[8,8,3]"}
    file = write(
        """
        import numpy as np

        def f(image, rng):
            return {"image": image, "drawn": rng.random()}

        def g(drawn):
            return {"counted": drawn + np.random.default_rng().random()}
        """,
        out=drawn,
    )
    args = ("preview", "--rows", "4", "-o", output, "--python", sys.executable)
    text = file.read_text()
    assert daemon.ctl(*args, "--twice", "-f", str(file)).returncode == 0
    second = {"call": "aug_images.py:g", "in": ["drawn"], "out": {"counted": "float64"}}
    stages = next(line for line in text.splitlines() if line.startswith("stages: "))
    more = [
        *json.loads(stages.removeprefix("stages: ")),
        {"python": second},
        "random_horizontal_flip",
    ]
    file.write_text(text.replace(stages, f"stages: {json.dumps(more)}"))
    told = daemon.ctl(*args, "--twice", "-f", str(file), check=False)
    assert told.returncode != 0
    assert "draw from 'rng' alone" in told.stderr
    if output == "json":
        [differs] = json.loads(told.stdout)["differ"]
        assert differs["field"] == "counted"
        assert differs["rows"] == [0, 1, 2, 3]
        assert differs["made_by"].endswith("aug_images.py:g")
        assert "aug_images.py:f > python: " in differs["made_by"]
    else:
        assert "4 of 4" in told.stdout


def test_ops_behind_a_function_do_as_they_do_without_it(
    load_here: Load, write: Write, daemon: Any
) -> None:
    wanted = epoch(load_here(write("", "plain", before=["decode_image"], after=OPS)))
    loader = load_here(write(SAME, before=["decode_image"], after=OPS, out=ANY_SIZE), job="run")
    assert epoch(loader) == wanted
    assert next(iter(loader))["image"].shape == (BATCH, 3, 8, 8)
    stages = {stage["stage"]: stage for stage in daemon.ctl_json("get", "stages", "--job", "run")}
    [made] = [stage for name, stage in stages.items() if name.startswith("decode_image + random_")]
    assert made["failures"] == 0
    told = daemon.ctl("explain", "-f", write(SAME, before=["decode_image"], after=OPS)).stdout
    assert "    image    random_resized_crop + random_horizontal_flip + normalize\n" in told


def test_ops_take_pixels_that_a_function_has_decoded(
    load_here: Load, write: Write, make_dataset: Callable[..., Any]
) -> None:
    root = make_dataset(count=ITEMS, size=(16, 16), texture=True).root
    decoder = """
        import io
        import numpy as np
        from PIL import Image

        def f(image):
            return np.array(Image.open(io.BytesIO(image)).convert("RGB"))
    """
    file = write(decoder, before=[], after=[{"center_crop": {"size": 8}}], out=ANY_SIZE)
    with load_here(file) as loader:
        got = {
            int(item): (image, uri)
            for batch in loader
            for item, image, uri in zip(
                batch.indices, np.array(batch["image"]), batch.uris, strict=True
            )
        }
    assert len(got) == ITEMS
    for image, uri in got.values():
        with Image.open(root / uri) as decoded:
            pixels = np.array(decoded.convert("RGB"))[4:12, 4:12]
        assert np.array_equal(image, pixels.transpose(2, 0, 1))


def test_an_op_on_an_array_of_another_form_is_refused_where_it_stands(
    write: Write, daemon: Any
) -> None:
    file = write(SAME, after=[{"resize": {"size": [4, 4]}}], out={"image": "float32[8,8,3]"})
    told = daemon.ctl("apply", "-f", file, check=False)
    assert told.returncode != 0
    assert f"{file.name}:5:" in told.stderr
    assert (
        "the field 'image' comes back from 'python' as float32[8, 8, 3], and 'resize' works on "
        "uint8 or uint16 of [height, width, channels]"
    ) in told.stderr


def test_a_swap_warms_the_new_version_first_and_keeps_the_old_if_that_fails(
    load_here: Load, write: Write, daemon: Any
) -> None:
    loader = load_here(write(SAME), job="run", prefetch=2)
    steps = iter(loader)
    given = dict(rows(next(steps)))
    broken = write("import nowhere", "other")
    text = broken.read_text().replace('pipeline: "other"', 'pipeline: "images"')
    broken.write_text(text)
    asked = subprocess.Popen(
        [build_dir() / "bin/spdlctl", "--address", daemon.address]
        + ["apply", "-f", str(broken), "--job", "run", "--at", "next-epoch"],
        stderr=subprocess.PIPE,
        text=True,
    )
    given |= dict(row for batch in steps for row in rows(batch))
    while asked.poll() is None:
        assert dict(epoch(loader)) == given
    assert asked.returncode == 1
    assert "No module named 'nowhere'" in asked.stderr.read()
    assert dict(epoch(loader)) == given


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")
MARK = """
import os

def f(data):
    with open({mark!r}, "a") as file:
        file.write(f"{{os.getuid()}}\\n")
    return data
"""


@pytest.fixture
def place() -> Iterator[Place]:
    with contextlib.closing(Place({"access": {"admins": [str(BOB)]}})) as made:
        yield made
        for pid in runners.of(made.daemon.address):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


class Marked:
    """A pipeline file of a user's, whose function notes as whom it runs."""

    def __init__(self, place: Place, owner: int, name: str = "marked", version: int = 1) -> None:
        self.place, self.name = place, name
        self.mark = place.directory / "mark"
        self.mark.touch()
        self.mark.chmod(0o666)
        self.code = place.directory / f"{name}.py"
        self.code.write_text(MARK.format(mark=str(self.mark)))
        os.chown(self.code, owner, owner)
        self.code.chmod(0o644)
        data = place.directory / "data"
        if not data.exists():
            place.dataset("data", owner=owner)
        call = {"call": f"{self.code.name}:f", "in": ["data"], "out": {"data": "bytes"}}
        self.file = place.pipeline(
            name,
            data,
            stages=["fetch", {"python": call | {"concurrency": 1, "version": version}}],
            source={"files": {"root": str(data), "pattern": "**", "field": "data"}},
        )
        spec = json.loads(self.file.read_text())
        self.file.write_text("".join(f"{key}: {json.dumps(spec[key])}\n" for key in spec))

    def ran_as(self) -> set[int]:
        return {int(line) for line in self.mark.read_text().split()}


@needs_root
def test_a_function_runs_as_the_user_who_brings_it(place: Place) -> None:
    of_ann = Marked(place, ANN)
    assert load(place, ANN, of_ann.file) == "marked 8"
    assert of_ann.ran_as() == {ANN}


@needs_root
def test_what_a_colleague_applied_runs_for_nobody_else(place: Place) -> None:
    of_bob = Marked(place, BOB)
    place.apply(BOB, of_bob.file)  # an admin: it is shared
    told = load(place, ANN, "marked")
    assert f"uid {BOB} applied it" in told
    assert "apply the pipeline yourself" in told
    assert of_bob.ran_as() == set()
    # What root applied does, as whoever reads it.
    of_root = Marked(place, 0, "of-root")
    place.apply(0, of_root.file)
    assert load(place, ANN, "of-root") == "of-root 8"
    assert of_root.ran_as() == {ANN}


@needs_root
def test_an_admin_puts_no_code_into_a_users_job(place: Place) -> None:
    of_root = Marked(place, 0)
    place.apply(0, of_root.file)
    assert load(place, ANN, "marked", "run") == "marked 8"
    of_root.mark.write_text("")
    changed = Marked(place, BOB, version=2)
    loader = subprocess.Popen(
        [sys.executable, "-c", HELD, place.daemon.address, "marked", str(ANN), "held"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert loader.stdout.readline() == "one\n"
    told = place.ctl(BOB, "apply", "-f", changed.file, "--job", "held")
    assert told.returncode == 1
    assert f"uid {BOB} applied it" in told.stderr
    loader.communicate("go on\n")
    assert loader.returncode == 0
    assert changed.ran_as() <= {ANN}


HELD = """
import os, sys, spdld
address, pipeline, user, job = sys.argv[1:]
os.setgroups([])
os.setgid(int(user))
os.setuid(int(user))
with spdld.Loader(pipeline, address=address, job=job, prefetch=2) as loader:
    steps = iter(loader)
    next(steps)
    print("one", flush=True)
    sys.stdin.readline()
    assert len(list(steps)) == 7
"""


@needs_root
def test_a_text_of_roots_that_extends_a_colleagues_file_runs_for_nobody_else(place: Place) -> None:
    base = Marked(place, BOB)
    whole = place.directory / "whole.yaml"
    whole.write_text(f"extends: {base.file.name}\npipeline: whole\n")
    place.apply(0, whole)
    told = load(place, ANN, "whole")
    assert "extends other files" in told
    assert "applied as one file" in told
    assert base.ran_as() == set()


@needs_root
@pytest.mark.parametrize("mode", ["others may write", "another's", "a directory of all"])
def test_a_file_that_others_may_have_written_runs_for_nobody(place: Place, mode: str) -> None:
    of_ann = Marked(place, ANN)
    if mode == "others may write":
        of_ann.code.chmod(0o666)
    elif mode == "a directory of all":
        place.directory.chmod(0o777)
    else:
        os.chown(of_ann.code, BOB, BOB)
    told = load(place, ANN, of_ann.file)
    why = f"belongs to uid {BOB}" if mode == "another's" else "can be written by others"
    assert why in told
    assert of_ann.ran_as() == set()


@needs_root
def test_a_false_daemon_has_nothing_run() -> None:
    with contextlib.closing(Place(uid=BOB)) as place:
        of_ann = Marked(place, ANN)
        started = subprocess.run(
            [sys.executable, "-m", "spdld.runner", "--address", place.daemon.address]
            + ["--pool", "0" * 32],
            user=ANN,
            group=ANN,
            extra_groups=[],
            capture_output=True,
            text=True,
            cwd="/",
        )
        assert started.returncode == 1
        assert f"runs as uid {BOB}, and this process does what it says only for root" in (
            started.stderr
        )
        assert of_ann.ran_as() == set()
