"""Tests of tools/build with made-up cmake, nproc and control groups."""

import os
import pathlib
import shutil
import subprocess
import unittest

from made_programs import MadePrograms

ROOT = pathlib.Path(__file__).resolve().parents[2]

CMAKE = """#!/bin/bash
echo "$*" >>"$CALLS"
[ "$1" != --build ] || exit ${BUILD_STATUS:-0}
"""
# Limits of control groups are read with cat.
CAT = """#!/bin/bash
case $1 in
  /sys/fs/cgroup/memory.max | /sys/fs/cgroup/memory/memory.limit_in_bytes) echo "${LIMIT:-max}" ;;
  *) /bin/cat "$@" ;;
esac
"""


class Build(MadePrograms):
    def setUp(self):
        super().setUp()
        for name, text in (("cmake", CMAKE), ("cat", CAT), ("nproc", "#!/bin/bash\necho 64\n"),
                           ("awk", "#!/bin/bash\necho ${FREE_GB:-1000}\n")):
            self.add_program(f"bin/{name}", text)
        (self.root / "tools").mkdir()
        shutil.copy(ROOT / "tools/build", self.root / "tools/build")

    def run_build(self, status=0, **environment):
        self.calls.write_text("")
        base = {"PATH": f"{self.root}/bin:{os.environ['PATH']}", "CALLS": str(self.calls)}
        result = subprocess.run([self.root / "tools/build", "release", "draftsmith"], env={**base, **environment},
                                capture_output=True, text=True)
        self.assertEqual(result.returncode, status, result.stderr)
        return result, self.calls.read_text().splitlines()[-1]

    def jobs(self, **environment):
        return int(self.run_build(**environment)[1].split("--parallel ")[1].split()[0])

    def test_compilers_are_as_many_as_the_memory_holds(self):
        self.assertEqual(self.jobs(), 64)
        self.assertEqual(self.jobs(FREE_GB="20"), 10)
        self.assertEqual(self.jobs(FREE_GB="3"), 2)
        self.assertEqual(self.jobs(FREE_GB="0"), 1)
        self.assertEqual(self.jobs(FREE_GB="1", JOBS="7"), 7)

    def test_a_container_has_no_more_memory_than_its_limit(self):
        for limit, jobs in ((4 << 30, 2), (16 << 30, 8), (2**63 - 4096, 10)):
            self.assertEqual(self.jobs(FREE_GB="20", LIMIT=str(limit)), jobs)

    def test_warnings_become_errors_where_asked(self):
        configured = lambda: next(call for call in self.calls.read_text().splitlines() if "--preset" in call)
        self.run_build()
        self.assertNotIn("DRAFTSMITH_WERROR", configured())
        self.run_build(WERROR="ON")
        self.assertIn("-DDRAFTSMITH_WERROR=ON", configured())
        build = self.root / "build/release"
        (build / "build.ninja").write_text("")
        for cached, asked, count in (("OFF", "ON", 2), ("ON", "ON", 1), ("ON", "", 1)):
            (build / "CMakeCache.txt").write_text(f"DRAFTSMITH_WERROR:BOOL={cached}\n")
            self.run_build(WERROR=asked)
            self.assertEqual(len(self.calls.read_text().splitlines()), count, (cached, asked))

    def test_a_failure_says_what_may_be_short(self):
        result, call = self.run_build(status=1, BUILD_STATUS="1")
        self.assertIn("JOBS=1", result.stderr)
        self.assertTrue(call.endswith("--target draftsmith"), call)


if __name__ == "__main__":
    unittest.main()
