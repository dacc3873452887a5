"""Fast tensor kernels from honed, the local kernel service.

    import hone
    matmul = hone.kernel("matmul(M=512,N=512,K=512)")
    c = matmul(a, b)                                     # NumPy arrays, or anything with __dlpack__

    dense = hone.kernel("dense(M=1,N=1000,K=512,const=1)+bias")
    dense.bind(w=weights, bias=bias)                     # constants, packed once
    y = dense(x)

    softmax = hone.kernel("softmax(M=64,N=64)", device=x)  # where x is: PyTorch's or CuPy's on CUDA, or OpenCL's
    softmax(x, out=y, stream=stream)

    session = hone.Session("model.onnx")                 # a whole network
    outputs = session.run({"input": x})

    hone.warm("resnet50.kernels")                        # serve every kernel of a list now

A kernel that is held becomes faster while it is used: honed refines it in idle time, and the library swaps the better
code in between two calls. Errors are hone.Error."""
from hone.client import Client, kernel
from hone.device import DeviceKernel
from hone.kernel import Kernel
from hone.library import Error
from hone.session import Session
from hone.warm import warm

__all__ = ["Client", "DeviceKernel", "Error", "Kernel", "Session", "kernel", "warm"]
__version__ = "0.1.0"
