#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The whole way once: a daemon of this user's own, a pipeline, a job with two shards, two training
# processes, two epochs, statistics; then everything is stopped and nothing stays behind.
# Wants spdld, spdlctl and a python that imports spdld and torch on PATH (./dev demo sees to it).
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
ranks=2
epochs=2

data=
while (($#)); do
  case $1 in
    --data)
      if [[ ! -d ${2-} ]]; then
        printf "demo: --data: there is no directory '%s'\n" "${2-}" >&2
        exit 2
      fi
      data=$(readlink -e "$2")
      shift
      ;;
    *)
      echo "usage: run.sh [--data DIR]" >&2
      exit 2
      ;;
  esac
  shift
done

work=$(mktemp -d "${TMPDIR:-/tmp}/spdld-demo.XXXXXX")
pids=()
say() { printf '\033[1m--- %s\033[0m\n' "$*"; }

# Stops what was started, in the end or after a failure; then looks for what may have been left.
cleanup() {
  local code=$? pid left=()
  trap - EXIT
  for pid in "${pids[@]}"; do kill -TERM "$pid" 2>/dev/null || true; done
  for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
  if ((code)) && [[ -f $work/spdld.log ]]; then
    say "the daemon's log"
    cat "$work/spdld.log"
  fi
  rm -rf "$work"
  for pid in "${pids[@]}"; do
    if kill -0 "$pid" 2>/dev/null; then left+=("process $pid"); fi
  done
  if grep -qF "$work" /proc/net/unix; then left+=("a listening socket"); fi
  if compgen -G '/dev/shm/spdld*' >/dev/null; then left+=("shared memory"); fi
  if [[ -e $work ]]; then left+=("$work"); fi
  if ((${#left[@]})); then
    printf 'demo: left behind: %s\n' "${left[*]}" >&2
    exit 1
  fi
  ((code)) || say "done: no process, socket, memory or file was left behind"
  exit "$code"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

if [[ -z $data ]]; then
  say "drawing images with FFmpeg's generators"
  data=$work/images
  "$here/make_images.sh" "$data" 96
fi
printf '%s images in %s classes\n' "$(find -L "$data" -type f | wc -l)" \
  "$(find -L "$data" -mindepth 1 -maxdepth 1 -type d | wc -l)"

say "starting spdld"
mkdir -m 700 "$work/run" "$work/state"
cat >"$work/spdld.yaml" <<EOF
runtime_dir: $work/run
state_dir: $work/state
EOF
export SPDLD_ADDRESS=$work/run
spdld --config "$work/spdld.yaml" 2>"$work/spdld.log" &
daemon=$!
pids+=("$daemon")
for ((tries = 0; ; ++tries)); do
  ! spdlctl status >/dev/null 2>&1 || break
  kill -0 "$daemon" 2>/dev/null || { echo "demo: spdld ended at its start" >&2; exit 1; }
  ((tries < 100)) || { echo "demo: spdld does not answer" >&2; exit 1; }
  sleep 0.1
done

say "applying the pipeline, creating a job with $ranks shards"
spdlctl apply -f "$here/pipeline.yaml" --var "root=$data"
spdlctl job create demo-run --pipeline demo --shards "$ranks"

say "training: $ranks ranks, $epochs epochs"
port=$(python -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
declare -A trainers=()
for ((rank = 0; rank < ranks; ++rank)); do
  RANK=$rank WORLD_SIZE=$ranks MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
    python "$here/train.py" demo demo-run "$epochs" &
  trainers[$!]=$rank
  pids+=($!)
done
# One failed rank leaves the other waiting in a collective: the first failure ends the demo.
while ((${#trainers[@]})); do
  wait -n -p ended "${!trainers[@]}" || { echo "demo: rank ${trainers[$ended]} failed" >&2; exit 1; }
  unset "trainers[$ended]"
done

say "what the stages did"
spdlctl get stages

say "stopping"
kill -TERM "$daemon"
wait "$daemon" || { echo "demo: spdld did not stop cleanly: $?" >&2; exit 1; }
