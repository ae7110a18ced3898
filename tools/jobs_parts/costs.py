"""Measurements of jobs: speed, communication, memory, and how far rounding takes them from one process."""

import array
import json
import pathlib
import shutil
import struct
import time

from jobs_parts.running import ROOT, end_of, finished, start_job, two_machines, workers_of

COMMUNICATION = ROOT / "build" / "release" / "bench" / "bench_gradient_sums"
# A T5 of 66 M parameters, for six steps: its gradients and its optimizer are most of its memory.
LARGE = ["architecture.width=768", "architecture.heads=12", "architecture.head_width=64", "architecture.ff_width=3072",
         "architecture.encoder_layers=4", "architecture.decoder_layers=4", "training.length='6 steps'",
         "training.validation.bleu_examples=0"]


def sets(values):
    """Arguments that set keys of the stage `target` and run the recipe until there."""
    return ["--until", "target", *[part for value in values for part in ("--set", f"target.{value}")]]


def rates(stage):
    """Tokens/s of a training, over all lines of its log but the first."""
    return mean_of(stage, "tokens_per_second")


def mean_of(stage, name):
    lines = [json.loads(line) for line in (stage / "metrics.jsonl").read_text().splitlines()]
    values = [line[name] for line in lines if name in line][1:]
    return sum(values) / len(values)


def done_seconds(stage):
    return json.loads((stage / "DONE").read_text())["seconds"]


def speed(runner, work, options):
    print("training: tokens/s; outputs: seconds of the stage teacher-outputs; ratios are of the same round")
    for number in range(options.rounds):
        one, two = work / f"speed-one-{number}", work / f"speed-two-{number}"
        for directory in (one, two):
            shutil.rmtree(directory, ignore_errors=True)
        runner.alone(one, ["--threads", "2"])
        code, output = end_of(runner.torchrun(two, 2, ["--threads", "1"]))
        if code != 0:
            print(output)
            return False
        mine, theirs = finished(one), finished(two)
        for stage in mine:
            if (mine[stage] / "metrics.jsonl").exists():
                a, b = rates(mine[stage]), rates(theirs[stage])
                print(f"round {number + 1}: {stage}: one {a:,.0f}, two {b:,.0f} tokens/s, ratio {b / a:.2f}")
            elif stage == "outputs" or any((mine[stage] / name).exists()
                                           for name in ("teacher_logits.h5", "router_data.h5")):
                a, b = done_seconds(mine[stage]), done_seconds(theirs[stage])
                print(f"round {number + 1}: {stage}: one {a:.1f}, two {b:.1f} s, ratio {a / b:.2f}")
    return True


def on_link(command, processes, link):
    """Runs a command in so many processes: on this machine, or with a link's rate on two. Returns its output, or none
    if it failed."""
    if link:
        with two_machines(link) as both:
            jobs = [start_job(command, processes // 2, prefix=prefix, launch=launch) for _, prefix, launch in both]
            ends = [end_of(job) for job in jobs]
    else:
        ends = [end_of(start_job(command, processes))]
    output = "\n".join(text for _, text in ends)
    if any(code != 0 for code, _ in ends):
        print(output)
        return None
    return output


def communication(runner, work, options):
    """Prints rows of a table; each pair is milliseconds, and Gbit/s that a process sends by the ring's formula."""
    print("| parameters | processes | sum in fp32: ms, Gbit/s | in bf16 | updated parameters |")
    print("|---|---|---|---|---|")
    for size in options.sizes:
        for processes in options.worlds:
            output = on_link([str(COMMUNICATION), str(size)], processes, options.link)
            if output is None:
                return False
            print("\n".join(line for line in output.splitlines() if line.startswith("|")), flush=True)
    return True


def overlap(runner, work, options):
    """Prints the speed of two processes that sum their gradients after the backward pass and during it."""
    for dtype in ("fp32", "bf16"):
        for during in ("false", "true"):
            directory = work / "overlap"
            shutil.rmtree(directory, ignore_errors=True)
            more = ["--threads", "1", *sets([*LARGE, "training.log_every=1", f"training.reduce_dtype='{dtype}'",
                                             f"training.overlap_communication={during}"])]
            if on_link(runner.command(directory, more), 2, options.link) is None:
                return False
            stage = finished(directory)["target"]
            print(f"reduce_dtype = {dtype}, overlap_communication = {during}: {rates(stage):,.0f} tokens/s, "
                  f"waited {100 * mean_of(stage, 'waited'):.0f} % of the time", flush=True)
    return True


def memory(runner, work, options):
    """Prints the peak of each process's resident memory, with whole and with sharded optimizer state."""
    print("peak MiB of each process, the leader first")
    for name in options.optimizers:
        for processes in options.worlds:
            for sharded in ("false", "true"):
                directory = work / "memory"
                shutil.rmtree(directory, ignore_errors=True)
                job = runner.torchrun(directory, processes, ["--threads", "1", *sets(
                    [*LARGE, f"training.optimizer.name='{name}'", f"training.shard_optimizer={sharded}"])])
                peaks = watch_peaks(job)
                code, output = end_of(job)
                if code != 0:
                    print(output)
                    return False
                print(f"{name}, {processes} processes, shard_optimizer = {sharded}: " +
                      ", ".join(f"{peak / 1024:,.0f}" for peak in peaks), flush=True)
    return True


def watch_peaks(job):
    """Peak resident memory of a job's workers in KiB, by their process ids, while it runs."""
    peaks = {}
    while job.poll() is None:
        for worker in workers_of(job.pid):
            try:
                lines = pathlib.Path(f"/proc/{worker}/status").read_text().splitlines()
            except OSError:
                continue
            for line in lines:
                if line.startswith("VmHWM"):
                    peaks[worker] = int(line.split()[1])
        time.sleep(0.05)
    return [peaks[worker] for worker in sorted(peaks)]


def drift(runner, work, options):
    """Prints how far losses and weights of several processes are from those of one, with warm-up and without."""
    print("relative difference from one process of one thread: losses; at the end the validation's loss, and weights")
    for warmup in ("10 %", ""):
        common = [f"training.length='{options.steps} steps'", f"training.schedule.warmup='{warmup}'",
                  "training.log_every=1", "training.keep='last'", "training.validation.bleu_examples=0"]
        name = f"warm-up {warmup or 'none'}"
        one = finished_alone(runner, work / f"drift {name}", 1, common)
        threads = finished_alone(runner, work / f"drift {name}", 2, common)
        print_drift(f"{name}, two threads", one, threads, options.steps)
        for processes in options.worlds:
            directory = work / f"drift {name}" / f"processes-{processes}"
            code, output = end_of(runner.torchrun(directory, processes, ["--threads", "1", *sets(common)]))
            if code != 0:
                print(output)
                return False
            print_drift(f"{name}, {processes} processes", one, finished(directory)["target"], options.steps)
    return True


def finished_alone(runner, work, threads, values):
    directory = work / f"threads-{threads}"
    directory.mkdir(parents=True, exist_ok=True)
    runner.alone(directory, ["--threads", str(threads), *sets(values)])
    return finished(directory)["target"]


def print_drift(what, one, several, steps):
    mine, theirs = losses(one), losses(several)
    apart = [f"step {step} {relative(mine['loss'][step], theirs['loss'][step]):.1e}"
             for step in (10, 50, 100, 200, 300) if step <= steps]
    validated = relative(mine["validation"][steps], theirs["validation"][steps])
    print(f"{what}: {', '.join(apart)}; validation {validated:.1e}, weights {weights_apart(one, several):.1e}",
          flush=True)


def relative(a, b):
    return abs(a - b) / abs(a)


def losses(stage):
    """Measure -> step -> value of a run's log."""
    found = {"loss": {}, "validation": {}}
    for line in (stage / "metrics.jsonl").read_text().splitlines():
        values = json.loads(line)
        if "validation" in values:
            found["validation"][values["step"]] = values["validation"]["loss"]
        else:
            found["loss"][values["step"]] = values["loss"]
    return found


def weights_apart(one, several):
    """Largest difference of a weight, relative to the largest weight of its tensor."""
    mine, theirs = weights(one), weights(several)
    return max(max(abs(a - b) for a, b in zip(tensor, theirs[name])) / max(map(abs, tensor))
               for name, tensor in mine.items())


def weights(stage):
    """Name -> fp32 numbers of a run's model."""
    data = (stage / "model" / "model.safetensors").read_bytes()
    begin = 8 + struct.unpack("<Q", data[:8])[0]
    found = {}
    for name, entry in json.loads(data[8:begin]).items():
        if name != "__metadata__":
            first, end = entry["data_offsets"]
            found[name] = array.array("f", data[begin + first:begin + end])
    return found
