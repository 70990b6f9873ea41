#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# does: every frame of the videos in FOLDER beside ffmpeg's, in sequence and at random
# build: release spdld_video_test
set -euo pipefail
[[ $# == 1 && -d $1 ]] || {
  echo "usage: video-frames.sh FOLDER, with mp4, mkv, webm, mov or avi files" >&2
  exit 2
}
SPDLD_VIDEO_FILES=$(readlink -f "$1") exec "$SPDLD_BUILD_DIR/bin/spdld_video_test" \
  --gtest_filter='Given/VideoFiles.*'
