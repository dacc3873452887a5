#include "base/standard_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>

namespace hone {

void OpenStandardFiles() {
  for (int standard = STDIN_FILENO; standard <= STDERR_FILENO; ++standard) {
    if (fcntl(standard, F_GETFD) >= 0) continue;
    if (open("/dev/null", O_RDWR) != standard) abort();  // the lowest that is free is this one
  }
}

}  // namespace hone
