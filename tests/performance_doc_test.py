#!/usr/bin/env python3
"""docs/performance.md shows what bench/marks.json holds, and the README claims no speed that it does not show."""

import pathlib
import re
import runpy
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.dont_write_bytecode = True  # nothing is left beside the scripts
sys.path.insert(0, str(ROOT / "bench"))
import marks  # noqa: E402

PAGE = 70  # lines of small print on A4

# A number with a unit of time, rate, size of code or ratio: 42.9 ms, 1.4×, 98 %, 30 trials a second.
CLAIM = re.compile(r"\d[\d.,]*(?:\s?×|\s(?:%|ns|µs|us|ms|s|seconds|minutes|/s|a second|GFLOP/s|GB/s|times|per cent)(?!\w))")


def claims(readme):
    """What the README says of speed in its own words; terminal transcripts show one run of one machine and are left out."""
    return CLAIM.findall(re.sub(r"^```.*?^```", "", readme, flags=re.M | re.S))


def shows(document, claim):
    """Whether the document has the number as it stands, and not as a part of a longer one."""
    return re.search(rf"(?<![\d.,]){re.escape(claim)}(?!\w)", document) is not None


def wrong_marks(document, parts):
    """What a reader of the file would stumble over."""
    found = []
    for mark in document["marks"]:
        name = f"{mark['part']}: {mark['mark']}"
        met = mark["seen"] <= mark["limit"] if mark["direction"] == "most" else mark["seen"] >= mark["limit"]
        if mark["met"] != met:
            found.append(f"{name}: its verdict does not follow from its figure")
        if mark["machine"] not in document["machines"]:
            found.append(f"{name}: unknown machine {mark['machine']}")
        if mark["part"] not in parts:
            found.append(f"{name}: bench/check has no such part")
        if not re.fullmatch(r"[0-9a-f]{7,}\+?", mark["commit"]):
            found.append(f"{name}: {mark['commit']} is no commit")
    return found


def check_merge():
    """A complete part replaces what the machine had; an incomplete one adds; of four machines the oldest goes, and
    one of the same name with other instructions is another."""
    def run(document, processor, date, names, complete, isa="avx2"):
        facts = {"processor": processor, "cores": 2, "isa": isa, "fma_gflops": 1.0, "read_gb_s": 1.0, "commit": "abcdef1"}
        new = [{"part": "hits", "mark": name, "seen": 1.0, "unit": "x", "limit": 2, "direction": "most", "met": True}
               for name in names]
        marks.merge(document, facts, new, ["hits"] if complete else [], date)

    def held(document):
        return sorted((mark["machine"][0], mark["mark"], mark["date"]) for mark in document["marks"])

    document = {"machines": {}, "marks": []}
    run(document, "a", "2026-01-01", ["old", "both"], True)
    run(document, "a", "2026-01-02", ["both"], False)
    assert held(document) == [("a", "both", "2026-01-02"), ("a", "old", "2026-01-01")], held(document)
    run(document, "a", "2026-01-03", ["both"], True)
    assert held(document) == [("a", "both", "2026-01-03")], held(document)
    run(document, "b", "2026-01-04", ["both"], True)
    run(document, "b", "2026-01-04", ["both"], True, "avx512")
    run(document, "c", "2026-01-04", ["both"], True)
    assert held(document) == [(name, "both", "2026-01-04") for name in "bbc"], held(document)
    assert [machine[0] for machine in document["machines"]] == ["b", "b", "c"]


def check_lines():
    """Marks that differ in a word share a line if their limit is the same; nothing else does."""
    def mark(name, seen, limit=2):
        return {"part": "hits", "mark": name, "seen": seen, "unit": "x", "limit": limit, "direction": "most",
                "met": seen <= limit, "machine": "a", "date": "2026-01-01", "commit": "abcdef1"}
    document = {"machines": {"a": {"isa": "avx2", "fma_gflops": 1.0, "read_gb_s": 1.0}},
                "marks": [mark("p50, 1 clients", 1), mark("p99, 1 clients", 1, 4), mark("p50, 8 clients", 3),
                          mark("p50 of one client", 1)]}
    lines = [line for line in marks.table(document, ["hits"]).splitlines() if line.startswith("| hits")]
    assert lines == ["| hits | p50, 1 / 8 clients | ≤ 2× | 1× / **3×** | **no** | abcdef1 |",
                     "| hits | p99, 1 clients | ≤ 4× | 1× | yes | abcdef1 |",
                     "| hits | p50 of one client | ≤ 2× | 1× | yes | abcdef1 |"], lines


def main():
    check_merge()
    check_lines()
    parts = runpy.run_path(str(ROOT / "bench/check"))["PARTS"]
    document = marks.load(marks.FILE)
    text = pathlib.Path(marks.DOCUMENT).read_text(encoding="utf-8")
    between = text[text.index(marks.BEGIN) + len(marks.BEGIN):text.index(marks.END)].strip()
    wrong = wrong_marks(document, parts)
    if between != marks.table(document, parts).strip():
        wrong.append("docs/performance.md does not show what bench/marks.json holds; run: bench/check --write")
    if text.count("\n") > 2 * PAGE:
        wrong.append("docs/performance.md is longer than two pages")
    found = claims((ROOT / "README.md").read_text(encoding="utf-8"))
    wrong += [f"README.md says \"{claim}\", which docs/performance.md does not show" for claim in found if not shows(text, claim)]
    if len(found) < 5:
        wrong.append("README.md hardly says how fast hone is: has its form changed?")
    for line in wrong:
        print(line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
