"""Training, evaluation and scoring."""

from __future__ import annotations

import os
import pathlib
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent import futures
from dataclasses import dataclass
from typing import Any

import torch

from . import _draftsmith as native
from ._toml import lines, toml
from .errors import BusyError, Interrupted, UserError

_RECIPES = pathlib.Path(__file__).parent / "recipes"
_one_job = threading.Lock()  # requests to stop and torch's settings belong to the process


def recipe(name: str = "tiny") -> pathlib.Path:
    """Returns the path of a recipe that the package carries: "tiny", which takes seconds."""
    path = _RECIPES / f"{name}.toml"
    if not path.is_file():
        raise FileNotFoundError(f"draftsmith carries no recipe '{name}'; it carries tiny")
    return path


def train(
    recipe: str | os.PathLike[str],
    work: str | os.PathLike[str] | None = None,
    *,
    until: str = "",
    fresh: bool = False,
    set: Mapping[str, Any] | None = None,
    device: str = "auto",
    threads: int = 0,
    quiet: bool = False,
) -> list[dict[str, Any]]:
    """Runs a recipe as `draftsmith train` does: stages that are missing, from where an interrupted run stopped.

    Arguments are its flags; `set` overrides keys of the recipe: {"target.training.length": "500 steps"}.

    Returns:
        For each stage a dict of `stage`, `directory`, and `skipped` (whether it was finished before).

    Raises:
        UserError: errors of the recipe, all at once.
        Interrupted: Ctrl-C, a KeyboardInterrupt; the work is saved, and the same call goes on.
    """
    flags = lines({"device": device, "threads": threads, "quiet": quiet})
    return _run(lambda: native.train(os.fspath(recipe), os.fspath(work or ""), until, fresh, _assignments(set), flags))


@dataclass(frozen=True)
class Evaluation:
    """The results of a suite."""

    directory: pathlib.Path  # of results.json, results.csv, report.html and the hypotheses
    results: dict[str, Any]  # the content of results.json
    rows: list[dict[str, Any]]  # the lines of results.csv, one for each setting of each task
    table: str  # what the program prints
    failures: list[str]  # failed checks of the measurement; empty if all is well


def evaluate(
    suite: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    set: Mapping[str, Any] | None = None,
    device: str = "auto",
    threads: int = 0,
    quiet: bool = False,
) -> Evaluation:
    """Runs a suite as `draftsmith eval` does; an interrupted one goes on with the same call.

    Arguments are its flags; `set` overrides keys: {"task.test.limit": 100, "precision": 0.03}. Raises as `train`.
    """
    flags = lines({"device": device, "threads": threads, "quiet": quiet})
    return Evaluation(**_run(lambda: native.evaluate(os.fspath(suite), os.fspath(out or ""), _assignments(set), flags)))


def score(
    metric: str,
    hypotheses: Sequence[str],
    references: Sequence[str] | Sequence[Sequence[str]],
    other: Sequence[str] | None = None,
    *,
    sources: Sequence[str] | None = None,
    word_order: int = 0,
    resamples: int = 1000,
    seed: int = 12345,
    **options: Any,
) -> dict[str, Any]:
    """Scores texts as sacreBLEU and rouge_score do, with 95 % bootstrap intervals.

    Args:
        metric: "bleu", "chrf", "rouge", or "command" with the option `command`.
        references: one for each text, or several such lists.
        other: a second system's texts, for paired tests of the difference.
        sources: what was translated or summarized, which a command may read.
        **options: the metric's own, by the program's names: `tokenize`, `stemmer`, ...

    Returns:
        What `draftsmith score --json` prints.
    """
    for name, texts in {"hypotheses": hypotheses, "references": references, "other": other, "sources": sources}.items():
        if isinstance(texts, str):
            raise UserError(f"{name} are one text", expected="a list of texts", found=repr(texts[:40]))
    references = list(references)
    streams = [references] if references and isinstance(references[0], str) else [list(texts) for texts in references]
    return native.score(metric, list(hypotheses), streams, None if other is None else list(other),
                        [] if sources is None else list(sources), resamples, seed,
                        lines({"name": metric, "chrf_word_order": word_order, **options}))


def _run(work: Callable[[], Any]) -> Any:
    """Runs a training or an evaluation in a thread of its own, while this one serves Python's signal handlers.

    When one raises an exception, the work is asked to stop, saves what it has, and ends. Torch's settings that it
    changes are restored.
    """
    if not _one_job.acquire(blocking=False):
        raise BusyError("another training or evaluation runs in this process", expected="one at a time",
                        found="a second call of train() or evaluate()", hint="wait for the first, or use another process")
    settings, job, raised = _torch_settings(), native.Job(), None
    try:
        with futures.ThreadPoolExecutor(1) as pool:
            ended = pool.submit(work)
            while not ended.done():
                try:
                    futures.wait([ended])
                except BaseException as error:  # of a signal's handler; later ones find the work stopping
                    raised = raised or error
                    native.request_stop()
    finally:
        del job
        _restore(settings)
        _one_job.release()
    if raised and not (isinstance(ended.exception(), Interrupted) and isinstance(raised, KeyboardInterrupt)):
        raise raised
    return ended.result()


def _torch_settings() -> dict[str, Any]:
    matmul = torch.backends.cuda.matmul
    found = {"threads": torch.get_num_threads(), "allow_tf32": matmul.allow_tf32}
    for name in ("allow_bf16_reduced_precision_reduction", "allow_fp16_reduced_precision_reduction"):
        found[name] = (getattr(matmul, name), getattr(matmul, name + "_split_k"))
    return found


def _restore(settings: dict[str, Any]) -> None:
    torch.set_num_threads(settings.pop("threads"))
    for name, value in settings.items():
        setattr(torch.backends.cuda.matmul, name, value)


def _assignments(values: Mapping[str, Any] | None) -> list[str]:
    return [f"{key}={toml(value, key)}" for key, value in (values or {}).items()]
