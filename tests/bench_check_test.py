#!/usr/bin/env python3
"""bench/check loses nothing that was measured, and takes nothing for measured that was not: with programs that print marks in
place of those that measure."""

import argparse
import json
import os
import pathlib
import runpy
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.dont_write_bytecode = True  # nothing is left beside the scripts
sys.path.insert(0, str(ROOT / "bench"))
PEAK = 'echo \'{"isa": "avx2", "fma_gflops": 100.0, "read_gb_s": 10.0}\''


def mark(name, seen="1.000", verdict="met"):
    return f"echo 'mark {name:40} {seen:>10} ms   at most 2  {verdict}'\n"


class BenchCheck(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="hone-bench-check-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.record = os.path.join(self.folder, "marks.json")
        self.program("peak", PEAK)

    def program(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\n" + text + "\n")
        os.chmod(path, 0o755)

    def command(self, *arguments):
        return [sys.executable, "-B", str(ROOT / "bench/check"), "--bin", self.folder, *arguments]

    def check(self, *arguments, status, environment=None):
        done = subprocess.run(self.command(*arguments), capture_output=True, text=True, check=False, timeout=60,
                              env={**os.environ, **(environment or {})})
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        self.assertNotIn("Traceback", done.stderr)
        return done.stdout + done.stderr

    def recorded(self):
        with open(self.record, encoding="utf-8") as file:
            return [(each["part"], each["mark"], each["met"]) for each in json.load(file)["marks"]]

    def test_marks_that_are_met_and_missed(self):
        self.program("serving_bench", mark("hit"))
        self.check("--only", "hits", "--record", self.record, status=0)
        self.program("cache_bench", mark("open", "3.000", "missed"))
        self.check("--only", "hits", "--only", "cache", "--record", self.record, status=1)
        self.assertEqual(self.recorded(), [("hits", "hit", True), ("cache", "open", False)])

    def test_a_part_that_breaks_off_is_not_measured_and_keeps_its_older_marks(self):
        self.program("serving_bench", mark("first") + mark("second"))
        self.check("--only", "hits", "--record", self.record, status=0)
        for end in ("exit 1", "exit 2", "kill -9 $$"):  # 1: as a script of Python's ends by an exception
            self.program("serving_bench", mark("first") + end)
            self.assertIn("hits could not be measured", self.check("--only", "hits", "--record", self.record, status=2))
            self.assertCountEqual(self.recorded(), [("hits", "first", True), ("hits", "second", True)])

    def test_a_figure_that_is_no_number_is_a_missed_mark(self):
        for seen in ("nan", "-nan", "inf", "-inf"):
            verdict = "met" if seen == "-inf" else "missed"
            self.program("serving_bench", mark("hit") + mark("ratio", seen, verdict))
            self.check("--only", "hits", status=0 if verdict == "met" else 1)

    def test_a_mark_that_cannot_be_read_is_not_passed_over(self):
        self.program("serving_bench", mark("hit") + "echo 'mark ratio  -1.5e at most 2 missed'")
        self.assertIn("hits could not be measured", self.check("--only", "hits", status=2))

    def test_a_program_that_is_not_there_stops_no_other_part(self):
        self.program("cache_bench", mark("open"))
        self.assertIn("hits could not be measured",
                      self.check("--only", "hits", "--only", "cache", "--record", self.record, status=2))
        self.assertEqual(self.recorded(), [("cache", "open", True)])

    def test_an_interrupt_keeps_the_parts_that_have_ended(self):
        self.program("serving_bench", mark("hit"))
        self.program("cache_bench", f"touch {self.folder}/began; exec sleep 30")
        with subprocess.Popen(self.command("--only", "hits", "--only", "cache", "--record", self.record),
                              stdout=subprocess.DEVNULL, start_new_session=True) as process:
            end = time.monotonic() + 30
            while not os.path.exists(f"{self.folder}/began") and time.monotonic() < end:
                time.sleep(0.01)
            os.killpg(process.pid, signal.SIGINT)
            self.assertEqual(process.wait(30), 130)
        self.assertEqual(self.recorded(), [("hits", "hit", True)])

    def test_files_that_cannot_be_written_are_told_of_before_anything_is_measured(self):
        self.program("serving_bench", f"touch {self.folder}/began\n" + mark("hit"))
        for name, text in (("words", "no JSON"), ("list", "[]"), ("plain.md", "a document without a table")):
            with open(os.path.join(self.folder, name), "w", encoding="utf-8") as file:
                file.write(text)
        for option in ("--record", "--json", "--write", "--details"):
            wrong = ["", os.path.join(self.folder, "peak", "x")]  # peak is a file
            wrong += [self.folder, os.path.join(self.folder, "none", "x")] if option != "--details" else []
            wrong += [os.path.join(self.folder, name) for name in {"--record": ["words", "list"], "--write": ["plain.md"]}.get(option, [])]
            for path in wrong:
                said = self.check("--only", "hits", option, path, status=2)
                self.assertIn(option, said)
                self.assertFalse(os.path.exists(f"{self.folder}/began"), f"{option} {path}: {said}")

    def test_tables_of_other_documents_are_written_when_their_marks_are_recorded(self):
        check = runpy.run_path(str(ROOT / "bench/check"))
        def command(part, record):
            return check["command_of"](part, argparse.Namespace(bin=self.folder, details=None, record=record))
        recorded = str(ROOT / "bench/marks.json")
        for part in ("devices", "narrow_transfer"):
            self.assertEqual(command(part, recorded)[-2:], ["--write", str(ROOT / "docs/transfer.md")])
            for record in (None, self.record):
                self.assertNotIn("--write", command(part, record))
        self.assertNotIn("--write", command("hits", recorded))

    def test_a_part_that_is_named_twice_runs_once(self):
        self.program("serving_bench", mark("hit"))
        self.check("--only", "hits", "--only", "hits", "--record", self.record, status=0)
        self.assertEqual(self.recorded(), [("hits", "hit", True)])

    def test_a_machine_whose_peak_is_not_known_is_told_of(self):
        self.program("peak", "exit 1")
        self.assertIn("peak", self.check("--only", "hits", status=2))

    def test_what_needs_a_gpu_is_named_with_the_command_that_measures_it(self):
        self.program("serving_bench", mark("hit"))
        for devices, words in ((0, "not measured here: "), (1, "not measured by this: ")):
            driver = os.path.join(self.folder, str(devices))
            os.mkdir(driver)
            with open(f"{driver}/cuda.c", "w", encoding="utf-8") as file:
                file.write(f"int cuInit(unsigned flags) {{ return flags; }} int cuDeviceGetCount(int* count) {{ return *count = {devices}, 0; }}")
            subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", "-o", f"{driver}/libcuda.so.1", f"{driver}/cuda.c"], check=True)
            said = self.check("--only", "hits", status=0, environment={"LD_LIBRARY_PATH": driver})
            line, = [line for line in said.splitlines() if words in line]
            self.assertIn("needs an NVIDIA GPU; on a machine with one: bench/gpu_machine.py --torch", line)
            for name in ("kernels of the lists that are not verified, CUDA", "CUDA f32 products / cuBLAS, tuned",
                         "CUDA TF32 products / cuBLAS, default", "ResNet-50's convolutions / cuDNN, tuned", "CUDA bert_128, time / PyTorch",
                         "CUDA softmax, share of copy bandwidth"):
                self.assertIn(name, line)
        broken = {"LD_LIBRARY_PATH": self.folder}
        with open(f"{self.folder}/libcuda.so.1", "w", encoding="utf-8") as file:
            file.write("no library")
        self.assertIn("not measured here: ", self.check("--only", "hits", status=0, environment=broken))


if __name__ == "__main__":
    unittest.main()
