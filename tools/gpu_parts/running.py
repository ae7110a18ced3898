"""Steps and commands of a run: each has a time limit, and its end, whatever it is, becomes a record."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Any

from gpu_parts.places import Place, Problem

TAIL = 2000  # characters of output that a record keeps
CHECK_S = 20.0  # of a command that checks; benches name their own limits
DRY_COMMAND_S = 200.0  # of each command of a dry run, which runs beside other work on two cores
END_S = 10.0  # how long a killed process may take: one whose work on the device hangs may never end
# Measures of own kernels and of recorded steps, which a run must not replace by slower ways unasked.
RECORDED = ("greedy", "verification", "drafting", "speculation", "nodes", "linear_rows", "attention")
OWN = (*RECORDED, "training")


class OutOfTime(Exception):
    """A step's time is over."""


class Skipped(Exception):
    """A step cannot run here; the text says why."""


@dataclasses.dataclass(frozen=True)
class Command:
    """A program with its arguments, more variables than those of this process, and the seconds that it may take."""

    words: list[str]
    environment: dict[str, str] = dataclasses.field(default_factory=dict)
    limit_s: float = CHECK_S

    def name(self) -> str:
        return pathlib.Path(self.words[0]).name


@dataclasses.dataclass(frozen=True)
class Bench(Command):
    """A program that writes records, and what its records are marked with."""

    marks: dict[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Finished:
    """A command that ended by itself, or that was killed for its time."""

    status: int | None  # None: killed, or never begun
    output: str  # its last characters
    seconds: float
    log: pathlib.Path | None  # all of its output
    killed: str = ""  # why it was killed or not begun
    step_over: bool = False  # the time of the whole step was over, not that of the command


@dataclasses.dataclass
class Context:
    """What a step works with. It puts its numbers into `data` as they come, so that a kill loses none."""

    place: Place
    work: pathlib.Path  # a folder that the steps of a run share
    dry: bool  # tiny sizes, on the CPU and on the stand-in accelerator
    gpu: dict[str, str] = dataclasses.field(default_factory=dict)  # what nvidia-smi says of it
    deadline: float = 0.0
    step: str = "machine"
    at_once: int = 1
    data: dict[str, Any] = dataclasses.field(default_factory=dict)

    def device(self) -> str:
        """The device of Transformers and of what the stand-in cannot do."""
        return "cpu" if self.dry else "cuda"

    def own_device(self) -> str:
        """The device of tests, checks and decoding."""
        return "standin" if self.dry else "cuda"

    def need_python(self) -> str:
        if self.place.python is None:
            raise Skipped("no Python with torch and Transformers is here (tools/setup --with-peers)")
        return self.place.python

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


@dataclasses.dataclass
class Running:
    """A process that was started."""

    process: subprocess.Popen
    log: pathlib.Path
    begun: float
    end: float  # when it is killed
    killed_at: float | None = None

    def kill(self, now: float) -> None:
        """Kills the process and its children; those that it left behind, too."""
        self.killed_at = self.killed_at or now
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def finished(self, now: float) -> Finished | None:
        """The record of a process that has ended or that cannot be ended; None while it runs. Kills it in time."""
        status = self.process.poll()
        late = now >= self.end and status is None
        if late and self.killed_at is None:
            self.kill(now)
        if status is None and (self.killed_at is None or now < self.killed_at + END_S):
            return None
        killed = f"killed after {self.killed_at - self.begun:.0f} s" if self.killed_at else ""
        if status is None:
            killed += f"; it could not be ended within {END_S:.0f} s"
        else:
            self.kill(now)
        return Finished(None if killed else status, tail_of(self.log), now - self.begun, self.log, killed)


def start(command: Command, log: pathlib.Path, deadline: float) -> Running:
    """Starts a command in a process group of its own, so that its children can be ended with it."""
    begun = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(command.words, env={**os.environ, **command.environment}, stdin=subprocess.DEVNULL,
                                   stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
    return Running(process, log, begun, min(begun + command.limit_s, deadline))


def tail_of(log: pathlib.Path) -> str:
    return log.read_text(errors="replace")[-TAIL:]


def run_all(context: Context, commands: Sequence[Command]) -> list[Finished]:
    """Runs commands, each until its limit or the step's; what is late is not begun. Results are in their order."""
    results: list[Finished | None] = [None] * len(commands)
    running: dict[int, Running] = {}
    waiting = list(range(len(commands)))
    try:
        while running or (waiting and time.monotonic() < context.deadline):
            while waiting and len(running) < context.at_once and time.monotonic() < context.deadline:
                number = waiting.pop(0)
                command = commands[number]
                if context.dry:
                    command = dataclasses.replace(command, limit_s=DRY_COMMAND_S)
                log = context.logs() / f"{context.step}-{time.monotonic_ns()}-{command.name()}.log"
                running[number] = start(command, log, context.deadline)
            for number, one in list(running.items()):
                if finished := one.finished(time.monotonic()):
                    finished.step_over = bool(finished.killed) and one.end >= context.deadline
                    results[number] = finished
                    note_end(context, commands[number], finished)
                    del running[number]
            time.sleep(0.02)
    finally:
        for one in running.values():
            one.kill(time.monotonic())
    return [result or Finished(None, "", 0.0, None, "not begun", step_over=True) for result in results]


def note_end(context: Context, command: Command, finished: Finished) -> None:
    """Writes a line for the command beside its log, and puts one that did not end well into the step's record."""
    end = finished.killed or f"exit status {finished.status}"
    variables = " ".join(f"{name}={value}" for name, value in command.environment.items())
    with (context.logs() / "commands.txt").open("a") as file:
        file.write(f"{finished.log.name}: {end}, {finished.seconds:.1f} s: {variables} {' '.join(command.words)}\n")
    if finished.status != 0:
        context.data.setdefault("failed_commands", []).append(
            {"command": command.words, "end": end, "seconds": round(finished.seconds, 1), "log": finished.log.name,
             "output": finished.output[-400:]})


def check(finished: list[Finished], what: str) -> None:
    """Raises Problem for a command that failed or took too long, OutOfTime if only the step's time was over."""
    failed = [result for result in finished if result.status != 0 and not result.step_over]
    if failed:
        lines = [line for line in failed[0].output.splitlines() if line.strip()]
        end = failed[0].killed or str(failed[0].status)
        raise Problem(f"{what} failed", "exit status 0", f"{end}: " + " | ".join(lines[-6:]))
    if any(result.status is None for result in finished):
        raise OutOfTime(what)


def records_of(file: pathlib.Path) -> list[dict[str, Any]]:
    """The records that a bench has written so far."""
    return json.loads(file.read_text())["records"] if file.is_file() else []


def run_benches(context: Context, benches: list[Bench]) -> None:
    """Runs benches. One that fails or is killed loses no record, and does not keep the next from running."""
    files = [context.work / f"records-{time.monotonic_ns()}-{number}.json" for number in range(len(benches))]
    finished = run_all(context, [dataclasses.replace(bench, words=[*bench.words, "--json", str(file)])
                                 for bench, file in zip(benches, files)])
    records = [{**record, **bench.marks} for bench, file in zip(benches, files) for record in records_of(file)]
    context.data.setdefault("records", []).extend(records)
    check_records(context, records)
    check(finished, "a bench")


def check_records(context: Context, records: list[dict[str, Any]]) -> None:
    """Raises Problem for checks and settings that failed, and for numbers of another way than was asked for."""
    failed = [f"{record.get('check')} of {record.get('shape')} in {record.get('dtype')}: "
              + (record.get("problem") or f"{record.get('value')}, bound {record.get('bound')}")
              for record in records if record.get("passed") is False]
    failed += [f"{record.get('shape') or record.get('of')}: {record.get('problem')}" for record in records
               if record.get("measure") == "problem"]
    replaced = [f"{record['measure']} of {record.get('shape') or record.get('target')}: {', '.join(ways)}"
                for record in records if not context.dry and (ways := replaced_ways(record))]
    if failed or replaced:
        found = "; ".join([*failed[:4], *replaced[:4]])
        raise Problem("checks failed", "numbers within their bounds, of own kernels and recorded steps",
                      f"{len(failed) + len(replaced)}: {found}")


def replaced_ways(record: dict[str, Any]) -> list[str]:
    """The fast ways that a record lacks although nothing turned them off."""
    ways = []
    if record.get("own_kernels") is False and record.get("kernels") != "off" and record.get("measure") in OWN:
        ways.append("without own kernels")
    if (record.get("recorded") is False and record.get("steps") != "eager" and record.get("kernels") != "off"
            and record.get("measure") in RECORDED):
        ways.append("without recorded steps")
    return ways


def not_run(step: Step, problem: str) -> dict[str, Any]:
    return {"name": step.name, "title": step.title, "gate": step.gate, "status": "not run", "problem": problem,
            "limit_s": step.limit_s, "seconds": 0.0, "data": {}}


def run_step(step: Step, context: Context, seconds_left: float) -> dict[str, Any]:
    """Runs a step within its limit and the run's. Returns its record; never raises but for Ctrl-C."""
    limit = min(step.limit_s, seconds_left)
    record: dict[str, Any] = {"name": step.name, "title": step.title, "gate": step.gate, "status": "ok",
                              "limit_s": round(limit, 1)}
    begun = time.monotonic()
    context.deadline, context.step, context.data = begun + limit, step.name, {}
    context.at_once = min(2, step.at_once) if context.dry else step.at_once
    try:
        if limit <= 0:
            raise Skipped("the run's time was over before it began")
        step.work(context)
    except OutOfTime as over:
        record.update(status="out of time", problem=f"{over} was not done after {limit:.0f} s")
    except Skipped as reason:
        record.update(status="skipped", problem=str(reason))
    except Exception as error:  # a step must never end the run
        record.update(status="failed", problem=str(error) or type(error).__name__)
    record["seconds"] = round(time.monotonic() - begun, 1)
    record["data"] = context.data
    return record
