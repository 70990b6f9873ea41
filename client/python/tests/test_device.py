# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: ANN001 - fixtures
"""Batches on a device, as libraries take them over. The driver is the fake one of tests/fake_cuda."""

from __future__ import annotations

import gc
import os
import pathlib
import signal
import subprocess
import sys
import types
from collections.abc import Iterator

import fake_gpu
import numpy as np
import pytest
import spdld
from fake_daemon import expected_image

pytestmark = pytest.mark.skipif(
    not fake_gpu.LIBRARY.exists(), reason="built without the headers of the CUDA Toolkit"
)
SHAPE = (4, 3, 96, 96)


@pytest.fixture
def gpu() -> Iterator[fake_gpu.FakeGpu]:
    gpu = fake_gpu.FakeGpu()
    yield gpu
    gc.collect()
    gpu.close()


def test_a_large_field_is_a_tensor_on_the_device(start, loader, gpu) -> None:
    start()
    batch = next(iter(loader(device="cuda")))
    image = batch["image"]
    assert batch.device == "cuda:0"
    assert image.__dlpack_device__() == (2, 0) and image.shape == SHAPE
    stream = gpu.stream()
    capsule = image.__dlpack__(stream=stream)
    tensor = fake_gpu.tensor_of(capsule)
    assert (tensor.device.type, tensor.device.number) == (2, 0)
    assert (tensor.code, tensor.bits, tensor.ndim) == (1, 8, 4)
    gpu.synchronize(stream)
    shown = gpu.read(tensor.data, SHAPE, np.dtype(np.uint8))
    assert np.array_equal(shown, expected_image(0, 0, 4, SHAPE[1:]))


def test_small_fields_stay_in_main_memory(start, loader, gpu) -> None:
    start()
    batch = next(iter(loader(device="cuda")))
    assert batch["label"].tolist() == [0, 1, 2, 3]
    assert batch.indices.tolist() == [0, 1, 2, 3]


def test_the_array_interface_is_version_3_and_waits_for_the_default_stream(
    start, loader, gpu
) -> None:
    start()
    batch = next(iter(loader(device="cuda")))
    interface = batch["image"].__cuda_array_interface__
    assert interface["version"] == 3 and interface["stream"] == 1
    assert interface["shape"] == SHAPE and interface["typestr"] == "|u1"
    assert interface["strides"] is None and interface["data"][1] is False
    gpu.synchronize(1)
    shown = gpu.read(interface["data"][0], SHAPE, np.dtype(np.uint8))
    assert np.array_equal(shown, expected_image(0, 0, 4, SHAPE[1:]))


def sum_late(reader, gpu) -> tuple[list[int], list[int]]:
    """Sums of the images of three epochs by late kernels, each batch dropped at once; and what they
    must be."""
    stream = gpu.stream()
    sums, wanted = [], []
    for _ in range(3):
        for batch in reader:
            capsule = batch["image"].__dlpack__(stream=stream)
            data = fake_gpu.tensor_of(capsule).data
            sums.append(gpu.launch_slow_sum(stream, data, int(np.prod(SHAPE))))
            wanted.append(int(expected_image(batch.epoch, batch.step, 4, SHAPE[1:]).sum()))
            del batch, capsule
    gpu.synchronize(stream)
    return [each.value for each in sums], wanted


def test_dropping_a_tensor_does_not_disturb_the_kernel_that_reads_it(start, loader, gpu) -> None:
    start(steps=12, epochs=3)
    reader = loader(device="cuda")
    sums, wanted = sum_late(reader, gpu)
    assert sums == wanted
    assert len(sums) == 36


def test_a_tensor_that_is_taken_again_is_ready_for_the_stream_of_then(
    start, loader, gpu, monkeypatch
) -> None:
    # Torch has no tensors on the fake driver: what it has made is put there as it keeps it.
    daemon = start(steps=4, device_memory=gpu.shared_memory)
    stream = gpu.stream()
    current = types.SimpleNamespace(cuda_stream=stream)
    torch = types.SimpleNamespace(
        cuda=types.SimpleNamespace(current_stream=lambda device: current if device == 0 else None),
        backends=types.SimpleNamespace(cuda=types.SimpleNamespace(is_built=lambda: True)),
    )
    monkeypatch.setattr("spdld._batch._torch", lambda: torch)
    monkeypatch.setattr("torch.backends.cuda.is_built", lambda: True)
    reader = loader(device="cuda", output="torch")
    batch = next(iter(reader))
    made = batch._tensors["image"] = object()
    gate = gpu.launch_gate(stream)
    assert batch["image"] is made
    del batch
    reader.stats()
    assert daemon.released == 0, "the stream may still read it"
    gate.set()
    gpu.synchronize(stream)
    reader.close()
    daemon.wait_until(lambda: daemon.outstanding == 0)


@pytest.mark.parametrize("output", ["torch", ("image", "label")])
def test_a_torch_without_cuda_is_a_device_error_before_the_first_batch(
    loader, gpu, monkeypatch, output
) -> None:
    monkeypatch.setattr("torch.backends.cuda.is_built", lambda: False)
    with pytest.raises(spdld.DeviceError, match=r"was built without CUDA.*output='batch'"):
        loader(device="cuda", output=output)


def test_a_torch_without_cuda_takes_no_field_of_a_batch_on_a_device(
    start, loader, gpu, monkeypatch
) -> None:
    monkeypatch.setattr("torch.backends.cuda.is_built", lambda: False)
    start()
    batch = next(iter(loader(device="cuda")))
    with pytest.raises(spdld.DeviceError, match="was built without CUDA"):
        batch.torch("image")
    assert batch.torch("label").tolist() == [0, 1, 2, 3]


def test_a_tensor_on_a_device_says_what_it_is_and_what_takes_it(start, loader, gpu) -> None:
    start()
    batch = next(iter(loader(device="cuda")))
    image = batch["image"]
    assert repr(image).startswith("<spdld tensor on cuda:0: uint8[4, 3, 96, 96]; no array: ")
    assert image.dtype == "uint8"
    way_out = r"no array: from_dlpack\(\) of torch.*batch.copy\(\) has numpy's arrays"
    with pytest.raises(TypeError, match=way_out):
        image[0]
    with pytest.raises(TypeError, match=way_out):
        iter(image).__next__()
    for name in ("mean", "copy", "to"):
        with pytest.raises(AttributeError, match=rf"no attribute '{name}', as it is {way_out}"):
            getattr(image, name)
    assert not hasattr(image, "__float__")


def test_a_tensor_in_main_memory_says_that_numpy_takes_it(start, loader) -> None:
    start()
    batch = next(iter(loader()))
    label = batch.dlpack("label")
    assert repr(label).startswith("<spdld tensor in main memory: int64[4]; no array: from_dlpack()")
    with pytest.raises(AttributeError, match=r"from_dlpack\(\) of numpy, torch or jax takes it"):
        label.mean()
    with pytest.raises(AttributeError, match="this tensor is in main memory"):
        _ = label.__cuda_array_interface__


@pytest.mark.parametrize("device", [None, "cuda"])
def test_a_copy_may_be_written_to_and_the_batch_does_not_see_it(start, loader, gpu, device) -> None:
    start(extra_fields=True)
    batch = next(iter(loader(device=device)))
    copy = batch.copy()
    for name in ("image", "label"):
        before = copy[name].copy()
        copy[name][...] = 1 - before
        assert np.array_equal(copy[name], 1 - before), "each look shows the same memory"
        assert np.array_equal(batch.copy()[name], before)
    for row in copy["boxes"]:
        row += 1
    with pytest.raises(ValueError, match="read-only"):
        batch["label"][0] = 1


def test_rows_of_different_shape_are_tensors_each(start, loader, gpu) -> None:
    start(extra_fields=True)
    host = next(iter(loader()))
    batch = next(iter(loader(device="cuda")))
    large = [name for name in host if batch._core.on_device(name)]
    assert "image" in large
    for name in large:
        rows = batch[name] if isinstance(batch[name], list) else [batch[name]]
        expected = host[name] if isinstance(host[name], list) else [host[name]]
        gpu.synchronize(1)
        for row, array in zip(rows, expected, strict=True):
            interface = row.__cuda_array_interface__
            gpu.synchronize(1)
            assert np.array_equal(
                gpu.read(interface["data"][0], row.shape, array.dtype), np.asarray(array)
            )


def test_a_copy_is_in_main_memory(start, loader, gpu) -> None:
    start(extra_fields=True)
    host = next(iter(loader()))
    copy = next(iter(loader(device="cuda"))).copy()
    assert copy.device == "cpu"
    for name in host:
        for row, expected in zip(copy[name], host[name], strict=True):
            assert np.array_equal(row, expected)


def test_numpy_is_told_where_the_field_lies(start, loader, gpu) -> None:
    start()
    batch = next(iter(loader(device="cuda")))
    with pytest.raises(BufferError, match="stream 0 may mean two things"):
        batch["image"].__dlpack__(stream=0)
    with pytest.raises(BufferError, match=r"dl_device must be \(2, 0\)"):
        batch["image"].__dlpack__(dl_device=(1, 0))
    with pytest.raises(BufferError, match="clone"):
        batch["image"].__dlpack__(copy=True)


def test_release_with_a_stream_ends_the_lease(start, loader, gpu) -> None:
    start()
    batch = next(iter(loader(device="cuda")))
    stream = gpu.stream()
    with pytest.raises(TypeError, match="give a torch stream"):
        batch.record_stream("s")
    batch.release(stream=stream)
    assert batch.released
    with pytest.raises(spdld.LeaseError, match="was released"):
        batch["image"]
    assert batch["label"].tolist() == [0, 1, 2, 3]


def test_release_raises_while_a_tensor_lives(start, loader, gpu) -> None:
    start()
    batch = next(iter(loader(device="cuda")))
    capsule = batch["image"].__dlpack__()
    with pytest.raises(spdld.LeaseError, match="still in use"):
        batch.release()
    del capsule
    gc.collect()
    batch.release()


def test_holding_all_batches_of_the_device_is_a_lease_error(start, loader, gpu) -> None:
    start(steps=9)
    reader = iter(loader(device="cuda"))
    held = [next(reader) for _ in range(4)]
    with pytest.raises(spdld.LeaseError, match="all 4 batches that it may hold on the device"):
        next(reader)
    assert [batch.step for batch in held] == [0, 1, 2, 3]
    del held
    gc.collect()
    assert next(reader).step == 4


def test_the_position_is_that_of_the_batch_handed_out(start, loader, gpu) -> None:
    start(steps=9)
    reader = loader(device="cuda")
    batches = iter(reader)
    next(batches), next(batches)
    state = reader.state_dict()
    again = loader(device="cuda")
    again.load_state_dict(state)
    assert next(iter(again)).step == 2


def test_stats_say_that_no_batch_was_staged(start, loader, gpu) -> None:
    start()
    reader = loader(device="cuda")
    next(iter(reader))
    assert reader.stats()["staged"] == 0


@pytest.mark.parametrize("device", ["gpu", "cuda:x", "cuda:-2", "mps"])
def test_a_device_that_is_none_is_a_value_error(loader, device) -> None:
    with pytest.raises(ValueError, match="it is 'cuda', 'cuda:N' or 'cpu'"):
        loader(device=device)


def test_cpu_is_main_memory(start, loader) -> None:
    start()
    batch = next(iter(loader(device="cpu")))
    assert batch.device == "cpu" and isinstance(batch["image"], np.ndarray)


def test_a_device_of_the_wrong_type_is_a_type_error(loader) -> None:
    with pytest.raises(TypeError, match="give 'cuda' or 'cuda:N'"):
        loader(device=1.5)


def test_a_device_that_this_process_does_not_see_is_told(loader, gpu) -> None:
    with pytest.raises(spdld.DeviceError, match="no device cuda:3: this process sees 1 device"):
        loader(device="cuda:3")


def test_a_forked_child_is_told_to_be_spawned(start, loader, gpu) -> None:
    start()
    reader = loader(device="cuda")
    next(iter(reader))
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        try:
            loader(device="cuda")
        except spdld.DeviceError as error:
            os._exit(0 if "forked" in str(error) and "spawn" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_tensor_may_outlive_batch_loader_and_interpreter(start, tmp_path) -> None:
    start()
    program = f"""
import sys
sys.path.insert(0, {str(pathlib.Path(__file__).parent)!r})
import fake_gpu, spdld
gpu = fake_gpu.FakeGpu()
loader = spdld.Loader("numbers", address={str(tmp_path)!r}, device="cuda", timeout=20.0)
batch = next(iter(loader))
capsule = batch["image"].__dlpack__(stream=gpu.stream())
image = batch["image"]
loader.close()
del loader, batch
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


HELD_UP = """
import gc, sys, threading, time
sys.path.insert(0, {tests!r})
import fake_gpu, spdld

gpu = fake_gpu.FakeGpu()
loader = spdld.Loader("numbers", address={address!r}, device="cuda", timeout=20.0)
batch, stream = next(iter(loader)), gpu.stream()
assert loader.stats()["delivery"] == {delivery!r}
image = batch["image"]
capsule = image.__dlpack__(stream=stream)
loader.close()
# A host function: no more runs on the stream until a thread of Python's lets it end.
gate, before = gpu.launch_gate(stream), gpu.calls({waits!r})

def open_gate():
    while gpu.calls({waits!r}) == before:
        time.sleep(0.001)
    gate.set()

opens = threading.Thread(target=open_gate)
opens.start()
{drops}
gc.collect()
assert gate.is_set(), "nothing has waited for the stream"
opens.join()
"""


@pytest.mark.parametrize(
    "drops",
    [
        "del image, capsule; del batch",
        "del batch, capsule; del image",
        "del batch, image; del capsule",
        "gone = fake_gpu.take_over(capsule, with_gil=True); del batch, image, capsule; gone()",
        "gone = fake_gpu.take_over(capsule, with_gil=False); del batch, image, capsule; gone()",
    ],
    ids=["batch", "tensor", "capsule", "taken-over", "taken-over-without-gil"],
)
@pytest.mark.parametrize("delivery", ["pinned", "cuda ipc"])
def test_letting_go_of_the_last_batch_lets_other_threads_run_meanwhile(
    start, gpu, tmp_path, delivery, drops
) -> None:
    brought = {"device_memory": gpu.shared_memory}
    start(**(brought if delivery == "cuda ipc" else {}))
    waits = "cuEventSynchronize" if delivery == "cuda ipc" else "cuMemFree"
    # Pinned: the loader keeps the device memory until it is gone.
    run_held_up(tmp_path, delivery, waits, f"del loader; gc.collect(); {drops}")


def test_letting_go_of_the_loader_lets_other_threads_run_meanwhile(start, gpu, tmp_path) -> None:
    start()
    run_held_up(tmp_path, "pinned", "cuMemFree", "del batch, image, capsule; del loader")


def run_held_up(address: pathlib.Path, delivery: str, waits: str, drops: str) -> None:
    tests, address = str(pathlib.Path(__file__).parent), str(address)
    program = HELD_UP.format(
        tests=tests, address=address, delivery=delivery, waits=waits, drops=drops
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=40, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_forked_child_ends_with_the_parents_tensors(start, loader, gpu) -> None:
    start()
    reader = loader(device="cuda")
    batch = next(iter(reader))
    capsule = batch["image"].__dlpack__()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        del batch, capsule, reader
        gc.collect()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert batch["image"].__dlpack_device__() == (2, 0)


def test_a_batch_that_the_daemon_brought_there_is_taken_over_alike(start, loader, gpu) -> None:
    daemon = start(device_memory=gpu.shared_memory)
    reader = loader(device="cuda")
    batch = next(iter(reader))
    image = batch["image"]
    assert daemon.attaches[0]["texts"].count(("device", gpu.uuid())) == 1
    assert reader.stats()["delivery"] == "cuda ipc"
    assert batch.device == "cuda:0" and batch["label"].tolist() == [0, 1, 2, 3]
    assert image.__dlpack_device__() == (2, 0) and image.shape == SHAPE
    capsule = image.__dlpack__(stream=gpu.stream())
    expected = expected_image(0, 0, 4, SHAPE[1:])
    shown = gpu.read(fake_gpu.tensor_of(capsule).data, SHAPE, np.dtype(np.uint8))
    assert np.array_equal(shown, expected)
    interface = image.__cuda_array_interface__
    assert interface["version"] == 3 and interface["stream"] == 1
    assert interface["data"] == (fake_gpu.tensor_of(capsule).data, True), "read-only"
    assert np.array_equal(gpu.read(interface["data"][0], SHAPE, np.dtype(np.uint8)), expected)


def test_what_the_daemon_brought_there_stays_while_a_kernel_reads_it(start, loader, gpu) -> None:
    daemon = start(steps=12, epochs=3, device_memory=gpu.shared_memory)
    reader = loader(device="cuda")
    sums, wanted = sum_late(reader, gpu)
    assert sums == wanted and len(sums) == 36
    reader.close()
    daemon.wait_until(lambda: daemon.outstanding == 0)
    assert daemon.released == 36


def test_a_batch_there_is_released_when_its_stream_is_through(start, loader, gpu) -> None:
    daemon = start(steps=9, device_memory=gpu.shared_memory)
    reader = iter(loader(device="cuda"))
    batch, stream = next(reader), gpu.stream()
    gate = gpu.launch_gate(stream)
    batch.release(stream=stream)
    assert batch.released
    held = [next(reader) for _ in range(3)]
    with pytest.raises(spdld.LeaseError, match="was released"):
        batch["image"]
    assert daemon.released == 0
    gate.set()
    held.append(next(reader))
    assert [each.step for each in held] == [1, 2, 3, 4] and daemon.released == 1
    with pytest.raises(spdld.LeaseError, match="all 4 batches that it may hold"):
        next(reader)


@pytest.mark.parametrize("brought_by_the_daemon", [False, True])
def test_ragged_rows_on_a_device_are_tensors_each(
    start, loader, gpu, brought_by_the_daemon
) -> None:
    there = {"device_memory": gpu.shared_memory} if brought_by_the_daemon else {}
    start(extra_fields=True, ragged_capacity=1 << 17, **there)
    batch = next(iter(loader(device="cuda")))
    rows = batch["boxes"]
    assert [row.shape for row in rows] == [(0, 2), (1, 2), (2, 2), (3, 2)]
    interface = rows[3].__cuda_array_interface__
    gpu.synchronize(1)
    shown = gpu.read(interface["data"][0], (3, 2), np.dtype(np.float32))
    assert np.array_equal(shown, np.full((3, 2), 3, np.float32))
    assert batch["caption"][1:3] == [b"", "zwölf Boxkämpfer".encode()]


def test_numpy_makes_no_array_of_a_tensor_on_a_device(start, loader, gpu) -> None:
    start()
    image = next(iter(loader(device="cuda")))["image"]
    with pytest.raises(TypeError, match=r"lies on cuda:0, and numpy has no arrays there"):
        np.asarray(image)


def test_numpy_makes_an_array_of_a_tensor_in_main_memory(start, loader) -> None:
    start()
    batch = next(iter(loader()))
    array = np.asarray(batch.dlpack("label"), dtype=np.int32)
    assert array.dtype == np.int32 and array.tolist() == [0, 1, 2, 3]
    tensor = batch.dlpack("image")
    assert np.shares_memory(np.asarray(tensor), np.from_dlpack(tensor))
    assert not np.shares_memory(tensor.__array__(copy=True), np.from_dlpack(tensor))


@pytest.mark.parametrize(
    ("argument", "told"),
    [
        ({"stream": "x"}, "stream is 'x': it is None or the number of a CUstream"),
        ({"dl_device": 2}, "dl_device is 2: it is None or a pair of numbers"),
        ({"max_version": "1.0"}, "max_version is '1.0': it is None or a pair of numbers"),
    ],
)
def test_an_argument_of_the_wrong_type_is_a_type_error(start, loader, gpu, argument, told) -> None:
    start()
    image = next(iter(loader(device="cuda")))["image"]
    with pytest.raises(TypeError, match=told):
        image.__dlpack__(**argument)


def test_stats_tell_how_batches_come(start, loader, gpu) -> None:
    start()
    host, pinned = loader(), loader(device="cuda")
    next(iter(host))
    next(iter(pinned))
    assert (host.stats()["delivery"], pinned.stats()["delivery"]) == ("host", "pinned")
