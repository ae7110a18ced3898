"""Tests of the scripts tools/setup, tools/build and quickstart in copies, with made-up programs around them."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Script(unittest.TestCase):
    """A script in an empty folder `root`. Programs of bin/ note their arguments in the file `calls`."""

    script = ""

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.root = pathlib.Path(temporary.name)
        self.calls = self.root / "calls"
        (self.root / "tools").mkdir()
        shutil.copy(ROOT / self.script, self.root / self.script)

    def add_program(self, name, text):
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_text("#!/bin/bash\n" + text)
        (self.root / name).chmod(0o755)

    def run_script(self, *arguments, **environment):
        """The finished script, and the lines of what it called."""
        self.calls.write_text("")
        base = {"PATH": f"{self.root}/bin:{os.environ['PATH']}", "CALLS": str(self.calls)}
        result = subprocess.run([self.root / self.script, *arguments], env={**base, **environment},
                                stdin=subprocess.DEVNULL, capture_output=True, text=True)
        return result, self.calls.read_text().splitlines()

    def succeed(self, *arguments, **environment):
        result, calls = self.run_script(*arguments, **environment)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        return result, calls

    def assert_in_order(self, parts, text):
        places = [text.find(part) for part in parts]
        self.assertNotIn(-1, places, text)
        self.assertEqual(places, sorted(places), text)


# Makes environments whose pip writes what it was asked for; PIP=fail stands for no network, PIP=warn for a failure that
# logs warnings only.
PYTHON = """case "$1 $2" in
  "-c "*) exit 0 ;;
  "-m venv")
    mkdir -p "$3/bin" "$3/lib/python3.11/site-packages"
    cp "$0" "$3/bin/python"
    cp "$(dirname "$0")/pip" "$3/bin/pip" ;;
  "- "*) exit 1 ;;
esac
"""
PIP = """echo "pip $*, temporary files in $TMPDIR" >>"$CALLS"
if [ "$PIP" = warn ]; then echo "WARNING: retrying" >&2; exit 1; fi
if [ "$PIP" = fail ]; then echo "ERROR: no connection" >&2; exit 1; fi
"""
APT_GET = """echo "apt-get $*" >>"$CALLS"
if [ "$APT" = fail ]; then echo "E: Unable to fetch some archives" >&2; exit 100; fi
seen=no
for word in "$@"; do
  [ "$seen" = no ] || case $word in -*) ;; *) echo "$word installed" >>"$INSTALLED" ;; esac
  [ "$word" != install ] || seen=yes
done
"""


def packages(name):
    lines = (ROOT / "tools" / name).read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


class Setup(Script):
    script = "tools/setup"

    def setUp(self):
        super().setUp()
        for name in ("packages.txt", "packages-test.txt", "requirements.txt", "requirements-peers.txt"):
            shutil.copy(ROOT / "tools" / name, self.root / "tools" / name)
        self.installed = self.root / "installed"
        self.set_installed(packages("packages.txt") + packages("packages-test.txt"))
        for name, text in (("python3", PYTHON), ("pip", PIP), ("dpkg-query", 'cat "$INSTALLED"\n'),
                           ("apt-get", APT_GET), ("id", "echo 0\n"),
                           ("df", "echo header; echo disk 0 0 $((${FREE_GB:-50} << 20)) 0% /\n")):
            self.add_program(f"bin/{name}", text)

    def set_installed(self, names):
        self.installed.write_text("".join(f"{name}:amd64 installed\n" for name in names))

    def run_script(self, *arguments, **environment):
        base = {"PATH": f"{self.root}/bin:/usr/bin:/bin", "INSTALLED": str(self.installed)}
        return super().run_script(*arguments, **{**base, **environment})

    def assert_refused(self, result, *parts):
        self.assertEqual(result.returncode, 2, result.stdout + result.stderr)
        self.assertEqual(result.stderr.count("error:"), 1, result.stderr)
        for part in parts:
            self.assertIn(part, result.stderr)
        self.assertFalse((self.root / ".venv").exists() or (self.root / ".venv-peers").exists())

    def test_installs_once_and_what_changed_again(self):
        self.set_installed([])
        _, calls = self.succeed()
        for name in packages("packages.txt"):
            self.assertIn(name, " ".join(calls))
        self.assertIn("-r tools/requirements.txt", " ".join(calls))
        self.assertNotIn("requirements-peers", " ".join(calls))
        second, calls = self.succeed()
        self.assertEqual((second.stdout, second.stderr, calls), ("", "", []))
        with open(self.root / "tools/requirements.txt", "a") as file:
            file.write("another==1.0\n")
        self.assertIn("-r tools/requirements.txt", " ".join(self.succeed()[1]))

    def test_installs_only_what_is_missing_under_any_name(self):
        missing = ("libfmt-dev", "libtcmalloc-minimal4")
        self.set_installed([name for name in packages("packages.txt") if name not in missing])
        with open(self.installed, "a") as file:
            file.write("libtcmalloc-minimal4t64:amd64 installed other, libtcmalloc-minimal4 (= 2.16-1)\n")
            file.write("formats:amd64 config-files libfmt-dev (= 9)\n")
        _, calls = self.succeed()
        self.assertTrue(any(call.endswith("--no-install-recommends libfmt-dev") for call in calls), calls)

    def test_peers_share_the_torch_of_the_first_environment(self):
        _, calls = self.succeed("--with-peers")
        self.assertIn("requirements-peers.txt", " ".join(calls))
        site = self.root / ".venv-peers/lib/python3.11/site-packages"
        target = (site / "torch_of_venv.pth").read_text().strip()
        self.assertEqual((site / target).resolve(), (self.root / ".venv/lib/python3.11/site-packages").resolve())
        self.assertEqual(self.succeed("--with-peers")[1], [])

    def test_without_rights_names_everything_missing_and_the_command(self):
        self.set_installed([])
        self.add_program("bin/id", "echo 1000\n")
        self.add_program("bin/sudo", "exit 1\n")
        result, calls = self.run_script("--with-peers")
        self.assertEqual(calls, [])
        names = packages("packages.txt") + packages("packages-test.txt")
        self.assert_refused(result, "sudo refuses", "torch==2.11.0", "transformers==5.23.0",
                            "apt-get install --no-install-recommends -y " + " ".join(names))

    def test_without_network_names_everything_missing_and_leaves_no_half_environment(self):
        for variables, parts in (({"PIP": "fail"}, ("pip failed", "no connection", "transformers==5.23.0")),
                                 ({"PIP": "warn"}, ("pip failed", "the Python packages need an index"))):
            self.assert_refused(self.run_script("--with-peers", **variables)[0], "torch==2.11.0", *parts)
        self.set_installed([])
        self.assert_refused(self.run_script(APT="fail")[0], "apt-get failed", "Unable to fetch", "torch==2.11.0",
                            " ".join(packages("packages.txt")))

    def test_a_small_disk_is_found_before_anything_is_fetched(self):
        self.set_installed([])
        for free in ("3", "8"):
            result, calls = self.run_script(FREE_GB=free)
            self.assertEqual(calls, [])
            self.assert_refused(result, free + " GB of disk are free", "LIBTORCH=/path")

    def test_downloads_lie_on_the_disk_that_was_looked_at(self):
        for free, cached in (("9", False), ("50", True)):
            calls = " ".join(self.succeed(FREE_GB=free)[1])
            self.assertIn(f"temporary files in {self.root}/.venv/downloads", calls)
            self.assertEqual("--no-cache-dir" not in calls, cached, calls)
            self.assertFalse((self.root / ".venv/downloads").exists())
            shutil.rmtree(self.root / ".venv")

    def test_an_environment_without_stamp_is_made_anew_by_the_chosen_python(self):
        self.succeed()
        (self.root / ".venv/draftsmith-stamp").unlink()
        (self.root / ".venv/half").write_text("left by a killed run")
        self.add_program("a b/pip", PIP)
        self.add_program("a b/python", PYTHON + "# the chosen one\n")
        self.assertIn("requirements.txt", " ".join(self.succeed(PYTHON=str(self.root / "a b/python"))[1]))
        self.assertFalse((self.root / ".venv/half").exists())
        self.assertIn("the chosen one", (self.root / ".venv/bin/python").read_text())

    def test_another_libtorch_is_used_instead_of_the_wheel(self):
        header = self.root / "libtorch/include/torch/csrc/api/include/torch/torch.h"
        header.parent.mkdir(parents=True)
        header.write_text("")
        for variables in ({"LIBTORCH": str(self.root / "libtorch")},
                          {"CMAKE_PREFIX_PATH": f"/nowhere:{self.root}/libtorch"}):
            self.assertEqual(self.succeed(**variables)[1], [])
            self.assertFalse((self.root / ".venv").exists())


# Limits of control groups are read with cat.
CAT = """case $1 in
  /sys/fs/cgroup/memory.max | /sys/fs/cgroup/memory/memory.limit_in_bytes) echo "${LIMIT:-max}" ;;
  *) /bin/cat "$@" ;;
esac
"""


class Build(Script):
    script = "tools/build"

    def setUp(self):
        super().setUp()
        cmake = 'echo "$*" >>"$CALLS"\n[ "$1" != --build ] || exit ${BUILD_STATUS:-0}\n'
        for name, text in (("cmake", cmake), ("cat", CAT), ("nproc", "echo 64\n"), ("awk", "echo ${FREE_GB:-1000}\n")):
            self.add_program(f"bin/{name}", text)

    def test_compilers_are_as_many_as_the_memory_holds(self):
        for variables, jobs in (({}, 64), ({"FREE_GB": "20"}, 10), ({"FREE_GB": "3"}, 2), ({"FREE_GB": "0"}, 1),
                                ({"FREE_GB": "1", "JOBS": "7"}, 7), ({"FREE_GB": "20", "LIMIT": str(4 << 30)}, 2),
                                ({"FREE_GB": "20", "LIMIT": str(2**63 - 4096)}, 10)):
            call = self.succeed("release", "draftsmith", **variables)[1][-1]
            self.assertEqual(int(call.split("--parallel ")[1].split()[0]), jobs, variables)

    def test_warnings_become_errors_where_asked(self):
        for asked in ("", "ON"):
            (configured,) = [call for call in self.succeed("release", WERROR=asked)[1] if "--preset" in call]
            self.assertEqual("-DDRAFTSMITH_WERROR=ON" in configured, asked == "ON")
        build = self.root / "build/release"
        (build / "build.ninja").write_text("")
        for cached, asked, count in (("OFF", "ON", 2), ("ON", "ON", 1), ("ON", "", 1)):
            (build / "CMakeCache.txt").write_text(f"DRAFTSMITH_WERROR:BOOL={cached}\n")
            self.assertEqual(len(self.succeed("release", WERROR=asked)[1]), count, (cached, asked))

    def test_a_build_of_another_place_is_made_anew(self):
        build = self.root / "build/release"
        build.mkdir(parents=True)
        for place, kept in ((self.root, True), (self.root / "elsewhere", False)):
            for name, text in (("build.ninja", ""), ("CMakeCache.txt", f"CMAKE_HOME_DIRECTORY:INTERNAL={place}\n")):
                (build / name).write_text(text)
            self.assertEqual(len(self.succeed("release")[1]), 1 if kept else 2)
            self.assertEqual((build / "CMakeCache.txt").exists(), kept)

    def test_a_failure_says_what_may_be_short(self):
        result, calls = self.run_script("release", "draftsmith", BUILD_STATUS="1")
        self.assertEqual(result.returncode, 1)
        self.assertIn("JOBS=1", result.stderr)
        self.assertTrue(calls[-1].endswith("--target draftsmith"), calls)


# `train` writes results unless --until is among its arguments, and fails where asked to. That of the measurement of
# training's speed is not noted; it finds $RATE.
PROGRAM = """if [[ "$*" = *"--work /"*"--until target "* ]]; then
  mkdir -p "$4/target"
  printf '{"step":50,"tokens_per_second":%s,"seconds":4}\\n' 99 "${RATE:-12600}.5" >"$4/target/metrics.jsonl"
  exit
fi
printf '%s\\n' "$@" >>"$CALLS"
if [ "$1" = report ]; then echo "THE TABLE of $2"; exit; fi
if [ "$1" = new ]; then echo "count = 77" >"${!#}"; exit; fi
[ "${FAILS:-}" = "" ] || { echo "error: no space" >&2; exit 1; }
echo "Results: a long list"
while [ $# -gt 0 ]; do
  [ "$1" != --work ] || work=$2
  [ "$1" != --until ] || exit 0
  shift
done
for one in evaluation chat; do mkdir -p "$work/$one" && echo {} >"$work/$one/results.json"; done
[ "${DISTURBED:-}" = "" ] || { echo "error: measurement error" >&2; exit 1; }
"""


class Quickstart(Script):
    script = "quickstart"

    def setUp(self):
        super().setUp()
        for name, text in (("tools/setup", "echo SET UP\n"), ("tools/build", "echo BUILT $*\n"),
                           ("tools/real_models", "echo FETCHED $*\n"),
                           ("bin/nproc", "echo 2\n"), ("build/release/draftsmith", PROGRAM),
                           ("bin/cut", "echo ${LOAD:-0.10}\n")):
            self.add_program(name, text)

    def run_script(self, *arguments, **environment):
        base = {**os.environ, "PATH": f"{self.root}/bin:{os.environ['PATH']}"}
        return super().run_script(*arguments, **{**base, **environment})

    def test_says_what_will_happen_and_ends_with_table_page_and_commands(self):
        result, calls = self.succeed()
        self.assert_in_order(["set-up ", "build ", "recipe ", "SET UP", "BUILT release draftsmith",
                              "THE TABLE of work/quickstart", "work/quickstart/evaluation/report.html",
                              "generate --model", "plan --model", "docs/tutorial.md"], result.stdout)
        self.assertNotIn("a long list", result.stdout)
        self.assertNotIn("Other programs", result.stdout)
        self.assertEqual(calls[:4], ["train", "recipes/quickstart.toml", "--work", "work/quickstart"])
        self.assertIn("Other programs are at work", self.succeed(LOAD="1.70")[0].stdout)

    def test_small_takes_fewer_steps_in_a_folder_of_its_own(self):
        result, calls = self.succeed("--small", "--set", "language.seed=3")
        self.assertEqual(calls[2:4], ["--work", "work/quickstart_small"])
        self.assertTrue(any(word.startswith("target.training.length=") for word in calls), calls)
        self.assertIn("language.seed=3", calls)
        self.assertIn("THE TABLE of work/quickstart_small/evaluation", result.stdout)

    def test_says_the_minutes_that_training_takes_here(self):
        for rate, minutes in (("12600", 4), ("4200", 12), ("none", 4)):
            said = self.succeed(RATE=rate)[0].stdout
            self.assertRegex(said, f" {minutes} minutes" + (", as some" if rate != "none" else "\n"))
        (self.root / "build/release/draftsmith").rename(self.root / "built")
        self.add_program("tools/build", "[ ! -e built ] || mv built build/release/draftsmith\n")
        self.assert_in_order([" 4 minutes\n", "2/3", "3/3", "It takes 8 minutes, as some"],
                             self.succeed(RATE="6300")[0].stdout)
        (self.root / "work/quickstart/target").mkdir(parents=True)
        self.assertNotIn("as some", self.succeed()[0].stdout)  # a part is done

    def test_real_has_as_many_questions_as_fit_an_hour(self):
        for again in (False, True):
            result, calls = self.succeed("--small", "--real", "--set", "prompts.held_out=9")
            self.assert_in_order(["60 to 180 minutes, with as many", "FETCHED smollm2", "THE TABLE of work/smollm2/chat",
                                  "work/smollm2/chat/report.html"], result.stdout)
            self.assertEqual(calls.count("new"), int(not again))
            words = calls[calls.index("train"):]
            self.assertEqual(words[1:4], ["recipes/smollm2.toml", "--work", "work/smollm2"])
            self.assertEqual([word for word in words if "prompts." in word], ["prompts.count=77", "prompts.held_out=9"])

    def test_folder_device_and_last_stage_may_be_others(self):
        for arguments in (["--work", "else where"], ["--work=else where"]):
            result, calls = self.succeed(*arguments)
            self.assertEqual(calls[2:4], ["--work", "else where"])
            self.assertIn("else where/evaluation/report.html", result.stdout)
        for arguments, device in (([], "cpu"), (["--device", "cuda"], "cuda"), (["--device=auto"], "auto")):
            calls = self.succeed(*arguments)[1]
            self.assertEqual((calls[calls.index("--device") + 1], calls.count("--device")), (device, 1))
        self.assertNotIn("TABLE", self.succeed("--until", "target", "--work", "new")[0].stdout)

    def test_a_failure_ends_it_with_its_message_and_no_earlier_table(self):
        self.succeed()
        os.utime(self.root / "work/quickstart/evaluation/results.json", (1, 1))
        result, _ = self.run_script(FAILS="yes")
        self.assertEqual(result.returncode, 1)
        self.assertIn("error: no space", result.stderr)
        self.assertNotIn("TABLE", result.stdout)
        self.add_program("tools/setup", "echo error: no network >&2; exit 2\n")
        result, calls = self.run_script()
        self.assertEqual((result.returncode, calls), (2, []))

    def test_a_disturbed_measurement_ends_with_its_table_and_what_to_do(self):
        result, _ = self.run_script(DISTURBED="yes")
        self.assertEqual(result.returncode, 1)
        self.assertIn("error: measurement error", result.stderr)
        self.assert_in_order(["THE TABLE of", "failed a check", "measures again", "Next:"], result.stdout)


if __name__ == "__main__":
    unittest.main()
