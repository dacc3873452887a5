#!/usr/bin/env python3
"""Includes point down the layers, each foreign library is included only by the files that wrap it, nothing above
codegen/ and backends/ names what a device is, and no two types have one name.

Usage: layering_test.py SOURCE_DIR. Prints file:line for everything that breaks a rule; exit status 1 if any does.
"""

import pathlib
import re
import sys

# room -> rooms whose headers it may include, besides its own. A folder stands for all rooms in it.
LAYERS = {
    "base": set(),
    # A kernel as a graph of stages; how it is written; how it is computed; what it comes to.
    "ir/graph": {"base"},
    "ir/language": {"base", "ir/graph"},
    "ir/steps": {"base", "ir/graph", "ir/schedule", "ir/rewrites"},
    "ir/rewrites": {"base", "ir/graph", "ir/language", "ir/schedule", "ir/steps"},
    "ir/schedule": {"base", "ir/graph", "ir/steps", "ir/rewrites"},
    "ir/reference": {"base", "ir/graph"},
    "ir": {"base", "ir"},
    "codegen": {"base", "ir"},
    "codegen/lower": {"base", "ir", "codegen/instructions.h"},
    "codegen/rules": {"base", "ir", "codegen/lower", "codegen/machine_model.h", "codegen/device_kinds.h",
                      "codegen/instructions.h"},
    "codegen/llvm": {"base", "ir", "codegen/lower", "codegen/machine_model.h", "codegen/math_tables.h",
                     "codegen/instructions.h"},
    "codegen/gpu": {"base", "ir", "codegen/lower", "codegen/instructions.h", "codegen/math_tables.h", "codegen/machine_model.h"},
    # A child process; what runs in a runner, and what the two sides of its channel share; then a kind of device.
    "backends/sandbox": {"base"},
    "backends/processes": {"base", "ir", "codegen", "backends/sandbox", "backends/runner/candidate_spec.h", "backends/runner/guarded_arena.h"},
    "backends/runner": {"base", "ir", "codegen", "backends/sandbox", "backends/processes"},
    "backends/drivers": {"base", "ir"},
    "backends": {"base", "ir", "codegen"},
    "cache": {"base", "ir"},
    # Read and written without a database.
    "cache/bundle": {"base", "ir", "cache/record.h", "cache/keys.h"},
    "tuner": {"base", "ir", "codegen", "backends", "cache"},
    "client": {"base", "ir"},
    "client/protocol": {"base", "ir"},
    "client/api": {"base", "ir", "client"},
    # On an application's own contexts.
    "client/device": {"base", "ir", "client", "backends/drivers"},
    "network/graph": {"base", "ir"},
    "network/onnx": {"base", "ir", "network/graph"},
    "network/run": {"base", "ir", "client", "network/graph", "network/onnx", "backends/drivers"},
    "network": {"base", "ir", "client", "network"},
    # What commands print with is shared by the report.
    "client/cli/report": {"base", "ir", "client/protocol", "client/cli/plain_text.h",
                          "client/cli/print_values.h", "client/cli/roofline_bound.h"},
    "client/cli": {"base", "ir", "client", "network", "cache/schedule_cache.h", "cache/bundle", "cache/record.h", "cache/keys.h",
                   "backends/drivers"},
    # The daemon speaks the client's protocol, and nothing else of it.
    "daemon/serve": {"base", "ir", "codegen", "backends", "cache", "tuner", "client/protocol", "daemon/metrics.h", "daemon/worker_pools.h"},
    "daemon/refine": {"base", "ir", "codegen", "backends", "cache", "tuner", "client/protocol", "daemon/metrics.h", "daemon/worker_pools.h",
                      "daemon/serve"},
    "daemon/inspect": {"base", "ir", "codegen", "backends", "cache", "tuner", "client/protocol", "daemon/metrics.h", "daemon/worker_pools.h",
                       "daemon/serve", "daemon/refine", "daemon/routes.h"},  # which declares the functions that answer
    # Without what makes code: no search, no builder, no database.
    "daemon/edge": {"base", "ir", "backends/registry.h", "cache/bundle/bundle_files.h", "cache/bundle_cache.h", "client/protocol", "daemon/serve/lookup_path.h",
                    "daemon/serve/missing_kernels.h", "daemon/serve/devices.h", "daemon/serve/listen.h", "daemon/serve/misses.h",
                    "daemon/serve/server.h", "daemon/inspect/admin.h", "daemon/router.h", "daemon/routes.h", "daemon/free_memory.h",
                    "daemon/watchdog.h"},
    "daemon": {"base", "ir", "codegen", "backends", "cache", "tuner", "client/protocol", "daemon"},
}

# header prefix -> files (regular expressions) that may include it
FOREIGN = {
    r"llvm[/-]|lld/": r"codegen/llvm/[a-z_]*\.(cc|h)|backends/cpu/build_for_cpu\.cc|tests/codegen/.*|tests/build/.*",
    r"rocksdb/": r"cache/rocks_[a-z_]*\.(cc|h)|cache/cache_directory\.cc|tests/.*",
    r"cereal/": r"client/protocol/protocol\.(cc|h)",
    r"boost/": r"daemon/.*|tests/.*",
    r"toml\+\+|toml\.hpp": r"daemon/config\.cc",
    r"nlohmann/": r"tuner/check_trees\.cc|client/cli/json\.(cc|h)|client/cli/.*\.cc|bench/.*|tests/cli/.*",
    r"CLI/": r"client/cli/parse_command_line\.cc|client/cli/main\.cc|client/cli/command\.h",
    r"blake2\.h": r"base/hash\.cc",
    r"seccomp\.h|linux/seccomp\.h": r"backends/sandbox/seccomp_filter\.(cc|h)",
    r"xgboost/": r"tuner/booster\.cc",
    r"onnx|google/protobuf": r"network/onnx/onnx_import\.cc|tests/network/model_files\.(cc|h)",
    r"tl/": r"base/result\.h",
    r"sodium": r"cache/bundle/(ed25519|sha256)\.cc",
    r"CL/": r"backends/drivers/opencl_[a-z]*\.(cc|h)|client/hone_opencl\.h|bench/gpu_lab\.cc|tests/integration/flawed_driver\.c",
    r"vulkan/": r"backends/drivers/vulkan_[a-z]*\.(cc|h)|client/hone_vulkan\.h|tests/integration/vulkan_user\.c",
    r"glslang/": r"backends/gpu/compile_glsl\.cc",
    r"zstd\.h|lz4": r"cache/bundle/pack\.cc",
}

# Above codegen/ and backends/ a device is a kind and its facts: no code names an instruction set, the format of its
# programs or its compiler, and none asks for what is the CPU's. base/ and ir/target are below.
ABOVE_THE_SEAM = ("daemon", "tuner", "cache", "client", "network", "ir")
KNOWS_A_DEVICE = re.compile(r"elf|elf64\w*|elf_\w+|cpuid|cpu_features|avx\w*|neon|llvm\w*|isa|isaname|kavx\w*|kneon|x86\w*|arm64|aarch64",
                            re.IGNORECASE)
MAY_NAME_DEVICES = {
    "ir/target.h", "ir/target.cc",  # what there is to say of a CPU, as text
    "ir/native_artifact.cc",  # hands code that a process maps to the gate in base/
    "client/cli/code.cc", "client/cli/context.cc", "client/cli/export.cc", "client/cli/warm.cc",  # help texts, for people
}
WORD = re.compile(r"[A-Za-z_]\w*")
COMMENT = re.compile(r"//.*|/\*.*?\*/")


def names_a_device(line):
    """The word by which a line of code knows what its device is; None if it does not."""
    return next((word for word in WORD.findall(COMMENT.sub("", line)) if KNOWS_A_DEVICE.fullmatch(word)), None)


INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def allows(layer, header):
    """Whether a file of this layer may include that header."""
    return any(header == allowed or header.startswith(allowed + "/") for allowed in LAYERS[layer] | {layer})


def layer_of(path):
    """The longest layer folder that holds the path."""
    best = None
    for layer in LAYERS:
        if path.startswith(layer + "/") and (best is None or len(layer) > len(best)):
            best = layer
    return best


NAMESPACE = re.compile(r"namespace ([\w:]*) ?\{")
TYPE = re.compile(r"(?:struct|class|enum class) (\w+)(?: final)?(?: *:(?!:).*)? *\{")


def types_of(text):
    """(line, name with its namespaces) of each type that a file defines where other files' types of that name would be
    the same one to the linker, which then takes either's functions for both."""
    spaces = []
    for number, line in enumerate(text.splitlines(), 1):
        if match := NAMESPACE.match(line):
            spaces.append(match.group(1))
        elif line.startswith("}  // namespace") and spaces:
            spaces.pop()
        elif (match := TYPE.match(line)) and "" not in spaces:
            yield number, "::".join([*spaces, match.group(1)])


def check(root):
    problems = []
    defined = {}
    seen = 0
    for folder in sorted({layer.split("/")[0] for layer in LAYERS} | {"tests", "bench"}):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in (".cc", ".h", ".c"):
                continue
            seen += 1
            name = path.relative_to(root).as_posix()
            layer = layer_of(name)
            text = path.read_text(encoding="utf-8")
            for number, kind in types_of(text) if layer else ():
                first = defined.setdefault(kind, f"{name}:{number}")
                if first != f"{name}:{number}":
                    problems.append(f"{name}:{number}: {kind} is defined at {first} as well")
            for number, line in enumerate(text.splitlines(), 1):
                known = names_a_device(line)
                if known and folder in ABOVE_THE_SEAM and name not in MAY_NAME_DEVICES:
                    problems.append(f"{name}:{number}: names {known}; what is a device's own belongs in backends/ or codegen/")
                match = INCLUDE.match(line)
                if not match:
                    continue
                header = match.group(2)
                target = layer_of(header)
                if layer and target and not allows(layer, header):
                    problems.append(f"{name}:{number}: {layer} may not include {header}; it may use: "
                                    f"{', '.join(sorted(LAYERS[layer])) or 'the standard library'}")
                for prefix, allowed in FOREIGN.items():
                    if re.match(prefix, header) and not re.fullmatch(allowed, name):
                        problems.append(f"{name}:{number}: {header} belongs in {allowed}")
    return seen, problems


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    seen, problems = check(root)
    for problem in problems:
        print(problem)
    print(f"layering: {seen} files, {len(problems)} problems")
    return 1 if problems or seen == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
