#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# make_images.sh DIR [PER_CLASS]: JPEGs of several sizes in one directory a class, drawn by FFmpeg's
# own generators; nothing is downloaded.
set -euo pipefail

dir=${1:?usage: make_images.sh DIR [PER_CLASS]}
per_class=${2:-48}
classes=(testsrc2 mandelbrot gradients cellauto sierpinski life)
sizes=(320x240 500x375 240x426)

for class in "${classes[@]}"; do
  mkdir -p "$dir/$class"
  for i in "${!sizes[@]}"; do
    # What is left after equal parts goes to the first sizes.
    count=$(((per_class + ${#sizes[@]} - 1 - i) / ${#sizes[@]}))
    ((count > 0)) || continue
    # Every third frame: neighbours look too much alike.
    ffmpeg -nostdin -loglevel error -y -f lavfi -i "$class=size=${sizes[i]}:rate=25" \
      -vf "select=not(mod(n\,3)),format=yuvj420p" -vsync vfr -frames:v "$count" -q:v 3 \
      "$dir/$class/${sizes[i]}-%03d.jpg"
  done
done
