#!/usr/bin/env python3
"""Each test that docs/security.md names is there."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def tests_in_code():
    """Suite.Name of every GoogleTest test."""
    found = set()
    for path in (ROOT / "tests").rglob("*.cc"):
        for suite, name in re.findall(r"^(?:TYPED_)?TEST(?:_[FP])?\(\s*(\w+),\s*(\w+)\)", path.read_text(), re.M):
            found.add(f"{suite}.{name}")
    return found


def main():
    text = (ROOT / "docs/security.md").read_text()
    named = set(re.findall(r"`([A-Z]\w+\.[A-Z]\w+)`", text))
    scripts = set(re.findall(r"`(test_\w+\.py)`", text))
    fuzzers = set(re.findall(r"`(\w+)_fuzz`", text))
    missing = sorted(named - tests_in_code() - {"Suite.Name"})
    missing += [name for name in sorted(scripts) if not (ROOT / "tests/integration" / name).exists()]
    missing += [f"{name}_fuzz" for name in sorted(fuzzers) if not (ROOT / "tests/fuzz" / f"{name}_fuzz.cc").exists()]
    if len(named) < 20:
        missing.append("(hardly any test is named: has the document's form changed?)")
    for name in missing:
        print(f"docs/security.md names {name}, which is not there")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
