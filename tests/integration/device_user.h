/* What applications of libhone_opencl, libhone_cuda and libhone_vulkan have in common, driven over standard input by
 * tests/integration/test_device_libraries.py and test_cuda_library.py: one command a line, answers on standard output.
 * Called with the word "twice", a program has a kernel that doubles instead of a layer of a network.
 *
 *   calls N    N calls, enqueued by turns on both queues, into as many outputs; "ok", or how many are wrong
 *   host       a blocking call on the host's memory
 *   loop       a thread makes calls until the end
 *   info       updates, calls of the loop, wrong ones among them, origin
 *   errors     each wrong use, and what the library says of it
 *
 * Results are compared with plain C. C11, for its atomics. */
#include <hone.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { M = 48, N = 80, K = 64, kOutputs = 8, kQueues = 2 };
static const char* kernel_text = "dense(M=48,N=80,K=64,const=1)+bias+relu";
static int constants = 2;   /* operands, between x and the output */
static int results = M * N; /* elements of it */

static float x[M * K], w[N * K], bias[N], wanted[M * N];
static hone_error error = HONE_ERROR_INIT;

/* What each of the programs has of its own. */
static void Open(void);                      /* a context, buffers for the data, the kernel, bound */
static int Enqueue(int queue, int output);   /* a call; the error's kind */
static void Wait(void);                      /* for all that was enqueued */
static void Read(int output, float* y);      /* what a call computed */
static int CallOnHost(void* const* buffers); /* the error's kind */
static void GetInfo(hone_kernel_info* info);
static void UseWrongly(void); /* Say of each */
static void Close(void);

static void Die(const char* what) {
  fprintf(stderr, "%s\n", what);
  exit(1);
}

static void Need(int condition, const char* what) {
  if (!condition) Die(what);
}

/* What the library says of a wrong use, which it refused. */
static void Say(const char* use, int status) {
  printf("%s: %d %s: %s\n", use, status, error.where, error.message);
  Need(status == 0 || status == error.kind, "the error is of another kind than the status");
  memset(error.message, 0, sizeof error.message);
  memset(error.where, 0, sizeof error.where);
  error.kind = 0;
}

static void MakeData(int is_twice) {
  for (int i = 0; i < M * K; ++i) x[i] = (float)((i * 37) % 17) / 8 - 1;
  for (int i = 0; i < N * K; ++i) w[i] = (float)((i * 53) % 23) / 12 - 1;
  for (int i = 0; i < N; ++i) bias[i] = (float)(i % 5) - 2;
  for (int m = 0; m < M; ++m) {
    for (int n = 0; n < N; ++n) {
      double sum = bias[n];
      for (int k = 0; k < K; ++k) sum += (double)x[m * K + k] * w[n * K + k];
      wanted[m * N + n] = sum > 0 ? (float)sum : 0;
    }
  }
  if (!is_twice) return;
  kernel_text = "kernel twice(x: f32[3072]) -> y: f32[3072] { y[i] = x[i] + x[i] }";
  constants = 0;
  results = M * K;
  for (int i = 0; i < results; ++i) wanted[i] = 2 * x[i];
}

static int IsRight(const float* y) {
  for (int i = 0; i < results; ++i)
    if (!(fabsf(y[i] - wanted[i]) < 1e-3f)) return 0;
  return 1;
}

/* Wrong outputs of so many calls. */
static int MakeCalls(int count) {
  float y[M * N];
  int wrong = 0;
  for (int begin = 0; begin < count; begin += kOutputs) {
    const int now = count - begin < kOutputs ? count - begin : kOutputs;
    for (int i = 0; i < now; ++i) wrong += Enqueue(i % kQueues, i) != 0;
    Wait();
    for (int i = 0; i < now; ++i) {
      memset(y, 0xff, sizeof y);
      Read(i, y);
      wrong += !IsRight(y);
    }
  }
  return wrong;
}

static atomic_int stop;
static atomic_llong calls, wrong_calls;

static void* Loop(void* ignored) {
  while (!stop) {
    wrong_calls += MakeCalls(kOutputs);
    calls += kOutputs;
  }
  return ignored;
}

int main(int argc, char** argv) {
  MakeData(argc > 1 && strcmp(argv[1], "twice") == 0);
  Open();
  pthread_t loop;
  int is_looping = 0, count = 0;
  char line[256];
  while (fgets(line, sizeof line, stdin) != NULL) {
    line[strcspn(line, "\n")] = '\0';
    if (sscanf(line, "calls %d", &count) == 1) {
      const int wrong = MakeCalls(count);
      printf(wrong == 0 ? "ok\n" : "wrong %d %s: %s\n", wrong, error.where, error.message);
    } else if (strcmp(line, "host") == 0) {
      float y[M * N];
      memset(y, 0xff, sizeof y);
      void* buffers[4] = {x, NULL, NULL, NULL};
      buffers[1 + constants] = y;
      const int status = CallOnHost(buffers);
      printf(status == 0 && IsRight(y) ? "ok\n" : "wrong %d %s: %s\n", status, error.where, error.message);
    } else if (strcmp(line, "loop") == 0) {
      is_looping = pthread_create(&loop, NULL, Loop, NULL) == 0;
      printf("%s\n", is_looping ? "ok" : "no thread");
    } else if (strcmp(line, "info") == 0) {
      hone_kernel_info info = HONE_KERNEL_INFO_INIT;
      GetInfo(&info);
      printf("%" PRId64 " %lld %lld %s %s\n", info.updates, (long long)calls, (long long)wrong_calls, info.origin,
             info.fingerprint);
    } else if (strcmp(line, "target") == 0) {
      hone_kernel_info info = HONE_KERNEL_INFO_INIT;
      GetInfo(&info);
      printf("%s\n", info.target);
    } else if (strcmp(line, "errors") == 0) {
      UseWrongly();
      printf("end\n");
    } else {
      printf("what is \"%s\"?\n", line);
    }
    fflush(stdout);
  }
  stop = 1;
  if (is_looping) pthread_join(loop, NULL);
  Close();
  return 0;
}
