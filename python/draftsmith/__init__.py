"""Draftsmith: drafters for large sequence models, decoding with them, and measuring what they gain.

    import draftsmith

    model = draftsmith.load("work/tiny/target/model", drafter="work/tiny/drafter/model")
    for result in model.generate(["ein Satz"], method="assisted"):
        print(result.text, result.stats["target_runs"])

Options have the names and meanings of the program's: `draftsmith generate --help`, `draftsmith.options()`.
"""

from __future__ import annotations

import os as _os
import sys as _sys

from ._build_info import TORCH_SERIES as _SERIES
from ._build_info import VERSION as __version__


def _refuse(what: str, found: str) -> ImportError:
    return ImportError(f"{what}\n  expected: torch {_SERIES}.*\n  found:    {found}\n"
                       f"  hint:     pip install 'torch=={_SERIES}.*', or a draftsmith that was built for this torch")


# The extension module uses torch's libraries, so torch comes first.
try:
    import torch as _torch
except ImportError as error:
    raise _refuse("draftsmith needs torch, which cannot be imported", str(error)) from error
if not _torch.__version__.startswith(_SERIES + "."):
    raise _refuse("draftsmith was built for another torch", f"torch {_torch.__version__} in {_torch.__file__}")
try:
    from . import _draftsmith
except ImportError as error:
    raise _refuse("draftsmith's extension module does not fit this torch",
                  f"torch {_torch.__version__}: {error}") from error

# Chat templates are rendered by this interpreter, to which torch has brought jinja2.
if _sys.executable:
    _os.environ.setdefault("DRAFTSMITH_PYTHON", _sys.executable)

from ._jobs import Evaluation, evaluate, recipe, score, train  # noqa: E402
from ._model import Model, Piece, Result, Stream, load, options  # noqa: E402
from .errors import BusyError, DraftsmithWarning, Error, InternalError, Interrupted, RunError, UserError  # noqa: E402

__all__ = ["BusyError", "DraftsmithWarning", "Error", "Evaluation", "InternalError", "Interrupted", "Model", "Piece",
           "Result", "RunError", "Stream", "UserError", "__version__", "evaluate", "load", "options", "recipe", "score",
           "train"]
