#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs clang by ccache so that what one checkout has compiled serves another.
#
#   launch_clang.sh CCACHE CLANG OPTION...    in the build directory
#
# CMake gives the header of a precompiled one by an absolute path, which ccache takes for a part of the
# command; it becomes a relative one. And a precompiled header names the checkout that it was made in, which
# may be gone by the next time: each checkout makes its own, and beside it ccache finds what its text comes to.
set -eu
precompiles=
for option; do
  shift
  set -- "$@" "${option#"$PWD"/}"
  if [ "$option" = -emit-pch ]; then precompiles=1; fi
  if [ "${previous:-}" = -o ]; then out=$option; fi
  previous=$option
done
[ "$precompiles" ] || exec "$@"
shift
"$@"
# The last -o is the one that counts.
"$@" -Xclang -E -Xclang -dD -P -o "$out.text"
sha256sum <"$out.text" >"$out.sum"
rm "$out.text"
