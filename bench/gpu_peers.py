"""What PyTorch (cuBLAS, cuDNN) takes on an NVIDIA GPU: kernels and networks, one a line on standard input, and for each a line of JSON.

Runs in an interpreter that has PyTorch with CUDA; bench/gpu_machine.py starts it. f32 without TF32 but where the kernel's accuracy
allows it (fast); random data. Times are medians of nine batches between events, a batch long enough that launches from Python hide
behind it where a kernel takes longer than they do, and replayed from a CUDA graph so that they do not count where it does not."""
import json
import re
import sys

import torch

torch.backends.cudnn.benchmark = True
TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
functional = torch.nn.functional


def time_us(call):
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(10):
            call()
    graph.replay()
    torch.cuda.synchronize()
    times = []
    for _ in range(9):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(2):
            graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1000 / 20)
    return sorted(times)[len(times) // 2]


def call_for(text):
    sizes = {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", text)}
    dtype = TYPES.get((re.findall(r"dtype=(\w+)", text) or ["f32"])[0])

    def rand(*shape):
        return (torch.rand(*shape, device="cuda") - 0.5).to(dtype)

    if text.startswith("matmul") and "dtype=i8" in text:
        def bytes_of(*shape):
            return torch.randint(-128, 128, shape, device="cuda", dtype=torch.int8)
        a, b = bytes_of(sizes["M"], sizes["K"]), bytes_of(sizes["K"], sizes["N"])
        out = torch.empty(sizes["M"], sizes["N"], device="cuda", dtype=torch.int32)
        return lambda: torch._int_mm(a, b, out=out)
    if text.startswith("matmul"):
        a, b = rand(sizes["M"], sizes["K"]), rand(sizes["K"], sizes["N"])
        out = torch.empty(sizes["M"], sizes["N"], device="cuda", dtype=dtype)
        return lambda: torch.matmul(a, b, out=out)
    if text.startswith("conv2d"):
        x = rand(1, sizes["C"], sizes["H"], sizes["W"])
        w, bias = rand(sizes["O"], sizes["C"], sizes["R"], sizes["S"]), rand(sizes["O"])
        stride, pad = sizes.get("stride", 1), sizes.get("pad", 0)
        return lambda: functional.conv2d(x, w, bias, stride=stride, padding=pad)
    if text.startswith("softmax"):
        x = rand(sizes["M"], sizes["N"])
        return lambda: functional.softmax(x, -1)
    if text.startswith("layer_norm"):
        x, gamma, beta = rand(sizes["M"], sizes["N"]), rand(sizes["N"]), rand(sizes["N"])
        return lambda: functional.layer_norm(x, (sizes["N"],), gamma, beta)
    if text.startswith("kernel copy"):
        x = rand(sizes["N"])
        y = torch.empty_like(x)
        return lambda: y.copy_(x)
    if text.startswith("network resnet50") or text.startswith("network mobilenet_v2"):
        import torchvision
        model, x = getattr(torchvision.models, text.split()[1])().eval().cuda(), rand(1, 3, 224, 224)
        return lambda: model(x)
    if text.startswith("network bert_128"):
        import transformers
        model = transformers.BertModel(transformers.BertConfig()).eval().cuda()
        ids = torch.randint(0, 30000, (1, 128), device="cuda")
        return lambda: model(ids)
    return None


def main():
    with torch.inference_mode():
        for line in sys.stdin:
            text = line.strip()
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = "accuracy=fast" in text
            try:
                call = call_for(text)
                if call:
                    print(json.dumps({"kernel": text, "us": time_us(call)}), flush=True)
            except Exception as error:  # one that fails leaves the others their figures
                print(f"{text}: {error}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
