"""Draftsmith: drafters for large sequence models, decoding with them, and measuring what they gain.

    import draftsmith

    model = draftsmith.load("work/tiny/target/model", drafter="work/tiny/drafter/model")
    for result in model.generate(["ein Satz"], method="assisted"):
        print(result.text, result.stats["target_runs"])

Options have the names and meanings of the program's: `draftsmith generate --help`, `draftsmith.options()`.
"""

from __future__ import annotations

from ._build_info import VERSION as __version__
from ._jobs import Evaluation, evaluate, recipe, score, train
from ._model import Model, Piece, Result, Stream, load, options
from .errors import BusyError, DraftsmithWarning, Error, InternalError, Interrupted, RunError, UserError

__all__ = [
    "BusyError",
    "DraftsmithWarning",
    "Error",
    "Evaluation",
    "InternalError",
    "Interrupted",
    "Model",
    "Piece",
    "Result",
    "RunError",
    "Stream",
    "UserError",
    "__version__",
    "evaluate",
    "load",
    "options",
    "recipe",
    "score",
    "train",
]
