"""Tests of tools/gpu with made-up programs: limits, suites, strict mode, whole runs, the page, what is packed."""

import json
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
sys.dont_write_bytecode = True

from gpu_parts import packing, page, running, steps  # noqa: E402

TOOL = str(ROOT / "tools/gpu")


def make_program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/bash\n" + text)
    path.chmod(0o755)


def wait_until(condition, seconds=30):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError("what was waited for never came")
        time.sleep(0.02)


def alive(process):
    """Whether a process runs; one that has ended but that nobody waited for does not."""
    try:
        return pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class InFolder(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.context = running.Context(packing.Place(self.folder / "build", "abc"), self.folder)

    def run_step(self, work, limit=5.0, left=60.0, at_once=2):
        return running.run_step(running.Step("one", "One", limit, work, "-", at_once), self.context, left)

    def make_bench(self, name, records, more=""):
        """A program that writes records, and its variables to NAME.calls."""
        make_program(self.folder / "build" / name, f"""for last; do :; done
            echo "strict=$DRAFTSMITH_STRICT_DEVICE kernels=$DRAFTSMITH_KERNELS graphs=$DRAFTSMITH_GRAPHS""" f"""\
 launch=$DRAFTSMITH_PROGRAMMATIC_LAUNCH" >>{self.folder}/calls
            echo '{json.dumps({"records": records})}' >"$last"; {more}""")


def shell_command(script, limit=20.0):
    return running.Command(["/bin/bash", "-c", script], {}, limit)


class Steps(InFolder):
    def shell(self, *commands):
        return lambda context: running.check(running.run_all(context, commands), "a command")

    def test_one_that_hangs_is_killed_with_its_children(self):
        children = self.folder / "child"
        begun = time.monotonic()
        record = self.run_step(self.shell(shell_command(f"sleep 60 & echo $! >{children}; wait")), limit=0.5)
        self.assertLess(time.monotonic() - begun, 10)
        self.assertEqual(record["status"], "failed")
        self.assertIn("killed after", record["problem"])
        wait_until(lambda: not alive(int(children.read_text())))

    def test_one_that_fails_is_recorded_with_its_last_words(self):
        record = self.run_step(self.shell(shell_command("echo no memory; exit 3")))
        self.assertEqual(record["status"], "failed")
        self.assertIn("3: no memory", record["problem"])

    def test_the_run_s_end_comes_before_the_step_s(self):
        self.assertEqual(self.run_step(self.shell(shell_command("sleep 60")), limit=30, left=0.3)["status"], "failed")
        self.assertEqual(self.run_step(self.shell(shell_command("true")), left=-1)["status"], "skipped")

    def test_a_command_over_its_own_limit_is_killed_and_the_rest_goes_on(self):
        second = self.folder / "second"
        record = self.run_step(self.shell(shell_command("sleep 60", 0.3), shell_command(f"touch {second}")), at_once=1)
        self.assertIn("killed after", record["problem"])
        self.assertTrue(second.exists())

    def test_a_bench_that_fails_keeps_its_records_and_lets_the_next_run(self):
        self.make_bench("bad", [{"measure": "a"}], "exit 1")
        self.make_bench("good", [{"measure": "b"}])
        record = self.run_step(running.benches(running.bench("bad", "", 5),
                                               running.bench("good", "", 5, steps.EAGER, steps="eager")))
        self.assertEqual(record["status"], "failed")
        self.assertEqual([(found["measure"], found.get("steps")) for found in record["data"]["records"]],
                         [("a", None), ("b", "eager")])

    def test_failed_checks_and_settings_fail_a_step_and_keep_its_records(self):
        check = {"measure": "check", "check": "same ids", "shape": "t5-large", "dtype": "fp32", "value": 3, "bound": 0}
        work = running.benches(running.bench("bench", "", 5))
        for records, problem in (([check | {"passed": False}], "same ids of t5-large in fp32: 3, bound 0"),
                                 ([{"measure": "problem", "shape": "t5-small", "problem": "no memory"}], "no memory"),
                                 ([], "nothing was measured")):
            self.make_bench("bench", records, "exit 1" if records else "")
            record = self.run_step(work)
            self.assertIn(problem, record["problem"])
            self.assertEqual(len(record["data"]["records"]), len(records))

    def test_slower_ways_are_errors_but_for_those_that_are_asked_for(self):
        self.make_bench(packing.DECODING_BENCH, [{"measure": "greedy"}])
        work = {step.name: step.work for step in steps.FIRST + steps.REST}
        self.assertEqual(self.run_step(work["speeds"], at_once=1)["status"], "ok")
        self.assertEqual((self.folder / "calls").read_text().splitlines(),
                         ["strict=1 kernels= graphs= launch="] * 2
                         + ["strict= kernels=off graphs= launch=", "strict=1 kernels= graphs= launch=off"])
        self.run_step(work["decoding"], at_once=1)
        self.assertEqual((self.folder / "calls").read_text().count("strict= kernels= graphs=off"), 1)


LOG = """[ RUN      ] DeviceOne.Good
[       OK ] DeviceOne.Good (1 ms)
[ RUN      ] DeviceOne.Bad
text of it [  FAILED  ] DeviceOne.Bad, where GetParam() = 3 (1 ms)
[  SKIPPED ] DeviceOne.Away (0 ms)
[ RUN      ] DeviceOne.Crashes
"""


class Suites(InFolder):
    def test_each_suite_is_a_process_and_one_that_hangs_ends_no_other(self):
        make_program(self.folder / "build/tests", f"""filter=${{@: -1}}; filter=${{filter#--gtest_filter=}}
            case $1 in --gtest_list_tests) printf 'Running main() from main.cc\\nDeviceOne.\\n  Good\\n  Bad\\n'
            printf 'A/DeviceTwo.  # TypeParam = 1\\n  Works/0  # 1.5\\n'; exit;; esac
            case $filter in DeviceOne.*) printf '{LOG}'; sleep 60;; esac
            [ "$DRAFTSMITH_TEST_DEVICE $DRAFTSMITH_STRICT_DEVICE" = "cuda 1" ] || exit 1
            echo "[       OK ] A/DeviceTwo.Works/0 (1 ms)" """)
        with mock.patch.object(steps, "SUITE_S", 0.5):
            record = self.run_step(steps.suites("cuda", {"tests": "*"}), limit=20)
        one, two = record["data"]["suites"]
        self.assertEqual((one["tests"], one["failed"], two["tests"], two["failed"]), (3, 2, 1, 0))
        self.assertIn("killed after", one["failures"][1])
        self.assertEqual(record["status"], "failed")


class Runs(InFolder):
    def run_tool(self, *words):
        return subprocess.run([sys.executable, TOOL, *map(str, words)], capture_output=True, text=True)

    def test_a_failed_smoke_ends_the_run(self):
        out = self.folder / "out"
        ran = self.run_tool("run", "--dry", "--build", self.folder, "--out", out, "--steps", "smoke,kernels")
        written = page.read(out / "results.json")
        self.assertEqual((ran.returncode, [step["status"] for step in written["steps"]]), (1, ["failed", "skipped"]))
        self.assertEqual(written["steps"][1]["problem"], "smoke failed")

    def test_a_run_that_is_ended_leaves_its_results_and_no_program(self):
        child = self.folder / "child"
        make_program(self.folder / packing.CHECKS_BENCH,
                     f"echo $$ >{child}.partial; mv {child}.partial {child}; exec sleep 60")
        words = [sys.executable, TOOL, "run", "--dry", "--build", self.folder, "--out", self.folder / "out"]
        tool = subprocess.Popen([*map(str, words), "--steps", "smoke"], stdout=subprocess.DEVNULL)
        wait_until(child.exists)
        tool.terminate()
        self.assertEqual(tool.wait(30), 143)
        wait_until(lambda: not alive(int(child.read_text())))
        self.assertIn("* smoke: not run", page.problems_of(page.read(self.folder / "out/results.json"))[0])
        with tarfile.open(self.folder / "out" / running.LOGS) as tar:
            self.assertTrue(any("bench_device_checks" in name for name in tar.getnames()), tar.getnames())

    def test_a_run_on_a_gpu_needs_a_plan_and_an_empty_folder(self):
        self.assertIn("first or rest", self.run_tool("run", "--out", self.folder).stderr)
        unknown = self.run_tool("run", "--dry", "--steps", "speed", "--out", self.folder)
        self.assertEqual(unknown.returncode, 2)
        self.assertIn("expected: smoke, suites", unknown.stderr)
        for dry in (True, False):
            (self.folder / "results.json").write_text(json.dumps({"format": page.FORMAT, "dry": dry}))
            ran = self.run_tool("run", "--dry", "--build", self.folder, "--out", self.folder, "--steps", "training")
            self.assertEqual("earlier run" in ran.stderr, not dry)


def made_up_results():
    greedy = {"measure": "greedy", "shape": "t5-large", "dtype": "bf16", "batch": 1, "ms_per_step": 6.71234,
              "tokens_per_second": 1149.2, "weight_mb": 805.3, "roofline_share": 0.0383, "kernels": "off"}
    curve = {"measure": "verification", "shape": "t5-large", "dtype": "bf16", "batch": 1, "ms_of_one": 6.7,
             "tokens": [1, 2, 8], "relative": [1, 1.01, 1.06]}
    other = {"measure": "other_thing", "keys": 32, "gated": False, "us": 1.0571}
    step = {"name": "decoding", "title": "Decoding", "gate": "mark", "status": "failed", "seconds": 180.1,
            "problem": "a bench was killed after 180 s", "data": {"records": [greedy, curve, other]}}
    machine = {"gpu": {"name": "NVIDIA H200", "driver_version": "580.1"}, "python": {"torch": "2.11.0"}}
    return {"command": "tools/gpu run", "commit": "abc1234", "date": "2026-11-23T05:00:00Z", "dry": False,
            "machine": machine, "plan": ["decoding"], "steps": [step]}


class Page(unittest.TestCase):
    def test_it_has_failures_first_and_command_commit_machine_and_date_beside_the_numbers(self):
        text = page.page([made_up_results()])
        self.assertTrue(text.split("\n\n")[1].startswith("**Checks failed (Decoding)"), text)
        for part in ("`tools/gpu run`", "commit abc1234", "NVIDIA H200, driver 580.1", "torch 2.11.0", "2026-11-23",
                     "| t5-large | bf16 | 1 | kernels off | 6.712 | 1,149 | – | 805.3 | 0.0383 |",
                     "| t5-large | bf16 | 1 | default | 6.7 | 1.01 | – | – | 1.06 | – |",
                     "### Measure: other thing", "| 32 | False | 1.057 | default |",
                     "* Decoding, failed after 180 s: a bench was killed"):
            self.assertIn(part, text)
        with self.assertRaisesRegex(packing.Problem, "dry run"):
            page.page([made_up_results() | {"dry": True}])


class Pack(InFolder):
    def test_kernels_travel_and_are_the_cache_of_what_is_unpacked(self):
        (self.folder / "build").mkdir()
        (self.folder / "build/small").write_bytes(pathlib.Path("/bin/true").read_bytes())
        make_program(self.folder / "build" / packing.KERNELS_BENCH, 'mkdir -p "$2"; echo $4 >"$2/a.kernels"')
        packing.compile_kernels(self.folder / "build", self.folder / "out/kernels")
        archive = packing.pack(self.folder / "build", self.folder / "out", ("small",), preset=0)
        with mock.patch.object(packing, "torch_libraries", return_value=()):
            place = packing.unpacked_place(archive, self.folder / "there")
        self.assertTrue(os.access(place.need("small"), os.X_OK))
        self.assertEqual((self.folder / "there/kernels/a.kernels").read_text(), "sm_90\n")
        self.assertEqual(place.environment()["DRAFTSMITH_KERNEL_CACHE"], str(self.folder / "there/kernels"))


class Plan(unittest.TestCase):
    def test_the_limits_of_a_plan_fit_its_call(self):
        # A loan is 900 s: two starts of at most 120 s, and 30 s of each call around its steps, leave this.
        for name, most in {"first": 250, "rest": 380}.items():
            self.assertLessEqual(sum(step.limit_s for step in steps.PLANS[name]), most)


if __name__ == "__main__":
    unittest.main()
