"""Jobs whose processes are killed, and jobs of two machines."""

import os
import random
import shutil
import signal

from jobs_parts.running import await_end, compare, end_of, finished, reference, two_machines, workers_of


def demo(runner, work, options):
    one, four = reference(runner, work), work / "four"
    print("four processes, started by torchrun --nproc-per-node=4 --max-restarts=3", flush=True)
    job = runner.torchrun(four, 4, restarts=3)
    await_end(job, options.kill_after)
    workers = workers_of(job.pid)
    if workers:
        os.kill(workers[-1], signal.SIGKILL)
        print(f"killed process {workers[-1]} of {workers} after {options.kill_after:g} s", flush=True)
    code, output = end_of(job)
    for line in output.splitlines():
        if "the job ends" in line or "lost or did not" in line or "going on from" in line:
            print("  " + line.strip())
    print(f"torchrun ended with {code}")
    return code == 0 and bool(workers) and compare(one, four)


def kills(runner, work, options):
    one, several = reference(runner, work), work / "killed"
    random.seed(options.seed)
    done = 0
    counts = {}
    while done < options.count:
        processes = random.randint(1, 4)
        job = runner.torchrun(several, processes)
        await_end(job, random.uniform(1, options.longest))
        workers = workers_of(job.pid)
        if not workers:
            code, output = end_of(job)
            if code == 0:  # the recipe has ended: begin again with what was killed so far counted
                print(f"{done} kills, then the recipe ended")
                if not compare(one, several):
                    return False
                shutil.rmtree(several)
            continue
        victim = random.choice(workers)
        stage = sorted(finished(several)) if several.exists() else []
        os.kill(victim, signal.SIGKILL)
        code, output = end_of(job)
        done += 1
        counts[processes] = counts.get(processes, 0) + 1
        print(f"kill {done}: process {workers.index(victim)} of {processes}, {len(stage)} stages finished, "
              f"torchrun ended with {code}", flush=True)
    job = runner.torchrun(several, 2)
    code, output = end_of(job)
    if code != 0:
        print(output)
        return False
    print("kills by number of processes: " + ", ".join(f"{n}: {c}" for n, c in sorted(counts.items())))
    return compare(one, several)


def machines(runner, work, options):
    one, several = reference(runner, work), work / "machines"
    with two_machines() as both:
        jobs = [runner.torchrun(several, 2, prefix=prefix, launch=launch) for _, prefix, launch in both]
        ends = [end_of(job) for job in jobs]
    for (name, _, _), (code, output) in zip(both, ends):
        print(f"{name}: torchrun ended with {code}")
        if code != 0:
            print(output)
    return all(code == 0 for code, _ in ends) and compare(one, several)
