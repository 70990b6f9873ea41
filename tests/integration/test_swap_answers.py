# SPDX-License-Identifier: Apache-2.0
"""What an operator is told of a swap, and that the jobs do as he was told."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import pytest
from integration.ranks import Rank

ITEMS, BATCH = 48, 2
# Of one shape, but not of one content: `side` of what is cut out.
CUT = [
    "fetch",
    "decode_image",
    {"center_crop": {"size": ["${side}", "${side}"]}},
    {"resize": {"size": [32, 32]}},
]
SIZED = ["fetch", "decode_image", {"resize": {"size": ["${side}", "${side}"]}}]

Write = Callable[..., pathlib.Path]


@pytest.fixture
def write(make_dataset: Callable[..., Any], write_version: Write) -> Write:
    """write(side): a file of its own, of pipeline 'images' with that default of `side`."""
    data = make_dataset(count=ITEMS, texture=True)

    def write(side: int = 32, stages: list[Any] = CUT) -> pathlib.Path:
        return write_version(data, stages=stages, vars={"side": side}, batch={"size": BATCH})

    return write


@pytest.fixture
def daemon(make_daemon: Callable[..., Any], write: Write) -> Any:
    return make_daemon(pipelines=[write()])


def told(daemon: Any, *arguments: Any) -> str:
    return daemon.ctl(*arguments).stdout


def apply(daemon: Any, file: pathlib.Path, at: str, *more: str) -> str:
    return told(daemon, "apply", "-f", file, "--job", "run", "--at", at, *more)


def sides(daemon: Any) -> list[tuple[int, int, str]]:
    """From which epoch and step on the job runs with which `side`."""
    return [
        (phase["from"]["epoch"], phase["from"]["step"], phase["vars"]["side"])
        for phase in daemon.ctl_json("get", "jobs", "run")["phases"]
    ]


def read_to(rank: Rank, step: int) -> list[dict[str, Any]]:
    """Up to and with that step: a change that was to come there does not lie ahead any more."""
    batches = [rank.next()]
    while batches[-1]["step"] < step:
        batches.append(rank.next())
    return batches


def test_what_an_operator_says_for_a_job_wins_over_what_its_ranks_say(
    daemon: Any, write: Write, start_rank: Callable[..., Rank]
) -> None:
    rank = start_rank(daemon, job="run", prefetch=2, vars={"side": 24})
    read = rank.take(1)
    file = write()
    said = apply(daemon, file, "step:0/6", "--var", "side=16")
    assert "job 'run' said side=24; it runs with side=16 from epoch 0, step 6 on\n" in said
    read += read_to(rank, 6)
    said = told(daemon, "apply", "-f", file, "--var", "side=20", "--all-jobs", "--at", "step:0/12")
    assert "job 'run' said side=24; it runs with side=20 from epoch 0, step 12 on\n" in said
    read += read_to(rank, 12)
    assert "said" not in apply(daemon, file, "step:0/18"), "the job's own are kept"
    assert sides(daemon) == [(0, 0, "24"), (0, 6, "16"), (0, 12, "20"), (0, 18, "24")]
    sums = {batch["step"]: batch["sum"] for batch in read + rank.rest_of_epoch()}
    as_before = start_rank(daemon, job="reference", prefetch=2, vars={"side": 24}).rest_of_epoch()
    changed = [batch["step"] for batch in as_before if sums[batch["step"]] != batch["sum"]]
    assert changed == list(range(6, 18))


def test_a_rollback_gives_a_job_the_variables_back_that_it_had(
    daemon: Any, write: Write, start_rank: Callable[..., Rank]
) -> None:
    rank = start_rank(daemon, job="run", prefetch=2, vars={"side": 24})
    rank.take(1)
    file = write()
    # Each change has begun before the next one is asked for, which would replace it else.
    for step, side in ((6, 16), (12, 20)):
        apply(daemon, file, f"step:0/{step}", "--var", f"side={side}")
        read_to(rank, step)
    told(daemon, "rollback", "images", "--job", "run", "--at", "step:0/18")
    read_to(rank, 18)
    told(daemon, "rollback", "images", "--job", "run", "--at", "next-epoch")
    changes = [(0, 6, "16"), (0, 12, "20"), (0, 18, "16"), (1, 0, "24")]
    assert sides(daemon) == [(0, 0, "24"), *changes]


@pytest.mark.parametrize("restarted", [False, True], ids=["", "restarted"])
def test_ranks_that_say_again_what_an_operator_overruled_attach(
    daemon: Any, write: Write, start_rank: Callable[..., Rank], restarted: bool
) -> None:
    told(daemon, "job", "create", "run", "--pipeline", "images", "--var", "side=24")
    said = apply(daemon, write(), "now", "--var", "side=16")
    assert "job 'run' said side=24; it runs with side=16 from epoch 0, step 0 on\n" in said
    if restarted:
        daemon.kill()
        daemon.start()
    for incarnation in range(2):
        rank = start_rank(
            daemon,
            job="run",
            vars={"side": 24},
            environment={"TORCHELASTIC_RESTART_COUNT": str(incarnation)},
        )
        assert rank.next()["version"] == 2
        assert sides(daemon) == [(0, 0, "16")]
        rank.close()


def test_what_the_training_loop_says_later_wins_again(
    daemon: Any, write: Write, start_rank: Callable[..., Rank]
) -> None:
    rank = start_rank(daemon, job="run", prefetch=2, vars={"side": 24})
    rank.take(1)
    apply(daemon, write(), "step:0/9", "--var", "side=16")
    read_to(rank, 9)
    assert rank.do("apply", vars={"side": 20}, at="step:0/15")["step"] == 15
    assert sides(daemon) == [(0, 0, "24"), (0, 9, "16"), (0, 15, "20")]


def test_a_job_that_runs_it_already_is_said_to_since_when(
    daemon: Any, write: Write, start_rank: Callable[..., Rank]
) -> None:
    rank = start_rank(daemon, job="run", prefetch=2)
    rank.take(1)
    apply(daemon, write(16), "step:0/9")
    rank.rest_of_epoch()
    already = "job 'run' runs version 2 already, since epoch 0, step 9"
    assert apply(daemon, write(16), "now").endswith(f"{already}\n")
    told(daemon, "apply", "-f", write(20))
    said = apply(daemon, write(16), "next-epoch")
    assert said.endswith(f"{already}; version 4 is the same for it\n")


def test_a_job_that_runs_the_same_under_another_version_does_not_stay_behind(
    daemon: Any, write: Write, start_rank: Callable[..., Rank]
) -> None:
    start_rank(daemon, job="run").take(1)
    assert "1 running job stays on version 1" in told(daemon, "apply", "-f", write(16))
    said = told(daemon, "apply", "-f", write(32))
    assert "pipeline 'images' version 3 applied" in said
    assert "stays" not in said


@pytest.mark.parametrize("at", ["now", "step:4/2"], ids=["by an earlier one", "by a later one"])
def test_a_change_that_is_replaced_is_named(
    daemon: Any, write: Write, start_rank: Callable[..., Rank], at: str
) -> None:
    start_rank(daemon, job="run", prefetch=2).take(1)
    assert "replaces" not in apply(daemon, write(16), "step:3/0")
    said = apply(daemon, write(20), at)
    assert said.endswith(
        "\n  replaces the change to version 2 that was to come at epoch 3, step 0\n"
    )


def test_rollbacks_go_further_and_further_back(daemon: Any, write: Write) -> None:
    for side in (16, 20, 24):
        told(daemon, "apply", "-f", write(side))
    for _ in range(2):
        told(daemon, "rollback", "images")
    told(daemon, "apply", "-f", write(28))
    for _ in range(2):
        told(daemon, "rollback", "images")
    history = daemon.ctl_json("get", "pipelines", "images", "--history")
    assert {
        revision["version"]: int(revision["note"].removeprefix("rollback to version "))
        for revision in history
        if revision["note"].startswith("rollback")
    } == {5: 3, 6: 2, 8: 2, 9: 1}
    by_version = {revision["version"]: revision["content_digest"] for revision in history}
    assert by_version[9] == by_version[1]
    refused = daemon.ctl("rollback", "images", check=False)
    assert refused.returncode == 1
    assert (
        "is at version 9, which repeats version 1, and nothing is kept of what was before that"
    ) in refused.stderr
    told(daemon, "rollback", "images", "--to", "3")
    assert daemon.ctl_json("get", "pipelines", "images")["content_digest"] == by_version[3]


def test_a_rollback_to_what_is_current_changes_only_the_jobs_that_do_not_run_it(
    daemon: Any, write: Write, start_rank: Callable[..., Rank]
) -> None:
    start_rank(daemon, job="run", prefetch=2).take(1)
    told(daemon, "apply", "-f", write(16))
    stays = "1 running job stays on version 1. To change it:\n"
    history = daemon.ctl_json("get", "pipelines", "images", "--history")
    said = told(daemon, "rollback", "images", "--to", "2")
    assert said.startswith(
        f"pipeline 'images' is at version 2 already: nothing was changed\n{stays}"
    )
    changes = said.splitlines()[-1].split()[3:]  # without "spdlctl --address DIRECTORY"
    assert changes[:4] == ["rollback", "images", "--to", "2"]
    said = told(daemon, *changes)
    assert "pipeline 'images' is at version 2 already: 48 items" in said
    assert "job 'run' changes to version 2 at epoch 1, step 0\n" in said
    assert told(daemon, "rollback", "images", "--to", "2").endswith("nothing was changed\n")
    assert daemon.ctl_json("get", "pipelines", "images", "--history") == [
        history[0],
        {**history[1], "jobs": 0},
    ]
    told(daemon, "rollback", "images")
    said = told(daemon, "rollback", "images", "--to", "1")
    assert "is at version 3 already, which repeats version 1: nothing was changed\n" in said


def test_no_command_is_named_that_would_change_nothing(
    daemon: Any, write: Write, start_rank: Callable[..., Rank]
) -> None:
    start_rank(daemon, job="run", prefetch=2, vars={"side": 24}).take(1)
    assert "stays" not in told(daemon, "apply", "-f", write(16)), "it has its own side"
    assert "stays" not in told(daemon, "rollback", "images")
    said = told(daemon, "apply", "-f", write(16), "--var", "side=20")
    assert "1 running job stays on version 1. To change it:\n" in said


def test_a_loop_is_told_of_its_own_argument_when_its_apply_is_refused(
    make_daemon: Callable[..., Any], write: Write, start_rank: Callable[..., Rank]
) -> None:
    daemon = make_daemon(pipelines=[write(32, SIZED)])
    rank = start_rank(daemon, job="run")
    rank.take(1)
    refused = rank.do("apply", vars={"side": 16}, at="next-epoch")
    assert "allow it (allow_schema_change=True)" in refused["message"]
    assert "--" not in refused["message"]


@pytest.mark.parametrize("kept", [True, False], ids=["on disk", "just now"])
def test_a_job_that_has_ended_is_forgotten_when_it_is_deleted(
    daemon: Any, start_rank: Callable[..., Rank], wait_until: Callable[..., Any], kept: bool
) -> None:
    rank = start_rank(daemon, job="run")
    rank.take(4)
    rank.do("close")
    rank.close()
    wait_until(lambda: daemon.ctl_json("get", "jobs") == [], "the job's end")
    if kept:
        daemon.stop()
        daemon.start()
    deleted = told(daemon, "delete", "job", "run")
    assert deleted == "job 'run' on pipeline 'images' had ended: what was kept of it is forgotten\n"
    refused = start_rank(daemon, job="run", start="ledger").do("next")
    assert "nothing is known of where job 'run' was" in refused["message"]
    again = daemon.ctl("delete", "job", "run", check=False)
    assert again.returncode == 1
    assert "there is no job 'run'" in again.stderr
