# SPDX-License-Identifier: Apache-2.0
"""What a loader sends about its pipeline: a name, or a YAML file with all that belongs to it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ._errors import PipelineError

_MAX_YAML_BYTES = 16 << 20  # of one blob on the data socket
_NAME = re.compile(
    r"""^pipeline:[ \t]+(?P<quote>["']?)(?P<name>[A-Za-z0-9_][A-Za-z0-9._-]{0,127})(?P=quote)[ \t]*(?:\#.*)?$""",
    re.MULTILINE,
)
_NAME_OF_USER = re.compile(r"([A-Za-z0-9_][A-Za-z0-9._@-]*)?/[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_ENV = re.compile(r"\$\{env:([A-Za-z_][A-Za-z0-9_]*)")


@dataclass(frozen=True)
class Pipeline:
    """A pipeline's name and, if it came from a file, the file's text and surroundings."""

    name: str
    yaml: str = ""
    file: str = ""
    env: dict[str, str] = field(default_factory=dict)


def is_file(pipeline: str | os.PathLike[str]) -> bool:
    """Whether this is a path, and not the name of a pipeline that the daemon has.

    NAME, /NAME and USER/NAME are names, unless they end with .yaml or there is such a file.
    """
    if not isinstance(pipeline, str) or pipeline.endswith((".yaml", ".yml")):
        return True
    return "/" in pipeline and (
        _NAME_OF_USER.fullmatch(pipeline) is None or os.path.isfile(pipeline)
    )


def read(pipeline: str | os.PathLike[str]) -> Pipeline:
    """Takes a name as it is, and reads a path. Raises PipelineError for a file that is none."""
    if not is_file(pipeline):
        if not pipeline:
            raise ValueError("pipeline is empty: give a pipeline's name or the path of its YAML")
        return Pipeline(os.fspath(pipeline))
    path = Path(pipeline).resolve()
    try:
        data = path.read_bytes()
    except OSError as error:
        raise PipelineError(f"cannot read the pipeline {path}: {error.strerror}") from error
    if len(data) > _MAX_YAML_BYTES:
        raise PipelineError(
            f"the pipeline {path} has {len(data)} bytes: at most {_MAX_YAML_BYTES} can be sent"
        )
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise PipelineError(f"the pipeline {path} is not UTF-8: {error}") from error
    named = _NAME.search(text)
    if named is None:
        raise PipelineError(f"{path} has no line 'pipeline: NAME' at its top level: add one")
    env = {name: os.environ[name] for name in _ENV.findall(text) if name in os.environ}
    return Pipeline(named["name"], text, str(path), env)


def vars_as_text(values: Mapping[str, object] | None) -> dict[str, str]:
    """Values of ``vars=`` as YAML scalars. Raises TypeError for what is no scalar."""
    if values is not None and not isinstance(values, Mapping):
        raise TypeError(
            f"vars is {values!r}, a {type(values).__name__}: give a dict of variables, such as "
            '{"root": "/data/pets"}'
        )
    texts: dict[str, str] = {}
    for name, value in (values or {}).items():
        if not isinstance(name, str):
            raise TypeError(f"vars: {name!r} is not a name")
        if isinstance(value, bool):
            texts[name] = "true" if value else "false"
        elif value is None:
            texts[name] = "null"
        elif isinstance(value, (str, os.PathLike)):
            texts[name] = os.fspath(value)
        elif isinstance(value, (int, float)):
            texts[name] = repr(value)
        else:
            raise TypeError(
                f"vars: {name!r} is a {type(value).__name__}: give a number, a text, a bool, a path or None"
            )
    return texts
