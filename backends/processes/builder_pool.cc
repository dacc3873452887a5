#include "backends/processes/builder_pool.h"

#include <atomic>

#include "backends/processes/child_messages.h"
#include "backends/processes/child_pool.h"
#include "base/bytes.h"
#include "base/hash.h"

namespace hone {
namespace {

// A crash or garbage is a failed build to the caller: the same request may well do it again.
Error AsBuildError(Error error) {
  if (error.kind == ErrorKind::kCorrupt) error.kind = ErrorKind::kBuildFailed;
  return error;
}

}  // namespace

struct BuilderPool::Impl {
  BuilderPoolOptions options;
  std::unique_ptr<ChildPool> children;
  std::atomic<uint64_t> builds{0}, failed{0}, crashed{0}, timed_out{0};

  Result<ChildFrame> Ask(ChildMessage question, ChildMessage answer, const BuildRequest& request,
                         MonotonicTime deadline, const std::stop_token& stop);
  Result<ChildFrame> AskOne(ChildMessage question, ChildMessage answer, const BuildRequest& request,
                            MonotonicTime deadline, const std::stop_token& stop, MonotonicTime& killed_at);
  Result<BuiltArtifact> Build(const BuildRequest& request, MonotonicTime deadline, const std::stop_token& stop);
};

Result<std::unique_ptr<BuilderPool>> BuilderPool::Start(const BuilderPoolOptions& options) {
  auto impl = std::make_unique<Impl>();
  impl->options = options;
  ChildPoolOptions pool;
  pool.name = "builder";
  pool.children = options.builders;
  pool.process.executable = options.executable.empty() ? HONE_TRY(FindOwnProgram("hone-builder")) : options.executable;
  pool.process.arguments = options.arguments;
  pool.process.limits.address_space = options.address_space;
  pool.process.limits.file_size = options.object_bytes;
  pool.process.limits.nice = options.nice;
  pool.process.limits.idle = options.idle;
  pool.process.limits.idle_group = options.idle_group;
  impl->children = HONE_TRY(ChildPool::Start(std::move(pool)));
  return std::unique_ptr<BuilderPool>(new BuilderPool(std::move(impl)));
}

BuilderPool::BuilderPool(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
BuilderPool::~BuilderPool() = default;

void BuilderPool::Pause() { impl_->children->Pause(); }
void BuilderPool::Resume() { impl_->children->Resume(); }
void BuilderPool::AwaitResume(const std::stop_token& stop) { impl_->children->AwaitResume(stop); }
void BuilderPool::Shutdown() { impl_->children->Shutdown(); }

Result<ChildFrame> BuilderPool::Impl::Ask(ChildMessage question, ChildMessage answer, const BuildRequest& request,
                                          MonotonicTime deadline, const std::stop_token& stop) {
  ++builds;
  MonotonicTime killed_at{};
  Result<ChildFrame> frame = AskOne(question, answer, request, deadline, stop, killed_at);
  if (!frame && killed_at != MonotonicTime()) frame = AskOne(question, answer, request, deadline, stop, killed_at);
  return frame;
}

// `killed_at`: when somebody else ended the builder, if that is why it failed; before: the last one.
Result<ChildFrame> BuilderPool::Impl::AskOne(ChildMessage question, ChildMessage answer, const BuildRequest& request,
                                             MonotonicTime deadline, const std::stop_token& stop,
                                             MonotonicTime& killed_at) {
  ChildPool::Lease lease = HONE_TRY(children->Acquire(deadline, stop, killed_at, request.user));
  lease.StartRequest(options.cpu_seconds);
  MonotonicTime limit = std::min(deadline, std::chrono::steady_clock::now() + options.deadline);
  Result<ChildFrame> frame = lease.Call(question, EncodeBuildRequest(request), {}, limit, stop);
  if (!frame && stop.stop_requested()) return frame;
  if (!frame) {
    killed_at = lease.killed_at();
    if (frame.error().kind == ErrorKind::kTimeout)
      ++timed_out;
    else
      ++crashed;
    Error error = std::move(frame).error();
    // Died() says kUnavailable; whether that was the pool's end or the build's is in the pool's hands.
    if (error.kind == ErrorKind::kUnavailable && !children->IsShutDown()) error.kind = ErrorKind::kBuildFailed;
    return AsBuildError(std::move(error));
  }
  if (frame->type == ChildMessage::kError) return DecodeError(frame->body);
  if (frame->type != answer || frame->fds.size() != (answer == ChildMessage::kBuilt ? 1u : 0u)) {
    ++crashed;
    return AsBuildError(lease.Reject("the builder answered another question"));
  }
  return frame;
}

Result<BuiltArtifact> BuilderPool::Impl::Build(const BuildRequest& request, MonotonicTime deadline,
                                               const std::stop_token& stop) {
  ChildFrame frame = HONE_TRY(Ask(ChildMessage::kBuild, ChildMessage::kBuilt, request, deadline, stop));
  BuiltArtifact artifact;
  BuiltReply reply = HONE_TRY(DecodeBuilt(frame.body));
  if (!AreTimes(reply.times)) return Error{ErrorKind::kCorrupt, "a time that is none", ""};
  artifact.schedule = std::move(reply.schedule);
  artifact.times = reply.times;
  artifact.object = HONE_TRY(SealedMemfd::Adopt(std::move(frame.fds[0]), static_cast<size_t>(options.object_bytes)));
  ReadOnlyMapping mapping = HONE_TRY(artifact.object.Map());
  Digest256 digest = Hash256(mapping.bytes());
  artifact.digest = AsText(std::as_bytes(std::span(digest)));
  artifact.manifest = HONE_TRY(options.open(mapping.bytes()));
  return artifact;
}

Result<BuiltArtifact> BuilderPool::Build(const BuildRequest& request, MonotonicTime deadline,
                                         const std::stop_token& stop) {
  Result<BuiltArtifact> artifact = impl_->Build(request, deadline, stop);
  if (artifact || stop.stop_requested()) return artifact;
  ++impl_->failed;
  Error error = std::move(artifact).error();
  if (error.kind != ErrorKind::kCorrupt) return error;
  error = std::move(error).Context("the builder's answer");
  error.kind = ErrorKind::kBuildFailed;
  return error;
}

Result<std::string> BuilderPool::Explain(const BuildRequest& request, MonotonicTime deadline,
                                         const std::stop_token& stop) {
  return HONE_TRY(impl_->Ask(ChildMessage::kExplain, ChildMessage::kExplained, request, deadline, stop)).body;
}

std::vector<Confinement> BuilderPool::Confinements() const { return impl_->children->Confinements(); }

BuilderPoolStats BuilderPool::Stats() const {
  BuilderPoolStats stats;
  stats.builds = impl_->builds;
  stats.failed = impl_->failed;
  stats.crashed = impl_->crashed;
  stats.timed_out = impl_->timed_out;
  stats.restarts = impl_->children->restarts();
  stats.busy = impl_->children->busy();
  return stats;
}

}  // namespace hone
