"""Tests of tools/gpu with made-up programs: time limits, failures, results of interrupted runs, tables, page, pack."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from gpu_parts import checks, packing, page, places, plan, random_models, results, running, speeds, tables  # noqa: E402

TOOL = str(ROOT / "tools/gpu")


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
        self.context = running.Context(place, self.folder, "cpu", True)

    def run_step(self, work, limit=5.0, left=60.0):
        return running.run_step(running.Step("one", "One", limit, work), self.context, left)


class Steps(InFolder):
    def shell(self, script):
        return lambda context: running.run_ours(context, ["/bin/bash", "-c", script])

    def test_one_that_hangs_is_killed_with_its_children(self):
        children = self.folder / "child"
        begun = time.monotonic()
        record = self.run_step(self.shell(f"sleep 60 & echo $! >{children}; wait"), limit=0.5)
        self.assertLess(time.monotonic() - begun, 10)
        self.assertEqual(record["status"], "out of time")
        self.assertIn("killed", record["problem"])
        wait_until(lambda: not alive(int(children.read_text())))

    def test_one_that_fails_is_recorded_with_its_last_words(self):
        record = self.run_step(self.shell("echo no memory; exit 3"))
        self.assertEqual(record["status"], "failed")
        self.assertIn("3: no memory", record["problem"])

    def test_one_that_raises_is_recorded(self):
        record = self.run_step(lambda context: [][1])
        self.assertEqual(record["status"], "failed")
        self.assertIn("index", record["problem"])

    def test_numbers_before_a_kill_are_kept(self):
        def work(context):
            context.data["records"] = [{"measure": "copy"}]
            self.shell("sleep 60")(context)
        record = self.run_step(work, limit=0.3)
        self.assertEqual((record["status"], record["data"]), ("out of time", {"records": [{"measure": "copy"}]}))

    def test_a_bench_that_fails_keeps_its_records_and_lets_the_next_run(self):
        bench = self.folder / "bench"
        make_program(bench, """for last; do :; done
            echo '{"records": [{"measure": "'$1'"}]}' >"$last"; exit $2""")
        benches = [running.Bench([str(bench), "a", "1"]), running.Bench([str(bench), "b", "0"], {}, {"steps": "eager"})]
        record = self.run_step(lambda context: running.run_benches(context, benches))
        self.assertEqual(record["status"], "failed")
        self.assertEqual([(found["measure"], found.get("steps")) for found in record["data"]["records"]],
                         [("a", None), ("b", "eager")])

    def test_a_missing_program_is_named(self):
        record = self.run_step(checks.smoke)
        self.assertEqual(record["status"], "failed")
        self.assertIn("draftsmith", record["problem"])
        self.assertIn("tools/build release", record["problem"])

    def test_the_run_s_end_comes_before_the_step_s(self):
        self.assertEqual(self.run_step(self.shell("sleep 60"), limit=30, left=0.3)["status"], "out of time")
        self.assertEqual(self.run_step(self.shell("true"), left=-1)["status"], "skipped")

    def test_commands_at_once_keep_their_order(self):
        commands = [(["/bin/bash", "-c", f"sleep {wait}; echo {wait}"], {}) for wait in (0.3, 0)]
        finished = running.run_all(commands, time.monotonic() + 20, self.folder, at_once=2)
        self.assertEqual([result.output.strip() for result in finished], ["0.3", "0"])

    def test_without_transformers_parity_is_skipped(self):
        record = self.run_step(checks.parity)
        self.assertEqual(record["status"], "skipped")
        self.assertIn("tools/setup --with-peers", record["problem"])


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


class Suites(InFolder):
    def test_failures_and_crashes_of_test_programs_are_counted(self):
        report = {"testsuites": [{"name": "Suite", "testsuite": [
            {"name": "Good", "status": "RUN", "result": "COMPLETED"},
            {"name": "Bad", "status": "RUN", "result": "COMPLETED", "failures": [{}]},
            {"name": "Away", "status": "RUN", "result": "SKIPPED"}, {"name": "Other", "status": "NOTRUN"}]}]}
        file = self.folder / "report.json"
        file.write_text(json.dumps(report))
        finished = [running.Finished(1, "", 2.0, None), running.Finished(-11, "Segmentation fault", 1.0, None)]
        row = checks.suite_row("tests/test_device", finished, [file, self.folder / "none.json"])
        self.assertEqual((row["tests"], row["failed"], row["skipped"]), (3, 2, 1))
        self.assertEqual(row["failures"][0], "Suite.Bad")
        self.assertIn("-11", row["failures"][1])

    def test_a_device_program_that_runs_no_test_is_a_problem(self):
        make_program(self.folder / "build" / places.DEVICE_TESTS, f'echo "{{}}" >"${{GTEST_OUTPUT#json:}}"')
        record = self.run_step(checks.suites)
        self.assertIn("no test of the device ran", record["problem"])
        self.assertEqual(record["data"]["suites"][0]["program"], "test_device")

    def test_a_missing_device_program_is_a_problem(self):
        self.context.dry, self.context.device = False, "cuda"
        self.assertIn("test_device", self.run_step(checks.suites)["problem"])


class Lossless(unittest.TestCase):
    def test_lines_are_compared_with_greedy_decoding_of_the_same_batch_and_of_one(self):
        outputs = {("bf16", 1, "greedy"): [[1], [2]], ("bf16", 16, "greedy"): [[1], [3]],
                   ("bf16", 16, "speculative"): [[1], [3]]}
        rows = checks.lossless_rows(outputs)
        self.assertEqual([(row["method"], row["equal_to_greedy"], row["equal_to_greedy_of_one"]) for row in rows],
                         [("greedy", 2, 1), ("speculative", 2, 1)])


class Results(InFolder):
    def test_an_earlier_run_is_moved_aside_and_never_continued(self):
        file = self.folder / "results.json"
        for number in range(3):
            results.move_aside(file)
            results.write(file, {"format": results.FORMAT, "steps": [], "number": number})
        numbers = [json.loads((self.folder / name).read_text())["number"]
                   for name in ("results.1.json", "results.2.json", "results.json")]
        self.assertEqual(numbers, [0, 1, 2])

    def test_only_the_results_of_dry_runs_are_overwritten(self):
        file = self.folder / "results.json"
        for content, aside in ((json.dumps({"format": results.FORMAT, "steps": [], "dry": True}), None), ("{", "1")):
            file.write_text(content)
            moved = results.move_aside(file)
            self.assertEqual(moved, aside and self.folder / f"results.{aside}.json")

    def test_an_interrupted_run_names_the_steps_that_it_lacks(self):
        interrupted = made_up_results() | {"plan": ["decoding", "training", "peers"], "finished": False}
        self.assertEqual(results.not_run(interrupted), ["training", "peers"])
        self.assertIn("training: not run", page.page(interrupted))

    def test_files_of_another_form_are_errors(self):
        file = self.folder / "results.json"
        for text, expected in (("{", "no JSON"), ("[]", "another form"), ('{"format": 99}', "format 99")):
            file.write_text(text)
            with self.assertRaisesRegex(places.Problem, expected):
                results.read(file)
        with self.assertRaisesRegex(places.Problem, "cannot be read"):
            results.read(self.folder / "none.json")


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


class Tables(unittest.TestCase):
    def test_numbers_are_rounded_and_missing_ones_shown(self):
        greedy, curve = tables.tables_of_step(made_up_results()["steps"][0])
        self.assertEqual(greedy.rows, (("t5-large", "bf16", "1", "default", "6.712", "1,149", "–", "805", "3.8"),))
        self.assertEqual(curve.rows[0][-5:], ("1.01", "–", "–", "1.06", "–"))

    def test_no_line_on_the_terminal_is_wider_than_100_columns(self):
        made = tables.Table("Wide", "", ("a", "b"), (("x" * 90, "1"), ("y" * 120, "22")))
        lines = tables.console(made).splitlines()
        self.assertLessEqual(max(map(len, lines)), tables.WIDTH)
        self.assertTrue(lines[2].endswith("x         1") and lines[3].endswith("y…  22"), lines)

    def test_each_measure_has_a_table(self):
        for measure in tables.MEASURES:
            (made,) = tables.tables_of_step({"name": "x", "data": {"records": [{"measure": measure}]}})
            self.assertEqual(len(made.rows[0]), len(made.head))


class Page(unittest.TestCase):
    def test_it_has_command_commit_machine_and_date_beside_the_numbers(self):
        text = page.page(made_up_results())
        head = text.split("\n\n")[1]
        for part in ("`tools/gpu run`", "commit abc1234", "NVIDIA H200, driver 580.1", "torch 2.11.0", "2026-11-23"):
            self.assertIn(part, head)
        self.assertIn("| t5-large | bf16 | 1 | default | 6.712 |", text)
        self.assertIn("* Decoding, out of time after 180 s: a bench was killed", text)
        self.assertLessEqual(max(map(len, text.splitlines())), 120)

    def test_a_dry_run_has_none(self):
        with self.assertRaisesRegex(places.Problem, "dry run"):
            page.page(made_up_results() | {"dry": True})


class Pack(InFolder):
    def test_a_program_that_is_not_built_is_named(self):
        with self.assertRaisesRegex(places.Problem, "(?s)not built.*bench_device_decoding"):
            packing.pack(self.folder / "build", self.folder / "out")

    def test_libraries_of_the_c_library_and_of_torch_stay(self):
        for name, path in (("libc.so.6", "/lib/libc.so.6"), ("libstdc++.so.6", "/usr/lib/libstdc++.so.6"),
                           ("libtorch_cpu.so", "/x/torch/lib/libtorch_cpu.so"),
                           ("libcudart.so.13", "/x/nvidia/cu13/lib/libcudart.so.13")):
            self.assertFalse(packing.travels(name, path), name)
        for name in ("libhdf5_serial.so.103", "libcurl-gnutls.so.4", "libcrypto.so.3", "libmd.so.0"):
            self.assertTrue(packing.travels(name, f"/usr/lib/{name}"), name)

    def test_what_is_packed_runs_from_where_it_is_unpacked(self):
        (self.folder / "build/tests").mkdir(parents=True)
        (self.folder / "build/tests/small").write_bytes(pathlib.Path("/bin/true").read_bytes())
        os.chmod(self.folder / "build/tests/small", 0o755)
        archive, _ = packing.pack(self.folder / "build", self.folder / "out", ["tests/small"], preset=0)
        subprocess.run(["tar", "-xf", archive, "-C", self.folder], check=True)
        subprocess.run([self.folder / "tests/small"], check=True)
        facts = json.loads((self.folder / places.FACTS).read_text())
        self.assertEqual(facts["source"], str(ROOT))

    def test_an_archive_that_is_too_large_is_removed(self):
        (self.folder / "build").mkdir()
        (self.folder / "build/small").write_bytes(pathlib.Path("/bin/true").read_bytes())
        with self.assertRaisesRegex(places.Problem, "(?s)too large.*small"):
            packing.pack(self.folder / "build", self.folder / "out", ["small"], preset=0, limit_mb=0.0001)
        self.assertEqual(list((self.folder / "out").iterdir()), [])


class Command(InFolder):
    def run_tool(self, *words):
        return subprocess.run([sys.executable, TOOL, *map(str, words)], capture_output=True, text=True)

    def test_a_step_without_its_program_fails_and_the_rest_goes_on(self):
        ran = self.run_tool("run", "--dry", "--build", self.folder, "--out", self.folder,
                            "--steps", "training,requests")
        self.assertEqual(ran.returncode, 1, ran.stderr)
        written = results.read(self.folder / "results.json")
        self.assertEqual([step["status"] for step in written["steps"]], ["failed", "failed"])
        self.assertTrue(written["finished"] and written["dry"])

    def test_a_run_that_is_ended_leaves_its_results_and_no_program(self):
        child = self.folder / "child"
        make_program(self.folder / "draftsmith", f"echo $$ >{child}.partial; mv {child}.partial {child}; exec sleep 60")
        words = [sys.executable, TOOL, "run", "--dry", "--build", self.folder, "--out", self.folder / "out"]
        tool = subprocess.Popen([*map(str, words), "--steps", "smoke"], stdout=subprocess.DEVNULL)
        wait_until(child.exists)
        tool.terminate()
        self.assertEqual(tool.wait(30), 143)
        wait_until(lambda: not alive(int(child.read_text())))
        written = results.read(self.folder / "out/results.json")
        self.assertFalse(written["finished"])
        self.assertEqual(results.not_run(written), ["smoke"])

    def test_unknown_steps_are_errors(self):
        ran = self.run_tool("run", "--dry", "--steps", "speed", "--out", self.folder)
        self.assertEqual(ran.returncode, 2)
        self.assertIn("expected: pack, smoke, suites", ran.stderr)


class Models(InFolder):
    def test_the_weights_fill_the_file(self):
        random_models.write_model(self.folder / "t5", "t5", random_models.TINY)
        data = (self.folder / "t5/model.safetensors").read_bytes()
        length = int.from_bytes(data[:8], "little")
        header = json.loads(data[8:8 + length])
        self.assertEqual(max(entry["data_offsets"][1] for name, entry in header.items() if name[0] != "_"),
                         len(data) - 8 - length)


class Plan(unittest.TestCase):
    def test_each_step_has_less_than_the_whole_time(self):
        self.assertTrue(all(step.limit_s < plan.TOTAL_S < 600 for step in plan.STEPS))

    def test_the_peak_is_found_by_the_gpu_s_name(self):
        self.assertEqual(speeds.peak_tflops("NVIDIA H200"), 989)
        self.assertEqual(speeds.peak_tflops("another"), 0)


if __name__ == "__main__":
    unittest.main()
