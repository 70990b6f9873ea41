# SPDX-License-Identifier: Apache-2.0
"""Holds the compiler's layout of the shared structs against one written down by itself.

Usage: check_wire_layout.py WIRE_LAYOUT_BINARY

The table below follows struct's format characters with "<", which knows no padding of its own: a
field that a compiler would move, or a size that would change, shows at once.
"""

import json
import struct
import subprocess
import sys

# A change of a frame changes this file and raises wire::kProtocol with it.
PROTOCOL = 5

HEADER = [("header", "II")]

# What stands in each struct, in order. Names that the binary does not print are only counted.
LAYOUT = {
    "ArenaHeader": [
        ("magic", "Q"),
        ("abi_major", "I"),
        ("abi_minor", "I"),
        ("header_bytes", "I"),
        ("page_bytes", "I"),
        ("total_bytes", "Q"),
        ("generation", "16s"),
        ("slots_offset", "Q"),
        ("slot_stride", "Q"),
        ("slot_count", "I"),
        ("arena_id", "I"),
    ],
    "FieldLayout": [
        ("name", "48s"),
        ("kind", "I"),
        ("dtype", "I"),
        ("ndim", "I"),
        ("flags", "I"),
        ("shape", "8q"),
        ("offset", "Q"),
        ("capacity_bytes", "Q"),
        ("offsets_offset", "Q"),
        ("shapes_offset", "Q"),
    ],
    "HelloFrame": HEADER
    + [
        ("magic", "I"),
        ("protocol_min", "I"),
        ("protocol_max", "I"),
        ("reserved", "I"),
        ("client", "48s"),
    ],
    "WelcomeFrame": HEADER
    + [
        ("magic", "I"),
        ("protocol", "I"),
        ("protocol_min", "I"),
        ("protocol_max", "I"),
        ("generation", "16s"),
        ("server", "48s"),
    ],
    "ErrorFrame": HEADER
    + [
        ("code", "I"),
        ("fatal", "I"),
        ("text_bytes", "I"),
        ("reserved", "I"),
    ],
    "AttachFrame": HEADER
    + [
        ("shard", "i"),
        ("num_shards", "i"),
        ("replicas", "i"),
        ("credits", "I"),
        ("batch_size", "q"),
        ("seed", "q"),
        ("has_seed", "I"),
        ("incarnation", "I"),
        ("start", "I"),
        ("reconnect", "I"),
        ("epoch", "Q"),
        ("position", "Q"),
        ("step", "Q"),
        ("run", "Q"),
        ("turn", "Q"),
        ("branch", "I"),
        ("starts_runners", "I"),
        ("text_count", "I"),
        ("blob_bytes", "I"),
    ],
    "AttachedFrame": HEADER
    + [
        ("session", "Q"),
        ("items", "Q"),
        ("steps_per_epoch", "Q"),
        ("batch_size", "Q"),
        ("seed", "q"),
        ("shard", "i"),
        ("num_shards", "i"),
        ("replicas", "i"),
        ("credits", "I"),
        ("epoch", "Q"),
        ("step", "Q"),
        ("position", "Q"),
        ("run", "Q"),
        ("turn", "Q"),
        ("branch", "I"),
        ("reserved", "I"),
        ("epochs", "Q"),
        ("pipeline_version", "I"),
        ("text_count", "I"),
    ],
    "ArenaOpenFrame": HEADER
    + [
        ("arena_id", "I"),
        ("kind", "I"),
        ("total_bytes", "Q"),
        ("generation", "16s"),
    ],
    "DeviceArenaFrame": HEADER
    + [
        ("arena_id", "I"),
        ("kind", "I"),
        ("total_bytes", "Q"),
    ],
    "BatchFrame": HEADER
    + [
        ("lease", "Q"),
        ("arena_id", "I"),
        ("schema_id", "I"),
        ("slot_offset", "Q"),
        ("slot_bytes", "Q"),
        ("epoch", "Q"),
        ("step", "Q"),
        ("next_position", "Q"),
        ("turn", "Q"),
        ("rows", "I"),
        ("seek", "I"),
        ("branch", "I"),
        ("tell", "I"),
    ],
    "DeviceBatchFrame": [
        ("batch", "88s"),
        ("device_offset", "Q"),
        ("device_bytes", "Q"),
    ],
    "HandedFrame": HEADER + [("turn", "Q")],
    "SeekFrame": HEADER
    + [
        ("turn", "Q"),
        ("epoch", "Q"),
        ("seek", "I"),
        ("skip", "I"),
    ],
    "ResetFrame": HEADER
    + [
        ("epoch", "Q"),
        ("position", "Q"),
        ("step", "Q"),
        ("steps_per_epoch", "Q"),
        ("seek", "I"),
        ("shard", "i"),
        ("num_shards", "i"),
        ("reserved", "I"),
    ],
    "VersionFrame": HEADER
    + [
        ("items", "Q"),
        ("steps_per_epoch", "Q"),
        ("batch_size", "Q"),
        ("pipeline_version", "I"),
        ("text_count", "I"),
        ("credits", "I"),
        ("reserved", "I"),
    ],
    "ApplyFrame": HEADER
    + [
        ("serial", "I"),
        ("at", "I"),
        ("epoch", "Q"),
        ("step", "Q"),
        ("allow_schema_change", "I"),
        ("text_count", "I"),
    ],
    "BlobFrame": HEADER
    + [
        ("kind", "I"),
        ("serial", "I"),
        ("offset", "I"),
        ("total_bytes", "I"),
    ],
    "TextHeader": [
        ("key", "I"),
        ("bytes", "I"),
    ],
    "ProgressFrame": HEADER
    + [
        ("done", "Q"),
        ("total", "Q"),
        ("text_bytes", "I"),
        ("reserved", "I"),
    ],
    "ArenaRetireFrame": HEADER
    + [
        ("arena_id", "I"),
        ("reserved", "I"),
    ],
    "SchemaFrame": HEADER
    + [
        ("schema_id", "I"),
        ("pipeline_version", "I"),
        ("field_count", "I"),
        ("reserved", "I"),
    ],
    "EpochEndFrame": HEADER
    + [
        ("epoch", "Q"),
        ("steps", "Q"),
        ("seek", "I"),
        ("last", "I"),
    ],
    "ReleaseFrame": HEADER
    + [
        ("lease", "Q"),
    ],
    "QueryFrame": HEADER
    + [
        ("kind", "I"),
        ("serial", "I"),
    ],
    "UrisPart": [
        ("count", "I"),
        ("digest_bytes", "I"),
    ],
    "WaitedFrame": HEADER
    + [
        ("waited_ms", "Q"),
        ("waits", "Q"),
        ("core_waited_ms", "Q"),
        ("steps", "Q"),
        ("between_ms", "Q"),
        ("map_ms", "Q"),
        ("waits_by_length", "6Q"),
    ],
    "RunnersWantedFrame": HEADER + [("pool", "32s")],
    "AppliedFrame": HEADER
    + [
        ("serial", "I"),
        ("version", "I"),
        ("epoch", "Q"),
        ("step", "Q"),
        ("tuned", "I"),
        ("reserved", "I"),
    ],
    "RefusedFrame": HEADER
    + [
        ("serial", "I"),
        ("code", "I"),
        ("text_bytes", "I"),
        ("reserved", "I"),
    ],
    "DetachFrame": HEADER,
    "NoticeFrame": HEADER
    + [
        ("text_bytes", "I"),
        ("reserved", "I"),
    ],
    "ByeFrame": HEADER
    + [
        ("reason", "I"),
        ("text_bytes", "I"),
    ],
}


def expected(fields: list[tuple[str, str]]) -> dict[str, int]:
    offsets = {}
    at = 0
    for name, form in fields:
        offsets[name] = at
        at += struct.calcsize("<" + form)
    offsets[""] = at
    return offsets


def main() -> int:
    printed = json.loads(subprocess.run([sys.argv[1]], check=True, capture_output=True).stdout)
    wrong = []
    if (protocol := printed.pop("protocol")) != PROTOCOL:
        wrong.append(f"the protocol is {protocol}, should be {PROTOCOL}")
    if printed.keys() != LAYOUT.keys():
        wrong.append(f"the structs differ: {sorted(printed.keys() ^ LAYOUT.keys())}")
    for name, offsets in printed.items():
        wanted = expected(LAYOUT.get(name, []))
        for field, offset in offsets.items():
            if wanted.get(field) != offset:
                what = f"offset of {field}" if field else "size"
                wrong.append(f"{name}: {what} is {offset}, should be {wanted.get(field)}")
    print("\n".join(wrong) or f"{len(printed)} structs lie as written down")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
