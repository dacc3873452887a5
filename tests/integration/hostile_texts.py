"""Kernel texts that want to cost much: refused ones that look small, and valid ones whose code takes long to make.

`tests/support/hostile_texts.h` has many more families of the first kind, for the parser alone."""


def sums_of_sums(towers=22, terms=990):
    """Names that are sums of the name before: an expression some 22,000 operators high in 44 KB."""
    where = "N=1, A0=N" + "+N" * (terms - 1)
    for tower in range(1, towers):
        where += f", A{tower}=A{tower - 1}" + "+N" * (terms - 1)
    return f"kernel k(x: f32[4]) -> y: f32[4] where {where} {{ y[i] = x[i] * float(A{towers - 1}) }}"


def minima_of_minima(size, doublings=15):
    """Every dimension of every tensor stands for 2^doublings mentions of one size."""
    where = "N=1, A0=N" + "".join(f", A{i}=min(A{i - 1},A{i - 1})" for i in range(1, doublings + 1))
    dimensions = ",".join([f"A{doublings}"] * 8)
    inputs, body = "x: f32[1]", ""
    for number in range(60):
        if len(inputs) > size / 2:
            break
        inputs += f", x{number}: f32[{dimensions}]"
    for number in range(255):
        if len(inputs) + len(where) + len(body) > size:
            break
        body += f"t{number}: f32[{dimensions}] t{number}[a,b,c,d,e,f,g,h] = 1.0\n"
    return f"kernel k({inputs}) -> y: f32[1] where {where} {{\n{body}y[i] = x[i] }}"


def deep(number=0):
    """As deep as brackets may be, and a little deeper: refused."""
    return f"kernel k(x: f32[4]) -> y: f32[4] {{ y[i] = x[i] + {number} + " + "(" * 5000 + "x[i]" + ")" * 5000 + " }"


def refused():
    """(what it is, text) of texts of points where much was once spent before they were refused."""
    yield "sums of sums, 44 KB", sums_of_sums()
    yield "sums of sums, 40 KB", sums_of_sums(20, 990)
    yield "sums of sums, 1 MB", sums_of_sums(500, 990)
    for size in (13_000, 29_000, 122_000, 1_000_000):
        yield f"minima of minima, {size} bytes", minima_of_minima(size)
    yield "brackets", deep()
    yield "a row of 100,000 terms", "kernel k(x: f32[4]) -> y: f32[4] { y[i] = x[i]" + "+x[i]" * 100_000 + " }"


def chain(stages, number, size=64):
    """A valid kernel of so many sums of the two tensors before: with 200, 10 KB of text and 20 s of a builder. `number`
    makes it another kernel."""
    shape = f"f32[{size},{size}]"
    body, last, before = "", "x", "x"
    for stage in range(stages - 1):
        body += f"t{stage}:{shape} t{stage}[i,j]={last}[i,j]*0.5+{before}[i,j]\n"
        before, last = last, f"t{stage}"
    return f"kernel chain(x: {shape}) -> y: {shape} {{\n{body}y[i,j]={last}[i,j]*0.5+{number + 1}.0 }}"


def with_comment(kernel, size):
    """The same kernel behind a comment."""
    return "#" * (size - 1) + "\n" + kernel


def wordy(number, size):
    """A valid kernel that compiles fast and has a text of about so many bytes."""
    names = (size - 80) // 12
    where = ", ".join(f"UNUSED{name:03}=1" for name in range(names))
    return f"kernel wordy(x: f32[4]) -> y: f32[4] where {where} {{ y[i] = x[i] + {number + 1}.0 }}"


def long_to_read(number):
    """A valid kernel of 40 KB that takes tens of milliseconds to look up."""
    loads = "".join(f"+x[clamp(min(n*{i + 1}, l-n)*max(k*l, {i + 1}-n), 0, N-1)]" for i in range(800))
    return ("kernel k(x: f32[N]) -> y: f32[N] where N=1..9 "
            f"{{ y[n] = sum(k<N, l<N) if(n < k, {number + 1}.0{loads}, 0) }}")
