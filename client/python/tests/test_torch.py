# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: ANN001 - fixtures
from __future__ import annotations

import gc
import subprocess
import sys

import numpy as np
import pytest
import spdld
from fake_daemon import expected_image

torch = pytest.importorskip("torch")


def test_output_torch_gives_mappings_of_tensors(start, loader) -> None:
    start(extra_fields=True)
    batch = next(iter(loader(output="torch")))
    assert isinstance(batch, spdld.TorchBatch)
    assert batch["image"].dtype == torch.uint8 and batch["image"].shape == (4, 3, 96, 96)
    assert batch["label"].dtype == torch.int64
    assert batch["mask"].dtype == torch.bool and batch["mask"].tolist() == [True, False] * 2
    assert batch["half"].dtype == torch.float16
    assert batch["brain"].dtype == torch.bfloat16 and (batch["brain"] == 1.5).all()
    assert [tuple(box.shape) for box in batch["boxes"]] == [(0, 2), (1, 2), (2, 2), (3, 2)]
    assert bytes(batch["caption"][0].tolist()) == b"a cat"
    assert batch.text("caption")[0] == "a cat"
    assert batch["image"] is batch["image"]


def test_output_names_give_tuples_as_an_image_folder_loader_would(start, loader) -> None:
    start()
    for step, (image, label) in enumerate(loader(output=("image", "label"))):
        assert np.array_equal(image.numpy(), expected_image(0, step, 4, (3, 96, 96)))
        assert label.tolist() == [step, step + 1, step + 2, step + 3]
    assert step == 2


def test_output_of_a_field_that_is_not_there_is_a_key_error(start, loader) -> None:
    start()
    with pytest.raises(KeyError, match="'mask': this pipeline gives image, label"):
        next(iter(loader(output=("image", "mask"))))


def test_writes_to_a_tensor_are_not_seen_in_the_daemons_memory(start, loader) -> None:
    start()
    batch = next(iter(loader()))
    image, label = batch.torch("image"), batch.torch("label")
    image.fill_(255)
    label.add_(1000)
    assert np.array_equal(batch["image"], expected_image(0, 0, 4, (3, 96, 96)))
    assert batch["label"].tolist() == [0, 1, 2, 3]
    assert (image == 255).all()


def test_writes_to_a_tensor_are_not_seen_in_a_later_batch_of_the_same_slot(start, loader) -> None:
    start(steps=12)
    places = []
    for step, (image, label) in enumerate(loader(output=("image", "label"), prefetch=2)):
        assert np.array_equal(image.numpy(), expected_image(0, step, 4, (3, 96, 96)))
        assert label[0] == step
        places.append(image.data_ptr())
        image.fill_(255)
        label.fill_(-1)
        del image, label
    assert len(set(places)) < len(places), "no slot was used twice, so nothing was tested"


def test_a_tensor_keeps_its_lease_and_its_contents(start, loader) -> None:
    daemon = start(steps=6)
    batches = iter(loader(output="torch", prefetch=3))
    kept = next(batches)["image"]
    kept[0] = 77
    for _ in range(5):
        next(batches)
    assert (kept[0] == 77).all() and (kept[3] == 3).all()
    released = daemon.released
    del kept
    gc.collect()
    daemon.wait_until(lambda: daemon.released > released)


def test_kept_label_tensors_hold_no_lease(start, loader) -> None:
    start(steps=1000, image_shape=(256, 257))
    labels = [label for _, label in loader(output=("image", "label"), prefetch=2)]
    assert len(labels) == 1000 and labels[999].tolist() == [999, 1000, 1001, 1002]


def test_a_copy_holds_no_lease(start, loader) -> None:
    daemon = start()
    batch = next(iter(loader()))
    image = batch.torch("image", view="copy")
    batch.release()
    daemon.wait_until(lambda: daemon.released == 1)
    assert (image[2] == 2).all()


def test_a_shared_tensor_is_the_daemons_memory_itself(start, loader) -> None:
    start()
    batch = next(iter(loader()))
    assert batch.torch("image", view="shared").data_ptr() == batch["image"].ctypes.data
    assert batch.torch("image").data_ptr() != batch["image"].ctypes.data


def test_an_unknown_view_is_refused(start, loader) -> None:
    start()
    batch = next(iter(loader()))
    with pytest.raises(ValueError, match="'private', 'copy' or 'shared'"):
        batch.torch("image", view="raw")


def test_release_lets_go_of_the_tensors_that_nobody_else_holds(start, loader) -> None:
    daemon = start()
    batch = next(iter(loader(output="torch")))
    mean = batch["image"].float().mean()
    batch.release()
    daemon.wait_until(lambda: daemon.released == 1)
    assert mean == 1.5


def test_release_raises_while_a_tensor_lives(start, loader) -> None:
    start()
    batch = next(iter(loader(output="torch")))
    image = batch["image"]
    with pytest.raises(spdld.LeaseError):
        batch.release()
    assert (image[3] == 3).all()


def test_from_dlpack_gives_a_tensor(start, loader) -> None:
    start()
    batch = next(iter(loader()))
    assert torch.equal(torch.from_dlpack(batch.dlpack("image")), batch.torch("image"))


def test_the_package_imports_no_torch_of_itself() -> None:
    code = "import sys, spdld; sys.exit('torch' in sys.modules or 'grpc' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
