# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: ANN001 - fixtures
from __future__ import annotations

import gc
import pickle
import subprocess
import sys
from itertools import islice

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


def test_uint16_is_torchs_where_torch_has_it(start, loader, monkeypatch) -> None:
    # An older torch: this one is told that another type is it.
    monkeypatch.setattr(torch, "uint16", torch.int16, raising=False)
    start(depth_field=True)
    depth = next(iter(loader(output="torch")))["depth"]
    assert depth.shape == (4, 2) and (depth.to(torch.int32) & 0xFFFF == 60000).all()


def test_uint16_is_an_error_where_torch_has_none(start, loader, monkeypatch) -> None:
    monkeypatch.delattr(torch, "uint16", raising=False)
    start(depth_field=True)
    batch = next(iter(loader(output="torch")))
    with pytest.raises(spdld.PipelineError, match=r"'depth' is uint16, which torch has since 2\.3"):
        batch["depth"]


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


def test_tuples_can_carry_what_is_known_of_the_rows(start, loader) -> None:
    start()
    batches = list(loader(output=("label", "valid", "indices")))
    label, valid, indices = batches[1]
    assert valid.dtype == torch.bool and valid.tolist() == [True, True, True, False]
    assert indices.dtype == torch.int64 and indices.tolist() == [4, 5, 6, 7]
    assert label.tolist() == [1, 2, 3, 4]


def test_unpacking_a_batch_is_an_error_that_says_what_to_write(start, loader) -> None:
    start()
    for output in ("torch", "batch"):
        with pytest.raises(TypeError, match=r"batch\['image'\], or .*output=\('image', 'label'\)"):
            for _x, _y in loader(output=output):
                raise AssertionError
    batch = next(iter(loader(output="torch")))
    with pytest.raises(TypeError, match="cannot be unpacked"):
        _first, *_rest = batch
    assert [*batch] == list(batch.keys()) == ["image", "label"]
    x, y = batch.values()
    assert x is batch["image"] and y is batch["label"]


def test_a_batch_that_was_moved_knows_its_rows_and_holds_no_lease(start, loader) -> None:
    daemon = start(extra_fields=True)
    batches = iter(loader(output="torch", prefetch=2))
    del daemon
    next(batches)
    batch = next(batches)
    moved = batch.to("meta", non_blocking=True)
    assert type(moved) is spdld.TorchBatch
    assert (moved.epoch, moved.step, moved.rows, moved.pipeline_version) == (0, 1, 4, 1)
    assert moved.indices.tolist() == [4, 5, 6, 7]
    assert moved.valid.tolist() == [True, True, True, False]
    assert list(moved) == list(batch)
    assert moved["image"].device.type == "meta" and moved["image"].shape == (4, 3, 96, 96)
    assert [box.device.type for box in moved["boxes"]] == ["meta"] * 4
    batch.release()
    again = moved.to("meta")
    assert again.step == 1 and not again.released


def test_a_batch_on_its_device_already_keeps_its_tensors(start, loader) -> None:
    start()
    batch = next(iter(loader(output="torch")))
    assert batch.to(torch.device("cpu"))["image"] is batch["image"]


def test_a_copy_of_a_batch_is_of_its_type_and_holds_no_lease(start, loader) -> None:
    daemon = start(extra_fields=True)
    for turn, output in enumerate(("torch", "batch")):
        batch = next(iter(loader(output=output)))
        copy = batch.copy()
        batch.release()
        daemon.wait_until(lambda turn=turn: daemon.released == turn + 1)
        assert type(copy) is type(batch) and not copy.released
        assert (copy.epoch, copy.step, copy.valid.tolist()) == (0, 0, [True, True, True, False])
        assert np.array_equal(np.asarray(copy["image"]), expected_image(0, 0, 4, (3, 96, 96)))
        assert copy.text("caption")[0] == "a cat"
        assert copy.copy()["label"].tolist() == [0, 1, 2, 3]


def test_a_batch_that_was_released_cannot_be_copied(start, loader) -> None:
    start()
    batch = next(iter(loader()))
    batch.release()
    with pytest.raises(spdld.LeaseError, match="released"):
        batch.copy()


def test_a_batch_can_be_rebuilt_from_its_tensors(start, loader) -> None:
    start()
    batch = next(iter(loader(output="torch")))
    rebuilt = type(batch)({name: tensor + 1 for name, tensor in batch.items()})
    assert list(rebuilt) == ["image", "label"] and rebuilt.rows == 4
    assert rebuilt["label"].tolist() == [1, 2, 3, 4]
    assert rebuilt.to("cpu").copy()["label"].tolist() == [1, 2, 3, 4]
    assert repr(rebuilt) == "<spdld.TorchBatch 4 rows: image, label>"
    with pytest.raises(AttributeError, match="does not know its valid: take it"):
        _ = rebuilt.valid
    with pytest.raises(spdld.PipelineError, match="only its tensors are here"):
        rebuilt.text("label")
    with pytest.raises(KeyError, match="'mask': this pipeline gives image, label"):
        rebuilt["mask"]


def test_a_batch_can_be_rebuilt_from_whatever_frameworks_put_into_it(start, loader) -> None:
    start()
    rebuilt = spdld.TorchBatch(
        {"loss": torch.tensor(1.0), "scale": 0.5, "note": "text", "pair": (torch.zeros(3), None)}
    )
    assert rebuilt.rows == 0
    moved = rebuilt.to("meta")
    assert moved["loss"].device.type == moved["pair"][0].device.type == "meta"
    assert (moved["scale"], moved["note"], moved["pair"][1]) == (0.5, "text", None)
    batch = next(iter(loader(output="torch")))
    with pytest.raises(AttributeError, match="does not know its order_digest: take it"):
        _ = type(batch)(dict(batch.items())).uris


def test_a_batch_of_arrays_says_how_to_come_by_what_it_has_not(start, loader) -> None:
    start()
    batch = next(iter(loader()))
    with pytest.raises(AttributeError, match=r"no attribute 'image': write batch\['image'\]"):
        _ = batch.image
    with pytest.raises(AttributeError, match=r"no attribute 'to': Loader.*output='torch'"):
        batch.to("cpu")
    assert not hasattr(batch, "shape")


def test_a_batch_of_arrays_is_not_rebuilt_but_becomes_a_dict(start, loader) -> None:
    start()
    batch = next(iter(loader()))
    with pytest.raises(TypeError, match="output='torch'"):
        spdld.Batch(dict(batch.items()))
    data = torch.utils.data.DataLoader(loader().as_dataset(), batch_size=None)
    assert next(iter(data))["label"].tolist() == [0, 1, 2, 3]


def test_a_copy_has_what_was_written_to_its_tensors(start, loader) -> None:
    start()
    batch = next(iter(loader(output="torch")))
    batch["image"].fill_(9)
    copy = batch.copy()
    batch["image"].fill_(7)
    assert copy["image"].eq(9).all() and copy["label"].tolist() == [0, 1, 2, 3]


def test_a_batch_is_pickled_by_what_its_tensors_hold(start, loader) -> None:
    start()
    reader = loader(output="torch")
    batch = next(iter(reader))
    names = batch.uris
    for one in (batch, batch.to("cpu"), batch.copy()):
        again = pickle.loads(pickle.dumps(one))
        assert type(again) is spdld.TorchBatch and again["label"].tolist() == [0, 1, 2, 3]
        assert (again.epoch, again.step, again.rows) == (0, 0, 4)
        assert again.valid.tolist() == [True, True, True, False]
    assert pickle.loads(pickle.dumps(batch)).uris == names
    rebuilt = pickle.loads(pickle.dumps(spdld.TorchBatch({"x": torch.zeros(2)})))
    with pytest.raises(AttributeError, match="does not know its epoch"):
        _ = rebuilt.epoch


def test_torchs_own_functions_take_batches_apart_and_build_them_again(start, loader) -> None:
    data = pytest.importorskip("torch.utils.data._utils")
    start()
    first, second = islice(loader(output="torch"), 2)
    converted = data.collate.default_convert(first)
    assert type(converted) is spdld.TorchBatch and converted["label"].tolist() == [0, 1, 2, 3]
    collated = data.collate.default_collate([first, second])
    assert type(collated) is spdld.TorchBatch and collated["image"].shape == (2, 4, 3, 96, 96)


def test_a_dataloader_gives_the_batches_of_a_loaders_dataset(start, loader) -> None:
    start()
    made = loader(output="torch")
    through = torch.utils.data.DataLoader(made.as_dataset(), batch_size=None)
    assert len(through) == 3
    for epoch in range(2):
        steps = [(batch["label"][0].item(), type(batch)) for batch in through]
        assert steps == [(first, spdld.TorchBatch) for first in (0, 1, 2)], epoch


def test_a_dataloader_of_the_loader_itself_is_an_error_that_says_what_to_write(
    start, loader
) -> None:
    start()
    with pytest.raises(TypeError, match=r"DataLoader\(loader.as_dataset\(\), batch_size=None\)"):
        next(iter(torch.utils.data.DataLoader(loader(), batch_size=None)))


def test_a_dataloader_with_workers_is_an_error_that_says_what_to_write(start, loader) -> None:
    start()
    workers = torch.utils.data.DataLoader(loader().as_dataset(), batch_size=None, num_workers=1)
    with pytest.raises(RuntimeError, match="num_workers=0"):
        next(iter(workers))
    with pytest.raises(RuntimeError, match="num_workers=0"):  # as for a worker that is spawned
        pickle.dumps(loader().as_dataset())


@pytest.mark.parametrize("batch_size", [1, 8])
def test_a_dataloader_that_would_make_batches_of_batches_is_an_error(
    start, loader, batch_size
) -> None:
    start()
    data = torch.utils.data.DataLoader(loader(output="torch").as_dataset(), batch_size=batch_size)
    with pytest.raises(ValueError, match=r"DataLoader\(loader.as_dataset\(\), batch_size=None\)"):
        next(iter(data))


def test_a_dataset_has_the_state_of_its_loader(start, loader) -> None:
    start(steps=5)
    reader = loader(output="torch")
    dataset = reader.as_dataset()
    batches = iter(dataset)
    in_hand, _ = next(batches), next(batches)
    assert dataset.state_dict() == reader.state_dict()
    assert in_hand.to("cpu").state == pickle.loads(pickle.dumps(in_hand)).state
    other = loader(output="torch").as_dataset()
    other.load_state_dict(in_hand.state)
    assert [batch.step for batch in other] == [1, 2, 3, 4]


def test_a_dataset_goes_on_from_a_state_whatever_epoch_a_framework_counts(start, loader) -> None:
    start()
    state = {**loader().state_dict(), "epoch": 1, "step": 2}
    reader = loader(output="torch")
    reader.load_state_dict(state)
    dataset = reader.as_dataset()
    assert not hasattr(dataset, "set_epoch")
    first = next(iter(torch.utils.data.DataLoader(dataset, batch_size=None)))
    assert first["label"][0] == 2


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


def test_texts_stand_in_batches_and_tuples_as_str(start, loader) -> None:
    start(text_fields=True)
    batch = next(iter(loader(output="torch")))
    assert batch["title"][0] == "a cat" and batch["tokens"].shape == (4, 2)
    assert batch.to("cpu")["title"] == batch["title"]
    tokens, title = next(iter(loader(output=("tokens", "title"), job="other")))
    assert tokens.dtype == torch.int64 and title[:2] == ["a cat", ""]


def test_pin_memory_leaves_tensors_on_a_device_alone() -> None:
    tensor = torch.zeros(3, device="meta")
    assert spdld.TorchBatch({"x": tensor}).pin_memory()["x"] is tensor
