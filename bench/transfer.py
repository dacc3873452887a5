#!/usr/bin/env python3
"""How much of tuned speed a model gets without tuning: each model is left out and served from the tuned kernels of others.

usage: bench/transfer.py [--bin DIR] [--pool CACHE] [--trials N] [--threads N] [--store DIR] [--again] [--rerank]
                         [--json FILE] [--write FILE.md] [MODEL …]

First the pool: every distinct kernel of all lists in models/ is searched with N trials (128); the cache stays in
build/transfer-pool, and what was searched there is not searched again. Then bench/transfer_lab.cc, once a model: left out
of the donors and of what the ranker learns from are the model's kernels, those of its family (the other token length, the
other EfficientNet), and with them every kernel that it shares with another model. Results stay in build/bench-transfer
(--again measures anew; --rerank keeps the times and has the ranker, which may have changed, choose again). Last the tables,
which --write puts between the marks of a Markdown file.

Every time is the least of rounds in which all programs of a kernel take turns; what is chosen by measuring is chosen by half
of the rounds and counted by the others. The reference ("tuned") is the fastest that was ever seen of a kernel, of
whatever origin. Share of tuned speed: calls × tuned time, summed, over calls × served time.
Share of gain: how much of default − tuned is won, summed over the model, where tuned is at least 5 % better. "one second" is the fastest of as many guesses
as a second can measure; "search" the pool's own search of the kernel, a few to twenty seconds of the sixty that a budget of
a minute allows."""
import argparse
import json
import math
import os
import random
import re
import statistics
import subprocess
import sys

import lib
import source_model

MODELS = ["alexnet", "bert_128", "bert_256", "efficientnet_b0", "efficientnet_b4", "googlenet", "mnasnet1_0", "mobilebert_128",
          "mobilebert_256", "mobilenet_v2", "resnet18", "resnet50", "vgg16"]
FAMILIES = [{"bert_128", "bert_256"}, {"mobilebert_128", "mobilebert_256"}, {"efficientnet_b0", "efficientnet_b4"}]
LISTS = os.path.join(lib.ROOT, "models")
NEAR_CLASS, NEAR_OTHERS = 4, 2  # donors that the daemon asks where it measures nothing
WIDE_CLASS, WIDE_OTHERS = 6, 4  # … and where it measures
ALL_CLASS, ALL_OTHERS = 16, 6  # … that are measured here: the oracle knows the best of them
MEASURED = 8  # guesses that one second a kernel is enough to measure
SEED = 1
DEVICE_MODELS = ["resnet18", "mobilenet_v2", "bert_128"]
BEGIN, END = "<!-- tables: bench/transfer.py -->", "<!-- end of tables -->"


def list_of(model):
    return os.path.join(LISTS, f"{model}.kernels")


def kernels_of(model):
    """(calls, kernel) a line of its list."""
    with open(list_of(model), encoding="utf-8") as file:
        lines = [line.split("#")[0].split(maxsplit=1) for line in file]
    return [(int(parts[0]), parts[1].strip()) for parts in lines if len(parts) == 2]


def family_of(model):
    return next((family for family in FAMILIES if model in family), {model})


def make_pool(arguments):
    """Searches what has not been searched with as many trials."""
    done = os.path.join(arguments.pool, f"done-{arguments.trials}-{arguments.threads}")
    os.makedirs(arguments.pool, exist_ok=True)
    finished = set()
    if os.path.exists(done):
        with open(done, encoding="utf-8") as file:
            finished = {line.strip() for line in file}
    left = [model for model in MODELS if model not in finished]
    if not left:
        return
    with lib.Daemon(arguments.bin, "--cache", arguments.pool) as daemon:
        for model in left:
            print(f"searching the kernels of {model}, {arguments.trials} trials each …", flush=True)
            daemon.hone("tune", "--all", "--trials", str(arguments.trials), "--threads", str(arguments.threads), list_of(model))
            with open(done, "a", encoding="utf-8") as file:
                file.write(f"{model}\n")


def measure(arguments, model, donors=(), name=None, target=None):
    """A row per kernel, from the store if it is there."""
    path = os.path.join(arguments.store, f"threads-{arguments.threads}", f"{name or model}.jsonl")
    is_there = os.path.exists(path) and not arguments.again
    if not is_there or arguments.rerank:
        print(f"{'ranking' if is_there else 'measuring'} {name or model} …", flush=True)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        command = [os.path.join(arguments.bin, "transfer_lab"), "--pool", arguments.pool, "--threads", str(arguments.threads),
                   "--of-class", str(ALL_CLASS), "--of-others", str(ALL_OTHERS)]
        if target:
            command += ["--target", target]
        elif donors:
            command += [word for donor in donors for word in ("--donors", list_of(donor))] + ["--leave-out", list_of(model)]
        else:
            command += [word for left in sorted(family_of(model)) for word in ("--leave-out", list_of(left))]
        out = subprocess.run([*command, *(["--rank-only"] if is_there else []), list_of(model)], stdout=subprocess.PIPE,
                             text=True, check=True).stdout
        if is_there:
            out = ranked_anew(path, [json.loads(line) for line in out.splitlines()])
        with open(path + ".part", "w", encoding="utf-8") as file:
            file.write(out)
        os.rename(path + ".part", path)
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def ranked_anew(path, ranks):
    """The rows that were measured, with what the ranker says now."""
    said = {row["kernel"]: row for row in ranks}
    lines = []
    with open(path, encoding="utf-8") as file:
        for row in map(json.loads, file):
            now = said[row["kernel"]]
            key = lambda fit: (fit["way"], fit["donor"], fit["strict"])  # noqa: E731
            fits = {key(fit): fit for fit in now["fits"]}
            row["rank_ms"] = now["rank_ms"]
            for fit in row["fits"]:
                fit["gain"], fit["rank"] = (fits[key(fit)][word] if key(fit) in fits else None for word in ("gain", "rank"))
            lines.append(json.dumps(row) + "\n")
    return "".join(lines)


def second_device(daemon):
    """This machine as if it had AVX2 alone, as a target; None: it has no more than that."""
    target = daemon.hone("status")[0]["targets"][0]
    isa, _, rest = target.partition(" ")
    return "avx2 " + re.sub(r"features=\S+ ?", "", re.sub(r"cpu=\S+", "cpu=haswell", rest)) if isa == "avx512" else None


def across_devices(arguments, members):
    """(model, rows, ways): served for the second device by what was tuned for the first, its own tuned kernels included."""
    models = [model for model in DEVICE_MODELS if model in arguments.models]
    with lib.Daemon(arguments.bin, "--cache", arguments.pool) as daemon:
        target = second_device(daemon)
        for model in models if target else []:
            done = os.path.join(arguments.pool, f"done-{model}-{arguments.trials}-{arguments.threads}-avx2")
            if arguments.no_pool or os.path.exists(done):
                continue
            print(f"searching the kernels of {model} for AVX2, {arguments.trials} trials each …", flush=True)
            daemon.hone("tune", "--all", "--trials", str(arguments.trials), "--threads", str(arguments.threads), "--target", target,
                        list_of(model))
            with open(done, "w", encoding="utf-8") as file:
                file.write(target)
    studies = []
    for model in models if target else []:
        rows = measure(arguments, model, name=f"{model}-avx2", target=target)
        studies.append((model, rows, strategies(model, rows, members)[1]))
    return studies


def near(fits, of_class=NEAR_CLASS, of_others=NEAR_OTHERS):
    """The default, and the fits of the nearest donors: what the daemon would rank."""
    kept, donors = [], {True: [], False: []}
    for fit in fits:
        if fit["strict"]:
            continue
        if fit["donor"]:
            known = donors[fit["same_class"]]
            if fit["donor"] not in known:
                if len(known) >= (of_class if fit["same_class"] else of_others):
                    continue
                known.append(fit["donor"])
        kept.append(fit)
    return kept


def timed(fits):
    return [fit for fit in fits if fit["us"] > 0]


def ranked(fits):
    """Best guess first."""
    return sorted((fit for fit in timed(fits) if fit["gain"] is not None), key=lambda fit: -fit["gain"])


def chosen(fits):
    """Of what was timed, the fastest by half of the rounds, as the other half has it: the fastest of many by the same rounds
    would be the luckiest."""
    return min(timed(fits), key=lambda fit: fit["pick_us"])["us"]


def source_models(model, rows, members):
    """Other models, best source first: Eq. 6.1, Σ over classes of (share of the target's untuned time)² · √(kernels of the
    source of that class)."""
    label = lambda kernel: "".join(("+" + part) if i else part.split("(")[0] for i, part in enumerate(kernel.split("+")))
    total = sum(row["calls"] * row["plain_us"] for row in rows)
    shares = {}
    for row in rows:
        name = label(row["kernel"])
        shares[name] = shares.get(name, 0) + row["calls"] * row["plain_us"] / total
    counts = {}
    for source in MODELS:
        if source in family_of(model):
            continue
        counts[source] = {}
        for kernel in members[source]:
            counts[source][label(kernel)] = counts[source].get(label(kernel), 0) + 1
    return source_model.rank(shares, counts)


def strategies(model, rows, members):
    """What each way of choosing serves: its name → microseconds per row."""
    source = source_models(model, rows, members)[0]
    chance = random.Random(SEED)
    ways = {name: [] for name in ("default", "tuned", "search", "ranked", "same class", "other classes", "one second", "nearest",
                                  "nearest, strict", "random", "Eq. 6.1, nearest", "Eq. 6.1, measured", "oracle")}
    regrets, correlations = [], []
    for row in rows:
        fits, default = row["fits"], row["default_us"]
        own = near(fits)
        loose = [fit for fit in fits if not fit["strict"]]
        by_steps = [fit for fit in timed(loose) if fit["way"] == "steps"]
        order = ranked(own)
        standard = next(fit for fit in loose if not fit["donor"])
        own_tuned = {"us": row["tuned_us"], "pick_us": row["tuned_pick_us"]}
        tuned = chosen([own_tuned, *loose])
        ways["default"].append(default)
        ways["tuned"].append(tuned)
        ways["search"].append(row["tuned_us"])
        ways["ranked"].append(order[0]["us"] if order else default)
        same = ranked([fit for fit in own if fit["same_class"] or not fit["donor"]])
        ways["same class"].append(same[0]["us"] if same else default)
        other = ranked([fit for fit in own if not fit["same_class"]])
        ways["other classes"].append(other[0]["us"] if other else default)
        measured = ranked(near(fits, WIDE_CLASS, WIDE_OTHERS))[:MEASURED]
        ways["one second"].append(chosen(measured) if measured else default)
        ways["nearest"].append(by_steps[0]["us"] if by_steps else default)
        strict = [fit for fit in timed(fits) if fit["strict"]]
        ways["nearest, strict"].append(strict[0]["us"] if strict else default)
        ways["random"].append(chance.choice(by_steps)["us"] if by_steps else default)
        of_source = [fit for fit in by_steps if fit["donor"] in members[source]]
        ways["Eq. 6.1, nearest"].append(of_source[0]["us"] if of_source else default)
        ways["Eq. 6.1, measured"].append(chosen([standard, *of_source]))
        oracle = chosen(loose)
        ways["oracle"].append(oracle)
        if order:
            regrets.append(order[0]["us"] / oracle - 1)
            if len(order) > 2:
                correlations.append(spearman([fit["gain"] for fit in order], [-fit["us"] for fit in order]))
    return source, ways, regrets, correlations


def spearman(a, b):
    def ranks(values):
        order = sorted(range(len(values)), key=lambda i: values[i])
        rank = [0.0] * len(values)
        i = 0
        while i < len(order):
            j = i
            while j + 1 < len(order) and values[order[j + 1]] == values[order[i]]:
                j += 1
            for k in range(i, j + 1):
                rank[order[k]] = (i + j) / 2
            i = j + 1
        return rank

    a, b = ranks(a), ranks(b)
    mean_a, mean_b = statistics.mean(a), statistics.mean(b)
    top = sum((x - mean_a) * (y - mean_b) for x, y in zip(a, b))
    bottom = math.sqrt(sum((x - mean_a) ** 2 for x in a) * sum((y - mean_b) ** 2 for y in b))
    return top / bottom if bottom else 0


def total(rows, times):
    return sum(row["calls"] * us for row, us in zip(rows, times))


def speed_share(rows, ways, name):
    return total(rows, ways["tuned"]) / total(rows, ways[name])


def gain_share(rows, ways, name):
    """None where tuning wins less than 5 %."""
    before, tuned = total(rows, ways["default"]), total(rows, ways["tuned"])
    return (before - total(rows, ways[name])) / (before - tuned) if before > 1.05 * tuned else None


def summary(values):
    """Mean, median and worst of what is there."""
    there = [value for value in values if value is not None]
    return (statistics.mean(there), statistics.median(there), min(there)) if there else (float("nan"),) * 3


def cell(value):
    return "–" if value is None else f"{value:.2f}"


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def share_table(title, studies, names, share):
    rows = [[model] + [cell(share(rows, ways, name)) for name in names] for model, rows, ways in studies]
    sums = [summary([share(rows, ways, name) for _, rows, ways in studies]) for name in names]
    for i, word in enumerate(("mean", "median", "worst")):
        rows.append([f"**{word}**"] + [f"**{column[i]:.2f}**" for column in sums])
    return f"{title}\n\n" + table(["left out", *names], rows) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--bin", default=lib.BIN)
    parser.add_argument("--pool", default=os.path.join(lib.ROOT, "build/transfer-pool"))
    parser.add_argument("--store", default=os.path.join(lib.ROOT, "build/bench-transfer"))
    parser.add_argument("--trials", type=int, default=128)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--rerank", action="store_true", help="keep the times, ask the ranker anew")
    parser.add_argument("--no-pool", action="store_true", help="the pool is there already")
    parser.add_argument("--json")
    parser.add_argument("--write", help="a Markdown file to put the tables into")
    parser.add_argument("models", nargs="*", default=MODELS)
    arguments = parser.parse_args()
    if not arguments.no_pool:
        make_pool(arguments)
    members = {model: {kernel for _, kernel in kernels_of(model)} for model in MODELS}
    studies, sources, regrets, correlations, rank_ms = [], [], [], [], []
    for model in arguments.models:
        rows = measure(arguments, model)
        source, ways, of_model, correlated = strategies(model, rows, members)
        studies.append((model, rows, ways))
        sources.append((model, source))
        regrets += of_model
        correlations += correlated
        rank_ms += [row["rank_ms"] for row in rows]
    text = share_table("Share of tuned speed.", studies,
                       ["default", "ranked", "one second", "search", "oracle", "nearest", "nearest, strict", "random",
                        "Eq. 6.1, nearest", "Eq. 6.1, measured"], speed_share)
    text += share_table("Share of tuned gain over the default schedules.", studies,
                        ["ranked", "one second", "search", "oracle", "nearest", "Eq. 6.1, nearest", "Eq. 6.1, measured"], gain_share)
    text += share_table("Donors of the same class, and of others only: share of tuned speed.", studies,
                        ["ranked", "same class", "other classes"], speed_share)
    text += "Source models by Eq. 6.1: " + ", ".join(f"{model} from {source}" for model, source in sources) + ".\n\n"
    lengths = []
    for base in ("bert", "mobilebert"):
        for here, there in (("128", "256"), ("256", "128")):
            model, other = f"{base}_{here}", f"{base}_{there}"
            if model in arguments.models and other in arguments.models:
                rows = measure(arguments, model, donors=[other], name=f"{model}-from-{other}")
                lengths.append((f"{model} from {other}", rows, strategies(model, rows, members)[1]))
    if lengths:
        text += share_table("From one token length to the other: share of tuned speed.", lengths,
                            ["default", "ranked", "one second", "nearest", "nearest, strict"], speed_share)
    devices = across_devices(arguments, members)
    if devices:
        text += share_table("Served for AVX2 by what was tuned for AVX-512, the same kernels among them: share of the speed that is "
                            "tuned for AVX2.", devices, ["default", "ranked", "one second", "search", "nearest", "oracle"],
                            speed_share)
    print("\n" + text)
    if arguments.write:
        lib.write_between(arguments.write, BEGIN, END, text)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            for model, rows, ways in studies:
                for i, row in enumerate(rows):
                    file.write(json.dumps({"model": model, "kernel": row["kernel"], "calls": row["calls"],
                                           **{name: times[i] for name, times in ways.items()}}) + "\n")
    shares = {name: summary([speed_share(rows, ways, name) for _, rows, ways in studies]) for name in studies[0][2]}
    gains = summary([gain_share(rows, ways, "ranked") for _, rows, ways in studies])
    print(f"rank correlation of the ranker, median over kernels {statistics.median(correlations):.2f}; "
          f"making and ranking the guesses {statistics.median(rank_ms):.1f} ms (this study asks more donors than the daemon)")
    lib.mark("share of tuned speed, nothing measured, mean", shares["ranked"][0], "", 0.90, False)
    lib.mark("share of tuned speed, nothing measured, worst model", shares["ranked"][2], "", 0.75, False)
    lib.mark("share of tuned speed, one second, mean", shares["one second"][0], "", 0.95, False)
    lib.mark("share of tuned gain over default schedules, nothing measured, mean", gains[0], "", 0.85, False)
    lib.mark("regret against the oracle donor, median", 100 * statistics.median(regrets), "%", 3, True)
    lib.mark("mean share over that of the nearest shape", shares["ranked"][0] / shares["nearest"][0], "x", 1, False)
    lib.mark("mean share over that of Eq. 6.1", shares["ranked"][0] / shares["Eq. 6.1, nearest"][0], "x", 1, False)


if __name__ == "__main__":
    main()
