/* An application of libhone, driven by tests/integration/test_libhone.py over its standard input: one command a line,
 * one answer a line. Built against an installed tree, as C99. */
#include <hone.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { M = 3, N = 40, K = 24 };
static const char* kKernel = "dense(M=3,N=40,K=24,const=1)+bias+relu";

static float x[M * K], w[N * K], bias[N], y[M * N], wanted[M * N];

static double NowUs(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1e6 + now.tv_nsec / 1e3;
}

static void MakeData(void) {
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
}

static int Compute(hone_kernel* kernel) {
  void* buffers[] = {x, NULL, NULL, y};
  memset(y, 0xff, sizeof y);
  int status = hone_call(kernel, buffers, NULL);
  if (status != 0) return status;
  for (int i = 0; i < M * N; ++i) {
    if (!(fabsf(y[i] - wanted[i]) < 1e-4f)) return -1;
  }
  return 0;
}

static hone_kernel* Get(hone_client* client, const char* text, int64_t deadline_us, int print) {
  hone_error error = HONE_ERROR_INIT;
  hone_get_options options = HONE_GET_OPTIONS_INIT;
  options.deadline_us = deadline_us;
  double begun = NowUs();
  hone_kernel* kernel = hone_get(client, text, &options, &error);
  double us = NowUs() - begun;
  if (kernel == NULL) {
    if (print) printf("error %d %.0f %s: %s\n", error.kind, us, error.where, error.message);
    return NULL;
  }
  hone_kernel_info info = HONE_KERNEL_INFO_INIT;
  hone_info(kernel, &info);
  if (print) printf("ok %s %d %.0f %s %s\n", info.source, info.hit, us, info.fingerprint, info.class_name);
  return kernel;
}

static int Bind(hone_kernel* kernel) {
  hone_error error = HONE_ERROR_INIT;
  if (hone_bind(kernel, 1, w, &error) != 0 || hone_bind(kernel, 2, bias, &error) != 0) {
    printf("bind failed: %s\n", error.message);
    return 1;
  }
  return 0;
}

/* In a child process: a request of its own and a computation with the parent's kernel. */
static int InChild(hone_client* client, hone_kernel* held) {
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    alarm(30);
    if (held != NULL && Compute(held) != 0) _exit(1);
    hone_kernel* kernel = Get(client, kKernel, 5000000, 0);
    if (kernel == NULL) _exit(2);
    if (Bind(kernel) != 0 || Compute(kernel) != 0) _exit(3);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void TimeCalls(hone_kernel* kernel) {
  void* buffers[] = {x, NULL, NULL, y};
  double best = 1e30;
  for (int round = 0; round < 20; ++round) {
    double begun = NowUs();
    for (int i = 0; i < 1000; ++i) hone_call(kernel, buffers, NULL);
    double us = (NowUs() - begun) / 1000;
    if (us < best) best = us;
  }
  printf("ok %.4f\n", best);
}

int main(void) {
  MakeData();
  hone_error error = HONE_ERROR_INIT;
  hone_connect_options unknown = HONE_CONNECT_OPTIONS_INIT;
  unknown.flags = HONE_NO_DISK_CACHE | 1u << 20;
  if (hone_connect(&unknown, &error) != NULL || error.kind != HONE_INVALID || !strstr(error.message, "0x100000")) {
    printf("unknown flags: %s\n", error.message);
    return 1;
  }
  hone_client* client = hone_connect(NULL, &error);
  if (client == NULL) {
    printf("connect failed: %s\n", error.message);
    return 1;
  }
  hone_kernel* held = NULL;
  char line[4096];
  while (fgets(line, sizeof line, stdin) != NULL) {
    line[strcspn(line, "\n")] = '\0';
    int64_t deadline_us = 0;
    int at = 0;
    if (strcmp(line, "hold") == 0) {
      held = Get(client, kKernel, 10000000, 1);
      if (held != NULL && Bind(held) != 0) return 1;
    } else if (strcmp(line, "compute") == 0) {
      int status = held == NULL ? -2 : Compute(held);
      printf("%s %d\n", status == 0 ? "ok" : "error", status);
    } else if (strcmp(line, "fork") == 0) {
      int status = InChild(client, held);
      printf("%s %d\n", status == 0 ? "ok" : "error", status);
    } else if (strcmp(line, "time") == 0 && held != NULL) {
      TimeCalls(held);
    } else if (sscanf(line, "get %" SCNd64 " %n", &deadline_us, &at) == 1 && at > 0) {
      hone_release(Get(client, line + at, deadline_us, 1));
    } else {
      printf("what is \"%s\"?\n", line);
    }
    fflush(stdout);
  }
  hone_release(held);
  hone_close(client);
  return 0;
}
