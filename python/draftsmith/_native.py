"""Loads the extension module, after torch, whose libraries it uses."""

from __future__ import annotations

import os
import re
import sys

from . import _build_info

_HINT = f"pip install 'torch=={_build_info.TORCH_SERIES}.*', or a draftsmith that was built for this torch"


def _refuse(what: str, found: str) -> ImportError:
    return ImportError(
        f"{what}\n  expected: torch {_build_info.TORCH_SERIES}.*\n  found:    {found}\n  hint:     {_HINT}"
    )


try:
    import torch
except ImportError as error:
    raise _refuse("draftsmith needs torch, which cannot be imported", str(error)) from error

_series = re.match(r"\d+\.\d+", torch.__version__)
if _series is None or _series[0] != _build_info.TORCH_SERIES:
    raise _refuse("draftsmith was built for another torch", f"torch {torch.__version__} in {torch.__file__}")

try:
    from . import _draftsmith as native
except ImportError as error:
    raise _refuse("draftsmith's extension module does not fit this torch", f"torch {torch.__version__}: {error}") from error

# Chat templates are rendered by this interpreter, to which torch has brought jinja2.
if sys.executable:
    os.environ.setdefault("DRAFTSMITH_PYTHON", sys.executable)

__all__ = ["native"]
