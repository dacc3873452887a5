"""libhone as applications meet it: from an installed tree, in C, while the daemon dies and stops."""

import os
import re
import signal
import subprocess
import tempfile
import threading
import time
import unittest

import harness

HERE = os.path.dirname(os.path.abspath(__file__))
KERNEL = "dense(M=3,N=40,K=24,const=1)+bias+relu"
SANITIZED = os.environ.get("HONE_SANITIZE", "") != ""


class Tree:
    """One installed tree for all tests, and the C program built against it."""

    path = None

    @classmethod
    def make(cls):
        if cls.path is not None:
            return
        cls.folder = tempfile.TemporaryDirectory(prefix="hone-install-")
        cls.path = cls.folder.name
        subprocess.run(["cmake", "--install", harness.BUILD, "--prefix", cls.path], check=True, capture_output=True)
        cls.library = next(os.path.join(folder, "libhone.so") for folder, _, files in os.walk(cls.path)
                           if "libhone.so" in files)
        cls.program = cls.build("hone", "libhone_user.c")

    @classmethod
    def build(cls, package, source):
        """A C program against the installed package; its path."""
        packages = os.path.join(os.path.dirname(cls.library), "pkgconfig")
        flags = subprocess.run(["pkg-config", "--cflags", "--libs", package], check=True, capture_output=True, text=True,
                               env={**os.environ, "PKG_CONFIG_PATH": packages}).stdout.split()
        program = os.path.join(cls.path, source.removesuffix(".c"))
        compiler = os.environ.get("CC", "cc")
        sanitize = [f"-fsanitize={os.environ['HONE_SANITIZE']}"] if SANITIZED else []
        subprocess.run([compiler, "-std=c99", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O2", *sanitize, "-o",
                        program, os.path.join(HERE, source), *flags, "-lm",
                        "-Wl,-rpath," + os.path.dirname(cls.library)], check=True)
        return program


class User:
    """The program, running."""

    def __init__(self, environment):
        self.process = subprocess.Popen([Tree.program], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True)

    def ask(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().split()

    def get(self, kernel=KERNEL, deadline_ms=5000):
        """(words of the answer, milliseconds by the program's clock)"""
        words = self.ask(f"get {deadline_ms * 1000} {kernel}")
        return words, float(words[3] if words[0] == "ok" else words[2]) / 1000

    def close(self):
        self.process.stdin.close()
        status = self.process.wait(30)
        self.process.stdout.close()
        return status


class Libhone(harness.HoneTest):
    @classmethod
    def setUpClass(cls):
        Tree.make()

    def setUp(self):
        super().setUp()
        self.daemon = self.start()
        self.user = User(self.directory.environment)

    def tearDown(self):
        if self.user.process.poll() is None:
            self.assertEqual(self.user.close(), 0)

    def test_computes(self):
        self.assertEqual(self.user.ask("hold")[:3], ["ok", "daemon", "0"])
        self.assertEqual(self.user.ask("compute"), ["ok", "0"])
        words, _ = self.user.get()
        self.assertEqual(words[:3], ["ok", "daemon", "1"])

    def test_errors_come_through(self):
        words, _ = self.user.get("frobnicate(M=1)")
        self.assertEqual(words[:2], ["error", "1"])

    def test_survives_fork(self):
        self.user.ask("hold")
        for _ in range(3):
            self.assertEqual(self.user.ask("fork"), ["ok", "0"])
            self.assertEqual(self.user.ask("compute"), ["ok", "0"])

    def test_keeps_deadline_and_results_while_the_daemon_is_stopped(self):
        self.user.ask("hold")
        os.kill(self.daemon.pid, signal.SIGSTOP)
        try:
            self.assertEqual(self.user.ask("compute"), ["ok", "0"])
            words, ms = self.user.get(deadline_ms=3000)  # known: from the copy on disk
            self.assertEqual(words[:3], ["ok", "disk", "1"])
            self.assertLess(ms, 1500)
            for deadline_ms in (5, 50, 700):
                words, ms = self.user.get("mul(M=3,N=3)", deadline_ms)  # unknown: a clear error in time
                self.assertEqual(words[:2], ["error", "8"])
                self.assertGreaterEqual(ms, deadline_ms - 1)
                self.assertLess(ms, deadline_ms + 150)
            self.assertEqual(self.user.ask("compute"), ["ok", "0"])
        finally:
            os.kill(self.daemon.pid, signal.SIGCONT)
        words, _ = self.user.get("mul(M=3,N=3)")
        self.assertEqual(words[:2], ["ok", "daemon"])

    def test_keeps_deadline_and_results_while_the_daemon_is_killed(self):
        self.user.ask("hold")
        self.daemon.kill()
        self.assertEqual(self.user.ask("compute"), ["ok", "0"])
        words, ms = self.user.get(deadline_ms=2000)
        self.assertEqual(words[:3], ["ok", "disk", "1"])
        self.assertLess(ms, 500)
        words, ms = self.user.get("mul(M=3,N=3)", 2000)
        self.assertEqual(words[:2], ["error", "9"])  # unavailable: nobody listens, so there is nothing to wait for
        self.assertLess(ms, 500)
        self.daemon = self.start()
        words, _ = self.user.get("mul(M=3,N=3)")
        self.assertEqual(words[:2], ["ok", "daemon"])
        self.assertEqual(self.user.ask("compute"), ["ok", "0"])

    def test_kill_9_in_the_middle_of_a_request(self):
        self.user.ask("hold")
        for delay in (0, 0.005, 0.02, 0.04):
            killer = threading.Timer(delay, self.daemon.kill)
            killer.start()
            words, ms = self.user.get(f"matmul(M=64,N=64,K={int(delay * 1000) + 8})", 3000)
            killer.join()
            self.assertIn(words[0], ("ok", "error"))
            self.assertLess(ms, 3150)
            self.assertEqual(self.user.ask("compute"), ["ok", "0"])
            self.daemon = self.start()

    def test_stopped_and_killed_at_random_under_way(self):
        self.user.ask("hold")
        end = threading.Event()

        def disturb():
            number = signal.SIGSTOP
            while not end.is_set():
                os.kill(self.daemon.pid, number)
                number = signal.SIGCONT if number == signal.SIGSTOP else signal.SIGSTOP
                time.sleep(0.03)
            os.kill(self.daemon.pid, signal.SIGCONT)

        thread = threading.Thread(target=disturb)
        thread.start()
        try:
            for n in range(1, 25):
                words, ms = self.user.get(f"add(M=1,N={n})", 400)
                self.assertIn(words[0], ("ok", "error"))
                self.assertLess(ms, 550)
                self.assertEqual(self.user.ask("compute"), ["ok", "0"])
        finally:
            end.set()
            thread.join()

    def test_a_tampered_copy_on_disk_is_never_loaded(self):
        self.user.get()
        folder = os.path.join(self.directory.cache, "client")
        files = os.listdir(folder)
        self.assertEqual(len(files), 1)
        path = os.path.join(folder, files[0])
        with open(path, "rb+") as file:
            file.seek(-2000, os.SEEK_END)
            byte = file.read(1)
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte[0] ^ 1]))
        self.daemon.kill()
        words, _ = self.user.get()
        self.assertEqual(words[:2], ["error", "9"])

    def test_a_copy_that_others_may_write_is_never_loaded(self):
        self.user.get()
        os.chmod(os.path.join(self.directory.cache, "client"), 0o777)
        self.daemon.kill()
        words, _ = self.user.get()
        self.assertEqual(words[:2], ["error", "9"])

    @unittest.skipIf(SANITIZED, "[SKIP] sanitizers bring libraries of their own")
    def test_the_library_needs_libc_alone_and_shows_its_functions_and_nothing_else(self):
        dynamic = subprocess.run(["readelf", "-d", Tree.library], capture_output=True, text=True, check=True).stdout
        needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic))
        self.assertLessEqual(needed, {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0"})
        self.assertNotIn("RPATH", dynamic)
        self.assertNotIn("RUNPATH", dynamic)
        names = subprocess.run(["nm", "-D", "--defined-only", Tree.library], capture_output=True, text=True,
                               check=True).stdout
        shown = {line.split()[2].split("@")[0] for line in names.splitlines() if line.split()[1] != "A"}
        self.assertEqual(shown, {"hone_connect", "hone_get", "hone_bind", "hone_call", "hone_info", "hone_release",
                                 "hone_close", "hone_shape"})

    @unittest.skipIf(SANITIZED, "[SKIP] a sanitized library wants a sanitized program")
    def test_the_cmake_package_builds_a_c_and_a_cpp_program(self):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "CMakeLists.txt"), "w", encoding="utf-8") as file:
                file.write(f"""cmake_minimum_required(VERSION 3.16)
project(user C CXX)
find_package(hone REQUIRED)
add_executable(c_user {HERE}/libhone_user.c)
target_compile_definitions(c_user PRIVATE _GNU_SOURCE)
target_link_libraries(c_user PRIVATE hone::hone m)
add_executable(cpp_user user.cc)
target_link_libraries(cpp_user PRIVATE hone::hone)
""")
            with open(os.path.join(folder, "user.cc"), "w", encoding="utf-8") as file:
                file.write("""#include <hone/hone.hpp>
#include <cstdio>
int main() {
  try {
    hone_api::Client client;
    hone_api::Kernel add = client.Get("add(M=1,N=4)");
    float a[] = {1, 2, 3, 4}, b[] = {10, 20, 30, 40}, c[4] = {};
    add({a, b, c});
    if (c[3] != 44 || add.Info().operand_count != 3) return 1;
    try {
      add({a, b, a});
      return 2;
    } catch (const hone_api::Error& error) {
      if (error.kind != HONE_INVALID) return 3;
    }
    for (const char* wrong : {"buffers", "sizes", "name"}) {
      try {
        if (wrong[0] == 'b') add({a, b});
        if (wrong[0] == 's') add({a, b, c}, std::vector<int64_t>{4});
        if (wrong[0] == 'n') add.Bind("a thing", a);
        return 5;
      } catch (const hone_api::Error& error) {
        if (error.kind != HONE_INVALID) return 6;
      }
    }
    hone_api::Kernel dense = client.Get("dense(M=1,N=1,K=4,const=1)+bias");
    float sum = 0, bias = 7;
    dense.Bind("w", b);
    dense.Bind("bias", &bias);
    dense({a, nullptr, nullptr, &sum});
    if (sum != 307) return 7;
    client.Get("nonsense");
  } catch (const hone_api::Error& error) {
    std::puts(error.what());
    return 0;
  }
  return 4;
}
""")
            subprocess.run(["cmake", "-G", "Ninja", "-S", folder, "-B", folder + "/build",
                            f"-DCMAKE_PREFIX_PATH={Tree.path}"], check=True, capture_output=True)
            subprocess.run(["cmake", "--build", folder + "/build"], check=True, capture_output=True)
            done = subprocess.run([folder + "/build/cpp_user"], env=self.directory.environment, capture_output=True,
                                  text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertIn("kernel:1:9", done.stdout)

    @unittest.skipIf(SANITIZED, "[SKIP] a sanitized library wants a sanitized program")
    def test_pkg_config_finds_the_libraries_of_devices(self):
        packages = {**os.environ, "PKG_CONFIG_PATH": os.path.join(os.path.dirname(Tree.library), "pkgconfig")}
        for kind in ("opencl", "vulkan", "cuda"):
            with self.subTest(kind):
                if not os.path.exists(Tree.library.replace("libhone", "libhone_" + kind)):
                    print(f"[SKIP] libhone_{kind} was not built")
                    continue
                flags = subprocess.run(["pkg-config", "--cflags", "--libs", "hone_" + kind], check=True, capture_output=True,
                                       text=True, env=packages).stdout.split()
                subprocess.run(["cc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-DCL_TARGET_OPENCL_VERSION=120", "-x", "c", "-", "-o",
                                "/dev/null", *flags], check=True, text=True,
                               input=f"#include <hone/hone_{kind}.h>\nint main(void) {{ hone_{kind}_close(NULL); return 0; }}\n")

    @unittest.skipIf(SANITIZED, "Debian's protobuf is not built with the sanitizers")
    def test_c_programs_run_networks(self):
        program = Tree.build("hone_network", "network_user.c")

        def run(model):
            return subprocess.run([program, model], env=self.directory.environment, capture_output=True, text=True, check=False)

        done = run(os.path.join(harness.SOURCE, "tests/fuzz/corpus/onnx/conv_batchnorm_relu.onnx"))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        lines = done.stdout.splitlines()
        self.assertEqual(lines[0], "input x 7 2 4 9 7")
        self.assertRegex(lines[1], r"^output \w+ 7 2 ")
        self.assertRegex(lines[2], r"^first \S+$")
        done = run(os.path.join(self.directory.path, "nowhere.onnx"))
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, "^error 2 .*nowhere.onnx")

    def test_an_installed_hone_finds_its_parts(self):
        self.daemon.stop()
        done = subprocess.run([os.path.join(Tree.path, "bin/hone"), "--json", "run", "add(M=2,N=9)"],
                              env=self.directory.environment, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn('"verified":true', done.stdout)


if __name__ == "__main__":
    harness.main()
