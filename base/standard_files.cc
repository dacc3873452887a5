#include "base/standard_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace hone {

void OpenStandardFiles() {
  for (int standard = STDIN_FILENO; standard <= STDERR_FILENO; ++standard) {
    if (fcntl(standard, F_GETFD) >= 0) continue;
    if (open("/dev/null", O_RDWR) != standard) abort();  // the lowest that is free is this one
  }
}

int EndOfPrinting(const char* program) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return 0;
  std::fprintf(stderr, "%s: standard output: cannot write: %s\n", program, std::strerror(errno));
  return 1;
}

}  // namespace hone
