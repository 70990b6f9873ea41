# SPDX-License-Identifier: Apache-2.0
"""The package's version."""

__version__ = "0.1.0"
