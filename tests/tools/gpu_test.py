"""Tests of tools/gpu with made-up programs: limits, gates, suites, strict mode, whole runs, the page, what is packed."""

import argparse
import contextlib
import importlib.machinery
import importlib.util
import io
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

from gpu_parts import places, results, running, steps  # noqa: E402

TOOL = str(ROOT / "tools/gpu")
loader = importlib.machinery.SourceFileLoader("gpu_tool", TOOL)
tool = importlib.util.module_from_spec(importlib.util.spec_from_loader("gpu_tool", loader))
loader.exec_module(tool)


def make_program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/bash\n" + text)
    path.chmod(0o755)


class InFolder(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        place = places.Place(self.folder / "build", (), None, "abc")
        self.context = running.Context(place, self.folder, dry=False)

    def run_step(self, work, limit=5.0, left=60.0, at_once=2):
        return running.run_step(running.Step("one", "One", limit, work, "-", at_once), self.context, left)

    def make_bench(self, name, records, more=""):
        """A program that writes records, and its arguments and variables to NAME.calls."""
        make_program(self.folder / "build" / name, f"""for last; do :; done
            echo "$* strict=$DRAFTSMITH_STRICT_DEVICE kernels=$DRAFTSMITH_KERNELS graphs=$DRAFTSMITH_GRAPHS""" f"""\
 launch=$DRAFTSMITH_PROGRAMMATIC_LAUNCH" >>{self.folder}/{pathlib.Path(name).name}.calls
            echo '{json.dumps({"records": records})}' >"$last"; {more}""")

    def calls(self, name):
        return (self.folder / f"{pathlib.Path(name).name}.calls").read_text().splitlines()


def shell_command(script, limit=20.0):
    return running.Command(["/bin/bash", "-c", script], {}, limit)


class Steps(InFolder):
    def shell(self, script):
        return lambda context: running.check(running.run_all(context, [shell_command(script)]), "a command")

    def test_one_that_hangs_is_killed_with_its_children(self):
        children = self.folder / "child"
        begun = time.monotonic()
        record = self.run_step(self.shell(f"sleep 60 & echo $! >{children}; wait"), limit=0.5)
        self.assertLess(time.monotonic() - begun, 10)
        self.assertEqual(record["status"], "out of time")
        self.assertIn("not done", record["problem"])
        self.assertIn("killed", record["data"]["failed_commands"][0]["end"])
        wait_until(lambda: not alive(int(children.read_text())))

    def test_one_that_fails_is_recorded_with_its_last_words(self):
        record = self.run_step(self.shell("echo no memory; exit 3"))
        self.assertEqual(record["status"], "failed")
        self.assertIn("3: no memory", record["problem"])

    def test_a_bench_that_fails_keeps_its_records_and_lets_the_next_run(self):
        bench = self.folder / "bench"
        make_program(bench, """for last; do :; done
            echo '{"records": [{"measure": "'$1'"}]}' >"$last"; exit $2""")
        benches = [running.Bench([str(bench), "a", "1"]),
                   running.Bench([str(bench), "b", "0"], marks={"steps": "eager"})]
        record = self.run_step(lambda context: running.run_benches(context, benches))
        self.assertEqual(record["status"], "failed")
        self.assertEqual([(found["measure"], found.get("steps")) for found in record["data"]["records"]],
                         [("a", None), ("b", "eager")])

    def test_the_run_s_end_comes_before_the_step_s(self):
        self.assertEqual(self.run_step(self.shell("sleep 60"), limit=30, left=0.3)["status"], "out of time")
        self.assertEqual(self.run_step(self.shell("true"), left=-1)["status"], "skipped")

    def test_a_command_over_its_own_limit_is_killed_and_the_rest_goes_on(self):
        def work(context):
            done = running.run_all(context, [shell_command("echo begun; sleep 60", 0.3), shell_command("echo 2")])
            context.data["outputs"] = [result.output for result in done]
            running.check(done, "a command")
        record = self.run_step(work, at_once=1)
        self.assertEqual((record["status"], record["data"]["outputs"]), ("failed", ["begun\n", "2\n"]))
        self.assertIn("killed after", record["problem"])
        (failed,) = record["data"]["failed_commands"]
        self.assertIn("echo begun; sleep 60", failed["command"])


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


LOG = """[ RUN      ] DeviceOne.Good
[       OK ] DeviceOne.Good (1 ms)
[ RUN      ] DeviceOne.Bad
text of it [  FAILED  ] DeviceOne.Bad, where GetParam() = 3 (1 ms)
[  SKIPPED ] DeviceOne.Away (0 ms)
[ RUN      ] DeviceOne.Crashes
"""


class Suites(InFolder):
    def make_tests(self, name, script):
        """A test program with two suites: `script` runs one, whose filter is $filter."""
        make_program(self.folder / "build" / name, f"""filter=${{@: -1}}; filter=${{filter#--gtest_filter=}}
            case $1 in --gtest_list_tests) printf 'Running main()\\nDeviceOne.\\n  Good\\n  Bad\\n  Away\\n  Crashes\\n'
            printf '  Never # GetParam() = 1\\nA/DeviceTwo.\\n  Works/0  # 1\\n'; exit;; esac
            {script}""")

    def test_each_suite_is_a_process_and_one_that_hangs_ends_no_other(self):
        for name in places.GPU_TESTS:
            make_program(self.folder / "build" / name, "true")
        self.make_tests(places.DEVICE_TESTS, f"""
            case $filter in DeviceOne.*) printf '{LOG}'; sleep 60;; esac
            [ "$DRAFTSMITH_TEST_DEVICE $DRAFTSMITH_STRICT_DEVICE" = "cuda 1" ] || exit 1
            echo "[       OK ] A/DeviceTwo.Works/0 (1 ms)" """)
        with mock.patch.object(steps, "SUITE_S", 0.5):
            record = self.run_step(steps.suites, limit=20)
        one, two = record["data"]["suites"]
        self.assertEqual((one["tests"], two["tests"], two["failed"]), (3, 1, 0))
        self.assertIn("killed after", one["failures"][1])
        self.assertEqual(record["status"], "failed")


class Strictness(InFolder):
    def test_slower_ways_are_errors_but_for_those_that_are_asked_for(self):
        greedy = {"measure": "greedy", "shape": "t5-large", "own_kernels": True, "recorded": True}
        self.make_bench(places.DECODING_BENCH, [greedy])
        self.make_bench(places.KERNELS_BENCH, [])
        record = self.run_step(steps.speeds, at_once=1)
        self.assertEqual(record["status"], "ok", record)
        calls = self.calls(places.DECODING_BENCH)
        self.assertEqual([call[call.index("strict="):] for call in calls],
                         ["strict=1 kernels= graphs= launch=", "strict= kernels=off graphs= launch=",
                          "strict=1 kernels= graphs= launch=off"])
        self.assertEqual([results.way_of(record) for record in record["data"]["records"]],
                         ["default", "kernels off", "in turn"])
        self.run_step(steps.decoding, at_once=1)
        eager = [call for call in self.calls(places.DECODING_BENCH)[3:] if "strict= " in call]
        self.assertEqual(len(eager), 1)
        self.assertIn("graphs=off", eager[0])

    def test_numbers_of_a_slower_way_than_asked_for_are_a_failed_check(self):
        slow = {"measure": "greedy", "shape": "t5-large", "own_kernels": False, "recorded": False}
        for marks, problem in (({}, "without own kernels, without recorded steps"), ({"kernels": "off"}, None),
                               ({"steps": "eager", "own_kernels": True}, None), ({"measure": "copy"}, None)):
            record = self.run_step(lambda context: running.check_records(context, [{**slow, **marks}]))
            self.assertEqual(record["status"], "failed" if problem else "ok", marks)
            self.assertIn(problem or "", record.get("problem", ""))

    def test_failed_checks_and_settings_fail_a_step_and_keep_its_records(self):
        check = {"measure": "check", "check": "same ids", "shape": "t5-large", "dtype": "fp32", "value": 3, "bound": 0}
        self.make_bench(places.CHECKS_BENCH, [check | {"passed": False}], "exit 1")
        record = self.run_step(steps.shapes)
        self.assertIn("same ids of t5-large in fp32: 3, bound 0", record["problem"])
        self.assertEqual(len(record["data"]["records"]), 1)
        self.make_bench(places.CHECKS_BENCH, [])
        self.assertIn("no check ran", self.run_step(steps.smoke)["problem"])
        self.make_bench(places.TRAINING_BENCH, [{"measure": "problem", "shape": "t5-small", "problem": "no memory"}])
        self.assertIn("t5-small: no memory", self.run_step(steps.training)["problem"])


class Facts(InFolder):
    def test_libraries_that_a_program_lacks_are_named(self):
        program = self.folder / "build" / places.DEVICE_TESTS
        program.parent.mkdir(parents=True)
        program.write_bytes(pathlib.Path("/bin/true").read_bytes())
        record = self.run_step(steps.facts, limit=20)
        self.assertEqual((record["status"], record["data"]["missing_libraries"]), ("ok", {}), record)
        self.assertIn("python", record["data"])
        log = self.folder / "log"
        log.write_text("libc.so.6 => /lib/libc.so.6\nlibtorch_cuda.so => not found\n")
        self.assertEqual(steps.libraries_missing(running.Finished(0, "", 0, log)), ["libtorch_cuda.so"])


class Command(InFolder):
    def run_tool(self, *words):
        return subprocess.run([sys.executable, TOOL, *map(str, words)], capture_output=True, text=True)

    def test_a_failed_smoke_ends_the_run_and_a_failed_check_marks_it(self):
        self.context.place = places.Place(self.folder, (), None, "abc")
        made = {name: running.Step(name, name, 5, lambda context: [][1], gate) for name, gate in
                (("shapes", "mark"), ("smoke", "stop"), ("speeds", "-"))}
        for order, statuses in ((("shapes", "speeds"), ["failed", "failed"]),
                                (("speeds", "smoke", "shapes"), ["failed", "failed", "not run"])):
            with mock.patch.object(steps, "PLANS", {"first": tuple(made[name] for name in order)}):
                with contextlib.redirect_stdout(io.StringIO()):
                    status = tool.run(argparse.Namespace(plan="first", steps=None, dry=False, total=None, pack=None,
                                                         out=self.folder / order[0], build=self.folder))
            written = results.read(self.folder / order[0] / "results.json")
            self.assertEqual((status, [step["status"] for step in written["steps"]]), (1, statuses))
            self.assertTrue(written["checks_failed"])
        self.assertEqual(written["steps"][2]["problem"], "not run: smoke failed")

    def test_a_run_that_is_ended_leaves_its_results_and_no_program(self):
        child = self.folder / "child"
        make_program(self.folder / places.CHECKS_BENCH,
                     f"echo $$ >{child}.partial; mv {child}.partial {child}; exec sleep 60")
        words = [sys.executable, TOOL, "run", "--dry", "--build", self.folder, "--out", self.folder / "out"]
        tool = subprocess.Popen([*map(str, words), "--steps", "smoke"], stdout=subprocess.DEVNULL)
        wait_until(child.exists)
        tool.terminate()
        self.assertEqual(tool.wait(30), 143)
        wait_until(lambda: not alive(int(child.read_text())))
        written = results.read(self.folder / "out/results.json")
        self.assertFalse(written["finished"])
        self.assertEqual(results.not_run(written), ["smoke"])
        with tarfile.open(self.folder / "out" / results.LOGS) as tar:
            self.assertTrue(any("bench_device_checks" in name for name in tar.getnames()), tar.getnames())

    def test_a_run_on_a_gpu_needs_a_plan_and_an_empty_folder(self):
        self.assertIn("first or rest", self.run_tool("run", "--out", self.folder).stderr)
        unknown = self.run_tool("run", "--dry", "--steps", "speed", "--out", self.folder)
        self.assertEqual(unknown.returncode, 2)
        self.assertIn("expected: facts, smoke, suites", unknown.stderr)
        for dry, refused in ((True, False), (False, True)):
            results.write(self.folder / "results.json", {"format": results.FORMAT, "steps": [], "dry": dry})
            ran = self.run_tool("run", "--dry", "--build", self.folder, "--out", self.folder, "--steps", "training")
            self.assertEqual("earlier run" in ran.stderr, refused)


def made_up_results():
    greedy = {"measure": "greedy", "shape": "t5-large", "dtype": "bf16", "batch": 1, "ms_per_step": 6.71234,
              "tokens_per_second": 1149.2, "weight_mb": 805.3, "roofline_share": 0.0383}
    curve = {"measure": "verification", "shape": "t5-large", "dtype": "bf16", "batch": 1, "ms_of_one": 6.7,
             "tokens": [1, 2, 8], "relative": [1, 1.01, 1.06]}
    step = {"name": "decoding", "title": "Decoding", "status": "out of time", "limit_s": 180.0, "seconds": 180.1,
            "problem": "a bench was killed after 180 s", "data": {"records": [greedy, curve]}}
    machine = {"gpu": {"name": "NVIDIA H200", "driver_version": "580.1"}, "cpu": "x",
               "python": {"torch": "2.11.0", "transformers": "5.17.0"}}
    return {"format": results.FORMAT, "command": "tools/gpu run", "commit": "abc1234", "date": "2026-11-23T05:00:00Z",
            "dry": False, "machine": machine, "plan": ["decoding"], "finished": True, "steps": [step]}




class Page(unittest.TestCase):
    def test_it_has_command_commit_machine_and_date_beside_the_numbers(self):
        text = results.page([made_up_results()])
        head = text.split("\n\n")[2]
        for part in ("`tools/gpu run`", "commit abc1234", "NVIDIA H200, driver 580.1", "torch 2.11.0", "2026-11-23"):
            self.assertIn(part, head)
        self.assertIn("| t5-large | bf16 | 1 | default | 6.712 | 1,149 | – | 805 | 3.8 |", text)
        for measure in results.MEASURES:
            (made,) = results.tables_of_step({"name": "x", "data": {"records": [{"measure": measure}]}})
            self.assertEqual(len(made.rows[0]), len(made.head))
        self.assertIn("* Decoding, out of time after 180 s: a bench was killed", text)
        self.assertLessEqual(max(map(len, text.splitlines())), 120)

    def test_failed_checks_come_first(self):
        failed = made_up_results()
        failed["steps"][0] |= {"gate": "mark", "status": "failed", "title": "Checks at real shapes"}
        text = results.page([failed, made_up_results()])
        self.assertTrue(text.split("\n\n")[1].startswith("**Checks failed (Checks at real shapes)"), text)
        self.assertEqual(text.count("commit abc1234"), 2)
        self.assertNotIn("Checks failed", results.page([made_up_results()]))
        with self.assertRaisesRegex(places.Problem, "dry run"):
            results.page([made_up_results() | {"dry": True}])



class Pack(InFolder):
    def test_kernels_travel_and_are_the_cache_of_what_is_unpacked(self):
        (self.folder / "build").mkdir()
        (self.folder / "build/small").write_bytes(pathlib.Path("/bin/true").read_bytes())
        make_program(self.folder / "build" / places.KERNELS_BENCH, 'mkdir -p "$2"; echo $4 >"$2/a.kernels"')
        places.compile_kernels(self.folder / "build", self.folder / "out/kernels")
        archive, _ = places.pack(self.folder / "build", self.folder / "out", ["small"], preset=0)
        with mock.patch.object(places, "torch_libraries", return_value=()):
            place = places.unpacked_place(archive, self.folder / "there", sys.executable)
        self.assertEqual((self.folder / "there/kernels/a.kernels").read_text(), "sm_90\n")
        self.assertEqual(place.environment()["DRAFTSMITH_KERNEL_CACHE"], str(self.folder / "there/kernels"))


class Plan(unittest.TestCase):
    def test_the_limits_of_a_plan_fit_its_call(self):
        for name, most in steps.MOST_S.items():
            self.assertLessEqual(steps.sum_of(name), most)


if __name__ == "__main__":
    unittest.main()
