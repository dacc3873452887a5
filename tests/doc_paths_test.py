#!/usr/bin/env python3
"""Files and folders that the documents name are there. Lab notes are left out: they are about the code of their day."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
# `ir/language/parse`, `codegen/rules/schedule_*.cc`, `tests/golden/NAME.golden` (NAME: the reader's own), a link's target.
NAMED = re.compile(r"`([a-z]+(?:/[\w.*-]+)+/?)[^`]*`")
LINKED = re.compile(r"\]\(([\w./-]+)\)")
FOLDERS = {path.name for path in ROOT.iterdir() if path.is_dir()} - {"build"}


def is_there(name):
    """As it stands, as a module without its ending, or as a pattern that matches something."""
    pattern = re.sub(r"(?<![A-Za-z])[A-Z]{2,}(?![A-Za-z])", "*", name.rstrip("/")) if not (ROOT / name).exists() else name
    return any(next(ROOT.glob(pattern + ending), None) for ending in ("", ".h", ".cc", "*.cc", ".py"))


def main():
    missing = []
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        names = {name for name in NAMED.findall(text) if name.split("/")[0] in FOLDERS}
        missing += [(document, name) for name in sorted(names) if not is_there(name)]
        missing += [(document, link) for link in sorted(set(LINKED.findall(text))) if not (document.parent / link).exists()]
    for document, name in missing:
        print(f"{document.relative_to(ROOT)} names {name}, which is not there")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
