# SPDX-License-Identifier: Apache-2.0
"""Lets what was built on Debian 12 run on older systems, where single symbols are in the way."""

from __future__ import annotations

import pathlib
import struct

from elftools.elf.elffile import ELFFile

# By the version that an older library does not have: the only symbol that may be asked for by it, and
# an older version of the same symbol, with the same arguments and results. Of `wait`, they differ in
# what is thrown in a thread that is cancelled, and nothing here cancels threads; of `hypot`, in whom
# the C library tells of an overflow.
OLDER = {
    "GLIBCXX_3.4.30": (
        "_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE",
        "GLIBCXX_3.4.11",
    ),
    "GLIBC_2.35": ("hypot", "GLIBC_2.2.5"),
}


def bind_older(path: pathlib.Path) -> None:
    """Has the file ask for the older version of each of these symbols."""
    with path.open("r+b") as file:
        elf = ELFFile(file)
        versions = elf.get_section_by_name(".gnu.version_r")
        if versions is None:
            return
        strings = elf.get_section_by_name(".dynstr").data()
        at = versions["sh_offset"]
        for need, entries in versions.iter_versions():
            where = at + need["vn_aux"]
            for entry in entries:
                if entry.name in OLDER:
                    symbol, older = OLDER[entry.name]
                    others = symbols_of(elf, entry["vna_other"]) - {symbol}
                    if others:
                        raise SystemExit(f"{path} needs {entry.name} also for {sorted(others)}")
                    name = strings.find(b"\0" + older.encode() + b"\0") + 1
                    if name == 0:
                        raise SystemExit(f"{path} names {older} nowhere: no place to write it")
                    # Elf64_Vernaux: the hash of the name, two shorts, the name's offset, the next.
                    file.seek(where)
                    file.write(struct.pack("<I", elf_hash(older)))
                    file.seek(where + 8)
                    file.write(struct.pack("<I", name))
                where += entry["vna_next"]
            at += need["vn_next"]


def symbols_of(elf: ELFFile, version: int) -> set[str]:
    symbols = elf.get_section_by_name(".dynsym")
    versions = elf.get_section_by_name(".gnu.version")
    return {
        symbols.get_symbol(i).name
        for i in range(symbols.num_symbols())
        if versions.get_symbol(i)["ndx"] == version
    }


def elf_hash(name: str) -> int:
    value = 0
    for byte in name.encode():
        value = (value << 4) + byte
        value = (value ^ (value >> 24) & 0xF0) & 0x0FFFFFFF
    return value
