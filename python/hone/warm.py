"""Kernels served before they are needed."""
import json
import os
import shutil
import subprocess

from hone.library import Error


def command():
    """The `hone` command: $HONE_COMMAND, on the path, or in the tree that this file lies in."""
    here = os.path.dirname(os.path.abspath(__file__))
    for path in (os.environ.get("HONE_COMMAND"), shutil.which("hone"),
                 os.path.join(here, "..", "..", "build", "release", "bin", "hone")):
        if path and os.path.exists(path):
            return path
    raise Error("not found", "the command `hone` is not there; install hone, or set HONE_COMMAND")


def warm(path, threads=0):
    """Has every kernel of a list (NAME.kernels) or model (NAME.onnx) served now. A dictionary per kernel, as `hone warm
    --json` prints them, and last one about all. Error if some could not be served; what could be, is."""
    words = [command(), "--json", "warm", *(["--threads", str(threads)] if threads else []), "--", os.fspath(path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    errors = [answer["error"] for answer in answers if isinstance(answer.get("error"), dict)]
    if done.returncode != 0:
        first = errors[0] if errors else {"kind": "internal", "message": done.stderr.strip(), "where": str(path)}
        raise Error(first.get("kind", "internal"), first.get("message", ""), first.get("where", ""))
    return answers
