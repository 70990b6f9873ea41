# SPDX-License-Identifier: Apache-2.0
"""What operators are told of GPUs before anybody reads there. The GPUs are the fake ones of
tests/fake_cuda."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import daemon as daemon_module
import pytest

FAKE = daemon_module.build_dir() / "fake_cuda"
pytestmark = pytest.mark.skipif(
    not (FAKE / "libcuda.so.1").exists(), reason="built without the headers of the CUDA Toolkit"
)


@pytest.fixture
def on_fake(make_daemon: Callable[..., Any]) -> Callable[..., Any]:
    def make(**settings: str) -> Any:
        fake = {f"FAKE_CUDA_{name}": value for name, value in settings.items()}
        return make_daemon(environment={"LD_LIBRARY_PATH": str(FAKE), **fake})

    return make


def test_status_lists_each_gpu(on_fake: Callable[..., Any]) -> None:
    daemon = on_fake(DEVICES="2", VERSION="12040", MEMORY=str(1 << 30))
    status = daemon.ctl_json("status")
    assert (status["gpu_driver"], status["no_gpu"]) == ("CUDA 12.4", "")
    first, second = status["gpus"]
    assert first["name"] == "Fake GPU 0"
    assert first["uuid"] != second["uuid"]
    assert first["memory_bytes"] == 1 << 30
    assert first["deliverable"] and first["why_not"] == "" and first["why_no_pinning"] == ""
    assert not first["context"] and first["arena_used"] == 0
    assert first["arena_budget"] == 2 << 30
    text = daemon.ctl("status").stdout
    assert f"gpu        Fake GPU 1, {second['uuid']}, 1.0 GiB, CUDA 12.4" in text


def test_status_says_why_a_gpu_gets_no_batches(on_fake: Callable[..., Any]) -> None:
    daemon = on_fake(COMPUTE_MODE="exclusive")
    (gpu,) = daemon.ctl_json("status")["gpus"]
    assert gpu["compute_mode"] == "exclusive process"
    assert not gpu["deliverable"]
    text = daemon.ctl("status").stdout
    assert "no batches there: it is in exclusive-process mode" in text


@pytest.mark.parametrize(
    ("attribute", "why"),
    [(99, "register memory of a process"), (113, "register memory that may only be read")],
)
def test_status_says_why_slots_cannot_be_pinned(
    on_fake: Callable[..., Any], attribute: int, why: str
) -> None:
    daemon = on_fake(ATTRIBUTES=f"{attribute}=0")
    (gpu,) = daemon.ctl_json("status")["gpus"]
    assert gpu["deliverable"] and gpu["why_no_pinning"] == f"its driver cannot {why}"
    assert f"loaders there copy by a buffer: its driver cannot {why}" in daemon.ctl("status").stdout


def test_status_says_why_there_is_no_gpu(on_fake: Callable[..., Any]) -> None:
    daemon = on_fake(MISSING="cuMemCreate")
    status = daemon.ctl_json("status")
    assert status["gpus"] == []
    assert "has no cuMemCreate" in status["no_gpu"]
    assert "gpu        none: the NVIDIA driver has no cuMemCreate" in daemon.ctl("status").stdout


UNDELIVERABLE = {
    "no driver": ({"MISSING": "cuMemCreate"}, "the NVIDIA driver has no cuMemCreate"),
    "exclusive process": (
        {"COMPUTE_MODE": "exclusive"},
        "Fake GPU 0: it is in exclusive-process mode",
    ),
}


@pytest.mark.parametrize("why", UNDELIVERABLE)
@pytest.mark.parametrize(
    ("otherwise", "ways_out"),
    [({}, "'delivery: {device: cpu}' leaves"), ({"on_unavailable": "host"}, "in main memory")],
)
def test_explain_and_apply_warn_where_no_gpu_can_be_had(
    on_fake: Callable[..., Any],
    write_large_pipeline: Callable[..., pathlib.Path],
    dataset: Any,
    why: str,
    otherwise: dict[str, str],
    ways_out: str,
) -> None:
    settings, told = UNDELIVERABLE[why]
    daemon = on_fake(**settings)
    delivery = {"device": "cuda", **otherwise}
    file = write_large_pipeline(dataset, batch={"size": 2}, delivery=delivery)
    for command in ("explain", "apply"):
        (warning,) = daemon.ctl_json(command, "-f", file)["warnings"]
        assert f"the daemon can deliver to no GPU now: {told}" in warning, command
        assert ways_out in warning, command


def test_explain_tells_what_lies_on_a_gpu(
    on_fake: Callable[..., Any], write_large_pipeline: Callable[..., pathlib.Path], dataset: Any
) -> None:
    daemon = on_fake()
    file = write_large_pipeline(
        dataset, batch={"size": 2}, delivery={"device": "cuda", "prefetch": 3}
    )
    plan = daemon.ctl_json("explain", "-f", file)
    gpu = plan["gpu"]
    assert gpu["fields"] == ["image"]
    assert gpu["slots"] == 4
    unit = 2 << 20  # in which a GPU's memory is shared
    assert gpu["consumer_bytes"] == -(-4 * gpu["slot_bytes"] // unit) * unit
    assert gpu["host_slot_bytes"] < 64 << 10 < gpu["slot_bytes"]
    assert gpu["fits"]
    text = daemon.ctl("explain", "-f", file).stdout
    assert "there: image; in main memory beside it: the rest" in text
    in_main_memory = write_large_pipeline(dataset, name="other", batch={"size": 2})
    assert daemon.ctl_json("explain", "-f", in_main_memory)["gpu"] is None
