"""A device on another machine that goes wrong: hone-runner --stdio, and in between somebody who changes what it says.

Usage: faulty_device.py FAULT AFTER COMMAND…. The fault is done to the device's AFTER-th timing: times (absurd ones), garbage,
hang, hang-up; to every check: wrong (of code that is right), die (before it answers); to the first frame: version, banner; or none."""

import os
import struct
import subprocess
import sys
import threading
import time

HEADER = struct.Struct("<4sBBHQI")
HELLO, CHECKED, TIMED = 40, 13, 15


def read(stream, size):
    data = b""
    while len(data) < size:
        part = stream.read(size - len(data))
        if not part:
            sys.exit(0)
        data += part
    return data


def pass_on(stream):
    while data := os.read(0, 1 << 16):
        stream.write(data)
        stream.flush()
    stream.close()


def main():
    fault, after, command = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    device = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    threading.Thread(target=pass_on, args=(device.stdin,), daemon=True).start()
    timings = 0
    while True:
        magic, kind, fds, reserved, request, length = HEADER.unpack(read(device.stdout, HEADER.size))
        body = read(device.stdout, length)
        timings += kind == TIMED
        is_now = kind == TIMED and timings > after
        if kind == HELLO and fault == "version":
            body = body[:12] + struct.pack("<H", 99) + body[14:]
        if kind == HELLO and fault == "banner":
            os.write(1, b"Welcome to the board! Last login: yesterday\n")
        if kind == CHECKED and fault == "wrong":
            error = b"\x0c" + b"\x0by[3] is 17." + b"\x00"
            body = b"\x01" + bytes([len(error)]) + error + body[1:]
        if is_now and fault == "times":
            body = struct.pack("<ddd", 1e-9, 1e-9, 0) + body[24:]
        if is_now and fault == "garbage":
            os.write(1, b"\xee" * 64)
        if is_now and fault == "hang":
            time.sleep(1000)
        if is_now and fault == "hang-up" or kind == CHECKED and fault == "die":
            device.kill()
            sys.exit(3)
        os.write(1, HEADER.pack(magic, kind, fds, reserved, request, len(body)) + body)


main()
