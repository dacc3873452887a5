/* libhone_cuda: kernels that honed serves, in an application's own CUDA context and on its own streams. C99; errors,
 * options and what is said of kernels as in hone.h.
 *
 *   hone_cuda *cuda = hone_cuda_open(NULL, NULL, &error);    the current context
 *   hone_cuda_kernel *kernel = hone_cuda_get(cuda, "dense(M=64,N=1000,K=512,const=1)+bias", NULL, &error);
 *   hone_cuda_bind(kernel, 1, weights, &error);
 *   hone_cuda_bind(kernel, 2, bias, &error);
 *   hone_cuda_buffer buffers[] = {x, {0, 0}, {0, 0}, y};
 *   hone_cuda_enqueue(kernel, stream, buffers, &error);
 *
 * The types are those of cuda.h, which this header does not need: struct CUctx_st * is CUcontext (a runtime's program
 * has its device's primary context, current after any call of it), struct CUstream_st * is CUstream and cudaStream_t,
 * and addresses are CUdeviceptr.
 *
 * The library makes no context and copies nothing: what is enqueued reads and writes the application's memory, in the
 * order of the application's stream. It links no driver: it calls the libcuda.so.1 that the process has. Which context
 * is current in the calling thread does not matter, and is the same afterwards.
 *
 * A kernel that is held becomes faster while it is used, as in hone.h: a thread of the library loads better code in
 * this context and packs the bound constants for it, on a stream of its own; what is enqueued from then on is that
 * code, and what the old code used is released when the events of its last work say that it has ended. A held kernel
 * needs no daemon: it goes on when honed dies, and follows the next one.
 *
 * After fork, none of this is for the child process: drivers do not survive it. */
#ifndef HONE_CLIENT_HONE_CUDA_H_
#define HONE_CLIENT_HONE_CUDA_H_

#ifdef __has_include
#if __has_include("client/hone.h")
#include "client/hone.h"
#else
#include <hone/hone.h>
#endif
#else
#include <hone/hone.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

struct CUctx_st;
struct CUstream_st;

typedef struct hone_cuda hone_cuda;               /* a context; thread-safe */
typedef struct hone_cuda_kernel hone_cuda_kernel; /* code for it; may be enqueued by any number of threads at once */

/* Memory of the device: an address, which is a multiple of 16, and how many bytes are there. */
typedef struct hone_cuda_buffer {
  unsigned long long address; /* CUdeviceptr; 0: none */
  size_t bytes;
} hone_cuda_buffer;

/* Takes up a context, which must live until hone_cuda_close and until the last kernel is released; NULL: the one that
 * is current in this thread. Succeeds without a daemon, as hone_connect does, whose options these are (NULL: the
 * defaults; threads, pool and parallel_for are not used). NULL on failure: HONE_INVALID (no context), HONE_NOT_FOUND
 * (no libcuda.so.1, or no device), HONE_RUN_FAILED (the driver refuses a stream). */
HONE_PUBLIC hone_cuda* hone_cuda_open(struct CUctx_st* context, const hone_connect_options* options, hone_error* error);

/* Code for a kernel, for exactly this context's device, loaded there. Returns within the deadline whatever the daemon
 * does. NULL on failure: what hone_get fails with; HONE_UNSUPPORTED where honed does not have this device, or the
 * kernel has dynamic sizes (ask for each size); HONE_BUILD_FAILED with the driver's words; HONE_LIMIT (no memory for
 * scratch). */
HONE_PUBLIC hone_cuda_kernel* hone_cuda_get(hone_cuda* cuda, const char* kernel, const hone_get_options* options,
                                            hone_error* error);

/* Gives a constant operand its memory, which must hold its elements by now: what writes them has ended. They are packed
 * on the device, once for each version of the code, so the memory must stay alive and unchanged until
 * hone_cuda_release. Waits for that, and for calls that were enqueued before; not while other calls are made. 0, or the
 * error's kind: HONE_INVALID (no constant; the buffers that hone_cuda_enqueue refuses). */
HONE_PUBLIC int hone_cuda_bind(hone_cuda_kernel* kernel, int32_t operand, hone_cuda_buffer data, hone_error* error);

/* Enqueues one call. `stream` must be of this context; NULL is its default stream. `buffers`: one per operand, in
 * order, of address 0 for what was bound. Outputs must not overlap inputs or each other. Calls that are enqueued on
 * several streams at once have different scratch memory, or wait for each other. 0, or: HONE_INVALID (a kernel that was
 * released, a stream or memory of another context, a buffer that is missing, too small or misaligned, a constant not
 * bound; the message says which) or HONE_UNSUPPORTED (a stream that is being captured: a graph would call code that may
 * be replaced), and nothing was enqueued; HONE_LIMIT, HONE_RUN_FAILED with the driver's words. */
HONE_PUBLIC int hone_cuda_enqueue(hone_cuda_kernel* kernel, struct CUstream_st* stream, const hone_cuda_buffer* buffers,
                                  hone_error* error);

/* The same on the host's memory, for convenience: copies inputs to the device, calls on a stream of the library's own,
 * waits, and copies outputs back. What was bound stays where it is. One at a time; others wait. */
HONE_PUBLIC int hone_cuda_call(hone_cuda_kernel* kernel, void* const* buffers, hone_error* error);

/* hone_info. size_count is 0. */
HONE_PUBLIC int hone_cuda_info(const hone_cuda_kernel* kernel, hone_kernel_info* info);

/* Gives a kernel back; waits for the work that uses it. NULL is fine. A kernel may outlive its hone_cuda, and stays up
 * to date. */
HONE_PUBLIC void hone_cuda_release(hone_cuda_kernel* kernel);
HONE_PUBLIC void hone_cuda_close(hone_cuda* cuda);

#ifdef __cplusplus
}
#endif

#endif
