"""results.json and logs.tar.gz of a run: complete after each step, whatever happens next."""

from __future__ import annotations

import json
import os
import pathlib
import tarfile
from typing import Any

from gpu_parts.places import Problem

FORMAT = 1
NAME = "results.json"
LOGS = "logs.tar.gz"
LOG_BYTES = 1 << 20


def write(path: pathlib.Path, results: dict[str, Any]) -> None:
    """Replaces the file in one step: readers see the old content or the new one."""
    partial = path.with_name(path.name + ".partial")
    with partial.open("w") as file:
        json.dump(results, file, indent=1)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)


def write_logs(path: pathlib.Path, folder: pathlib.Path) -> None:
    """Replaces the archive of all output of programs, of which it has the last LOG_BYTES each."""
    partial = path.with_name(path.name + ".partial")
    with tarfile.open(partial, "w:gz") as tar:
        for file in sorted(folder.iterdir()):
            info = tar.gettarinfo(file, arcname=f"logs/{file.name}")
            with file.open("rb") as content:
                content.seek(max(0, info.size - LOG_BYTES))
                info.size = min(info.size, LOG_BYTES)
                tar.addfile(info, content)
    os.replace(partial, path)


def refuse_earlier(path: pathlib.Path) -> None:
    """Raises Problem if results are there: the numbers of one file are of one run. Those of a dry run may go."""
    if path.exists() and not read(path).get("dry", False):
        raise Problem("there are results of an earlier run", "a folder without them", str(path), "name another --out")


def read(path: pathlib.Path) -> dict[str, Any]:
    try:
        results = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise Problem("the results cannot be read", str(path), str(error), "tools/gpu run writes them") from None
    if not isinstance(results, dict) or results.get("format") != FORMAT or not isinstance(results.get("steps"), list):
        raise Problem("the results are of another form", f"format {FORMAT} with steps", str(path),
                      "make them again with this version's tools/gpu run")
    return results


def marks(step: dict[str, Any]) -> bool:
    """Whether a step's checks failed or were not done, so that the numbers of the run may be wrong."""
    return step.get("gate") in ("mark", "stop") and step["status"] in ("failed", "out of time")


def not_run(results: dict[str, Any]) -> list[str]:
    """Steps of the plan that have no record: the run was interrupted."""
    done = {step["name"] for step in results["steps"]}
    return [name for name in results.get("plan", []) if name not in done]
