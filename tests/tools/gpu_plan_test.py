"""Tests of tools/gpu: plans and their sums, files of results, tables, the page and its verdicts, what is packed."""

import contextlib
import io
import json
import os
import pathlib
import subprocess
import sys
import tarfile
import unittest
from unittest import mock

from gpu_test import ROOT, InFolder, make_program

from gpu_parts import packing, page, places, plan, random_models, results, speeds, tables, verdicts


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
        self.assertIn("training: not run", page.page([interrupted]))

    def test_logs_are_archived_and_moved_aside_with_their_results(self):
        logs = self.folder / "logs"
        logs.mkdir()
        (logs / "a.log").write_text("begin" + "x" * results.LOG_BYTES)
        results.write_logs(self.folder / results.LOGS, logs)
        with tarfile.open(self.folder / results.LOGS) as tar:
            self.assertEqual(tar.extractfile("logs/a.log").read(), b"x" * results.LOG_BYTES)
        results.write(self.folder / "results.json", {"format": results.FORMAT, "steps": []})
        results.move_aside(self.folder / "results.json")
        self.assertTrue((self.folder / "logs.1.tar.gz").exists() and not (self.folder / results.LOGS).exists())

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
        self.assertEqual(greedy.rows[0][3:], ("default", "6.712", "1,149", "–", "805", "3.8", "–"))
        self.assertEqual(curve.rows[0][-5:], ("1.01", "–", "–", "1.06", "–"))

    def test_no_line_on_the_terminal_is_wider_than_100_columns(self):
        made = tables.Table("Wide", "", ("a", "b"), (("x" * 90, "1"), ("y" * 120, "22")))
        lines = tables.console(made).splitlines()
        self.assertLessEqual(max(map(len, lines)), tables.WIDTH)
        self.assertTrue(lines[2].endswith("x         1") and lines[3].endswith("y…  22"), lines)

    def test_a_measure_without_a_form_shows_all_that_it_has(self):
        record = {"measure": "linear_rows", "device": "x", "rows": 5, "us": 3.14159}
        (made,) = tables.tables_of_step({"name": "kernels", "data": {"records": [record]}})
        self.assertEqual((made.head, made.rows), (("rows", "us"), (("5", "3.142"),)))

    def test_each_measure_has_a_table(self):
        for measure in tables.MEASURES:
            (made,) = tables.tables_of_step({"name": "x", "data": {"records": [{"measure": measure}]}})
            self.assertEqual(len(made.rows[0]), len(made.head))


class Page(unittest.TestCase):
    def test_it_has_command_commit_machine_and_date_beside_the_numbers(self):
        text = page.page([made_up_results()])
        head = text.split("\n\n")[2]
        for part in ("`tools/gpu run`", "commit abc1234", "NVIDIA H200, driver 580.1", "torch 2.11.0", "2026-11-23"):
            self.assertIn(part, head)
        self.assertIn("| t5-large | bf16 | 1 | default | 6.712 |", text)
        self.assertIn("* Decoding, out of time after 180 s: a bench was killed", text)
        self.assertLessEqual(max(map(len, text.splitlines())), 120)

    def test_a_dry_run_has_none(self):
        with self.assertRaisesRegex(places.Problem, "dry run"):
            page.page([made_up_results() | {"dry": True}])

    def test_failed_checks_come_first(self):
        failed = made_up_results()
        failed["steps"][0] |= {"gate": "mark", "status": "failed", "title": "Checks at real shapes"}
        text = page.page([failed, made_up_results()])
        self.assertTrue(text.split("\n\n")[1].startswith("**Checks failed (Checks at real shapes)"), text)
        self.assertEqual(text.count("commit abc1234"), 2)
        self.assertNotIn("Checks failed", page.page([made_up_results()]))

    def test_numbers_decide_by_rules(self):
        def greedy(shape, speed, **marks):
            return marks | {"measure": "greedy", "shape": shape, "dtype": "bf16", "batch": 1,
                            "tokens_per_second": speed}
        records = [greedy(shape, 1000, run="default") for shape in ("llama-1b", "t5-large")]
        records += [greedy("llama-1b", 900, kernels="off"), greedy("t5-large", 600, kernels="off"),
                    greedy("t5-large", 1300, launch="programmatic"), greedy("t5-large", 1100, run="again"),
                    {"measure": "verification", "shape": "t5-large", "dtype": "bf16", "batch": 1, "run": "default",
                     "tokens": [1, 16], "relative": [1, 1.4]},
                    {"measure": "nodes", "us_rotate": 3.0},
                    {"measure": "nodes", "us_rotate": 2.0, "launch": "programmatic"}]
        lines = verdicts.lines_of(records)
        for line, words in zip(lines, (("0.60 x", "keep `linear_rows`"), ("1.40", ": build a kernel"),
                                       ("0.67 x", "switch it on", "1.30 x"), ("1.100 x", "mean nothing"))):
            self.assertTrue(all(word in line for word in words), line)
        records[3]["tokens_per_second"] = 700
        self.assertIn("drop `linear_rows`", verdicts.lines_of(records)[0])
        records[-1]["us_rotate"] = 2.5
        self.assertIn("leave it off", verdicts.lines_of(records)[2])
        self.assertEqual(verdicts.lines_of([])[1], "* Verification: not measured.")


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

    def test_kernels_travel_and_are_the_cache_of_what_is_unpacked(self):
        (self.folder / "build").mkdir()
        (self.folder / "build/small").write_bytes(pathlib.Path("/bin/true").read_bytes())
        make_program(self.folder / "build" / places.KERNELS_BENCH, 'mkdir -p "$2"; echo $4 >"$2/a.kernels"')
        packing.compile_kernels(self.folder / "build", self.folder / "out/kernels")
        archive, _ = packing.pack(self.folder / "build", self.folder / "out", ["small"], preset=0)
        with mock.patch.object(places, "torch_libraries", return_value=()):
            place = places.unpacked_place(archive, self.folder / "there", sys.executable)
        self.assertEqual((self.folder / "there/kernels/a.kernels").read_text(), "sm_90\n")
        self.assertEqual(place.environment()["DRAFTSMITH_KERNEL_CACHE"], str(self.folder / "there/kernels"))

    def test_a_lack_of_nvrtc_is_said(self):
        make_program(self.folder / places.KERNELS_BENCH, "echo NVRTC cannot be loaded >&2; exit 1")
        with self.assertRaisesRegex(places.Problem, "(?s)NVRTC cannot be loaded.*nvidia-cuda-nvrtc"):
            packing.compile_kernels(self.folder, self.folder / "kernels")

    def test_an_archive_that_is_too_large_is_removed(self):
        (self.folder / "build").mkdir()
        (self.folder / "build/small").write_bytes(pathlib.Path("/bin/true").read_bytes())
        with self.assertRaisesRegex(places.Problem, "(?s)too large.*small"):
            packing.pack(self.folder / "build", self.folder / "out", ["small"], preset=0, limit_mb=0.0001)
        self.assertEqual(list((self.folder / "out").iterdir()), [])


class Models(InFolder):
    def test_the_weights_fill_the_file(self):
        random_models.write_model(self.folder / "t5", "t5", random_models.TINY)
        data = (self.folder / "t5/model.safetensors").read_bytes()
        length = int.from_bytes(data[:8], "little")
        header = json.loads(data[8:8 + length])
        self.assertEqual(max(entry["data_offsets"][1] for name, entry in header.items() if name[0] != "_"),
                         len(data) - 8 - length)


class Plan(unittest.TestCase):
    def test_the_limits_of_a_plan_fit_its_call(self):
        self.assertLessEqual(plan.sum_of("first"), 250)
        self.assertLessEqual(plan.sum_of("rest"), 380)

    def test_the_tables_show_all_steps_uncut_and_their_sums(self):
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            self.assertEqual(plan.show(), 0)
            with mock.patch.dict(plan.MOST_S, {"rest": 100}):
                self.assertEqual(plan.show(), 1)
        text = printed.getvalue()
        self.assertTrue(max(map(len, text.splitlines())) <= 100 and "…" not in text, text)
        for step in plan.FIRST + plan.REST:
            self.assertRegex(text, rf"(?m)^{step.name} +{step.limit_s:.0f} +{step.at_once} ")

    def test_steps_are_in_the_order_of_their_plan(self):
        self.assertEqual([step.name for step in plan.chosen("rest", "training,decoding", False)],
                         ["decoding", "training"])
        self.assertEqual(len(plan.chosen(None, None, True)), len(plan.FIRST + plan.REST))

    def test_the_peak_is_found_by_the_gpu_s_name(self):
        self.assertEqual(speeds.peak_tflops("NVIDIA H200"), 989)
        self.assertEqual(speeds.peak_tflops("another"), 0)


if __name__ == "__main__":
    unittest.main()
