"""What a systemd unit denies by filters of system calls, without systemd: for a process that a test is about to start."""
import ctypes
import os
import re
import struct
import subprocess

SOURCE = os.environ.get("HONE_SOURCE_DIR", os.path.join(os.path.dirname(__file__), "../.."))
LIBC = ctypes.CDLL(None, use_errno=True)

LOAD, EQUAL, SET, RETURN = 0x20, 0x15, 0x45, 0x06
ALLOW, FAIL = 0x7fff0000, 0x00050000
EPERM, EAFNOSUPPORT = 1, 97
PROT_WRITE, PROT_EXEC, SHM_EXEC = 2, 4, 0o100000


def values(unit, key):
    with open(os.path.join(SOURCE, unit), encoding="utf-8") as file:
        return " ".join(re.findall(rf"^{key}=(.*)$", file.read(), re.M)).split()


def call_sets():
    """systemd 252's, as systemd-analyze syscall-filter prints them."""
    sets, name = {}, ""
    with open(os.path.join(SOURCE, "tests/backends/sandbox/systemd_252_sets.txt"), encoding="utf-8") as file:
        for line in file:
            if line[0] == "@":
                name = line.strip()
                sets[name] = []
            elif line.strip() and line.strip()[0] != "#":
                sets[name].append(line.strip())
    return sets


def numbers():
    out = subprocess.run([os.environ.get("CC", "cc"), "-E", "-dM", "-x", "c", "-"], input="#include <asm/unistd.h>",
                         capture_output=True, text=True, check=True).stdout
    return {name: int(number) for name, number in re.findall(r"#define __NR_(\w+) (\d+)", out)}


def program(unit):
    """The filter as BPF: (code, jump if true, jump if false, constant)."""
    sets, known = call_sets(), numbers()

    def expand(name):
        return {call for member in sets[name] for call in expand(member)} if name[0] == "@" else {name}

    allowed = {known[call] for name in values(unit, "SystemCallFilter") for call in expand(name) if call in known}
    assert len(allowed) > 200, allowed
    steps = [(LOAD, 0, 0, 0)]

    def fail_with_flags(call, flags):
        """If each of them is set in the third argument."""
        tests = [(SET, 0, len(flags) - at, flag) for at, flag in enumerate(flags)]
        steps.extend([(EQUAL, 0, len(tests) + 3, known[call]), (LOAD, 0, 0, 32), *tests, (RETURN, 0, 0, FAIL | EPERM),
                      (LOAD, 0, 0, 0)])

    if values(unit, "MemoryDenyWriteExecute") == ["yes"]:
        fail_with_flags("mmap", [PROT_WRITE, PROT_EXEC])
        fail_with_flags("mprotect", [PROT_EXEC])
        fail_with_flags("pkey_mprotect", [PROT_EXEC])
        fail_with_flags("shmat", [SHM_EXEC])
    if values(unit, "RestrictAddressFamilies") == ["AF_UNIX"]:
        steps += [(EQUAL, 0, 4, known["socket"]), (LOAD, 0, 0, 16), (EQUAL, 1, 0, 1), (RETURN, 0, 0, FAIL | EAFNOSUPPORT),
                  (LOAD, 0, 0, 0)]
    for call in sorted(allowed):
        steps += [(EQUAL, 0, 1, call), (RETURN, 0, 0, ALLOW)]
    return steps + [(RETURN, 0, 0, FAIL | EPERM)]


def preparation(unit):
    """A function that installs the unit's filter in the process that calls it."""
    steps = program(unit)
    code = b"".join(struct.pack("<HBBI", *step) for step in steps)
    buffer = ctypes.create_string_buffer(code, len(code))
    head = ctypes.create_string_buffer(struct.pack("<HxxxxxxQ", len(steps), ctypes.addressof(buffer)))

    def install():
        PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
        if LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
            raise OSError("no_new_privs")
        if LIBC.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.c_void_p(ctypes.addressof(head)), 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "seccomp")

    install.keep = (buffer, head)
    return install
