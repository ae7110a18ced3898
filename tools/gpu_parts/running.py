"""Steps and commands of a run: each has a time limit, and its end, whatever it is, becomes a record in results.json."""

import concurrent.futures
import dataclasses
import json
import os
import pathlib
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Any

from gpu_parts.packing import Place, Problem

RESULTS = "results.json"
LOGS = "logs.tar.gz"
LOG_CHARACTERS = 1 << 20  # of a program's output that the archive keeps, its end
END_S = 10.0  # how long a killed process may take: one whose work on the device hangs may never end
STRICT = {"DRAFTSMITH_STRICT_DEVICE": "1"}  # slower ways are errors


class Skipped(Exception):
    """A step cannot run here; the text says why."""


@dataclasses.dataclass(frozen=True)
class Command:
    """A program with its arguments, more variables than those of this process, the seconds that it may take, and what
    its records are marked with."""

    words: list[str]
    environment: dict[str, str] = dataclasses.field(default_factory=dict)
    limit_s: float = 20.0
    marks: dict[str, str] = dataclasses.field(default_factory=dict)


def bench(program: str, words: str, limit_s: float, variables: dict[str, str] = STRICT, **marks: str) -> Command:
    """A program of ours that writes records, for benches()."""
    return Command([program, *words.split()], variables, limit_s, marks)


@dataclasses.dataclass
class Finished:
    """A command that ended by itself, or that was killed for its time."""

    status: int | None  # None: killed, or never begun
    output: str
    seconds: float
    end: str  # in words


@dataclasses.dataclass
class Context:
    """What a step works with. It puts its numbers into `data` as they come, so that a kill loses none."""

    place: Place
    work: pathlib.Path  # a folder that the steps of a run share
    deadline: float = 0.0
    step: str = "machine"
    at_once: int = 1
    data: dict[str, Any] = dataclasses.field(default_factory=dict)
    processes: set[subprocess.Popen] = dataclasses.field(default_factory=set)

    def logs(self) -> pathlib.Path:
        folder = self.work / "logs"
        folder.mkdir(exist_ok=True)
        return folder


@dataclasses.dataclass(frozen=True)
class Step:
    name: str
    title: str
    limit_s: float
    work: Callable[[Context], None]
    gate: str = "-"  # "stop": its failure ends the run; "mark": it marks the numbers of the run
    at_once: int = 1  # commands that it runs side by side


def kill(process: subprocess.Popen) -> None:
    """Kills the process and its children; those that it left behind, too."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def run_one(context: Context, command: Command) -> Finished:
    """Runs a command in a process group of its own until its limit or the step's, and notes how it ended."""
    begun = time.monotonic()
    limit = min(command.limit_s, context.deadline - begun)
    if limit <= 0:
        return Finished(None, "", 0.0, "not begun: the time was over")
    log = context.logs() / f"{context.step}-{time.monotonic_ns()}-{pathlib.Path(command.words[0]).name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command.words, env={**os.environ, **command.environment}, stdin=subprocess.DEVNULL,
                                   stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
    context.processes.add(process)
    status: int | None = None
    try:
        status = process.wait(limit)
        end = f"exit status {status}"
    except subprocess.TimeoutExpired:
        end = f"killed after {limit:.0f} s"
    kill(process)
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        end += f"; it could not be ended within {END_S:.0f} s"
    context.processes.discard(process)
    printed = log.read_text(errors="replace")
    log.write_text(printed[-LOG_CHARACTERS:], errors="replace")
    finished = Finished(status, printed, time.monotonic() - begun, end)
    variables = " ".join(f"{name}={value}" for name, value in command.environment.items())
    with (context.logs() / "commands.txt").open("a") as file:
        file.write(f"{log.name}: {end}, {finished.seconds:.1f} s: {variables} {' '.join(command.words)}\n")
    return finished


def run_all(context: Context, commands: Sequence[Command]) -> list[Finished]:
    """Runs commands; results are in their order. What is late is not begun."""
    with concurrent.futures.ThreadPoolExecutor(context.at_once) as pool:
        running = [pool.submit(run_one, context, command) for command in commands]
        try:
            return [one.result() for one in running]
        except BaseException:  # this program is being ended
            context.deadline = 0.0
            for process in list(context.processes):
                kill(process)
            raise


def check(finished: list[Finished], what: str) -> None:
    """Raises Problem for the first command that failed or took too long."""
    for one in finished:
        if one.status != 0:
            lines = [line for line in one.output.splitlines() if line.strip()]
            raise Problem(f"{what} failed", "exit status 0", f"{one.end}: " + " | ".join(lines[-6:])[-1000:])


def run_records(context: Context, commands: Sequence[Command]) -> None:
    """Runs commands that take --json FILE. One that fails or is killed loses no record, and the next runs.

    Raises Problem for checks and settings that failed."""
    files = [context.work / f"records-{time.monotonic_ns()}-{number}.json" for number in range(len(commands))]
    finished = run_all(context, [dataclasses.replace(command, words=[*command.words, "--json", str(file)])
                                 for command, file in zip(commands, files)])
    records: list[dict[str, Any]] = [record | command.marks for file, command in zip(files, commands) if file.is_file()
                                     for record in json.loads(file.read_text())["records"]]
    context.data["records"] = records
    failed = [f"{record.get('check', record['measure'])} of {record.get('shape')} in {record.get('dtype')}: "
              + (record.get("problem") or f"{record.get('value')}, bound {record.get('bound')}")
              for record in records if record.get("passed") is False or record["measure"] == "problem"]
    if failed:
        raise Problem("checks failed", "numbers within their bounds", f"{len(failed)}: {'; '.join(failed[:4])}")
    check(finished, "a bench")
    if not records:
        raise Problem("nothing was measured", "records", "none")


def benches(*commands: Command) -> Callable[[Context], None]:
    """The work of a step that runs these programs of ours, one after another."""
    def work(context: Context) -> None:
        place = context.place
        run_records(context, [dataclasses.replace(one, words=[place.need(one.words[0]), *one.words[1:]],
                                                  environment=place.environment() | one.environment)
                              for one in commands])
    return work


def run_step(step: Step, context: Context, seconds_left: float, stopped: str = "") -> dict[str, Any]:
    """Runs a step within its limit and the run's, unless `stopped` says why not. Returns its record; raises nothing."""
    limit = min(step.limit_s, seconds_left)
    record: dict[str, Any] = {"name": step.name, "title": step.title, "gate": step.gate, "status": "ok",
                              "limit_s": round(limit, 1)}
    begun = time.monotonic()
    context.deadline, context.step, context.data, context.at_once = begun + limit, step.name, {}, step.at_once
    try:
        if stopped or limit <= 0:
            raise Skipped(stopped or "the run's time was over before it began")
        step.work(context)
    except Skipped as reason:
        record.update(status="skipped", problem=str(reason))
    except Exception as error:  # a step must never end the run
        record.update(status="failed", problem=str(error) or type(error).__name__)
    return record | {"seconds": round(time.monotonic() - begun, 1), "data": context.data}


def write_results(out: pathlib.Path, results: dict[str, Any], context: Context) -> None:
    """Replaces the results and the archive of all programs' output, each in one step."""
    partial = out / (RESULTS + ".partial")
    with partial.open("w") as file:
        json.dump(results, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, out / RESULTS)
    partial = shutil.make_archive(str(out / "logs.partial"), "gztar", context.work, context.logs().name)
    os.replace(partial, out / LOGS)
