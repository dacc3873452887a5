// honed: the daemon's command line.
#include <fcntl.h>
#include <getopt.h>
#include <sys/wait.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <cstring>
#include <string>

#include "base/log.h"
#include "base/stack_size.h"
#include "base/standard_files.h"
#include "base/unique_fd.h"
#include "daemon/config.h"
#include "daemon/service.h"

namespace {

constexpr const char* kHelp =
    R"(honed: serves verified tensor kernels to local applications, from a persistent cache.

usage: honed [options]
  --socket PATH       where clients connect (default: hone/honed.sock in $XDG_RUNTIME_DIR)
  --cache DIR         where kernels are kept (default: hone in $XDG_CACHE_HOME)
  --config FILE       configuration (default: ~/.config/hone/honed.toml, /etc/hone/honed.toml)
  --log LEVEL         error, warn, info or debug
  --no-idle           do not refine kernels while the machine is idle
  --detach            serve in the background; return once clients can connect
  --describe-config   print every configuration key with its default and meaning
  --version, --help

Signals: on SIGTERM, honed answers the requests in progress, writes everything to disk and exits. On SIGHUP, it reads the
configuration, the revoked keys and what bundles there are. systemd may pass the socket (honed.socket).

examples:
  honed                                          serve on the default socket
  honed --socket ~/run/honed.sock --cache ~/kernels --log debug
)";

// In the child: true. In the parent this does not return: it ends when the child is ready (0) or has failed.
bool Detach(hone::UniqueFd& ready) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return false;
  pid_t child = fork();
  if (child < 0) return false;
  if (child == 0) {
    close(ends[0]);
    ready.Reset(ends[1]);
    setsid();
    if (int null = open("/dev/null", O_RDWR | O_CLOEXEC); null >= 0) dup2(null, STDIN_FILENO);
    return true;
  }
  close(ends[1]);
  char byte;
  ssize_t got;
  do { got = read(ends[0], &byte, 1); } while (got < 0 && errno == EINTR);
  if (got == 1) _exit(0);
  int status = 0;
  waitpid(child, &status, 0);
  _exit(WIFEXITED(status) && WEXITSTATUS(status) != 0 ? WEXITSTATUS(status) : 1);
}

int WrongUsage(const std::string& what) {
  std::fprintf(stderr, "honed: %s; honed --help lists the options\n", what.c_str());
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  hone::OpenStandardFiles();
  hone::TakeDeepStacks();
  enum { kSocket = 256, kCache, kConfig, kLog, kNoIdle, kDetach, kInspect, kDescribe, kVersion, kHelpOption };
  static const option kOptions[] = {{"socket", required_argument, nullptr, kSocket},
                                    {"cache", required_argument, nullptr, kCache},
                                    {"config", required_argument, nullptr, kConfig},
                                    {"log", required_argument, nullptr, kLog},
                                    {"no-idle", no_argument, nullptr, kNoIdle},
                                    {"detach", no_argument, nullptr, kDetach},
                                    {"inspect", required_argument, nullptr, kInspect},
                                    {"describe-config", no_argument, nullptr, kDescribe},
                                    {"version", no_argument, nullptr, kVersion},
                                    {"help", no_argument, nullptr, kHelpOption},
                                    {}};
  hone::ServiceOptions options;
  bool detach = false;
  opterr = 0;
  for (int code; (code = getopt_long(argc, argv, "h", kOptions, nullptr)) != -1;) {
    switch (code) {
      case kSocket: options.socket = optarg; break;
      case kCache: options.cache = optarg; break;
      case kConfig: options.config = optarg; break;
      case kLog:
        options.log = hone::ParseLogLevel(optarg);
        if (!options.log) return WrongUsage(std::string("no log level is called ") + optarg);
        break;
      case kNoIdle: options.idle = false; break;
      case kDetach: detach = true; break;
      case kInspect: {
        auto [end, error] = std::from_chars(optarg, optarg + std::strlen(optarg), options.inspect);
        if (error != std::errc() || *end != '\0' || options.inspect < 3)
          return WrongUsage("--inspect: not a descriptor");
        break;
      }
      case kDescribe: std::fputs(hone::DescribeConfig().c_str(), stdout); return hone::EndOfPrinting("honed");
      case kVersion: std::puts("honed " HONE_VERSION); return hone::EndOfPrinting("honed");
      case 'h':
      case kHelpOption: std::fputs(kHelp, stdout); return hone::EndOfPrinting("honed");
      default: return WrongUsage(std::string("unknown or incomplete option ") + argv[optind - 1]);
    }
  }
  if (optind < argc) return WrongUsage(std::string("unexpected argument ") + argv[optind]);
  for (std::string* path : {&options.socket, &options.cache, &options.config}) {
    if (path->empty() || (*path)[0] == '/') continue;
    char* directory = get_current_dir_name();
    if (directory == nullptr) return WrongUsage("cannot tell the current directory; give absolute paths");
    *path = std::string(directory) + "/" + *path;
    free(directory);
  }
  hone::UniqueFd ready;
  if (detach && !Detach(ready)) {
    std::perror("honed: cannot start a background process");
    return 1;
  }
  hone::Result<void> done = hone::RunService(options, [&] {
    if (ready && write(ready.get(), "r", 1) == 1) ready.Reset();
  });
  if (done) return 0;
  std::fprintf(stderr, "honed: %s\n", done.error().Text().c_str());
  return 1;
}
