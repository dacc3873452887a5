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


def common(names):
    """How many words all the names begin with, and how many of the rest they end with."""
    words = [name.split(" ") for name in names]
    shortest = min(map(len, words))
    begin = next((i for i in range(shortest) if len({name[i] for name in words}) > 1), shortest)
    rest = shortest - begin
    end = next((i for i in range(rest) if len({name[-1 - i] for name in words}) > 1), rest)
    return begin, end


def differ_in_a_word(names):
    """Or in two, and are the same otherwise."""
    begin, end = common(names)
    return begin + end >= 2 and all(1 <= len(name.split(" ")) - begin - end <= 2 for name in names)


def grouped(marks):
    """Marks of one part by the lines of the table: those that differ in a word and have the same limit share one."""
    groups = []
    for name in dict.fromkeys(mark["mark"] for mark in marks):
        newest = max((mark for mark in marks if mark["mark"] == name), key=lambda mark: mark["date"])
        bound = (newest["direction"], newest["limit"], newest["unit"])
        for names, of_group in groups:
            if of_group == bound and differ_in_a_word(names + [name]) and (
                    len(names) == 1 or common(names) == common(names + [name])):
                names.append(name)
                break
        else:
            groups.append(([name], bound))
    return groups


def name_of(names):
    """"hit p50, 1 / 8 / 64 clients"."""
    if len(names) == 1:
        return names[0]
    begin, end = common(names)
    words = [name.split(" ") for name in names]
    differing = " / ".join(" ".join(name[begin:len(name) - end]) for name in words)
    # A comma stands behind the last of them.
    return " ".join(words[0][:begin] + [differing.replace(", /", " /")] + words[0][len(words[0]) - end:])


def cells_of(marks):
    """Values, verdict and commits of one line on one machine; a value that missed where others met is printed in bold."""
    if not any(marks):
        return ["–"] * 3
    all_met, none_met = (all(mark["met"] == met for mark in marks if mark) for met in (True, False))
    values = []
    for mark in marks:
        value = number(mark["seen"], mark["unit"]) if mark else "–"
        values.append(value if not mark or mark["met"] or none_met else f"**{value}**")
    commits = [mark["commit"] + ("*" if mark.get("commit_is") == "document" else "") for mark in marks if mark]
    return [" / ".join(values), "yes" if all_met else "**no**", ", ".join(dict.fromkeys(commits))]


def table(document, parts):
    """Markdown: a line for each mark, or for several that differ in a word, in the order of the parts, with values, verdict and
    commit of each machine."""
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
        of_part = [mark for mark in document["marks"] if mark["part"] == part]
        for names, (direction, limit, unit) in grouped(of_part):
            cells = [part, name_of(names), f"{SIGNS[direction]} {number(limit, unit)}"]
            for machine in machines:
                found = {mark["mark"]: mark for mark in of_part if mark["machine"] == machine}
                cells += cells_of([found.get(name) for name in names])
            lines.append("| " + " | ".join(cells) + " |")
    met = sum(mark["met"] for mark in document["marks"])
    lines += ["", f"{len(document['marks'])} measurements: {met} met, {len(document['marks']) - met} missed."]
    return "\n".join(lines) + "\n"
