# SPDX-License-Identifier: Apache-2.0
"""The README and the pages for Python do what they say: every command and snippet runs as printed."""

from __future__ import annotations

import contextlib
import io
import os
import pathlib
import re
import signal
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from typing import Any

import daemon as daemon_module
import pytest

README = (daemon_module.REPOSITORY / "README.md").read_text()
PYTHON_MD = (daemon_module.REPOSITORY / "docs/python.md").read_text()
# What builds and tests everything is what runs this test, and test_install.py installs.
ELSEWHERE = ("./dev demo", "./dev test", "./dev build", "sudo cmake --install")
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?:^    .*\n)+", re.MULTILINE)
WATCHDOG_S = 100  # before pytest's own, so that what was printed is told

pytest.importorskip("torch")


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A few of the demo's images."""
    images = tmp_path_factory.mktemp("demo") / "images"
    draw = daemon_module.REPOSITORY / "examples/demo/make_images.sh"
    subprocess.run([draw, images, "24"], check=True, timeout=WATCHDOG_S)
    return images


@pytest.fixture
def checkout(tmp_path: pathlib.Path, drawn: pathlib.Path) -> pathlib.Path:
    """A directory that looks like a checkout after './dev demo'."""
    checkout = tmp_path / "spdld"
    (checkout / "build/demo").mkdir(parents=True)
    (checkout / "build/release").symlink_to(daemon_module.build_dir())
    (checkout / "build/demo/images").symlink_to(drawn)
    (checkout / ".venv").symlink_to(daemon_module.REPOSITORY / ".venv")
    (checkout / "train.yaml").write_text(yaml_of_readme())
    return checkout


def yaml_of_readme() -> str:
    [text] = [body for kind, body in FENCED.findall(README) if kind == "yaml"]
    return text


def script_of_readme() -> str:
    """The README's commands and Python, in their order, as one shell script."""
    blocks: list[tuple[int, str]] = []
    for found in FENCED.finditer(README):
        if found[1] == "python":
            blocks.append((found.start(), f"python - <<'PYTHON'\n{found[2]}PYTHON\n"))
    for found in INDENTED.finditer(FENCED.sub(lambda each: "\n" * each[0].count("\n"), README)):
        blocks.append((README.index(found[0]), re.sub(r"^    ", "", found[0], flags=re.MULTILINE)))
    script = "".join(block for _, block in sorted(blocks))
    for command in ELSEWHERE:
        assert command in script, f"{command} is not in the README any more"
        script = script.replace(command, f": {command}")
    return script


@pytest.fixture
def shell(checkout: pathlib.Path, tmp_path: pathlib.Path) -> Iterator[Callable[[str], str]]:
    """shell(script): what it prints; a command that fails ends it, and the test."""
    own = {"TMPDIR": tmp_path / "tmp", "XDG_RUNTIME_DIR": tmp_path / "xdg"}
    for directory in own.values():
        directory.mkdir(mode=0o700)
    environment = {**os.environ, **{name: str(path) for name, path in own.items()}}
    environment["PYTHONPATH"] = str(daemon_module.build_dir() / "python")
    environment["PATH"] = f"{checkout / '.venv/bin'}:{environment['PATH']}"
    started: list[subprocess.Popen[str]] = []
    # What stays in the background ends with the script, and does not keep its output open.
    end = "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n"

    def run(script: str) -> str:
        process = subprocess.Popen(
            ["bash", "-eEuo", "pipefail", "-c", end + script],
            cwd=checkout,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        printed, _ = process.communicate(timeout=WATCHDOG_S)
        assert process.returncode == 0, f"exit code {process.returncode}:\n{printed}"
        return printed

    yield run
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_the_readme_runs_from_the_first_command_to_the_last(shell: Callable[[str], str]) -> None:
    printed = shell(script_of_readme())
    assert "pipeline 'train' version 1 applied: 144 items, 6 classes" in printed
    assert re.search(r"^a +train .*", printed, re.MULTILINE), "jobs a and b were shown"
    assert "job 'run-7' changes to version 2" in printed
    assert "decode_image + random_resized_crop" in printed, "explain"


def test_the_snippets_of_the_python_page_run_one_after_the_other(
    checkout: pathlib.Path, shell: Callable[[str], str], make_daemon: Callable[..., Any]
) -> None:
    daemon = make_daemon()
    daemon.ctl("apply", "-f", checkout / "train.yaml", "--var", "size=32")
    snippets = [body for kind, body in FENCED.findall(PYTHON_MD) if kind == "python"]
    assert len(snippets) >= 7
    # The functions that they give to map= are called, too.
    ends = ["", *["\nlen(next(iter(loader)))\n" if "map=" in each else "" for each in snippets]]
    program = "".join(snippet + end for snippet, end in zip(snippets, ends[1:], strict=True))
    shell(f"export SPDLD_ADDRESS={daemon.address}\npython - <<'PYTHON'\n{program}\nPYTHON\n")


def test_the_first_example_of_own_code_runs_as_printed(
    checkout: pathlib.Path, drawn: pathlib.Path, shell: Callable[[str], str]
) -> None:
    text = (daemon_module.REPOSITORY / "docs/own-code.md").read_text()
    (_, pipeline), (_, function), (_, script) = FENCED.findall(text)
    assert "/data/pets" in pipeline
    (checkout / "pets.yaml").write_text(pipeline.replace("/data/pets", str(drawn)))
    (checkout / "aug.py").write_text(function)
    # Images that no function has had are delivered with their channels first.
    ends = "assert (image.shape, image.dtype, label.shape) == ((32, 224, 224, 3), 'uint8', (32,))\n"
    shell(f"export PATH=$PWD/build/release/bin:$PATH\npython - <<'PYTHON'\n{script}{ends}PYTHON\n")


def write_shards(images: pathlib.Path, directory: pathlib.Path) -> None:
    """Four shards of these images, each with a caption."""
    files = sorted(images.rglob("*.jpg"))
    directory.mkdir()
    for shard in range(4):
        with tarfile.open(directory / f"train-{shard:05}.tar", "w") as tar:
            for i, file in enumerate(files[shard::4]):
                for suffix, content in (("jpg", file.read_bytes()), ("txt", b"a picture")):
                    info = tarfile.TarInfo(f"{shard}-{i:04}.{suffix}")
                    info.size = len(content)
                    tar.addfile(info, io.BytesIO(content))


def test_init_writes_what_the_page_for_dataloaders_shows(
    drawn: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    text = (daemon_module.REPOSITORY / "docs/from-dataloader.md").read_text()
    shown = next(body for kind, body in FENCED.findall(text) if kind == "yaml")
    file = tmp_path / "train.yaml"
    command = [daemon_module.build_dir() / "bin/spdlctl", "--address", "/nowhere", "init", drawn]
    subprocess.run([*command, "-o", file], check=True, timeout=WATCHDOG_S)
    seen, written = file.read_text().split("pipeline:", 1)
    assert all(line.startswith("#") for line in seen.splitlines())
    assert "pipeline:" + written == shown.replace("/data/pets", str(drawn))


@pytest.mark.parametrize(
    ("page", "path", "rows"),
    [("from-dataloader", "/data/pets", 32), ("from-webdataset", "/data/pairs", 16)],
)
def test_what_other_loaders_become_runs_as_it_stands(
    checkout: pathlib.Path,
    drawn: pathlib.Path,
    shell: Callable[[str], str],
    make_daemon: Callable[..., Any],
    page: str,
    path: str,
    rows: int,
) -> None:
    write_shards(drawn, checkout / "pairs")
    data = {"/data/pets": drawn, "/data/pairs": checkout / "pairs"}[path]
    text = (daemon_module.REPOSITORY / f"docs/{page}.md").read_text()
    assert path in text
    blocks = FENCED.findall(text.replace(path, str(data)))
    for pipeline in [body for kind, body in blocks if kind == "yaml"]:
        name = pipeline.partition("\n")[0].removeprefix("pipeline: ")
        (checkout / f"{name}.yaml").write_text(pipeline)
    program = "seen = []\ndef train_step(images, targets): seen.append(len(images))\n"
    program += "def predict(images): return images.sum(dim=(1, 2, 3)) > 0\n"
    program += "def tokenize(texts): return [len(text) for text in texts]\n"
    program += "".join(body for kind, body in blocks if kind == "python")
    program += "\nfor _ in again: pass\n" if "again = " in program else ""
    shell(
        f"export SPDLD_ADDRESS={make_daemon().address}\npython - <<'PYTHON'\n{program}\n"
        f"assert len(seen) >= 3 and set(seen) == {{{rows}}}, seen\nPYTHON\n"
    )
