#!/usr/bin/env python3
"""A reader of bundles, written from docs/bundle_format.md alone: with the C libraries of zstd and libsodium, no line of hone's.
Usage: bundle_reader.py FILE. Checks what the document says can be checked; prints the manifest, then a record a line.
"""

import ctypes.util
import hashlib
import json
import re
import struct
import sys

def digest(data, size=32):
    return hashlib.blake2b(data, digest_size=size).digest()

class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0
    def raw(self, size):
        assert self.at + size <= len(self.data), "ends early"
        self.at += size
        return self.data[self.at - size:self.at]
    def u8(self):
        return self.raw(1)[0]
    def varint(self):
        value = shift = 0
        while (byte := self.u8()) >= 128:
            value, shift = value | (byte & 127) << shift, shift + 7
        assert byte > 0 or shift == 0, "not the shortest form"
        return value | byte << shift
    def svarint(self):
        value = self.varint()
        return value >> 1 ^ -(value & 1)
    def string(self):
        return self.raw(self.varint())
    def many(self, read):
        return [read() for _ in range(self.varint())]

def unpack(packing, stored, size):
    assert packing in (0, 1) and size <= 64 << 20 and (packing == 0 or size <= 256 * len(stored)), "a bomb"
    if packing == 0:
        return stored
    out, zstd = ctypes.create_string_buffer(size), ctypes.CDLL(ctypes.util.find_library("zstd"))
    zstd.ZSTD_decompress.restype = ctypes.c_size_t
    got = zstd.ZSTD_decompress(out, ctypes.c_size_t(size), stored, ctypes.c_size_t(len(stored)))
    assert got == size, "does not unpack to the size that the manifest says"
    return out.raw

def read_record(entry):
    value, class_text, calls = entry.string(), entry.string(), entry.varint()
    assert value[:6] in (b"hone\4\1", b"hone\1\1") and digest(value[:-8], 8) == value[-8:], "a damaged record"
    r = Reader(Reader(value[6:-8]).string())
    kernel_class, kernel, flags, origin = r.raw(16), r.raw(16), r.u8(), r.u8()
    target, threads, _, label, _, canonical = r.string(), r.varint(), r.string(), r.string(), r.string(), r.string()
    shape, schedule = r.many(r.svarint), r.string()
    timing = [r.varint(), r.varint(), r.u8(), r.u8(), r.varint(), r.varint()] if flags & 1 else None
    expected, error, samples, full = r.varint() if flags & 2 else None, r.raw(8), r.varint(), r.u8()
    artifact = (r.raw(32), r.varint()) if flags & 4 else None
    donor, created, updated = r.raw(16) if flags & 8 else None, r.svarint(), r.svarint()
    assert r.at == len(r.data) and not flags & 112 and 1 <= origin <= 4, "not a record as bundles have them"
    assert kernel_class == digest(class_text, 16) and kernel == digest(canonical, 16), "a fingerprint of another text"
    key = kernel_class + kernel + digest(target.removeprefix(b"cpu ") + b"\0" + str(threads).encode(), 8)
    return key, artifact, {"kernel": kernel.hex(), "label": label.decode(), "target": target.decode(), "shape": shape,
                           "calls": calls, "time_ns": timing and timing[0], "artifact": artifact and artifact[0].hex()}

def read_bundle(data):
    magic, version, flags, manifest_bytes, frame_bytes, check = struct.unpack("<8sHHIQ8s", data[:32])
    assert magic == b"hone.bdl" and version == 1 and flags in (0, 1), "no bundle that this reads"
    begin, end = 32 + manifest_bytes, len(data) - 96 * flags
    assert begin + frame_bytes == end, "cut, or too long"
    if flags:
        sodium, text = ctypes.CDLL(ctypes.util.find_library("sodium")), b"hone bundle signature 1\n" + digest(data[:end])
        key, signature, size = data[end:end + 32], data[end + 32:], ctypes.c_ulonglong(len(text))
        assert sodium.crypto_sign_verify_detached(signature, text, size, key) == 0, "the signature does not fit"
    assert digest(data[:24] + data[32:begin], 8) == check, "the manifest is damaged"
    m = Reader(data[32:begin])
    name, number, issued, expires = m.string().decode(), m.varint(), m.svarint(), m.svarint() if m.u8() else None
    producer, by, targets, count = m.string().decode(), m.string().decode(), m.many(m.string), m.varint()
    assert re.fullmatch(r"[A-Za-z0-9_+-][A-Za-z0-9._+-]{0,63}", name) and targets == sorted(set(targets)), "a bad manifest"
    records, codes, at = [], {}, begin
    for _ in range(m.varint()):
        kind, packing, stored, unpacked, frame_digest = m.u8(), m.u8(), m.varint(), m.varint(), m.raw(32)
        content, frame, at = m.raw(32) if kind == 2 else None, data[at:at + stored], at + stored
        assert digest(frame) == frame_digest, "a damaged frame"
        entries = Reader(unpack(packing, frame, unpacked) if kind in (1, 2) else b"")
        if kind == 2:
            assert digest(entries.data) == content and content not in codes, "not the code that it says"
            codes[content] = len(entries.data)
        while kind == 1 and entries.at < len(entries.data):
            records.append(read_record(entries))
    assert m.at == len(m.data) and at == end and len(records) == count, "the manifest lies"
    assert all(a[0] < b[0] for a, b in zip(records, records[1:])), "out of order, or twice"
    assert dict(artifact for _, artifact, _ in records if artifact) == codes, "code that belongs to no record"
    return {"name": name, "version": number, "issued": issued, "expires": expires, "producer": producer, "by": by, "records": count,
            "targets": [target.decode() for target in targets], "signer": data[end:end + 32].hex()}, [record for _, _, record in records]

if __name__ == "__main__":
    with open(sys.argv[1], "rb") as opened:
        head, rows = read_bundle(opened.read())
    print(json.dumps(head), *map(json.dumps, rows), sep="\n")
