"""Where the programs' output goes: files that are replaced or left, full disks, closed descriptors, terminals."""

import fcntl
import os
import select
import signal
import stat
import struct
import subprocess
import termios
import time

import harness
from harness import SMALL

OTHER_SCREEN, OWN_SCREEN = b"\033[?1049h\033[?25l", b"\033[?25h\033[?1049l"


def own_umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


class Output(harness.HoneTest):
    def test_what_is_no_file_is_not_replaced_by_one(self):
        self.start()
        self.hone("get", SMALL)
        pipe, link, real = (os.path.join(self.directory.path, name) for name in ("pipe", "link", "real"))
        os.mkfifo(pipe)
        os.symlink(real, link)
        for words in (["get", SMALL, "--out"], ["export", "-o"], ["contribute", "-o"], ["report", "-o"]):
            self.hone(*words, pipe, status=1)
            self.assertIn(f"{pipe}: is no regular file", self.last_error)
            self.hone(*words, self.directory.path, status=1)
            self.assertIn(f"{self.directory.path}: is a directory", self.last_error)
        self.assertTrue(stat.S_ISFIFO(os.stat(pipe).st_mode))
        for words in (["get", SMALL, "--out"], ["export", "-o"], ["report", "-o"]):
            with open(real, "w", encoding="utf-8"):
                pass
            self.hone(*words, link)
            self.assertTrue(os.path.islink(link))
            self.assertGreater(os.path.getsize(real), 0)

    def test_a_file_that_is_replaced_keeps_its_mode(self):
        self.start()
        self.hone("get", SMALL)
        path = os.path.join(self.directory.path, "own")
        for words in (["get", SMALL, "--out"], ["export", "-o"], ["report", "-o"]):
            with open(path, "w", encoding="utf-8"):
                os.chmod(path, 0o600)
            self.hone(*words, path)
            self.assertGreater(os.path.getsize(path), 0)
            self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o600)
            os.unlink(path)
            self.hone(*words, path)
            self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o666 & ~own_umask())

    def test_a_link_that_leads_nowhere_is_not_replaced(self):
        self.start()
        self.hone("get", SMALL)
        link = os.path.join(self.directory.path, "link")
        os.symlink(os.path.join(self.directory.path, "gone", "real"), link)
        self.hone("export", "-o", link, status=1)
        self.assertIn(f"{link}: is a link to a file that is not there", self.last_error)
        self.assertTrue(os.path.islink(link))

    def test_a_bundle_and_code_may_go_to_standard_output(self):
        self.start()
        for words, beginning in ((["get", SMALL, "--out", "-"], b"\x7fELF"), (["export", "-o", "-"], b"hone.bdl")):
            done = subprocess.run([os.path.join(harness.BIN, "hone"), "--no-start", *words], capture_output=True,
                                  env=self.directory.environment, check=True)
            self.assertTrue(done.stdout.startswith(beginning), done.stdout[:40])
            self.hone("--json", *words, status=2)

    def test_output_that_does_not_arrive_is_a_failure(self):
        self.start()
        self.hone("get", SMALL)
        for program, *words in (["hone", "ls"], ["hone", "--json", "ls"], ["hone", "status"], ["hone", "--help"],
                                ["hone", "get", "--help"], ["hone", "completion", "bash"],
                                ["honed", "--describe-config"], ["honed-edge", "--describe-target"]):
            with open("/dev/full", "w", encoding="utf-8") as full:
                done = subprocess.run([os.path.join(harness.BIN, program), *words], stdout=full, stderr=subprocess.PIPE,
                                      env=self.directory.environment, text=True, check=False)
            self.assertEqual(done.returncode, 1, words)
            self.assertEqual(done.stderr, program + ": standard output: cannot write: No space left on device\n")

    def test_top_ends_when_nobody_can_read_it(self):
        self.start()
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run([os.path.join(harness.BIN, "hone"), "top", "--json", "--every", "10ms"], stdout=full,
                                  stderr=subprocess.PIPE, env=self.directory.environment, text=True, check=False, timeout=30)
        self.assertEqual((done.returncode, done.stderr),
                         (1, "hone: standard output: cannot write: No space left on device\n"))

    def test_top_once_prints_once_whatever_the_pause(self):
        self.start()
        self.assertEqual(len(self.hone_json("top", "--once", "--every", "10ms", limit=30)), 1)

    def test_a_pause_is_at_least_a_millisecond(self):
        self.start()
        command = ["timeout", "1", os.path.join(harness.BIN, "hone"), "--json", "top", "--every", "1us"]
        done = subprocess.run(command, capture_output=True, env=self.directory.environment, text=True, check=False)
        self.assertIn(done.returncode, (0, 124))
        self.assertLessEqual(len(done.stdout.splitlines()), 1001)

    def read_until(self, terminal, end):
        """What a program writes to a terminal, until it has written `end`."""
        seen, limit = b"", time.monotonic() + 10
        while end not in seen:
            self.assertLess(time.monotonic(), limit, seen)
            if select.select([terminal], [], [], 0.1)[0]:
                seen += os.read(terminal, 65536)
        return seen

    def test_top_gives_the_terminal_back_when_it_is_stopped_or_left(self):
        self.start()
        ours, theirs = os.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        for leave in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            top = subprocess.Popen([os.path.join(harness.BIN, "hone"), "top"], stdin=theirs, stdout=theirs, stderr=theirs,
                                   env={**self.directory.environment, "TERM": "xterm"})
            self.addCleanup(top.kill)
            self.read_until(ours, OTHER_SCREEN)
            for _ in range(2):
                top.send_signal(signal.SIGTSTP)
                self.read_until(ours, OWN_SCREEN)
                self.assertTrue(os.WIFSTOPPED(os.waitpid(top.pid, os.WUNTRACED)[1]))
                top.send_signal(signal.SIGCONT)
                self.read_until(ours, OTHER_SCREEN)
            top.send_signal(leave)
            self.read_until(ours, OWN_SCREEN)
            self.assertEqual(top.wait(30), 0)
        os.close(ours)
        os.close(theirs)

    def test_closed_descriptors_stay_out_of_files_and_sockets(self):
        closed = "exec \"$@\" 0<&- 1>&- 2>&-"
        environment = self.directory.environment
        with subprocess.Popen(["sh", "-c", closed, "sh", os.path.join(harness.BIN, "honed"), "--no-idle", "--log",
                               "debug"], env=environment) as honed:
            try:
                self.wait_until(lambda: os.path.exists(self.directory.socket))
                self.wait_until(lambda: self.hone("status", status=None) and self.last_status == 0)
                for descriptor in range(3):
                    self.assertEqual(os.readlink(f"/proc/{honed.pid}/fd/{descriptor}"), "/dev/null")
                done = subprocess.run(["sh", "-c", closed, "sh", os.path.join(harness.BIN, "hone"), "get", SMALL],
                                      env=environment, check=False)
                self.assertEqual(done.returncode, 0)
                self.assertEqual(self.hone_json("stats")[0]["bad_frames"], 0)
            finally:
                honed.terminate()

    def test_nothing_that_others_wrote_commands_the_terminal(self):
        self.start()
        name = "e\x1b[31m\x9b31m\n.kernels"
        path = os.path.join(self.directory.path, name)
        with open(path, "wb") as file:
            file.write(b"1 add(M=1,N=8) # \x1b]0;gotcha\x07\n1 add(M=1,N=8)\x1b[2J\xff\n")
        for words in (["warm", path], ["ls"], ["--json", "ls"], ["get", "add(M=1,N=8)\x1b[2J"], ["a\x1b[2J"],
                      ["ls", "\x1b[2J", "\x1b[2J"], ["get", SMALL, "--budget", "\x1b[2J"]):
            done = subprocess.run([os.path.join(harness.BIN, "hone"), "--no-start", *words], capture_output=True,
                                  env=self.directory.environment, check=False)
            for text in (done.stdout, done.stderr):
                self.assertNotRegex(text.decode(), "[\x00-\x09\x0b-\x1f\x7f-\x9f]", words)
        self.hone("warm", path, status=1)
        self.assertIn("\\x1b[2J\\xff", self.hone("warm", path, status=1))


if __name__ == "__main__":
    harness.main()
