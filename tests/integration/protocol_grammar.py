"""The messages as docs/protocol.md has them: their numbers, their fields, and bytes from values and back.

`encode("GetRequest", {"kernel": "add(M=1,N=2)"})`: what is not given is 0 or empty. `tests/client/protocol/protocol_doc_test.cc`
keeps the document and the code alike.
"""

import os
import re
import struct

import harness

WORDS = {"u8": "<B", "u16": "<H", "u32": "<I", "u64": "<Q", "i64": "<q", "f64": "<d", "bool": "<?"}


def _read_document():
    """Numbers and fields by a message's name: ({"GetRequest": 4}, {"GetRequest": [("kernel", "string"), …]})."""
    with open(os.path.join(harness.SOURCE, "docs/protocol.md"), encoding="utf-8") as document:
        text = document.read()
    table = re.findall(r"\| (\d+) \| (\w+(?:Request|Reply|Notice)) (?=\|)", text)
    numbers = {name: int(number) for number, name in table}
    fields, name = {}, None
    for line in text.splitlines():
        begun = re.match(r"([A-Z]\w+) +::=", line)
        name = begun.group(1) if begun else name if line.startswith(" ") else None
        if begun:
            fields[name] = []
        if name:
            fields[name] += re.findall(r"(\w+):(\w+\*?)", line)
    return numbers, fields


NUMBERS, FIELDS = _read_document()
NAMES = {number: name for name, number in NUMBERS.items()}
REQUESTS = sorted(name for name in NUMBERS if name.endswith("Request"))


def encode_value(kind, value):
    if kind.endswith("*"):
        return struct.pack("<I", len(value or ())) + b"".join(encode_value(kind[:-1], item) for item in value or ())
    if kind == "string":
        data = value.encode() if isinstance(value, str) else value or b""
        return struct.pack("<I", len(data)) + data
    if kind in WORDS:
        return struct.pack(WORDS[kind], value or 0)
    return encode(kind, value or {})


def encode(name, values):
    """A message's body."""
    assert values.keys() <= dict(FIELDS[name]).keys(), f"{name} has no such field: {values}"
    return b"".join(encode_value(kind, values.get(field)) for field, kind in FIELDS[name])


def _decode_value(kind, data, at):
    if kind.endswith("*"):
        (count,) = struct.unpack_from("<I", data, at)
        at, items = at + 4, []
        for _ in range(count):
            item, at = _decode_value(kind[:-1], data, at)
            items.append(item)
        return items, at
    if kind == "string":
        (size,) = struct.unpack_from("<I", data, at)
        return data[at + 4:at + 4 + size].decode(errors="replace"), at + 4 + size
    if kind in WORDS:
        return struct.unpack_from(WORDS[kind], data, at)[0], at + struct.calcsize(WORDS[kind])
    values = {}
    for field, each in FIELDS[kind]:
        values[field], at = _decode_value(each, data, at)
    return values, at


def decode(name, body):
    """The values of a whole body; ValueError if it goes on too long."""
    values, end = _decode_value(name, body, 0)
    if end != len(body):
        raise ValueError(f"{name}: {len(body) - end} bytes too many")
    return values


def request(name, request_id=1, /, **values):
    """A whole frame."""
    return harness.frame(NUMBERS[name], encode(name, values), request_id)
