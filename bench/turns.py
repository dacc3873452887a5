"""Computations that take turns in one process, so that whatever disturbs the machine disturbs all of them."""
import re
import statistics
import time

import numpy

import libhone

BURST_S = 0.006
SETTLE_S = 0.04   # threads of other libraries spin for so long
GATHER_S = 0.03   # until a process's threads run on cores of their own


def attributes(kernel):
    """conv2d(C=3,…)+bias+relu → "conv2d", {"C": 3, …}, ["bias", "relu"]."""
    name, inside, tail = re.fullmatch(r"(\w+)\((.*?)\)([+\w]*)", kernel).groups()
    values = {}
    for pair in inside.split(","):
        key, value = pair.split("=")
        values[key] = float(value) if "." in value or "e-" in value else int(value) if value.isdigit() else value
    return name, values, tail.split("+")[1:]


def operands(held):
    """An array per operand of a held kernel, in order, with random numbers in the inputs."""
    random = numpy.random.default_rng(1)
    arrays = []
    for operand in held.operands:
        arrays.append(libhone.aligned(operand.shape, libhone.DTYPES[operand.dtype]))
        arrays[-1][...] = random.uniform(-1, 1, operand.shape)
    return arrays


def burst(work, count):
    begin = time.perf_counter()
    for _ in range(count):
        work()
    return (time.perf_counter() - begin) / count


def count_for(work):
    """How many calls take BURST_S."""
    work()
    once = burst(work, 2)
    return max(1, min(20000, int(BURST_S / max(once, 1e-7))))


def overhead(nothing):
    """Seconds of a call that has nothing to do."""
    return statistics.median(burst(nothing, 2000) for _ in range(9))


def take(works, overheads, rounds, threads=1):
    """Seconds of a call without its overhead: a list over the rounds for each work. Another one begins each round. With
    several threads each waits until the former one's threads have stopped looking for work, and runs its own warm."""
    counts = [count_for(work) for work in works]
    times = [[] for _ in works]
    for turn in range(rounds):
        for place in range(len(works)):
            which = (turn + place) % len(works)
            if threads > 1:
                time.sleep(SETTLE_S)
            works[which]()  # brings its data back
            if threads > 1:
                burst(works[which], max(1, int(counts[which] * GATHER_S / BURST_S)))
            times[which].append(max(1e-8, burst(works[which], counts[which]) - overheads[which]))
    return times


def ratios(ours, theirs):
    """Their times over ours, round by round: median, least, most."""
    each = sorted(b / a for a, b in zip(ours, theirs))
    return statistics.median(each), each[0], each[-1]


def difference(ours, theirs):
    """Of two results, as a share of the largest value."""
    return float(numpy.max(numpy.abs(ours - theirs)) / max(1e-6, float(numpy.max(numpy.abs(theirs)))))
