"""The command line itself: wrong usage, help, the manual, completion."""

import os
import re
import subprocess

import harness
from harness import SMALL


class Usage(harness.HoneTest):
    def test_wrong_usage_is_status_2(self):
        for words in ([], ["frobnicate"], ["get"], ["get", SMALL, "--budget", "soon"], ["get", SMALL, "--frob"],
                      ["run", SMALL, "--repeat", "0"], ["completion", "fish"], ["explain", SMALL, "--threads", "none"],
                      ["schedule", SMALL, "--threads", "0"], ["code", "ffffffff", "--threads", "2"],
                      ["run", SMALL, "--export", "here"], ["run", SMALL, "--sizes", "M=1"],
                      ["bundle", "show", "one", "two"], ["tune", SMALL, "--on", "true", "--silence", "0s"],
                      ["--cache", "", "ls"], ["--socket", "", "ls"], ["keygen", "fleet", "--dir", ""],
                      ["check", ""], ["import", ""], ["bundle", "show", ""], ["bundle", "diff", "one", ""], ["warm", SMALL, ""]):
            self.hone(*words, status=2)
            self.assertEqual(len(self.last_error.splitlines()), 1, self.last_error)
        error = self.hone_json("get", status=2)[0]["error"]
        self.assertEqual(error["kind"], "invalid")

    def test_wrong_usage_names_what_is_not_known(self):
        for words, said in ((["frobnicate"], 'no command "frobnicate"'), (["--frob"], 'no option "--frob"'),
                            (["--cache", "", "ls"], "--cache: is empty, wanted a path"),
                            (["check", "one.onnx", ""], "MODEL: is empty, wanted a path"),
                            (["get"], "hone get --help"), (["ls", "--frob"], "--frob; hone ls --help")):
            self.hone(*words, status=2)
            self.assertIn(said, self.last_error)

    def test_a_flag_that_is_false_is_not_given(self):
        self.start()
        self.assertIn("fingerprint", self.hone("--json=false", "get", SMALL).split())
        self.assertEqual(len(self.hone_json("verify", "--run=false")[-1]), 4)
        self.assertTrue(self.hone_json("verify", "--run=true")[-1]["ran"])
        self.hone("verify", "--run=perhaps", status=2)

    def test_help_fits_the_terminal(self):
        for command in ("tune", "import", "run", "check"):
            for columns in (80, 110):
                text = self.hone(command, "--help", environment={"COLUMNS": str(columns)})
                filled = text.split("\nExample")[0]
                self.assertIn("Usage", filled.splitlines()[1], "the summary is one line")
                self.assertLessEqual(max(map(len, filled.splitlines())), columns, filled)

    def test_help_is_everywhere_and_has_examples(self):
        top = self.hone("--help")
        commands = re.findall(r"^  (\w+)", top.split("\nCommands:")[1], re.MULTILINE)
        self.assertGreaterEqual(len(commands), 16)
        for command in commands:
            text = self.hone(command, "--help")
            self.assertIn(command, text)
        for command in ["get", "run", "warm", "ls", "verify"]:
            self.assertIn("hone " + command, self.hone(command, "--help"))
        manual = os.path.join(harness.BUILD, "client/hone.1")
        with open(manual, encoding="utf-8") as file:
            page = file.read()
        for command in commands:
            self.assertIn(command, page, "the manual knows every command")

    def test_completion_completes(self):
        script = self.hone("completion", "bash")
        probe = script + """
COMP_WORDS=(hone ver); COMP_CWORD=1; _hone; echo "${COMPREPLY[@]}"
COMP_WORDS=(hone --json get --no); COMP_CWORD=3; _hone; echo "${COMPREPLY[@]}"
"""
        done = subprocess.run(["bash", "-c", probe], capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout.split(), ["verify", "--no-compile", "--no-start"])

    def test_completion_knows_which_files_a_command_takes(self):
        script = self.hone("completion", "bash")
        folder = os.path.join(self.directory.path, "files")
        for name in ("a.bundle", "b.hone", "c.kernels", "d.onnx", "e.pub"):
            os.makedirs(os.path.join(folder, "under"), exist_ok=True)
            with open(os.path.join(folder, name), "w", encoding="utf-8"):
                pass
        kernels, everything = ["b.hone", "c.kernels", "d.onnx", "under"], sorted(os.listdir(folder))
        for words, offered in (("check", everything), ("import", everything), ("bundle show", everything), ("warm", everything),
                               ("run", kernels), ("tune", kernels), ("import a.bundle --trust", everything),
                               ("export --key", everything), ("export -o", everything), ("run --against", everything),
                               ("run --export", ["under"]), ("keygen fleet --dir", ["under"]), ("export --oci", ["under"]),
                               ("--socket", everything), ("--cache", ["under"])):
            probe = f"{script}\nCOMP_WORDS=(hone {words} ''); COMP_CWORD={len(words.split()) + 1}; _hone\n" \
                    "printf '%s\\n' \"${COMPREPLY[@]}\""
            done = subprocess.run(["bash", "-c", probe], capture_output=True, text=True, check=True, cwd=folder)
            files = sorted(word for word in done.stdout.split() if not word.startswith("-"))
            self.assertEqual(files, offered, words)


if __name__ == "__main__":
    harness.main()
