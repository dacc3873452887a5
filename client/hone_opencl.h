/* libhone_opencl: kernels that honed serves, in an application's own OpenCL context and on its own queues. C99; errors,
 * options and what is said of kernels as in hone.h.
 *
 *   hone_opencl *opencl = hone_opencl_open(context, device, NULL, &error);
 *   hone_opencl_kernel *kernel = hone_opencl_get(opencl, "dense(M=64,N=1000,K=512,const=1)+bias", NULL, &error);
 *   hone_opencl_bind(kernel, 1, weights, &error);
 *   hone_opencl_bind(kernel, 2, bias, &error);
 *   cl_mem buffers[] = {x, NULL, NULL, y};
 *   hone_opencl_enqueue(kernel, queue, buffers, 0, NULL, &done, &error);
 *
 * The library makes no context and copies nothing: what is enqueued reads and writes the application's buffers, in the
 * order of the application's queue. It links no driver: it calls the OpenCL that the process has (libOpenCL.so.1).
 *
 * A kernel that is held becomes faster while it is used, as in hone.h: a thread of the library compiles better code in
 * this context and packs the bound constants for it, on a queue of its own; what is enqueued from then on is that code,
 * and what the old code used is released when the events of its last work say that it has ended. A held kernel needs no
 * daemon: it goes on when honed dies, and follows the next one.
 *
 * After fork, none of this is for the child process: drivers do not survive it. */
#ifndef HONE_CLIENT_HONE_OPENCL_H_
#define HONE_CLIENT_HONE_OPENCL_H_

#ifdef __has_include
#if __has_include("client/hone.h")
#include "client/hone.h"
#else
#include <hone/hone.h>
#endif
#else
#include <hone/hone.h>
#endif

#include <CL/cl.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hone_opencl hone_opencl; /* a device of a context; thread-safe */
typedef struct hone_opencl_kernel
    hone_opencl_kernel; /* code for it; may be enqueued by any number of threads at once */

/* Takes up a context, which is retained, and one of its devices. Succeeds without a daemon, as hone_connect does, whose
 * options these are (NULL: the defaults; threads, pool and parallel_for are not used). NULL on failure: HONE_INVALID
 * (no context, a device that is none of its), HONE_NOT_FOUND (no libOpenCL.so.1), HONE_RUN_FAILED (the driver refuses a
 * queue). */
HONE_PUBLIC hone_opencl* hone_opencl_open(cl_context context, cl_device_id device, const hone_connect_options* options,
                                          hone_error* error);

/* Code for a kernel, for exactly this device, compiled in this context. Returns within the deadline whatever the daemon
 * does, and after the driver has compiled. NULL on failure: what hone_get fails with; HONE_UNSUPPORTED where honed does
 * not have this device, or the kernel has dynamic sizes (ask for each size); HONE_BUILD_FAILED with the driver's words;
 * HONE_LIMIT (no memory for scratch). */
HONE_PUBLIC hone_opencl_kernel* hone_opencl_get(hone_opencl* opencl, const char* kernel,
                                                const hone_get_options* options, hone_error* error);

/* Gives a constant operand its buffer, which must hold its elements by now: what writes them has ended. They are packed
 * on the device, once for each version of the code, so the buffer must stay alive and unchanged until
 * hone_opencl_release. Waits for that, and for calls that were enqueued before; not while other calls are made. 0, or
 * the error's kind: HONE_INVALID (no constant; the buffers that hone_opencl_enqueue refuses). */
HONE_PUBLIC int hone_opencl_bind(hone_opencl_kernel* kernel, int32_t operand, cl_mem data, hone_error* error);

/* Enqueues one call. `queue` may be in order or not, and must be of this context and device. `buffers`: one per
 * operand, in order, NULL for what was bound; part of a buffer is given as a sub-buffer. Outputs must not overlap
 * inputs or each other. The work begins after `wait_count` events; `done`, unless NULL, gets an event for its end,
 * which is the caller's to release. Calls that are enqueued on several queues at once have different scratch memory, or
 * wait for each other. 0, or: HONE_INVALID (a kernel that was released, a queue or buffer of another context, a queue
 * of another device, a buffer that is missing, too small or not for this use, a constant not bound; the message says
 * which), and nothing was enqueued; HONE_LIMIT, HONE_RUN_FAILED with the driver's words. */
HONE_PUBLIC int hone_opencl_enqueue(hone_opencl_kernel* kernel, cl_command_queue queue, const cl_mem* buffers,
                                    cl_uint wait_count, const cl_event* waits, cl_event* done, hone_error* error);

/* The same on the host's memory, for convenience: copies inputs to the device, calls on a queue of the library's own,
 * waits, and copies outputs back. What was bound stays where it is. One at a time; others wait. */
HONE_PUBLIC int hone_opencl_call(hone_opencl_kernel* kernel, void* const* buffers, hone_error* error);

/* hone_info. size_count is 0. */
HONE_PUBLIC int hone_opencl_info(const hone_opencl_kernel* kernel, hone_kernel_info* info);

/* Gives a kernel back; waits for the work that uses it. NULL is fine. A kernel may outlive its hone_opencl: it keeps
 * the context, and stays up to date. */
HONE_PUBLIC void hone_opencl_release(hone_opencl_kernel* kernel);
HONE_PUBLIC void hone_opencl_close(hone_opencl* opencl);

#ifdef __cplusplus
}
#endif

#endif
