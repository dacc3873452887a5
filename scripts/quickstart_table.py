#!/usr/bin/env python3
"""The table of scripts/quickstart.sh: what `hone warm` and `hone run` said of each kernel, in one row.

Usage: quickstart_table.py WARM.json RUN.json PEAK_JSON. Exit status 1 if any kernel is not verified.
"""

import json
import sys


def short(kernel, width):
    return kernel if len(kernel) <= width else kernel[: width - 1] + "…"


def main():
    warm = [json.loads(line) for line in open(sys.argv[1])]
    run = [json.loads(line) for line in open(sys.argv[2])]
    peak = json.loads(sys.argv[3])
    first = {row["kernel"]: row for row in warm if "kernel" in row}
    rows = []
    for row in run:
        kernel = row.get("kernel", "")
        rows.append((kernel, first.get(kernel, {}), row))
    width = 72
    print(f"{'kernel':{width}} {'origin':>8} {'served':>9} {'time':>10} {'GFLOP/s':>8} {'of peak':>7} {'error':>8}")
    unverified = 0
    for kernel, served, ran in rows:
        if "error" in ran:
            print(f"{short(kernel, width):{width}} {ran['error'].get('message', '?')}")
            unverified += 1
            continue
        unverified += not ran["verified"]
        share = ran["gflops"] / peak["fma_gflops"] if peak["fma_gflops"] else 0
        print(f"{short(kernel, width):{width}} {ran['origin']:>8} {served.get('served_us', 0) / 1e3:6.1f} ms {ran['time_us']:7.1f} us"
              f" {ran['gflops']:8.1f} {share:7.0%} {ran['max_rel_err']:8.1e}{'' if ran['verified'] else '  NOT VERIFIED'}")
    print(f"{len(rows)} kernels, {len(rows) - unverified} verified against the reference; one thread; "
          f"this machine's peak: {peak['fma_gflops']} GFLOP/s ({peak['isa']}), {peak['read_gb_s']} GB/s")
    return 1 if unverified or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
