#!/usr/bin/env python3
"""The edge preset wants nothing that makes code: no compiler library, database, search, model format or shader compiler.

Usage: edge_build_test.py SOURCE_DIR CMAKE. Configures the preset in a directory of its own, with these libraries hidden
from it, and looks at what is compiled and linked; builds nothing.
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile

FOREIGN = ["llvm", "lld", "rocksdb", "xgboost", "onnx", "protobuf", "glslang", "toml"]
WANTED = ["bin/honed-edge", "bin/hone-runner", "lib/libhone.so"]


def main():
    source, cmake = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2]
    problems = []
    with tempfile.TemporaryDirectory(prefix="hone-edge-") as folder:
        hidden = [f"-DCMAKE_DISABLE_FIND_PACKAGE_{name}=ON" for name in ("LLVM", "ONNX", "Protobuf", "GTest")]
        done = subprocess.run([cmake, "--preset", "edge", "-B", folder, *hidden], cwd=source, capture_output=True, text=True,
                              check=False)
        if done.returncode != 0:
            print(done.stdout, done.stderr)
            return 1
        commands = json.loads((pathlib.Path(folder) / "compile_commands.json").read_text())
        for command in commands:
            name = pathlib.Path(command["file"]).resolve().relative_to(source).as_posix()
            for number, line in enumerate((source / name).read_text().splitlines(), 1):
                match = re.match(r'\s*#\s*include\s*<([^>]+)>', line) or re.match(r'\s*#\s*include\s*"([^"]+)"', line)
                header = match.group(1) if match else ""
                if any(header.startswith(foreign) for foreign in ("llvm/", "llvm-c/", "lld/", "rocksdb/", "xgboost/", "onnx/",
                                                                  "google/protobuf", "glslang/", "toml")):
                    problems.append(f"{name}:{number}: includes {header}")
        ninja = (pathlib.Path(folder) / "build.ninja").read_text()
        for line in ninja.splitlines():
            if line.strip().startswith("LINK_LIBRARIES"):
                problems += [f"links {word}" for word in line.split() if any(foreign in word.lower() for foreign in FOREIGN)]
        cache = (pathlib.Path(folder) / "CMakeCache.txt").read_text()
        problems += [f"looks for {foreign}" for foreign in FOREIGN
                     if re.search(rf"^\w*{foreign}\w*:(FILE)?PATH=", cache, re.M | re.I)]
        problems += [f"does not build {name}" for name in WANTED if f"build {name}" not in ninja]
        if len(commands) < 50:
            problems.append("hardly anything is compiled: is the preset another one?")
    for problem in problems:
        print(f"preset edge: {problem}")
    print(f"preset edge: {len(commands)} files, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
