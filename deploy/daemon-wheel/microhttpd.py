# SPDX-License-Identifier: Apache-2.0
"""libmicrohttpd without TLS, which spdld does not use, and for which it needs nine more libraries."""

from __future__ import annotations

import from_source

VERSION = "0.9.75-6"
DSC_SHA256 = "c0f8a9cd77c41285d2d48fc68bbee2e460a55042fcd5d3f6b9946c017d4b6846"
OPTIONS = [
    "--disable-static",
    "--disable-https",
    "--disable-doc",
    "--disable-examples",
    "--disable-curl",
    "--disable-bauth",
    "--disable-dauth",
    "--disable-postprocessor",
    "--disable-httpupgrade",
    "CFLAGS=-O2 -fstack-protector-strong -D_FORTIFY_SOURCE=2",
    "LDFLAGS=-Wl,-z,relro,-z,now",
]


def source() -> from_source.Source:
    return from_source.Source("libmicrohttpd", VERSION, DSC_SHA256, OPTIONS, "install-strip")
