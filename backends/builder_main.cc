// hone-builder: stays resident, answers build requests on the socket it was started with (descriptor 3), one at a time.
// Its parent limits its memory and time, and replaces it when it dies. It builds for every kind of device that is built
// in, and loads no driver. With --nvrtc LIBRARY it opens the compiler of CUDA's code before it gives up its files.
#include <sys/socket.h>

#include <cstdio>
#include <cstring>

#include "backends/cpu/build_for_cpu.h"
#include "backends/cpu/host_target.h"
#include "backends/gpu/build_for_gpu.h"
#include "backends/gpu/compile_cuda.h"
#include "backends/processes/child_messages.h"
#include "backends/processes/child_pool.h"
#include "backends/sandbox/sandbox.h"
#include "base/sealed_memfd.h"

namespace hone {
namespace {

// The first build pays for relocations, page faults and LLVM's tables: better now than in front of a client. What it
// gives is of no interest.
void WarmUp(const Target& target) {
  (void)BuildForCpu({.kernel = "dense(M=4,N=32,K=16)+bias+relu", .schedule = "", .target = target});
}

Result<void> Answer(ChildChannel& channel, const ChildFrame& frame) {
  Result<BuildRequest> request = DecodeBuildRequest(frame.body);
  auto refuse = [&](const Error& error) {
    return channel.Send(ChildMessage::kError, frame.id, EncodeError(error), {}, MonotonicTime::max());
  };
  if (!request) return refuse(request.error());
  if (frame.type == ChildMessage::kExplain) {
    Result<std::string> text = request->target.cpu() ? ExplainCode(*request) : ExplainGpuCode(*request);
    if (!text) return refuse(text.error());
    return channel.Send(ChildMessage::kExplained, frame.id, *text, {}, MonotonicTime::max());
  }
  if (frame.type != ChildMessage::kBuild) return refuse({ErrorKind::kInvalid, "a builder builds and explains", ""});
  Result<BuildOutput> output = request->target.cpu() ? BuildForCpu(*request) : BuildForGpu(*request);
  if (!output) return refuse(output.error());
  Result<SealedMemfd> object = SealedMemfd::Create(output->object);
  if (!object) return refuse(object.error());
  std::string body = EncodeBuilt({std::move(output->schedule), output->times});
  return channel.Send(ChildMessage::kBuilt, frame.id, body, {object->fd()}, MonotonicTime::max());
}

int Main(int argc, char** argv) {
  int type = 0;
  socklen_t size = sizeof type;
  if (::getsockopt(kChildChannelFd, SOL_SOCKET, SO_TYPE, &type, &size) != 0) {
    std::fprintf(stderr, "hone-builder: started by honed only, with a socket as descriptor %d\n", kChildChannelFd);
    return 2;
  }
  ChildChannel channel{UniqueFd(kChildChannelFd)};
  Result<Target> target = HostTarget();  // reads files
  if (argc == 3 && std::strcmp(argv[1], "--nvrtc") == 0)
    (void)OpenNvrtc(argv[2]);  // why it cannot be used is the reason of each build that wants it
  Result<Confinement> confined = EnterBuilderSandbox();
  if (!confined) {
    std::fprintf(stderr, "hone-builder: no sandbox: %s\n", confined.error().Text().c_str());
    return 1;
  }
  if (!channel.Send(ChildMessage::kConfined, 0, EncodeConfinements({*confined}), {}, MonotonicTime::max())) return 1;
  if (target) WarmUp(*target);
  while (true) {
    Result<ChildFrame> frame = channel.Receive(MonotonicTime::max());
    if (!frame) return frame.error().kind == ErrorKind::kUnavailable ? 0 : 1;  // the parent is done, or mad
    if (!Answer(channel, *frame)) return 1;
  }
}

}  // namespace
}  // namespace hone

int main(int argc, char** argv) { return hone::Main(argc, argv); }
