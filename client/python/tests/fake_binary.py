#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Stands in for the program spdld: its flags, its directory and its end, and nothing of its work.

$FAKE_SPDLD: "fail" ends at once with a message; "mute" never listens; otherwise it listens.
It notes in $FAKE_SPDLD_NOTES, a directory, that it was started and how.
"""

import argparse
import json
import os
import select
import shutil
import signal
import socket
import sys

parser = argparse.ArgumentParser()
parser.add_argument("--exit-when-idle", type=float)
parser.add_argument("--own-runtime-dir", action="store_true")
parser.add_argument("--parent-fd", type=int, default=-1)
parser.add_argument("--set", action="append", default=[])
arguments = parser.parse_args()
settings = {key: json.loads(value) for key, value in (s.split("=", 1) for s in arguments.set)}

notes = os.environ["FAKE_SPDLD_NOTES"]
with open(os.path.join(notes, str(os.getpid())), "w") as file:
    json.dump(
        {
            "settings": settings,
            "exit_when_idle": arguments.exit_when_idle,
            "own_runtime_dir": arguments.own_runtime_dir,
            "parent_fd": arguments.parent_fd >= 0,
            "session": os.getsid(0),
            "parent": os.getppid(),
            "affinity": sorted(os.sched_getaffinity(0)),
            "environment": sorted(os.environ),
            "cwd": os.getcwd(),
        },
        file,
    )

behaviour = os.environ.get("FAKE_SPDLD", "")
if behaviour == "fail":
    print("spdld: --set arena.budget: 7 bytes are too few", file=sys.stderr)
    sys.exit(2)

directory = settings["runtime_dir"]
ended_read, ended_write = os.pipe()
signal.signal(signal.SIGTERM, lambda number, frame: os.write(ended_write, b"x"))
watched = [ended_read]
if behaviour != "mute":
    path = os.path.join(directory, "data.sock")
    if os.path.exists(path):
        os.unlink(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(path)
    listener.listen(16)
if arguments.parent_fd >= 0:
    watched.append(arguments.parent_fd)
select.select(watched, [], [])
if arguments.own_runtime_dir:
    shutil.rmtree(directory, ignore_errors=True)
