"""Values as TOML, in which options go to the module."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from .errors import UserError


def lines(options: Mapping[str, Any]) -> str:
    """A line for each option; None is the default."""
    return "".join(f"{_string(name)} = {toml(value, name)}\n" for name, value in options.items() if value is not None)


def toml(value: Any, name: str) -> str:
    """The value of the option `name`. Raises a UserError for a type that no option has."""
    if hasattr(value, "tolist"):  # NumPy's and torch's
        value = value.tolist()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(toml(item, f"{name}[{index}]") for index, item in enumerate(value)) + "]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_string(str(key))} = {toml(item, str(key))}" for key, item in value.items()) + "}"
    if hasattr(value, "__index__"):
        number = value.__index__()
        return str(number) if -(2**63) <= number < 2**63 else f'"{number}"'  # TOML ends there
    if hasattr(value, "__float__"):
        return repr(float(value))
    raise UserError("the value has a type that no option has", where=name, found=type(value).__name__,
                    expected="bool, int, float, str, a path, or a list or dict of them")


def _string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
