/* An application of libhone_opencl with a context, queues and buffers of its own. */
#define CL_TARGET_OPENCL_VERSION 120
#include <hone_opencl.h>

#include "device_user.h"

static cl_context context, other_context;
static cl_device_id device;
static cl_command_queue queues[kQueues], other_queue; /* in order, and not */
static cl_mem inputs[3], outputs[kOutputs];
static cl_event last[kOutputs]; /* of the call before, which `output` waits for */
static hone_opencl* opencl;
static hone_opencl_kernel* kernel;

static cl_mem BufferOf(cl_context in, size_t bytes, void* data, cl_mem_flags flags) {
  cl_int code = CL_SUCCESS;
  cl_mem buffer = clCreateBuffer(in, flags | (data != NULL ? CL_MEM_COPY_HOST_PTR : 0), bytes, data, &code);
  Need(code == CL_SUCCESS, "no buffer");
  return buffer;
}

static void Open(void) {
  cl_platform_id platform;
  cl_int code = CL_SUCCESS;
  Need(clGetPlatformIDs(1, &platform, NULL) == CL_SUCCESS, "no platform");
  Need(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL) == CL_SUCCESS, "no device");
  context = clCreateContext(NULL, 1, &device, NULL, NULL, &code);
  Need(code == CL_SUCCESS, "no context");
  other_context = clCreateContext(NULL, 1, &device, NULL, NULL, &code);
  for (int i = 0; i < kQueues; ++i)
    queues[i] = clCreateCommandQueue(context, device, i == 1 ? CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE : 0, &code);
  Need(queues[0] != NULL && queues[1] != NULL, "no queue");
  other_queue = clCreateCommandQueue(other_context, device, 0, &code);
  inputs[0] = BufferOf(context, sizeof x, x, CL_MEM_READ_ONLY);
  inputs[1] = BufferOf(context, sizeof w, w, CL_MEM_READ_ONLY);
  inputs[2] = BufferOf(context, sizeof bias, bias, CL_MEM_READ_ONLY);
  for (int i = 0; i < kOutputs; ++i) outputs[i] = BufferOf(context, sizeof wanted, NULL, CL_MEM_WRITE_ONLY);
  opencl = hone_opencl_open(context, device, NULL, &error);
  Need(opencl != NULL, error.message);
  hone_get_options options = HONE_GET_OPTIONS_INIT;
  options.deadline_us = 60000000;
  kernel = hone_opencl_get(opencl, kernel_text, &options, &error);
  Need(kernel != NULL, error.message);
  for (int i = 1; i < 3; ++i) Need(hone_opencl_bind(kernel, i, inputs[i], &error) == 0, error.message);
}

static int EnqueueWith(cl_command_queue queue, cl_mem from, cl_mem to) {
  cl_mem buffers[] = {from, NULL, NULL, to};
  return hone_opencl_enqueue(kernel, queue, buffers, 0, NULL, NULL, &error);
}

static int Enqueue(int queue, int output) {
  cl_mem buffers[] = {inputs[0], NULL, NULL, outputs[output]};
  cl_event before = last[output];
  last[output] = NULL;
  const int status = hone_opencl_enqueue(kernel, queues[queue], buffers, before != NULL,
                                         before != NULL ? &before : NULL, &last[output], &error);
  if (before != NULL) clReleaseEvent(before);
  return status;
}

static void Wait(void) {
  for (int i = 0; i < kQueues; ++i) clFinish(queues[i]);
}

static void Read(int output, float* y) {
  clEnqueueReadBuffer(queues[0], outputs[output], CL_TRUE, 0, sizeof wanted, y, 0, NULL, NULL);
}

static int CallOnHost(void* const* buffers) { return hone_opencl_call(kernel, buffers, &error); }
static void GetInfo(hone_kernel_info* info) { Need(hone_opencl_info(kernel, info) == 0, "no info"); }

static void UseWrongly(void) {
  cl_mem small = BufferOf(context, 64, NULL, CL_MEM_READ_WRITE);
  cl_mem foreign = BufferOf(other_context, sizeof wanted, NULL, CL_MEM_READ_WRITE);
  cl_mem both = BufferOf(context, sizeof x + sizeof wanted, NULL, CL_MEM_READ_WRITE);
  const cl_buffer_region first = {0, sizeof x}, second = {4096, sizeof wanted};
  cl_mem parts[] = {clCreateSubBuffer(both, CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION, &first, NULL),
                    clCreateSubBuffer(both, CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION, &second, NULL)};
  Say("foreign queue", EnqueueWith(other_queue, inputs[0], outputs[0]));
  Say("foreign buffer", EnqueueWith(queues[0], inputs[0], foreign));
  Say("small buffer", EnqueueWith(queues[0], small, outputs[0]));
  Say("missing buffer", EnqueueWith(queues[0], NULL, outputs[0]));
  Say("input as output", EnqueueWith(queues[0], inputs[0], inputs[1]));
  Say("overlap", EnqueueWith(queues[0], parts[0], parts[1]));
  Say("no constant", hone_opencl_bind(kernel, 0, inputs[0], &error));
  Say("no operand", hone_opencl_bind(kernel, 7, inputs[0], &error));
  void* nothing[] = {NULL, NULL, NULL, NULL};
  Say("no memory", hone_opencl_call(kernel, nothing, &error));
  hone_opencl_kernel* unbound = hone_opencl_get(opencl, kernel_text, NULL, &error);
  cl_mem buffers[] = {inputs[0], NULL, NULL, outputs[0]};
  Say("not bound", hone_opencl_enqueue(unbound, queues[0], buffers, 0, NULL, NULL, &error));
  hone_opencl_release(unbound);
  Say("released", hone_opencl_enqueue(unbound, queues[0], buffers, 0, NULL, NULL, &error));
  hone_opencl_release(unbound);
  hone_opencl* closed = hone_opencl_open(context, device, NULL, &error);
  hone_opencl_close(closed);
  Need(hone_opencl_get(closed, kernel_text, NULL, &error) == NULL, "a closed one gives kernels");
  Say("closed", error.kind);
  Need(hone_opencl_open(NULL, device, NULL, &error) == NULL, "no context was opened");
  Say("no context", error.kind);
  Need(hone_opencl_get(opencl, "matmul(M=1..9,N=8,K=8)", NULL, &error) == NULL, "dynamic sizes are served");
  Say("dynamic", error.kind);
  for (int i = 0; i < 2; ++i) clReleaseMemObject(parts[i]);
  clReleaseMemObject(both);
  clReleaseMemObject(foreign);
  clReleaseMemObject(small);
}

static void Close(void) {
  hone_opencl_close(opencl);
  Need(MakeCalls(kOutputs) == 0, "a kernel does not outlive its device");
  hone_opencl_release(kernel);
  for (int i = 0; i < kOutputs; ++i) {
    if (last[i] != NULL) clReleaseEvent(last[i]);
    clReleaseMemObject(outputs[i]);
  }
  for (int i = 0; i < 3; ++i) clReleaseMemObject(inputs[i]);
  for (int i = 0; i < kQueues; ++i) clReleaseCommandQueue(queues[i]);
  clReleaseCommandQueue(other_queue);
  clReleaseContext(other_context);
  clReleaseContext(context);
}
