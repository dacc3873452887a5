/* A libhone_cuda of one kernel, for the Python package's tests on a driver without a device (tests/support/fake_cuda),
 * where served code cannot run: y[i] = w[i] x[i] of four floats, w constant, computed when it is enqueued. */
#include <hone_cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct hone_cuda {
  int opened;
};
struct hone_cuda_kernel {
  const float* w;
};
static struct hone_cuda session;
static struct hone_cuda_kernel kernel;
static const void *last_context, *last_stream;
static int released, closed;
static const hone_operand_info operands[] = {
    {"x", HONE_F32, 1, {4}, 16, 0, 0, 0}, {"w", HONE_F32, 1, {4}, 16, 0, 1, 1}, {"y", HONE_F32, 1, {4}, 16, 1, 0, 0}};

static int Refuse(hone_error* error, int kind, const char* message) {
  error->kind = kind;
  snprintf(error->message, sizeof error->message, "%s", message);
  return kind;
}

HONE_PUBLIC const void* stub_context(void) { return last_context; }
HONE_PUBLIC const void* stub_stream(void) { return last_stream; }
HONE_PUBLIC int stub_released(void) { return released; }
HONE_PUBLIC int stub_closed(void) { return closed; }

hone_cuda* hone_cuda_open(struct CUctx_st* context, const hone_connect_options* options, hone_error* error) {
  last_context = context;
  if (getenv("STUB_REFUSES") != NULL) return Refuse(error, HONE_RUN_FAILED, "the stub opens nothing"), NULL;
  if (options->struct_size != sizeof *options) return Refuse(error, HONE_INVALID, "no options"), NULL;
  return &session;
}
hone_cuda_kernel* hone_cuda_get(hone_cuda* cuda, const char* text, const hone_get_options* options, hone_error* error) {
  if (cuda != &session || options->struct_size != sizeof *options)
    return Refuse(error, HONE_INVALID, "no options"), NULL;
  if (strcmp(text, "scale") != 0) return Refuse(error, HONE_UNSUPPORTED, "the stub has no such kernel"), NULL;
  kernel.w = NULL;
  return &kernel;
}
int hone_cuda_bind(hone_cuda_kernel* of, int32_t operand, hone_cuda_buffer data, hone_error* error) {
  if (of != &kernel || operand != 1 || data.bytes != 16) return Refuse(error, HONE_INVALID, "no constant");
  kernel.w = (const float*)data.address;
  return 0;
}
int hone_cuda_enqueue(hone_cuda_kernel* of, struct CUstream_st* stream, const hone_cuda_buffer* buffers,
                      hone_error* error) {
  if (of != &kernel || kernel.w == NULL) return Refuse(error, HONE_INVALID, "not bound");
  if (buffers[0].bytes != 16 || buffers[1].address != 0 || buffers[2].bytes != 16)
    return Refuse(error, HONE_INVALID, "no such buffers");
  last_stream = stream;
  const float* x = (const float*)buffers[0].address;
  float* y = (float*)buffers[2].address;
  for (int i = 0; i < 4; ++i) y[i] = kernel.w[i] * x[i];
  return 0;
}
int hone_cuda_call(hone_cuda_kernel* of, void* const* buffers, hone_error* error) {
  return of == NULL || buffers == NULL ? Refuse(error, HONE_INVALID, "nothing") : 0;
}
int hone_cuda_info(const hone_cuda_kernel* of, hone_kernel_info* info) {
  if (of != &kernel) return HONE_INVALID;
  info->operand_count = 3;
  info->operands = operands;
  info->fingerprint = info->class_name = info->target = info->origin = info->source = "stub";
  return 0;
}
void hone_cuda_release(hone_cuda_kernel* of) { released += of == &kernel; }
void hone_cuda_close(hone_cuda* cuda) { closed += cuda == &session; }
