"""Recipes in one process or several, and comparisons of what they end with."""

import contextlib
import json
import pathlib
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
TORCHRUN = ROOT / ".venv" / "bin" / "torchrun"
# Sums in another order differ in the last digits of fp32. Training amplifies that, and stages that train on outputs of
# a model trained before amplify it once more.
LOSS_TOLERANCE = 0.1


class Runner:
    """Starts the recipe in one process or several."""

    def __init__(self, options):
        self.options = options
        self.recipe = str(options.recipe)

    def command(self, work, more=()):
        return [str(self.options.draftsmith), "train", self.recipe, "--work", str(work), *more]

    def alone(self, work, more=()):
        subprocess.run(self.command(work, more), check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def torchrun(self, work, processes, more=(), restarts=0, prefix=(), launch=()):
        """Starts the recipe as a job."""
        return start_job(self.command(work, more), processes, restarts, prefix, launch)


def start_job(command, processes, restarts=0, prefix=(), launch=()):
    """Starts a command under torchrun, in a process group of its own."""
    line = [*prefix, str(TORCHRUN), f"--nproc-per-node={processes}", f"--max-restarts={restarts}", *launch,
            "--no-python", *command]
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)


@contextlib.contextmanager
def two_machines(rate=None):
    """Two network namespaces with a link between them, of this rate ("1gbit") if one is given. Gives start_job()'s
    prefix and launch for each."""
    names, links, addresses = ["draftsmith-a", "draftsmith-b"], ["ds-a", "ds-b"], ["10.77.0.1", "10.77.0.2"]

    def ip(*arguments, check=True):
        subprocess.run(["ip", *arguments], check=check, stderr=None if check else subprocess.DEVNULL)

    for name in names:
        ip("netns", "del", name, check=False)
    try:
        for name in names:
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        ip("link", "add", links[0], "netns", names[0], "type", "veth", "peer", "name", links[1], "netns", names[1])
        machines = []
        for rank, (name, link, address) in enumerate(zip(names, links, addresses)):
            ip("-n", name, "addr", "add", address + "/24", "dev", link)
            ip("-n", name, "link", "set", link, "up")
            if rate:
                ip("netns", "exec", name, "tc", "qdisc", "add", "dev", link, "root", "tbf", "rate", rate, "burst",
                   "256kb", "latency", "50ms")
            prefix = ["ip", "netns", "exec", name, "env", f"GLOO_SOCKET_IFNAME={link}"]
            launch = ["--nnodes=2", f"--node-rank={rank}", f"--master-addr={addresses[0]}", "--master-port=29511",
                      f"--local-addr={address}"]
            machines.append((name, prefix, launch))
        yield machines
    finally:
        for name in names:
            ip("netns", "del", name, check=False)


def workers_of(launcher):
    """Process ids of a launcher's workers."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            name = (entry / "comm").read_text().strip()
        except (OSError, IndexError):
            continue
        if parent == launcher and name.startswith("draftsmith"):
            found.append(int(entry.name))
    return sorted(found)


def finished(work):
    """Stage -> its directory, of all finished stages."""
    links = [entry for entry in sorted(work.iterdir()) if entry.is_symlink() and (entry / "DONE").exists()]
    return {link.name: link.resolve() for link in links}


def last_loss(stage):
    lines = [json.loads(line) for line in (stage / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if "loss" in line][-1]["loss"]


def table(work):
    """(stage, identity, last training loss or quality) rows of a finished recipe."""
    rows = []
    for name, stage in finished(work).items():
        measure = ""
        if (stage / "metrics.jsonl").exists():
            measure = f"loss {last_loss(stage):.4f}"
        elif (stage / "results.json").exists():
            results = json.loads((stage / "results.json").read_text())
            measure = ", ".join(f"BLEU {task['baseline']['quality']['bleu']:.2f}" for task in results["tasks"])
        rows.append((name, stage.name.rsplit("-", 1)[-1], measure))
    return rows


def compare(one, several):
    """Prints both tables and returns whether stages and identities are equal and losses close."""
    ours, theirs = table(one), table(several)
    equal = [row[:2] for row in ours] == [row[:2] for row in theirs]
    print(f"{'stage':<14}{'identity':<11}{'one process':<34}several")
    for mine, other in zip(ours, theirs):
        print(f"{mine[0]:<14}{mine[1]:<11}{mine[2]:<34}{other[2]}")
        if mine[2].startswith("loss"):
            a, b = float(mine[2].split()[1]), float(other[2].split()[1])
            equal = equal and abs(a - b) <= LOSS_TOLERANCE * a
    return equal


def await_end(job, seconds):
    """Waits so many seconds, or until the job ends."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and job.poll() is None:
        time.sleep(0.05)


def end_of(job):
    output, _ = job.communicate()
    return job.returncode, output


def reference(runner, work):
    one = work / "one"
    if not one.exists() or not finished(one):
        print("one process: ...", flush=True)
        begin = time.monotonic()
        runner.alone(one)
        print(f"one process: {time.monotonic() - begin:.0f} s", flush=True)
    return one


