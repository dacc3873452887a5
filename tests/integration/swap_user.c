/* An application that goes on calling a kernel from several threads, driven by tests/integration/test_swap.py:
 *
 *   swap_user KERNEL THREADS PAUSE_US
 *
 * Every output is compared with what the first version computed. One command a line on standard input: "info" answers
 * with updates of the live kernel, of the frozen one, calls, wrong outputs, mappings of the process, calls a second of
 * late; end of input ends it. C11, for its atomics. */
#include <hone.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { kMostOperands = 16, kMostThreads = 64 };

static hone_kernel *live, *frozen;
static hone_kernel_info info = HONE_KERNEL_INFO_INIT;
static void* shared[kMostOperands]; /* inputs; NULL for outputs */
static int output = -1;
static float* wanted;
static int64_t elements;
static int pause_us;
static atomic_int stop;
static atomic_llong calls, wrong;

static double NowUs(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1e6 + now.tv_nsec / 1e3;
}

static void Die(const char* what) {
  fprintf(stderr, "%s\n", what);
  exit(1);
}

static int Call(hone_kernel* kernel, float* y) {
  void* buffers[kMostOperands];
  for (int i = 0; i < info.operand_count; ++i)
    buffers[i] = i == output ? y : info.operands[i].is_const ? NULL : shared[i];
  return hone_call(kernel, buffers, NULL);
}

static int IsRight(const float* y) {
  double most = 1e-30;
  for (int64_t i = 0; i < elements; ++i) most = fabs(wanted[i]) > most ? fabs(wanted[i]) : most;
  for (int64_t i = 0; i < elements; ++i) {
    if (!(fabs((double)y[i] - wanted[i]) <= 1e-4 * most)) return 0;
  }
  return 1;
}

static void* Loop(void* ignored) {
  float* y = aligned_alloc(64, (size_t)(elements * 4 + 63) / 64 * 64);
  if (y == NULL) Die("no memory");
  while (!stop) {
    memset(y, 0xff, (size_t)elements * 4);
    if (Call(live, y) != 0 || !IsRight(y)) ++wrong;
    ++calls;
    if (pause_us > 0) usleep((useconds_t)pause_us);
  }
  free(y);
  return ignored;
}

static void Bind(hone_kernel* kernel) {
  hone_error error = HONE_ERROR_INIT;
  for (int i = 0; i < info.operand_count; ++i) {
    if (info.operands[i].is_const && hone_bind(kernel, i, shared[i], &error) != 0) Die(error.message);
  }
}

static long CountMappings(void) {
  FILE* maps = fopen("/proc/self/maps", "r");
  long lines = 0;
  for (int c; maps != NULL && (c = fgetc(maps)) != EOF;) lines += c == '\n';
  if (maps != NULL) fclose(maps);
  return lines;
}

int main(int argc, char** argv) {
  if (argc != 4) Die("KERNEL THREADS PAUSE_US");
  int thread_count = atoi(argv[2]);
  pause_us = atoi(argv[3]);
  hone_error error = HONE_ERROR_INIT;
  hone_client* client = hone_connect(NULL, &error);
  if (client == NULL) Die(error.message);
  hone_get_options options = HONE_GET_OPTIONS_INIT;
  options.deadline_us = 60000000;
  live = hone_get(client, argv[1], &options, &error);
  options.frozen = 1;
  frozen = hone_get(client, argv[1], &options, &error);
  if (live == NULL || frozen == NULL) Die(error.message);
  hone_info(live, &info);
  if (info.operand_count > kMostOperands || thread_count > kMostThreads) Die("too many");
  unsigned seed = 1;
  for (int i = 0; i < info.operand_count; ++i) {
    if (info.operands[i].is_output) {
      output = i;
      elements = info.operands[i].bytes / 4;
      continue;
    }
    float* data = shared[i] = aligned_alloc(64, (size_t)(info.operands[i].bytes + 63) / 64 * 64);
    if (data == NULL) Die("no memory");
    for (int64_t e = 0; e < info.operands[i].bytes / 4; ++e)
      data[e] = (float)((seed = seed * 1664525u + 1013904223u) >> 24) / 128 - 1;
  }
  Bind(live);
  Bind(frozen);
  wanted = malloc((size_t)elements * 4);
  float* once = aligned_alloc(64, (size_t)(elements * 4 + 63) / 64 * 64);
  if (wanted == NULL || once == NULL || Call(frozen, wanted) != 0) Die("the first call failed");
  pthread_t threads[kMostThreads];
  for (int i = 0; i < thread_count; ++i) pthread_create(&threads[i], NULL, Loop, NULL);
  printf("ready %s\n", info.fingerprint);
  fflush(stdout);
  char line[256];
  double last_us = NowUs();
  long long last_calls = 0;
  while (fgets(line, sizeof line, stdin) != NULL) {
    hone_kernel_info now = HONE_KERNEL_INFO_INIT, other = HONE_KERNEL_INFO_INIT;
    hone_info(live, &now);
    hone_info(frozen, &other);
    /* The frozen one computes the same bits for ever. */
    if (Call(frozen, once) != 0 || memcmp(once, wanted, (size_t)elements * 4) != 0) ++wrong;
    double us = NowUs();
    long long count = calls;
    printf("%" PRId64 " %" PRId64 " %lld %lld %ld %.0f %s\n", now.updates, other.updates, count, (long long)wrong,
           CountMappings(), (count - last_calls) / (us - last_us) * 1e6, now.origin);
    fflush(stdout);
    last_us = us;
    last_calls = count;
  }
  stop = 1;
  for (int i = 0; i < thread_count; ++i) pthread_join(threads[i], NULL);
  hone_release(live);
  hone_release(frozen);
  hone_close(client);
  for (int i = 0; i < info.operand_count; ++i) free(shared[i]);
  free(wanted);
  free(once);
  return 0;
}
