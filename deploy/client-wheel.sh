#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# client-wheel.sh VENV TO: the wheel of the Python client, for any Linux that Python's own wheels are
# for, in the directory TO. VENV has what requirements-package.txt names; the wheel is for its Python,
# and from Python 3.12 on for each newer one. zig compiles for an old C library, and brings a C++
# library that goes into the module.
set -euo pipefail
venv=$(realpath "$1") to=$(realpath -m "$2")
cd "$(dirname "$(readlink -f "$0")")/.."

rm -rf "$to"/made
mkdir -p "$to/made"
trap 'rm -rf "$to"/{made,cc,c++,ar,ranlib}' EXIT
# Debian's Python has a part of its headers beside those of the C library.
target='-target x86_64-linux-gnu.2.28 -idirafter /usr/include'
for tool in "cc $target" "c++ $target" ar ranlib; do
  printf '#!/bin/sh\nexec "%s" -m ziglang %s "$@"\n' "$venv/bin/python" "$tool" >"$to/${tool%% *}"
  chmod +x "$to/${tool%% *}"
done

site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
licences="nanobind=$(echo "$site"/nanobind-*.dist-info/licenses/LICENSE);zig=$site/ziglang/LICENSE"
licences+=";tsl-robin-map=$site/nanobind/ext/robin_map/include/tsl/robin_map.h"
for library in libcxx libcxxabi libunwind; do
  licences+=";$library=$site/ziglang/lib/$library/LICENSE.TXT"
done
CC=$to/cc CXX=$to/c++ AR=$to/ar RANLIB=$to/ranlib CMAKE_GENERATOR=Ninja \
  "$venv/bin/python" -m pip wheel --quiet --disable-pip-version-check --no-deps \
  --no-build-isolation --config-settings "cmake.define.SPDLD_LICENCES=$licences" \
  --wheel-dir "$to/made" .
made=("$to"/made/*.whl)
PATH=$venv/bin:$PATH "$venv/bin/auditwheel" repair --wheel-dir "$to" "${made[@]}" >&2
tag=$(basename "${made[0]}" | cut -d- -f1-4)
inside=$("$venv/bin/python" -m zipfile --list "$to/$tag"-*.whl)
if grep '^spdld\.libs/' <<<"$inside"; then
  echo "client-wheel.sh: a library is in the wheel without its licence" >&2
  exit 1
fi
