// A program's side of hone: asks honed for kernels within a deadline, falls back to its own copies on disk, and hands
// out callable kernels.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "client/api/disk_cache.h"
#include "client/api/kernel_handle.h"
#include "client/api/thread_pool.h"
#include "client/api/updates.h"
#include "client/protocol/channel.h"
#include "client/protocol/protocol.h"

namespace hone {

struct ClientOptions {
  std::string socket;      // "": ChooseSocketPath
  std::string disk_cache;  // from where the process is now; "": `client` in DefaultCacheDir
  bool use_disk_cache = true;
  bool start_daemon = false;  // when nothing listens
  std::string daemon_cache;   // for the daemon that is started: its --cache; "": its default
  ThreadPoolOptions threads;
  Workers application;  // parallel_for set: used instead of threads of ours
  // How long a silent daemon is given when there is a copy on disk, and one that hangs up when it is not to be started:
  // a hit takes less than a thousandth of it.
  std::chrono::milliseconds patience{250};
  UpdatesOptions updates;  // socket and disk are the client's
};

struct GetOptions {
  int threads = 0;  // 0: what the kernel says, else the pool's
  std::chrono::microseconds budget{0};
  std::chrono::microseconds deadline{10'000'000};
  bool frozen = false;  // this code for as long as it is held
  bool no_compile = false;
  std::string target;  // "": the daemon's machine
};

// What came back from the daemon or the disk, not yet loaded.
struct Served {
  GetReply reply;
  std::string canonical;  // "" if this side could not tell
  SealedMemfd artifact;
  std::string source;
  std::vector<std::string> operands{};  // their names in the text that was asked for; none if this side could not tell
};

// Code that was served and is mapped, of which any number of handles can be made.
struct OpenedKernel {
  std::shared_ptr<const LoadedArtifact> code;
  ServedFacts facts;
  std::string canonical;  // "" if this side could not tell
  GetRequest request;     // what it was asked for with
  int threads = 0;        // of its calls; 0: the pool's
};

// Thread-safe: requests of several threads travel on connections of their own. Survives fork: the child connects anew.
class Client {
 public:
  static Result<std::unique_ptr<Client>> Create(ClientOptions options);
  ~Client();

  // Code that can be called, within the deadline. Errors of the daemon as they are; kTimeout, kUnavailable when it does
  // not answer and there is no copy on disk; kCorrupt for code that was refused. `retry_after_ms` with kBusy.
  Result<std::unique_ptr<KernelHandle>> Get(std::string_view kernel, const GetOptions& options,
                                            uint32_t* retry_after_ms = nullptr);
  // The same in two steps, for who wants several handles of one kernel, or to have many kernels served at once.
  Result<OpenedKernel> Open(std::string_view kernel, const GetOptions& options, uint32_t* retry_after_ms = nullptr);
  Result<std::unique_ptr<KernelHandle>> Hold(const OpenedKernel& kernel, const GetOptions& options);
  // What Open does, without loading the code: for tools that only look.
  Result<Served> Fetch(std::string_view kernel, const GetOptions& options, uint32_t* retry_after_ms = nullptr);

  // From now on a handle is kept up to date: one that was made of what Fetch returned for this kernel with these
  // options.
  void KeepUpToDate(Updatable& handle, std::string_view kernel, const GetOptions& options, std::string canonical);

  // A connection of one's own, for the other messages. Starts the daemon if the options say so.
  Result<Channel> Connect(Deadline deadline);
  template <typename Request>
  Result<ReplyTo<Request>> Call(const Request& request, Deadline deadline) {
    Channel channel = HONE_TRY(Connect(deadline));
    return channel.Call(request, deadline);
  }

  const std::string& socket() const { return options_.socket; }
  const PackedConstants& packed() const { return *packed_; }  // what its kernels keep of bound constants

 private:
  // What this side knows of a kernel by itself.
  struct Local {
    std::string canonical;              // "" if it does not parse: the daemon will say why
    int threads = 0;                    // as the kernel says; 0 if it does not
    std::vector<std::string> operands;  // their names in the text; equal code is shared by texts with other names
  };
  static Local Understand(const GetRequest& request);
  static GetRequest RequestFor(std::string_view kernel, const GetOptions& options);

  explicit Client(ClientOptions options);
  Result<Channel> TakeChannel(Deadline deadline);
  void GiveBack(Channel channel);
  Result<Served> Ask(const GetRequest& request, Deadline deadline, Local* local, uint32_t* retry_after_ms);
  Result<Served> AskOn(Channel& channel, const GetRequest& request, Deadline deadline, Local* local,
                       uint32_t* retry_after_ms);
  std::optional<Served> FromDisk(const GetRequest& request) const;
  Result<Served> FetchKnowing(const GetRequest& request, Deadline deadline, Local* local, uint32_t* retry_after_ms);
  Workers WorkersFor(int asked) const;

  const ClientOptions options_;
  const std::shared_ptr<ThreadPool> pool_;
  const std::shared_ptr<PackedConstants> packed_ = std::make_shared<PackedConstants>();  // of all its kernels
  const std::shared_ptr<const DiskCache> disk_;
  const std::shared_ptr<Updates> updates_;  // shared with the handles that it watches
  // Only ever tried: a thread that finds it taken (or a child process whose parent's thread held it) does without.
  Mutex mutex_;
  std::vector<Channel> idle_ HONE_GUARDED_BY(mutex_);
  pid_t owner_ HONE_GUARDED_BY(mutex_) = 0;  // the process that the idle connections belong to
};

}  // namespace hone
