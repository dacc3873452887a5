"""Random requests that decode, or nearly do: drawn from the messages' fields as docs/protocol.md has them."""

import harness
import protocol_grammar

# What fields of these names mean, so that requests get past the first look: kernels that are known, new or wrong,
# prefixes of fingerprints, targets.
TEXTS = {
    "kernel": (harness.SMALL, harness.SMALL, "add(M=1,N=2)", "add(M=1,N=3)", "matmul(M=1..9,N=8,K=8)",
               "softmax(M=3,N=5)+relu", "add(M=1,N=", "", "kernel",
               "kernel k(x: f32[4]) -> y: f32[4] { y[i] = x[i] + 1 }",
               "kernel k(x: f32[4]) -> y: f32[4] { y[i] = x[i+1] }",
               "add(M=1099511627776,N=1099511627776)", "f\0g", "0" * 32, "é" * 100),
    "fingerprint": ("", "0", "f", "00000000000000000000000000000000", "zz", "0" * 64, "\0"),
    "target": ("", "", "", "", "", "avx2", "avx512", "arm64", "avx2 l1=", "x" * 5000),
    "class_prefix": ("", "matmul", "add", "\xff"),
    "client": ("", "hone", "x" * 70_000),
    "digest": ("", "0" * 32, "short"),
}
COUNTS = (0, 1, 2, 3, 64, 1000)
# Numbers that ask for work are small: an answer has to come soon.
NUMBERS = {
    "trials": (1, 2, 3),
    "time_us": (1, 1000, 100_000),
    "budget_us": (0, 0, 1, 1000, 200_000),
    "threads": (0, 0, 0, 1, 2, 4095, 2**32 - 1),
    # Enumerators: a body with another one is no message.
    "action": (1, 2, 3),
    "what": (1, 2),
}
BITS = {"u8": 8, "u16": 16, "u32": 32, "u64": 64, "i64": 63}


def random_value(rng, field, kind, known):
    if kind.endswith("*"):
        return [random_value(rng, field, kind[:-1], known) for _ in range(rng.choice(COUNTS))]
    if kind == "string":
        if field == "fingerprint" and rng.random() < 0.5:
            return rng.choice(known)
        return rng.choice(TEXTS.get(field, ("", "a")))
    if kind == "bool":
        return rng.random() < 0.3
    if kind == "f64":
        return rng.choice((0.0, 1.0, -1.0, 1e300, float("inf"), float("nan")))
    if kind in BITS:
        if field in NUMBERS:
            return rng.choice(NUMBERS[field])
        return rng.choice((0, 1, 2, 3, rng.getrandbits(4), rng.getrandbits(BITS[kind]), 2**BITS[kind] - 1))
    return random_values(rng, kind, known)


def random_values(rng, name, known):
    return {field: random_value(rng, field, kind, known) for field, kind in protocol_grammar.FIELDS[name]}


def random_request(rng, known):
    """(number, body, exact): seven in eight are exactly a message; the others had a byte changed, go on too long or end
    early. `known` are fingerprints of records."""
    name = rng.choice(protocol_grammar.REQUESTS)
    body = protocol_grammar.encode(name, random_values(rng, name, known))
    exact = rng.random() >= 1 / 8
    if not exact:
        how = rng.randrange(3)
        if how == 0 and body:
            at = rng.randrange(len(body))
            body = body[:at] + bytes([rng.randrange(256)]) + body[at + 1:]
        elif how == 1:
            body = body[:rng.randrange(len(body) + 1)]
        else:
            body += rng.randbytes(rng.randrange(1, 9))
    return protocol_grammar.NUMBERS[name], body, exact
