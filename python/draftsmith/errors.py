"""Exceptions of Draftsmith. Each says what was expected, what was found and what to do."""

from __future__ import annotations

import re
from typing import Any

_FLAG = re.compile(r"(?<![\w/.-])--([a-z][a-z-]*[a-z])\b")


def _as_argument(text: str) -> str:
    """The text with the program's flags as Python's arguments: --max-draft becomes max_draft."""
    return _FLAG.sub(lambda flag: flag[1].replace("-", "_"), text)


def _message(problem: dict[str, str]) -> str:
    head = ": ".join(part for part in (problem["where"], problem["what"]) if part)
    lines = [head] if head else []
    for name in ("expected", "found", "hint"):
        if problem[name]:
            lines.append(f"  {name + ':':<9} {problem[name]}")
    return "\n".join(lines)


class _WithProblems(BaseException):
    problems: list[dict[str, str]]

    def __init__(self, problems: list[dict[str, str]] | str, **parts: str) -> None:
        """Takes all problems, or what one problem is, with the other parts that it has."""
        if isinstance(problems, str):
            problems = [{"where": "", "what": problems, "expected": "", "found": "", "hint": "", **parts}]
        self.problems = [{key: _as_argument(text) for key, text in problem.items()} for problem in problems]
        super().__init__("\n".join(_message(problem) for problem in self.problems))

    def __reduce__(self) -> Any:
        return type(self), (self.problems,)


class Error(_WithProblems, Exception):
    """An error. `problems` has for each problem a dict of `where`, `what`, `expected`, `found` and `hint`."""


class UserError(Error, ValueError):
    """A wrong argument, file or configuration. Nothing was written."""


class RunError(Error, RuntimeError):
    """A run that failed, as for want of memory or disk. Finished work is kept."""


class BusyError(Error, RuntimeError):
    """A model whose stream is open, or a second training or evaluation in one process."""


class InternalError(Error, RuntimeError):
    """A bug of Draftsmith."""


class Interrupted(_WithProblems, KeyboardInterrupt):
    """Ctrl-C during a training or evaluation. The message says which work was saved and how to go on."""


class DraftsmithWarning(UserWarning):
    """An argument without effect."""
