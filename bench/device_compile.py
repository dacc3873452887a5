#!/usr/bin/env python3
"""What compilers that need no device make of every kernel of the lists: NVRTC and ptxas for sm_80 and sm_90, spirv-val for Vulkan.

usage: bench/device_compile.py [--bin DIR] [LIST.kernels …]

Runs gpu_compile, which says of each kernel what is wrong: default schedules of all kernels for each of the three, and of every
fourth product of matrices with narrow types and tf32, whose schedules name instructions of tensor cores. ptxas has to count as many
registers and bytes of block storage as the check before took for granted, or fewer. What gpu_compile says is kept in
build/device_compile. NVRTC is installed from the Python registry into build/, unless there is one."""
import argparse
import concurrent.futures
import glob
import os
import re
import subprocess
import sys

import lib

# As honed takes them where no such device is there, and what every Vulkan device of today can do.
SM_80 = "cuda arch=sm_80 block_bytes=49152 block_bytes_most=166912 block_threads=1024 l2=41943040 units=108"
SM_90 = "cuda arch=sm_90 block_bytes=49152 block_bytes_most=232448 block_threads=1024 l2=52428800 units=132"
SPIRV = "vulkan block_bytes=32768 block_threads=256 f64=1 i16=1 i64=1 i8=1"
TARGETS = {"sm_80": SM_80, "sm_90": SM_90, "SPIR-V": SPIRV}
# Products that are to be done by tensor cores: mma of each kind, and wgmma.
NARROW = [("sm_80", "accuracy=fast"), ("sm_80", "dtype=bf16,accuracy=fast"), ("sm_90", "dtype=f16,accuracy=fast"), ("sm_90", "dtype=i8")]
EVERY = 4
LAST_LINE = re.compile(r": (?P<kernels>\d+) kernels; (?P<built>\d+) built, .* (?P<refused>\d+) refused, "
                       r"(?P<miscounted>\d+) that ptxas counts otherwise, (?P<lost>\d+) of (?P<named>\d+) without the tensor instruction")


def compile_all(program, lists, target, options, name):
    """The counts of gpu_compile's last line."""
    with open(os.path.join(lib.ROOT, "build/device_compile", name + ".txt"), "w+", encoding="utf-8") as file:
        subprocess.run([program, "--target", TARGETS[target], *options, *lists], stdout=file, stderr=subprocess.STDOUT, check=False)
        file.seek(0)
        lines = file.read().splitlines()
    for line in lines:
        if line.startswith(("WRONG", "[SKIP]")):
            print(f"  {name}: {line}", flush=True)
    found = LAST_LINE.search(lines[-1]) if lines else None
    if not found:
        sys.exit(f"device_compile.py: {name}: " + (lines[-1] if lines else "gpu_compile said nothing"))
    print(f"{name}: {lines[-1]}", flush=True)
    counts = {key: int(value) for key, value in found.groupdict().items()}
    if counts["built"] == 0:
        sys.exit(f"device_compile.py: {name}: nothing was built")
    return counts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=lib.BIN)
    parser.add_argument("lists", nargs="*")
    arguments = parser.parse_args()
    lists = arguments.lists or sorted(glob.glob(os.path.join(lib.ROOT, "models/*.kernels")))
    program = os.path.join(arguments.bin, "gpu_compile")
    lib.find_nvrtc()
    os.makedirs(os.path.join(lib.ROOT, "build/device_compile"), exist_ok=True)
    runs = [(target, [], target) for target in TARGETS]
    runs += [(target, ["--products", options, "--every", str(EVERY)], f"{target}, {options}") for target, options in NARROW]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        found = list(pool.map(lambda run: (run[0], run[2], compile_all(program, lists, *run)), runs))
    for target in TARGETS:
        lib.mark(f"code for the lists that is refused, {target}", sum(counts["refused"] for of, _, counts in found if of == target), "", 0,
                 at_most=True)
    for target in ("sm_80", "sm_90"):
        lib.mark(f"launches that ptxas counts otherwise, {target}",
                 sum(counts["miscounted"] for of, _, counts in found if of == target), "", 0, at_most=True)
    for target in ("sm_80", "sm_90"):
        lib.mark(f"code without the tensor instruction its schedule names, {target}",
                 sum(counts["lost"] for of, _, counts in found if of == target), "", 0, at_most=True)
    for target, name, counts in found:
        if "," in name and counts["named"] == 0:
            sys.exit(f"device_compile.py: {name}: no schedule names an instruction of tensor cores")
    return 0


if __name__ == "__main__":
    sys.exit(main())
