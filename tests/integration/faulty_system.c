/* Preloaded into honed: its system calls fail as the file FAULTS says, which the test maps as well: an int for each of
 * the calls below, in their order, which is the error number of all calls from now on, or 0. Of statfs it is the type
 * of file system that is there. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

enum { MEMFD_CREATE, FORK, ACCEPT, SOCKETPAIR, PIPE2, STATFS, CALLS };
static const volatile int* faults;

__attribute__((constructor)) static void MapFaults(void) {
  const char* path = getenv("FAULTS");
  if (path == NULL || strcmp(program_invocation_short_name, "honed") != 0) return;
  int file = open(path, O_RDONLY | O_CLOEXEC);
  void* map = mmap(NULL, CALLS * sizeof(int), PROT_READ, MAP_SHARED, file, 0);
  if (map == MAP_FAILED) abort();
  close(file);
  faults = map;
}

static int Fails(int call) {
  if (faults == NULL || faults[call] == 0) return 0;
  errno = faults[call];
  return 1;
}

#define VISIBLE __attribute__((visibility("default")))
VISIBLE int memfd_create(const char* name, unsigned flags) {
  return Fails(MEMFD_CREATE) ? -1 : (int)syscall(SYS_memfd_create, name, flags);
}
VISIBLE pid_t fork(void) { return Fails(FORK) ? -1 : _Fork(); }
VISIBLE int accept(int socket, struct sockaddr* address, socklen_t* size) {
  return Fails(ACCEPT) ? -1 : (int)syscall(SYS_accept4, socket, address, size, 0);
}
VISIBLE int accept4(int socket, struct sockaddr* address, socklen_t* size, int flags) {
  return Fails(ACCEPT) ? -1 : (int)syscall(SYS_accept4, socket, address, size, flags);
}
VISIBLE int socketpair(int domain, int type, int protocol, int ends[2]) {
  return Fails(SOCKETPAIR) ? -1 : (int)syscall(SYS_socketpair, domain, type, protocol, ends);
}
VISIBLE int pipe2(int ends[2], int flags) { return Fails(PIPE2) ? -1 : (int)syscall(SYS_pipe2, ends, flags); }
VISIBLE int statfs(const char* path, struct statfs* info) {
  int result = (int)syscall(SYS_statfs, path, info);
  if (result == 0 && faults != NULL && faults[STATFS] != 0) info->f_type = faults[STATFS];
  return result;
}
