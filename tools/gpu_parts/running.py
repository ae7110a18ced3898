"""Steps of a run: each has a time limit, and its end, whatever it is, becomes a record."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import time
from collections.abc import Callable
from typing import Any

from gpu_parts.places import Place, Problem

TAIL = 2000  # characters of output that a record keeps


class OutOfTime(Exception):
    """A step's time is over."""


class Skipped(Exception):
    """A step cannot run here; the text says why."""


@dataclasses.dataclass
class Finished:
    """A command that ended by itself, or that was killed for its time."""

    status: int | None  # None: killed, or never begun
    output: str  # its last characters
    seconds: float
    log: pathlib.Path | None  # all of its output


@dataclasses.dataclass
class Context:
    """What a step works with. It puts its numbers into `data` as they come, so that a kill loses none."""

    place: Place
    work: pathlib.Path  # a folder that the steps of a run share
    device: str
    dry: bool
    deadline: float = 0.0
    data: dict[str, Any] = dataclasses.field(default_factory=dict)

    def left(self) -> float:
        return self.deadline - time.monotonic()

    def need_python(self) -> str:
        if self.place.python is None:
            raise Skipped("no Python with torch and Transformers is here (tools/setup --with-peers)")
        return self.place.python


@dataclasses.dataclass(frozen=True)
class Step:
    name: str
    title: str
    limit_s: float
    work: Callable[[Context], None]


def start(command: list[str], environment: dict[str, str], log: pathlib.Path) -> subprocess.Popen:
    """Starts a command in a process group of its own, so that its children can be ended with it."""
    with log.open("wb") as output:
        return subprocess.Popen(command, env={**os.environ, **environment}, stdin=subprocess.DEVNULL, stdout=output,
                                stderr=subprocess.STDOUT, start_new_session=True)


def end(process: subprocess.Popen) -> None:
    """Ends a process and its children; those that it left behind, too."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def tail_of(log: pathlib.Path) -> str:
    return log.read_text(errors="replace")[-TAIL:]


def run_all(commands: list[tuple[list[str], dict[str, str]]], deadline: float, work: pathlib.Path,
            at_once: int = 1) -> list[Finished]:
    """Runs commands, some at once, until the deadline; the rest is killed or not begun. Results in their order."""
    results: list[Finished | None] = [None] * len(commands)
    running: dict[int, tuple[subprocess.Popen, pathlib.Path, float]] = {}
    waiting = list(range(len(commands)))
    try:
        while waiting or running:
            while waiting and len(running) < at_once and time.monotonic() < deadline:
                number = waiting.pop(0)
                log = work / f"command-{time.monotonic_ns()}-{number}.log"
                running[number] = (start(*commands[number], log), log, time.monotonic())
            over = time.monotonic() >= deadline
            for number, (process, log, begun) in list(running.items()):
                status = process.poll()
                if status is None and not over:
                    continue
                end(process)
                results[number] = Finished(status, tail_of(log), time.monotonic() - begun, log)
                del running[number]
            if over:
                break
            time.sleep(0.02)
    finally:
        for process, _, _ in running.values():
            end(process)
    return [result or Finished(None, "not begun: the step's time was over", 0.0, None) for result in results]


def check(finished: list[Finished], what: str) -> None:
    """Raises Problem for a command that failed, OutOfTime for one that was killed."""
    failed = [result for result in finished if result.status not in (0, None)]
    if failed:
        lines = [line for line in failed[0].output.splitlines() if line.strip()]
        raise Problem(f"{what} failed", "exit status 0", f"{failed[0].status}: " + " | ".join(lines[-6:]))
    if any(result.status is None for result in finished):
        raise OutOfTime(what)


def run_ours(context: Context, words: list[str]) -> str:
    """Runs one of our programs. Returns its output."""
    finished = run_all([(words, context.place.environment())], context.deadline, context.work)
    check(finished, pathlib.Path(words[0]).name)
    return finished[0].output


def records_of(file: pathlib.Path) -> list[dict[str, Any]]:
    """The records that a bench has written so far."""
    return json.loads(file.read_text())["records"] if file.is_file() else []


@dataclasses.dataclass(frozen=True)
class Bench:
    """A program that writes records, and what its records are marked with."""

    words: list[str]
    environment: dict[str, str] = dataclasses.field(default_factory=dict)
    marks: dict[str, str] = dataclasses.field(default_factory=dict)


def run_benches(context: Context, benches: list[Bench], at_once: int = 1) -> None:
    """Runs benches. One that fails or is killed loses no record, and does not keep the next from running."""
    files = [context.work / f"records-{time.monotonic_ns()}-{number}.json" for number in range(len(benches))]
    commands = [([*bench.words, "--device", context.device, "--json", str(file)], bench.environment)
                for bench, file in zip(benches, files)]
    finished = run_all(commands, context.deadline, context.work, at_once)
    context.data.setdefault("records", []).extend(
        {**record, **bench.marks} for bench, file in zip(benches, files) for record in records_of(file))
    check(finished, "a bench")


def run_step(step: Step, context: Context, seconds_left: float) -> dict[str, Any]:
    """Runs a step within its limit and the run's. Returns its record; never raises but for Ctrl-C."""
    limit = min(step.limit_s, seconds_left)
    record: dict[str, Any] = {"name": step.name, "title": step.title, "status": "ok", "limit_s": round(limit, 1)}
    begun = time.monotonic()
    context.deadline = begun + limit
    context.data = {}
    try:
        if limit <= 0:
            raise Skipped("the run's time was over before it began")
        step.work(context)
    except OutOfTime as over:
        record.update(status="out of time", problem=f"{over} was killed after {limit:.0f} s")
    except Skipped as reason:
        record.update(status="skipped", problem=str(reason))
    except Exception as error:  # a step must never end the run
        record.update(status="failed", problem=str(error) or type(error).__name__)
    record["seconds"] = round(time.monotonic() - begun, 1)
    record["data"] = context.data
    return record
