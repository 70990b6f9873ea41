# SPDX-License-Identifier: Apache-2.0
"""Prints where below PREFIX a Python of this version looks for packages: `site_packages.py PREFIX`."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import PurePath

# In a virtual environment this answers for the environment, and not for the system.
SITE_PACKAGES = "import site; print(*site.getsitepackages(), sep='\\n')"


def main() -> None:
    prefix = PurePath(os.path.abspath(sys.argv[1]))
    interpreter = getattr(sys, "_base_executable", sys.executable)
    listed = subprocess.run(
        [interpreter, "-I", "-c", SITE_PACKAGES], check=True, stdout=subprocess.PIPE, text=True
    )
    for site in map(PurePath, listed.stdout.splitlines()):
        # Not the one of /usr/local, if the prefix is /usr.
        if site.is_relative_to(prefix) and site.relative_to(prefix).parts[0].startswith("lib"):
            break
    else:
        # No directory of this interpreter's: as in a virtual environment.
        roots = dict.fromkeys(("base", "platbase", "installed_base", "installed_platbase"), prefix)
        site = PurePath(sysconfig.get_path("platlib", "posix_prefix", roots))
    print(site.relative_to(prefix))


main()
