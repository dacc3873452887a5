// The gate for artifacts: whatever the bytes, they are refused or accepted without reading outside them; what is
// accepted has its manifest inside the bytes, and the dynamic linker loads it or says no: it never crashes or hangs.
// The corpus holds real artifacts of several layouts, which mutation then damages.
//
// Loading happens in a process of its own, forked before anything else, that takes one memfd after the other: a fork
// per input would cost more than all the rest. Its death is the finding.
#include <dlfcn.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "base/check.h"
#include "base/elf_check.h"
#include "base/sealed_memfd.h"

namespace {

int loader = -1;  // our end of a socket pair

// As the client's loader does it, but for calling.
void LoadAndUnload(int fd) {
  static uint32_t loads = 0;
  std::string path = "/proc/self/fd";
  for (uint32_t number = ++loads; number != 0; number >>= 1) path += number & 1 ? "/." : "/";
  void* library = ::dlopen((path + "/" + std::to_string(fd)).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return;  // a clean refusal
  for (const char* name : {"hone_entry", "hone_pack", "hone_manifest", "absent", ""}) ::dlsym(library, name);
  ::dlclose(library);
}

[[noreturn]] void Serve(int socket) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  while (true) {
    char byte = 0;
    iovec part{&byte, 1};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &part, message.msg_iovlen = 1;
    message.msg_control = control, message.msg_controllen = sizeof control;
    if (::recvmsg(socket, &message, 0) != 1) ::_exit(0);
    int fd = -1;
    if (cmsghdr* header = CMSG_FIRSTHDR(&message)) std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
    LoadAndUnload(fd);
    ::close(fd);
    if (::write(socket, &byte, 1) != 1) ::_exit(0);
  }
}

void Load(std::span<const std::byte> bytes) {
  hone::Result<hone::SealedMemfd> file = hone::SealedMemfd::Create(bytes);
  HONE_CHECK(file.has_value());
  char byte = 'l';
  iovec part{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part, message.msg_iovlen = 1;
  message.msg_control = control, message.msg_controllen = sizeof control;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET, header->cmsg_type = SCM_RIGHTS, header->cmsg_len = CMSG_LEN(sizeof(int));
  const int fd = file->fd();
  std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  // The fuzzer's own alarm interrupts.
  auto again = [](auto call) {
    ssize_t result;
    do result = call();
    while (result < 0 && errno == EINTR);
    return result;
  };
  HONE_CHECK(again([&] { return ::sendmsg(loader, &message, MSG_NOSIGNAL); }) == 1);
  pollfd ready{loader, POLLIN, 0};
  HONE_CHECK(again([&] { return ::poll(&ready, 1, 20'000); }) == 1);  // else it hangs
  HONE_CHECK(again([&] { return ::read(loader, &byte, 1); }) == 1);   // else it died of this input
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  int ends[2];
  HONE_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  if (::fork() == 0) {
    ::close(ends[0]);
    Serve(ends[1]);
  }
  ::close(ends[1]);
  loader = ends[0];
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  hone::Result<hone::ArtifactLayout> layout = hone::CheckArtifact(bytes, {.other_machine = true});
  if (!layout) {
    HONE_CHECK(!layout.error().message.empty());
    return 0;
  }
  HONE_CHECK(!layout->manifest.empty());
  HONE_CHECK(layout->manifest.data() >= bytes.data());
  HONE_CHECK(layout->manifest.data() + layout->manifest.size() <= bytes.data() + bytes.size());
  if (hone::CheckArtifact(bytes, {})) Load(bytes);
  return 0;
}
