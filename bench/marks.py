"""The newest measurement of every mark: bench/marks.json, and the table that docs/performance.md shows of it.

marks.json holds {"machines": {NAME: facts}, "marks": [mark, …]}. A mark is what bench/check read from a part's output (part,
mark, seen, unit, direction, limit, met), and where it comes from: machine, date (UTC) and commit, the short hash of the build
that was measured. "commit_is": "document" where only the commit is known that wrote the figure into the documents, and "note"
say more about figures from before the file was kept."""
import json
import os

import lib

FILE = os.path.join(lib.ROOT, "bench/marks.json")
DOCUMENT = os.path.join(lib.ROOT, "docs/performance.md")
BEGIN, END = "<!-- table: bench/check --write -->", "<!-- end of table -->"
MACHINES = 3  # columns of the table, and how many machines are kept for each mark
SIGNS = {"most": "≤", "least": "≥"}


def load(path):
    """The document in the file; an empty one if there is none."""
    if not os.path.exists(path):
        return {"machines": {}, "marks": []}
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def save(path, document):
    """Whole or not at all."""
    new = f"{os.path.realpath(path)}.new"
    with open(new, "w", encoding="utf-8") as file:
        file.write('{"machines": ' + json.dumps(document["machines"], indent=1, ensure_ascii=False) + ',\n"marks": [\n')
        file.write(",\n".join(json.dumps(mark, ensure_ascii=False) for mark in document["marks"]) + "\n]}\n")
    os.replace(new, os.path.realpath(path))


def merge(document, facts, marks, complete, date):
    """Puts a run's marks in the place of what the same machine had. A part that ran to its end replaces all of its marks, so
    that none lingers under an old name. Of each part the newest MACHINES are kept."""
    name = f"{facts['processor']}, {facts['cores']} cores, {facts['isa']}"  # virtual machines do not say which model it is
    document["machines"][name] = {key: facts[key] for key in ("isa", "fma_gflops", "read_gb_s")}
    new = [{**mark, "machine": name, "date": date, "commit": facts["commit"]} for mark in marks]
    measured = {(mark["part"], mark["mark"]) for mark in marks}
    kept = [old for old in document["marks"]
            if old["machine"] != name or not (old["part"] in complete or (old["part"], old["mark"]) in measured)]
    both = kept + new
    newest = {}
    for part in {mark["part"] for mark in both}:
        dates = {}
        for mark in both:
            if mark["part"] == part:
                dates[mark["machine"]] = max(mark["date"], dates.get(mark["machine"], ""))
        newest[part] = sorted(dates, key=lambda machine: (dates[machine], machine == name), reverse=True)[:MACHINES]
    document["marks"] = [mark for mark in both if mark["machine"] in newest[mark["part"]]]
    used = {mark["machine"] for mark in document["marks"]}
    document["machines"] = {machine: facts for machine, facts in document["machines"].items() if machine in used}


def number(value, unit):
    """With its unit, as the README quotes it: 42.9 ms, 1.4×, 208 B."""
    text = f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return text + {"x": "×", "": ""}.get(unit, " " + unit.replace("us", "µs"))


def table(document, parts):
    """Markdown: a line for each mark in the order of the parts, with the value, the verdict and the commit of each machine."""
    machines = sorted(document["machines"], key=lambda machine: max(mark["date"] for mark in document["marks"]
                                                                    if mark["machine"] == machine), reverse=True)[:MACHINES]
    lines = []
    for i, machine in enumerate(machines):
        facts = document["machines"][machine]
        lines.append(f"- {'ABC'[i]}: {machine}, {facts['fma_gflops']:.0f} GFLOP/s (fp32 FMA) a core, "
                     f"{facts['read_gb_s']:.1f} GB/s")
    columns = ["value on {0}", "met", "commit"]
    header = ["part", "mark", "limit"] + [column.format("ABC"[i]) for i in range(len(machines)) for column in columns]
    lines += ["", "| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    for part in parts:
        for name in dict.fromkeys(mark["mark"] for mark in document["marks"] if mark["part"] == part):
            found = {mark["machine"]: mark for mark in document["marks"] if (mark["part"], mark["mark"]) == (part, name)}
            newest = max(found.values(), key=lambda mark: mark["date"])
            cells = [part, name, f"{SIGNS[newest['direction']]} {number(newest['limit'], newest['unit'])}"]
            for machine in machines:
                mark = found.get(machine)
                cells += [number(mark["seen"], mark["unit"]), "yes" if mark["met"] else "**no**",
                          mark["commit"] + ("*" if mark.get("commit_is") == "document" else "")] if mark else ["–"] * 3
            lines.append("| " + " | ".join(cells) + " |")
    met = sum(mark["met"] for mark in document["marks"])
    lines += ["", f"{len(document['marks'])} measurements: {met} met, {len(document['marks']) - met} missed."]
    return "\n".join(lines) + "\n"
