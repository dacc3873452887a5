/* Preloaded into honed: the wall clock is off by as many seconds as the text in the file CLOCK_SHIFT_FILE says. Clocks
 * that only go forward are left alone, and so are other programs than honed. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const char* shift; /* the file, mapped: looking costs no system call */

__attribute__((constructor)) static void MapShift(void) {
  const char* path = getenv("CLOCK_SHIFT_FILE");
  if (path == NULL || strcmp(program_invocation_short_name, "honed") != 0) return;
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  void* text = mmap(NULL, 64, PROT_READ, MAP_SHARED, file, 0);
  close(file);
  if (text != MAP_FAILED) shift = text;
}

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec* now) {
  int result = (int)syscall(SYS_clock_gettime, clock, now);
  if (result == 0 && shift != NULL && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
    now->tv_sec += atol(shift);
  return result;
}

__attribute__((visibility("default"))) time_t time(time_t* out) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out != NULL) *out = now.tv_sec;
  return now.tv_sec;
}
