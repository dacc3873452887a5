"""What bench/gpu_machine.py measures on a device: kernels, libraries beside which, and limits. bench/check names the marks of
NVIDIA's where there is no such device."""
import collections
import ctypes
import functools
import os

import lib

KINDS = {"cuda": "CUDA", "opencl": "OpenCL", "vulkan": "Vulkan"}
SIZES, TUNED_SIZES = (512, 1024, 2048, 4096), (1024, 4096)
ROWS = {"softmax": "softmax(M=16384,N=1024)", "layer_norm": "layer_norm(M=16384,N=1024)"}
LONG = 67108864
COPY = f"kernel copy(x: f32[N]) -> y: f32[N] where N={LONG} {{ y[i] = x[i] }}"
ADD = f"kernel add(x: f32[N], z: f32[N]) -> y: f32[N] where N={LONG} {{ y[i] = x[i] + z[i] }}"
# Kernel, the bytes of it that have to be moved.
MOVED = {"softmax": (ROWS["softmax"], 2 * 4 * 16384 * 1024), "layer_norm": (ROWS["layer_norm"], 2 * 4 * 16384 * 1024),
         "sum of two vectors": (ADD, 3 * 4 * LONG)}
NETWORKS = ["resnet50", "bert_128", "mobilenet_v2"]
TUNED_CONVOLUTIONS = ["conv2d(C=64,H=56,W=56,O=64,R=3,S=3,stride=1,pad=1,const=1)+bias+relu",
                      "conv2d(C=256,H=14,W=14,O=1024,R=1,S=1,stride=1,pad=0,const=1)+bias+add+relu",
                      "conv2d(C=256,H=14,W=14,O=256,R=3,S=3,stride=1,pad=1,const=1)+bias+relu"]
# No library's; what search finds over the default is printed.
ALSO_TUNED = ["depthwise_conv2d(C=96,H=112,W=112,R=3,S=3,stride=2,pad=1,const=1)", "softmax(M=4096,N=1024)"]

# Kernels measured with their default schedules, those of them that are searched, and the least speeds beside the library.
Group = collections.namedtuple("Group", "kernels tuned library by_default searched")


def products(words, sizes):
    return [f"matmul(M={n},N={n},K={n}{words})" for n in sizes]


@functools.cache
def groups():
    """By name: products of matrices by type (TF32: f32 whose accuracy allows it), and ResNet-50's convolutions."""
    convolutions = [kernel for _, kernel in lib.kernels([os.path.join(lib.ROOT, "models/resnet50.kernels")])
                    if kernel.startswith("conv2d")]
    found = {f"{name} products": Group(products(words, SIZES), products(words, TUNED_SIZES), "cuBLAS", limit, 1.0)
             for name, words, limit in (("f32", "", 0.9), ("TF32", ",accuracy=fast", 0.8), ("f16", ",dtype=f16,accuracy=fast", 0.8),
                                        ("bf16", ",dtype=bf16,accuracy=fast", 0.8), ("i8", ",dtype=i8", 0.8))}
    return {**found, "ResNet-50's convolutions": Group(convolutions, TUNED_CONVOLUTIONS, "cuDNN", 0.9, 1.0)}


def operations(kernel):
    """Of a product of matrices; 0 of others."""
    sizes = dict(word.split("=") for word in kernel[kernel.index("(") + 1:].split(")")[0].split(",") if "=" in word)
    return 2 * int(sizes["M"]) * int(sizes["N"]) * int(sizes["K"]) if kernel.startswith("matmul(") else 0


def not_verified(kind):
    return f"kernels of the lists that are not verified, {KINDS[kind]}"


def networks_differ(kind):
    return f"networks that are not verified, {KINDS[kind]}"


def against(kind, group, state):
    return f"{KINDS[kind]} {group} / {groups()[group].library}, {state}"


def of_bandwidth(kind, name):
    return f"{KINDS[kind]} {name}, share of copy bandwidth"


def of_pytorch(kind, network):
    return f"{KINDS[kind]} {network}, time / PyTorch"


def names(kind="cuda"):
    """All marks of a kind of device, in the order in which they are measured."""
    return [not_verified(kind), *(against(kind, group, "default") for group in groups()),
            *(of_bandwidth(kind, name) for name in MOVED), networks_differ(kind),
            *(of_pytorch(kind, network) for network in NETWORKS), *(against(kind, group, "tuned") for group in groups())]


def is_there():
    """Whether NVIDIA's driver finds a device."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    count = ctypes.c_int()
    return driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0
