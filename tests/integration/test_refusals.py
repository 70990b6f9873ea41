# SPDX-License-Identifier: Apache-2.0
"""Whatever is refused says what failed, on which thing, and what to do."""

from __future__ import annotations

import os
import pathlib
import re
import signal
import socket
import struct
import subprocess
import tempfile
from collections.abc import Callable
from typing import Any

import daemon as daemon_module
import fake_daemon
import pytest
import spdld
from integration.ranks import Rank

ROOT = os.geteuid() == 0
# Root may read and write everything: as root, the daemons of some tests run as nobody.
DAEMON_UID = 65534 if ROOT else os.geteuid()


def close_to_daemon(path: pathlib.Path) -> str:
    """Takes the daemon's rights to `path`; returns how its mode then reads."""
    path.chmod(0o700 if ROOT else 0o000)
    kind = "d" if path.is_dir() else "-"
    return kind + ("rwx------" if ROOT else "---------")


def unprivileged() -> daemon_module.Daemon:
    return daemon_module.Daemon(uid=DAEMON_UID if ROOT else None)


def open_way_to(path: pathlib.Path) -> None:
    """pytest's own directories are closed to others."""
    for above in path.parents:
        if above == pathlib.Path(tempfile.gettempdir()):
            return
        above.chmod(0o755)


@pytest.fixture
def running(
    make_daemon: Callable[..., Any], write_pipeline: Callable[..., Any], dataset: Any
) -> Any:
    return make_daemon(pipelines=[write_pipeline(dataset)])


def test_a_plan_that_the_arena_budget_cannot_hold_is_refused_with_the_numbers(
    make_daemon: Callable[..., Any], write_pipeline: Callable[..., Any], dataset: Any
) -> None:
    pipeline = write_pipeline(
        dataset, stages=["fetch", "decode_image", {"resize": {"size": [256, 256]}}]
    )
    daemon = make_daemon(pipelines=[pipeline], settings={"arena": {"budget": "1MiB"}})
    done = daemon.ctl("consume", "images", check=False)
    assert done.returncode == 1
    assert re.search(
        r"pipeline 'images' needs \d+ slots of 768\.\d KiB for shard 0.*: .* needs 4\.\d MiB, "
        r"but the arena budget of 1\.0 MiB has 1\.0 MiB left \(0 B in use\); raise arena\.budget, "
        r"or lower batch\.size or delivery\.prefetch",
        done.stderr,
    ), done.stderr
    assert daemon.ctl_json("status")["arena_used"] == 0
    assert daemon.ctl("consume", "images", "--batch-size", "1", "--prefetch", "2").returncode == 0


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--rank", "5"], "--rank and --world-size go together"),
        (["--shard", "1"], "--shard and --num-shards go together"),
        (["--rank", "5", "--world-size", "2"], "there is no rank 5 of 2: ranks are 0 to 1"),
        (["--shard", "2", "--num-shards", "2"], "there is no shard 2 of 2: shards are 0 to 1"),
        (["--replicas", "2"], "--replicas 2 needs --shard and --num-shards"),
        (
            ["--replicas", "2", "--shard", "0", "--num-shards", "1"],
            "--replicas 2 needs --replica: which of them this is, 0 to 1",
        ),
        (
            ["--replicas", "2", "--shard", "0", "--num-shards", "1", "--replica", "2"],
            "there is no --replica 2 of --replicas 2: they count from 0",
        ),
        (
            ["--replicas", "2", "--shard", "0", "--num-shards", "1", "--replica", "1"],
            "replicas see the same batches through a job of one name: name the job",
        ),
        (["--start", "ledger"], "names no job has no ledger to start from: name the job"),
    ],
)
def test_a_place_that_cannot_be_is_refused_in_the_words_of_the_command_line(
    running: Any, options: list[str], why: str
) -> None:
    done = running.ctl("consume", "images", *options, check=False)
    assert done.returncode != 0
    assert why in done.stderr
    assert "='" not in done.stderr and "private-" not in done.stderr


def test_a_dataset_that_the_daemon_may_not_read_is_refused_with_a_way_in(
    write_pipeline: Callable[..., Any], make_dataset: Callable[..., Any]
) -> None:
    data = make_dataset(count=6, name="closed")
    open_way_to(data.root)
    mode = close_to_daemon(data.root)
    with unprivileged().start() as daemon:
        done = daemon.ctl("apply", "-f", write_pipeline(data), check=False)
        data.root.chmod(0o755)
        assert done.returncode == 1
        assert f"pipeline 'images': cannot list {data.root}" in done.stderr
        assert f"{data.root} is {mode} of uid {os.geteuid()}" in done.stderr
        assert f"spdld runs as uid {DAEMON_UID}; let it in with 'setfacl -m u:" in done.stderr
        assert daemon.ctl("apply", "-f", write_pipeline(data)).returncode == 0


def test_a_file_that_the_daemon_may_not_read_is_not_replaced_but_fails(
    write_pipeline: Callable[..., Any], make_dataset: Callable[..., Any]
) -> None:
    data = make_dataset(count=8, name="closed-file")
    open_way_to(data.root)
    data.root.chmod(0o755)
    close_to_daemon(data.files[3])
    with unprivileged().start() as daemon:
        file = write_pipeline(data, batch={"size": 8})
        done = daemon.ctl("apply", "-f", file, check=False)
    assert done.returncode == 1
    assert "a first batch could not be made" in done.stderr
    assert f"item 3 ({data.files[3].relative_to(data.root)})" in done.stderr
    assert f"let it in with 'setfacl -m u:{DAEMON_UID}:r {data.files[3]}'" in done.stderr


def test_data_outside_of_the_roots_is_refused(
    make_daemon: Callable[..., Any], write_pipeline: Callable[..., Any], dataset: Any
) -> None:
    daemon = make_daemon(settings={"access": {"roots": ["/srv", "/usr"]}})
    done = daemon.ctl("apply", "-f", write_pipeline(dataset), check=False)
    assert done.returncode == 1
    assert f"cannot list {dataset.root}" in done.stderr
    assert "lies below none of access.roots (/srv, /usr)" in done.stderr


def test_an_unknown_op_is_refused_with_its_place_and_the_nearest_name(
    running: Any, tmp_path: pathlib.Path, dataset: Any
) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(
        "pipeline: wrong\n"
        f"source: {{files: {{root: {dataset.root}}}}}\n"
        "stages:\n"
        "  - fetch\n"
        "  - decode_imge: {mode: rgb}\n"
        "batch: {size: 4}\n"
    )
    done = running.ctl("apply", "-f", file, check=False)
    assert done.returncode == 2
    assert re.search(rf"{file}:5:5: .*decode_imge.*decode_image", done.stderr), done.stderr
    assert [p["name"] for p in running.ctl_json("get", "pipelines")] == ["images"]


# What people bring along from elsewhere as a stage, and what they are told.
PASTED = {
    "random_horizontal_flip: 0.5": "; write {p: 0.5}",
    "RandomResizedCrop(224, scale=(0.08, 1.0), interpolation=InterpolationMode.BICUBIC)": (
        "did you mean 'random_resized_crop: {size: 224, scale: [0.08, 1.0], interpolation: bicubic}'?"
    ),
    "v2.RandomHorizontalFlip(0.5)": "did you mean 'random_horizontal_flip: {p: 0.5}'?",
    "Normalize([0.5], [0.2])": "did you mean 'normalize: {mean: [0.5], std: [0.2]}'?",
    "MelSpectrogram(16000)": "did you mean 'mel_spectrogram'?",
    "random_resized_crop: {size: 8, interpolation: BICUBIC}": "; did you mean 'bicubic'?",
    "random_resized_crop: {size: 8, interpolation: 3}": "its 3 is 'bicubic'",
    "resize: {height: 8, width: 8}": "write 'size: [HEIGHT, WIDTH]'",
    "center_crop: {size: (8, 8)}": "a list has square brackets",
    "normalize: {mean: 0, std: 1, inplace: true}": "leave it out: ops work in place",
    "normalize: {mean: 0, std: 1, max_pixel_value: 255}": "leave it out: integers are brought into",
    "pad: {padding: 4, fill: 0, padding_mode: constant}": "random_crop: {size: N, padding: 4}",
    "random_crop: {size: 8, padding: 4, fill: 0}": "leave it out: what is put around an image is 0",
    "spectrogram: {n_mels: 80}": "write 'mel_spectrogram' in place of 'spectrogram'",
    "spectrogram: {hop: 160}": "write 'hop_length: SAMPLES'",
    "mel: {sr: 16000}": "write 'mel_spectrogram'",
    "mel_spectrogram: {sr: 16000}": "leave it out: it is the sound's",
    "decode_audio: {sr: 16000}": "write 'sample_rate: HZ'",
    "decode_image: {mode: L}": "write 'gray'",
    "to_dtype: {dtype: torch.float32}": "; did you mean 'float32'?",
    "bounding_boxes: {format: coco}": "write 'xywh'",
}


def test_stages_of_other_libraries_are_refused_with_what_to_write_here(
    running: Any, dataset: Any, tmp_path: pathlib.Path
) -> None:
    file = tmp_path / "pasted.yaml"
    for stage, told in PASTED.items():
        file.write_text(
            f"pipeline: pasted\nsource: {{files: {{root: {dataset.root}}}}}\n"
            f"stages:\n  - fetch\n  - {stage}\nbatch: {{size: 1}}\n"
        )
        done = running.ctl("apply", "-f", file, check=False)
        assert (done.returncode, told in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_items_that_fill_no_step_are_applied_with_explains_warning(
    make_daemon: Callable[..., Any],
    write_pipeline: Callable[..., Any],
    make_dataset: Callable[..., Any],
    more: tuple[str, ...],
) -> None:
    daemon = make_daemon()
    data = make_dataset(count=7, name="few")
    file = write_pipeline(data, batch={"size": 8})
    done = daemon.ctl("apply", "-f", file, *more)
    told = (
        "the 7 items do not fill a step of 8 rows on 1 shard: lower batch.size, or set 'batch: "
        "{last: pad}'"
    )
    assert done.returncode == 0
    assert done.stderr == f"spdlctl: warning: pipeline 'images': {told}\n"
    assert f"WARNING  {told}" in daemon.ctl("explain", "-f", file).stdout
    full = daemon.ctl("apply", "-f", write_pipeline(data, batch={"size": 7}), *more)
    assert full.stderr == ""


def test_an_invalid_pipeline_of_the_configuration_leaves_the_others_running(
    make_daemon: Callable[..., Any],
    write_pipeline: Callable[..., Any],
    dataset: Any,
    tmp_path: pathlib.Path,
) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("pipeline: wrong\nsuorce: {}\n")
    daemon = make_daemon(pipelines=[wrong, write_pipeline(dataset)])
    daemon.await_log(f"{wrong}:2:1")
    assert daemon.ctl("consume", "images").returncode == 0


def test_a_wrong_configuration_ends_the_daemon_with_the_place() -> None:
    with (
        daemon_module.Daemon(settings={"arena": {"bugdet": "1GiB"}}) as daemon,
        pytest.raises(RuntimeError) as refused,
    ):
        daemon.start()
    assert "ended with 2" in str(refused.value)
    assert re.search(rf"{daemon.config_file}:\d+:\d+: .*bugdet.*budget", str(refused.value))


def test_a_second_daemon_at_the_same_place_is_refused(running: Any) -> None:
    second = subprocess.run(
        [daemon_module.build_dir() / "bin/spdld", "--config", running.config_file],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert second.returncode == 1
    assert running.address in second.stderr
    assert str(running.pid) in second.stderr
    assert running.ctl("status").returncode == 0


def test_a_world_size_without_a_rank_is_refused(
    make_daemon: Callable[..., Any], write_pipeline: Callable[..., Any], dataset: Any
) -> None:
    daemon = make_daemon(
        pipelines=[write_pipeline(dataset)], environment={"WORLD_SIZE": "2", "RANK": ""}
    )
    done = daemon.ctl("consume", "images", check=False)
    assert done.returncode != 0
    assert "WORLD_SIZE is 2, but RANK is not set" in done.stderr
    assert "give Loader rank and world_size" in done.stderr


def test_a_shard_that_is_held_is_refused_with_its_holders_pid(
    running: Any, start_rank: Callable[..., Rank]
) -> None:
    holder = start_rank(running, job="run", rank=0, world_size=2)
    holder.take(1)
    done = running.ctl(
        *("consume", "images", "--job", "run", "--rank", "0", "--world-size", "2"), check=False
    )
    assert done.returncode == 1
    assert re.search(
        rf"shard 0 of 2 of job 'run' is read by pid {holder.pid} \(session (\d+)\): give each rank "
        r"its own shard, or end that one with 'spdlctl evict \1'",
        done.stderr,
    ), done.stderr
    holder.take(1)


def answer_to(daemon: Any, protocols: tuple[int, int], client: str = "test client 9.9") -> str:
    """The daemon's last word to a client that speaks these protocols."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as consumer:
        consumer.settimeout(60)
        consumer.connect(f"{daemon.address}/data.sock")
        hello = (1, 72, fake_daemon.MAGIC, *protocols, 0, client.encode())
        consumer.send(fake_daemon.FRAMES["HelloFrame"].pack(*hello))
        answer = consumer.recv(65536)
        kind, size, code, fatal, text_bytes, _ = struct.unpack_from("<IIIIII", answer)
        assert (kind, size, fatal) == (65, len(answer), 1)
        assert code == 9  # FAILED_PRECONDITION
        assert consumer.recv(65536) == b"", "the connection ends with the word"
        return answer[24 : 24 + text_bytes].decode()


@pytest.mark.parametrize(
    ("speaks", "shown"),
    [((7, 7), "data protocol 7"), ((0, 0), "data protocol 0"), ((1, 5), "data protocols 1 to 5")],
)
def test_a_client_of_another_build_is_refused_by_name(
    running: Any, speaks: tuple[int, int], shown: str
) -> None:
    text = answer_to(running, speaks)
    assert re.fullmatch(
        rf"test client 9\.9 speaks {shown}, and the daemon spdld [0-9.]+ speaks data protocol 5: "
        "install the same build of spdld for both",
        text,
    ), text


# What operate.md has of the next protocol: a daemon's words to a client, and a client's of a daemon.
[TOLD_BY_DAEMON, TOLD_BY_CLIENT] = re.findall(
    r"^    (.* speaks data protocol .*)$",
    (daemon_module.REPOSITORY / "docs/operate.md").read_text(),
    re.MULTILINE,
)
NEXT = fake_daemon.PROTOCOL + 1


def without_versions(text: str) -> str:
    return re.sub(r"\d+\.\d+\.\d+", "VERSION", text)


def test_a_client_of_the_next_protocol_is_refused_in_the_words_of_the_docs(running: Any) -> None:
    told = answer_to(running, (NEXT, NEXT), "spdld-python 0.2.0")
    assert without_versions(told) == without_versions(TOLD_BY_DAEMON)
    assert f"the daemon spdld {spdld.__version__} speaks data protocol {NEXT - 1}:" in told


def test_a_daemon_of_the_next_protocol_is_refused_in_the_words_of_the_docs(
    tmp_path: pathlib.Path,
) -> None:
    options = fake_daemon.Options(server="spdld 0.2.0", protocol=NEXT)
    with fake_daemon.FakeDaemon(tmp_path, options):
        loader = spdld.Loader("images", address=tmp_path)
        with pytest.raises(spdld.ConnectionError) as refused:
            next(iter(loader))
        assert without_versions(str(refused.value)) == without_versions(TOLD_BY_CLIENT)
        assert f"and spdld-python {spdld.__version__} speaks" in str(refused.value)
        spdlctl = daemon_module.build_dir() / "bin/spdlctl"
        done = subprocess.run(
            [spdlctl, "--address", tmp_path, "consume", "images"],
            capture_output=True,
            text=True,
            timeout=60,
        )
    told = without_versions(TOLD_BY_CLIENT).replace("spdld-python VERSION", "spdlctl consume")
    assert (done.returncode, without_versions(done.stderr)) == (3, f"spdlctl: {told}\n")


@pytest.mark.parametrize("garbage", [b"", b"\x00", b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 32768])
def test_garbage_on_the_data_socket_harms_nobody(
    running: Any, start_rank: Callable[..., Rank], garbage: bytes
) -> None:
    rank = start_rank(running)
    rank.take(1)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        client.settimeout(60)
        client.connect(f"{running.address}/data.sock")
        client.send(garbage)
        answers = [client.recv(65536)]
        while answers[-1]:
            answers.append(client.recv(65536))
    assert all(struct.unpack_from("<I", answer)[0] == 65 for answer in answers[:-1])
    rank.take(2)


def test_a_caller_who_holds_every_credit_is_told_which_batches(
    make_daemon: Callable[..., Any],
    write_large_pipeline: Callable[..., Any],
    dataset: Any,
    start_rank: Callable[..., Rank],
) -> None:
    rank = start_rank(make_daemon(pipelines=[write_large_pipeline(dataset)]), prefetch=2)
    for _ in range(2):
        rank.next(hold=True)
    refused = rank.do("next")
    assert refused["error"] == "LeaseError"
    assert "holds all 2 batches that it may hold" in refused["message"]
    assert "(step 0 of epoch 0, step 1 of epoch 0)" in refused["message"]
    assert "let go of one, copy what you keep, or raise prefetch" in refused["message"]
    rank.do("drop")
    assert [batch["step"] for batch in rank.take(2)] == [2, 3]


def test_an_evicted_consumer_is_told_why_and_stays_away(
    running: Any, start_rank: Callable[..., Rank]
) -> None:
    rank = start_rank(running)
    rank.take(1)
    [session] = running.ctl_json("get", "sessions")
    running.ctl("evict", str(session["id"]), "--reason", "the node is drained")
    while "error" not in (batch := rank.do("next")):
        assert "end" not in batch
    assert batch["error"] == "PipelineError"
    assert "the node is drained" in batch["message"]
    assert running.ctl_json("get", "sessions") == []
    again = running.ctl("evict", str(session["id"]), check=False)
    assert again.returncode == 1
    assert f"there is no session {session['id']}" in again.stderr


def test_an_unknown_pipeline_is_refused_with_those_that_there_are(running: Any) -> None:
    done = running.ctl("consume", "imges", check=False)
    assert done.returncode == 1
    assert "there is no pipeline 'imges'; there are: images" in done.stderr


def test_a_pipeline_whose_file_was_refused_is_refused_with_the_reason(
    make_daemon: Callable[..., Any],
    write_pipeline: Callable[..., pathlib.Path],
    dataset: Any,
    wait_until: Callable[..., Any],
) -> None:
    files = [write_pipeline(dataset, name="slip", stages=["fetch", "decode_imge"])]
    files.append(write_pipeline(dataset, name="nameless"))
    text = files[1].read_text()
    files[1].write_text("- " + text)
    daemon = make_daemon(pipelines=files)
    refused = re.escape(f"there is no pipeline 'slip': its file was refused: {files[0]}:")
    with pytest.raises(spdld.Error, match=refused + ".*decode_imge"):
        next(iter(spdld.Loader("slip", address=daemon.address)))
    done = daemon.ctl("consume", "nameless", check=False)
    assert done.returncode == 1
    assert "there is no pipeline 'nameless'; a file that does not say its " in done.stderr
    assert f"pipeline's name was refused: {files[1]}:" in done.stderr
    files[1].write_text(text)
    daemon.signal(signal.SIGHUP)
    wait_until(lambda: len(daemon.ctl_json("get", "pipelines")) == 1, "the file to be applied")
    assert (
        "nameless" not in daemon.ctl("consume", "others", check=False).stderr.split("there are")[0]
    )


def test_a_file_in_place_of_a_name_is_refused_with_how_to_apply_it(running: Any) -> None:
    done = running.ctl("consume", "images.yaml", check=False)
    assert done.returncode == 1
    assert "a file is first to be applied, 'spdlctl apply -f images.yaml'" in done.stderr
    assert "; there are: images" in done.stderr


def test_a_daemon_without_pipelines_says_how_to_apply_one(make_daemon: Callable[..., Any]) -> None:
    done = make_daemon().ctl("consume", "images", check=False)
    assert done.returncode == 1
    assert "none has been applied yet: 'spdlctl apply -f FILE' does it" in done.stderr


@pytest.mark.parametrize(
    ("ends", "why"),
    [("stop", "there is no such socket"), ("kill", "the socket is there, but nobody listens")],
)
def test_without_a_daemon_spdlctl_ends_with_3(running: Any, ends: str, why: str) -> None:
    getattr(running, ends)()
    for command in (["status"], ["get", "jobs"], ["job", "advance", "run"]):
        done = running.ctl(*command, check=False)
        assert done.returncode == 3, done.stderr
        assert f"no daemon answers at {running.address}/control.sock: {why}" in done.stderr
        assert "systemctl start spdld" in done.stderr
    running.start()
    assert running.ctl("status").returncode == 0


def test_a_consumer_without_a_daemon_ends_with_3(running: Any) -> None:
    running.kill()
    done = running.ctl("consume", "images", check=False)
    assert done.returncode == 3, done.stderr
    assert f"no spdld daemon answers at {running.address}" in done.stderr
