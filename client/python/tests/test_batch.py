# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: ANN001 - fixtures
from __future__ import annotations

import gc
import io
import os
import signal
import threading

import numpy as np
import pytest
import spdld
from fake_daemon import CAPTIONS, expected_image


def test_a_batch_is_a_mapping_of_the_samples_fields(start, loader) -> None:
    start()
    batch = next(iter(loader()))
    assert list(batch) == ["image", "label"]
    assert len(batch) == 2 and "image" in batch and "__index" not in batch
    assert {name: array.dtype for name, array in batch.items()} == {
        "image": np.uint8,
        "label": np.int64,
    }


def test_a_batch_tells_where_it_comes_from_and_what_is_in_its_rows(start, loader) -> None:
    start()
    batches = iter(loader())
    next(batches)
    batch = next(batches)
    assert (batch.epoch, batch.step, batch.rows, batch.pipeline_version) == (0, 1, 4, 1)
    assert batch.indices.tolist() == [4, 5, 6, 7] and batch.indices.dtype == np.int64
    assert batch.valid.tolist() == [True, True, True, False] and batch.valid.dtype == bool


def test_arrays_show_the_daemons_memory_without_a_copy_and_refuse_writes(start, loader) -> None:
    start()
    batch = next(iter(loader()))
    image, again = batch["image"], batch["image"]
    assert image.ctypes.data == again.ctypes.data
    assert np.array_equal(image, expected_image(0, 0, 4, (3, 96, 96)))
    with pytest.raises(ValueError, match="read-only"):
        image[:] = 0
    with pytest.raises(ValueError, match=r"(?i)writeable"):
        image.flags.writeable = True


def test_an_unknown_field_is_a_key_error_that_lists_the_known_ones(start, loader) -> None:
    start()
    batch = next(iter(loader()))
    with pytest.raises(KeyError, match="'imge': this pipeline gives image, label"):
        batch["imge"]
    assert batch.get("imge") is None


def test_a_lease_lasts_as_long_as_the_last_array(start, loader) -> None:
    daemon = start(credits=2, steps=1)
    batches = iter(loader())
    batch = next(batches)
    image = batch["image"]
    row = image[2]
    del batch, image
    gc.collect()
    assert row[0, 0, 0] == 2  # the slot was not filled anew
    assert daemon.released == 0
    del row
    daemon.wait_until(lambda: daemon.released == 1)


def test_release_ends_the_lease_at_once(start, loader) -> None:
    daemon = start()
    batch = next(iter(loader()))
    batch.release()
    daemon.wait_until(lambda: daemon.released == 1)
    assert batch.released
    batch.release()  # again: nothing


def test_release_raises_while_an_array_lives(start, loader) -> None:
    daemon = start()
    batch = next(iter(loader()))
    image = batch["image"]
    with pytest.raises(spdld.LeaseError):
        batch.release()
    assert image[1, 0, 0, 0] == 1
    del image
    batch.release()
    daemon.wait_until(lambda: daemon.released == 1)


def test_a_released_batch_says_so_when_it_is_read(start, loader) -> None:
    start()
    batch = next(iter(loader()))
    batch.release()
    for read in (batch.__getitem__, batch.dlpack, batch.torch):
        with pytest.raises(spdld.LeaseError, match=r"epoch 0, step 0\) was released: read 'image'"):
            read("image")
    assert "released" in repr(batch)
    assert batch["label"].tolist() == batch.indices.tolist() == [0, 1, 2, 3]


def test_a_batch_of_small_fields_alone_holds_no_lease_and_is_whole(start, loader) -> None:
    daemon = start(image_shape=(2, 2))
    batch = next(iter(loader()))
    daemon.wait_until(lambda: daemon.released >= 1)
    assert not batch.released
    assert np.array_equal(batch["image"], expected_image(0, 0, 4, (2, 2)))
    assert np.array_equal(np.from_dlpack(batch.dlpack("image")), batch["image"])
    batch.release()
    assert (batch["image"][3] == 3).all()


def test_a_lease_ends_on_whatever_thread_drops_it(start, loader) -> None:
    daemon = start()
    held = [next(iter(loader()))["image"]]
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    daemon.wait_until(lambda: daemon.released == 1)


def test_kept_labels_hold_no_lease(start, loader) -> None:
    daemon = start(steps=1000, image_shape=(256, 257))
    labels = [batch["label"] for batch in loader(prefetch=2)]
    assert len(labels) == 1000
    assert labels[123].tolist() == [123, 124, 125, 126]
    daemon.wait_until(lambda: daemon.released >= 1000)


def test_kept_indices_and_valid_hold_no_lease(start, loader) -> None:
    start(steps=20)
    rows = [(batch.indices, batch.valid) for batch in loader(prefetch=2)]
    assert np.concatenate([indices for indices, _ in rows]).tolist() == list(range(80))


def test_holding_all_credits_is_a_lease_error_that_lists_what_is_held(start, loader) -> None:
    start(steps=10)
    held = []
    with pytest.raises(spdld.LeaseError, match="step 0 of epoch 0, step 1 of epoch 0"):
        for batch in loader(prefetch=2):
            held.append(batch)
    assert len(held) == 2


def test_texts_are_decoded_and_bytes_are_given_as_they_are(start, loader) -> None:
    start(extra_fields=True)
    batch = next(iter(loader()))
    assert batch.text("caption") == [*CAPTIONS, CAPTIONS[0]]
    assert [bytes(row) for row in batch["caption"]] == [
        text.encode() for text in batch.text("caption")
    ]
    assert io.BytesIO(batch["caption"][0]).read() == b"a cat"
    with pytest.raises(TypeError):
        batch["caption"][0][0] = 1


def test_text_of_a_field_that_is_none_is_refused(start, loader) -> None:
    start()
    batch = next(iter(loader()))
    with pytest.raises(spdld.PipelineError, match="'label' is dense int64, not text"):
        batch.text("label")
    with pytest.raises(KeyError):
        batch.text("caption")


def test_rows_of_different_shape_come_one_by_one_or_packed(start, loader) -> None:
    start(extra_fields=True)
    batch = next(iter(loader()))
    assert [box.shape for box in batch["boxes"]] == [(0, 2), (1, 2), (2, 2), (3, 2)]
    assert (batch["boxes"][3] == 3).all() and batch["boxes"][3].dtype == np.float32
    packed = batch.packed("boxes")
    assert packed.values.shape == (12,)
    assert packed.offsets.tolist() == [0, 0, 2, 6, 12]
    assert packed.shapes.tolist() == [[0, 2], [1, 2], [2, 2], [3, 2]]
    assert batch.packed("caption").shapes.tolist() == [[5], [0], [18], [5]]
    with pytest.raises(spdld.PipelineError, match="one shape"):
        batch.packed("image")


def test_every_dtype_arrives_as_itself(start, loader) -> None:
    start(extra_fields=True)
    batch = next(iter(loader()))
    assert batch["mask"].dtype == bool and batch["mask"].tolist() == [True, False, True, False]
    assert batch["half"].dtype == np.float16 and (batch["half"] == 0.5).all()


def test_uint16_is_numpys(start, loader) -> None:
    start(depth_field=True)
    batch = next(iter(loader()))
    assert batch["depth"].dtype == np.uint16 and (batch["depth"] == 60000).all()
    assert (np.from_dlpack(batch.dlpack("depth")) == 60000).all()


def test_bfloat16_comes_as_its_bits_without_ml_dtypes(start, loader, monkeypatch) -> None:
    monkeypatch.setattr("spdld._batch._bfloat16", None)
    start(extra_fields=True)
    brain = next(iter(loader()))["brain"]
    assert brain.dtype == np.uint16 and (brain == 0x3FC0).all()


def test_bfloat16_comes_as_the_type_of_ml_dtypes_if_there(start, loader, monkeypatch) -> None:
    stand_in = np.dtype([("bits", np.uint16)])  # any type of two bytes
    monkeypatch.setattr("spdld._batch._bfloat16", stand_in)
    start(extra_fields=True)
    batch = next(iter(loader()))
    assert batch["brain"].dtype == stand_in and batch["brain"].shape == (4, 2)


def test_batches_are_compared_by_identity(start, loader) -> None:
    start()
    batch = next(iter(loader()))
    assert batch == batch and len({batch, batch}) == 1


def test_dlpack_gives_numpy_a_private_writable_view(start, loader) -> None:
    daemon = start()
    batch = next(iter(loader()))
    view = np.from_dlpack(batch.dlpack("image"))
    assert np.array_equal(view, batch["image"])
    del batch
    gc.collect()
    assert daemon.released == 0 and view[3, 0, 0, 0] == 3
    del view
    daemon.wait_until(lambda: daemon.released == 1)


def test_a_dlpack_capsule_that_nobody_takes_holds_nothing(start, loader) -> None:
    daemon = start()
    batch = next(iter(loader()))
    for version in (None, (1, 0)):
        capsule = batch.dlpack("image").__dlpack__(max_version=version)
        assert ("versioned" in repr(capsule)) == (version is not None)
        del capsule
    batch.release()
    daemon.wait_until(lambda: daemon.released == 1)


def test_dlpack_refuses_devices_and_streams_that_it_has_not(start, loader) -> None:
    start()
    exchange = next(iter(loader())).dlpack("image")
    assert exchange.__dlpack_device__() == (1, 0)
    with pytest.raises(BufferError, match="stream"):
        exchange.__dlpack__(stream=7)
    with pytest.raises(BufferError, match="dl_device"):
        exchange.__dlpack__(dl_device=(2, 0))


def test_a_forked_child_releases_nothing_and_is_told_to_open_its_own_loader(start, loader) -> None:
    daemon = start()
    reader = loader()
    batches = iter(reader)
    batch = next(batches)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            del batch
            gc.collect()
            with reader:
                next(batches)
        except spdld.ConnectionError as error:
            status = 0 if "open another one here" in str(error) else 2
        finally:
            os._exit(status)
    try:
        assert os.waitpid(child, 0)[1] == 0
    except BaseException:
        os.kill(child, signal.SIGKILL)
        raise
    assert daemon.released == 0
    assert next(batches).step == 1, "what the child closed is the parent's still"
    assert np.array_equal(batch["image"], expected_image(0, 0, 4, (3, 96, 96)))
    batch.release()
    daemon.wait_until(lambda: daemon.released >= 1)


def test_uris_are_asked_of_the_daemon_when_they_are_read_and_then_kept(start, loader) -> None:
    daemon = start()
    reader = loader()
    first, second, *_ = iter(reader)
    assert daemon.asked_uris == []
    assert second.uris == [f"class/{item}.jpg" for item in second.indices]
    assert second.uris is second.uris
    assert daemon.asked_uris == [("order-1", tuple(second.indices.tolist()))]
    assert first.copy().uris == [f"class/{item}.jpg" for item in first.indices]


def test_uris_of_a_large_batch_are_asked_in_parts(start, loader) -> None:
    daemon = start(rows=5000, image_shape=(1,))
    reader = loader()
    batch = next(iter(reader))
    assert batch.uris == [f"class/{item}.jpg" for item in range(5000)]
    assert [len(items) for _, items in daemon.asked_uris] == [2048, 2048, 904]


def test_uris_that_the_daemon_has_no_more_say_why(start, loader) -> None:
    start(refuse_uris="the data have changed")
    reader = loader()
    batch = next(iter(reader))
    with pytest.raises(spdld.PipelineError, match="the data have changed"):
        _ = batch.uris


def test_uris_need_the_loader(start, loader) -> None:
    start()
    reader = loader()
    batch = next(iter(reader))
    reader.close()
    with pytest.raises(spdld.Error):
        _ = batch.uris
    del reader
    gc.collect()
    with pytest.raises(spdld.PipelineError, match="is gone, and it alone can ask"):
        _ = batch.uris


def test_a_field_of_text_is_a_list_of_str(start, loader) -> None:
    start(text_fields=True)
    batch = next(iter(loader()))
    assert batch["title"] == [*CAPTIONS, CAPTIONS[0]]
    assert batch.text("title") == batch["title"]
    assert batch.copy()["title"] == batch["title"]


def test_padded_rows_are_an_array_as_large_as_each_batch_needs(start, loader) -> None:
    start(text_fields=True)
    for step, batch in enumerate(loader()):
        assert batch["tokens"].shape == (4, step + 2) and batch["tokens"].dtype == np.int64
        assert (batch["tokens"] == np.arange(4)[:, None]).all()
        assert batch.copy()["tokens"].shape == (4, step + 2)
        with pytest.raises(spdld.PipelineError, match="one shape"):
            batch.packed("tokens")


def test_rows_that_are_not_padded_alike_are_an_error_of_the_daemon(start, loader) -> None:
    start(text_fields=True, uneven_padding=True)
    with pytest.raises(spdld.ConnectionError, match="its rows are not padded to one shape"):
        next(iter(loader()))
