# SPDX-License-Identifier: Apache-2.0
"""How far the daemon's workers give way to the training, and what `status` tells of the process."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable
from typing import Any

import pytest

AUTOGROUPS = pathlib.Path("/proc/sys/kernel/sched_autogroup_enabled")
has_autogroups = AUTOGROUPS.exists() and AUTOGROUPS.read_text().strip() == "1"


def niceness_of_workers(daemon: Any) -> set[int]:
    return {
        os.getpriority(os.PRIO_PROCESS, int(task.name))
        for task in pathlib.Path(f"/proc/{daemon.pid}/task").iterdir()
        if (task / "comm").read_text().startswith("spdld-cpu-")
    }


@pytest.mark.parametrize(("settings", "nice"), [({}, 10), ({"nice": 0}, 0), ({"nice": 19}, 19)])
def test_workers_and_their_session_have_the_niceness_that_is_configured(
    make_daemon: Callable[..., Any],
    wait_until: Callable[..., Any],
    settings: dict[str, int],
    nice: int,
) -> None:
    daemon = make_daemon(settings={"executor": settings})
    wait_until(lambda: niceness_of_workers(daemon) == {nice}, "workers of that niceness")
    if has_autogroups:
        assert pathlib.Path(f"/proc/{daemon.pid}/autogroup").read_text().endswith(f" nice {nice}\n")
    priority = daemon.ctl_json("status")["priority"]
    if priority["by"] != "cpu_weight":
        by = "autogroup" if has_autogroups else "niceness"
        assert priority == {"by": by, "value": nice, "cgroup": "", "niceness": nice}


def test_status_tells_what_the_daemon_takes(make_daemon: Callable[..., Any]) -> None:
    daemon = make_daemon()
    status = daemon.ctl_json("status")
    assert status["pss_bytes"] > 1 << 20
    if pathlib.Path("/proc/pressure/cpu").exists():
        assert 0 <= status["cpu_pressure"] <= 1
    assert "priority by" in daemon.ctl("status").stdout
