// honed-edge: the command line of the daemon for devices without a compiler.
#include <getopt.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>

#include "base/file.h"
#include "base/stack_size.h"
#include "base/standard_files.h"
#include "client/protocol/channel.h"
#include "client/protocol/missing_text.h"
#include "daemon/edge/edge_service.h"

namespace {

constexpr const char* kHelp =
    R"(honed-edge: serves kernels from signed bundles, on devices without a compiler.

usage: honed-edge [options]
  --socket PATH       where clients connect (default: hone/honed.sock in $XDG_RUNTIME_DIR)
  --bundles DIR       serve DIR/*.bundle; may be given several times (default: /usr/share/hone/bundles.d)
  --keys DIR          believe bundles that were signed with a key in DIR; may be given several times (default:
                      ~/.config/hone/keys and /etc/hone/keys)
  --any-user          every user of the machine may connect
  --runner PROGRAM    what runs code to check it (default: hone-runner, beside this program or in its libexec/hone)
  --log LEVEL         error, warn, info or debug
  --describe-target   print this device as `hone warm --target` takes it, and exit
  --missing           print what the running honed-edge was asked for and does not have, and exit
  --version, --help

Each code is run once and compared with the reference before it is first served. systemd may pass the socket. On SIGTERM,
honed-edge answers the requests in progress and exits. Bundles are read at the start.

examples:
  honed-edge --bundles /opt/model/kernels
  honed-edge --missing > missing.kernels      and where hone is: hone warm missing.kernels
)";

int WrongUsage(const std::string& what) {
  std::fprintf(stderr, "honed-edge: %s; honed-edge --help lists the options\n", what.c_str());
  return 2;
}

int Fail(const hone::Error& error) {
  std::fprintf(stderr, "honed-edge: %s\n", error.Text().c_str());
  return 1;
}

int PrintMissing(const hone::EdgeOptions& options) {
  const auto ask = [&]() -> hone::Result<hone::MissingReply> {
    const std::string socket = options.socket.empty() ? HONE_TRY(hone::ChooseSocketPath()) : options.socket;
    const auto soon = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    hone::Channel channel = HONE_TRY(hone::Channel::Connect(socket, soon));
    return channel.Call(hone::MissingRequest{}, soon);
  };
  hone::Result<hone::MissingReply> reply = ask();
  if (!reply) return Fail(reply.error());
  std::fputs(hone::MissingText(*reply).c_str(), stdout);
  return hone::EndOfPrinting("honed-edge");
}

std::string Absolute(const std::string& path) {
  if (path.empty() || path[0] == '/') return path;
  char* directory = get_current_dir_name();
  std::string absolute = std::string(directory != nullptr ? directory : "") + "/" + path;
  free(directory);
  return absolute;
}

}  // namespace

int main(int argc, char** argv) {
  hone::OpenStandardFiles();
  hone::TakeDeepStacks();
  enum { kSocket = 256, kBundles, kKeys, kAnyUser, kRunner, kLog, kDescribe, kMissing, kVersion, kHelpOption };
  static const option kOptions[] = {{"socket", required_argument, nullptr, kSocket},
                                    {"bundles", required_argument, nullptr, kBundles},
                                    {"keys", required_argument, nullptr, kKeys},
                                    {"any-user", no_argument, nullptr, kAnyUser},
                                    {"runner", required_argument, nullptr, kRunner},
                                    {"log", required_argument, nullptr, kLog},
                                    {"describe-target", no_argument, nullptr, kDescribe},
                                    {"missing", no_argument, nullptr, kMissing},
                                    {"version", no_argument, nullptr, kVersion},
                                    {"help", no_argument, nullptr, kHelpOption},
                                    {}};
  hone::EdgeOptions options;
  bool prints_missing = false;
  opterr = 0;
  for (int code; (code = getopt_long(argc, argv, "h", kOptions, nullptr)) != -1;) {
    switch (code) {
      case kSocket: options.socket = Absolute(optarg); break;
      case kBundles: options.bundles.push_back(Absolute(optarg)); break;
      case kKeys: options.keys.push_back(Absolute(optarg)); break;
      case kAnyUser: options.any_user = true; break;
      case kRunner: options.runner = Absolute(optarg); break;
      case kLog: {
        std::optional<hone::LogLevel> level = hone::ParseLogLevel(optarg);
        if (!level) return WrongUsage(std::string("no log level is called ") + optarg);
        options.log = *level;
        break;
      }
      case kDescribe: {
        hone::Result<std::string> target = hone::DescribeDevice();
        if (!target) return Fail(target.error());
        std::puts(target->c_str());
        return hone::EndOfPrinting("honed-edge");
      }
      case kMissing: prints_missing = true; break;
      case kVersion: std::puts("honed-edge " HONE_VERSION); return hone::EndOfPrinting("honed-edge");
      case 'h':
      case kHelpOption: std::fputs(kHelp, stdout); return hone::EndOfPrinting("honed-edge");
      default: return WrongUsage(std::string("unknown or incomplete option ") + argv[optind - 1]);
    }
  }
  if (optind < argc) return WrongUsage(std::string("unexpected argument ") + argv[optind]);
  if (prints_missing) return PrintMissing(options);
  if (!options.runner.empty() && access(options.runner.c_str(), X_OK) != 0)
    return Fail(hone::ErrnoError(errno, "cannot run what --runner names", options.runner));
  hone::Result<void> done = hone::RunEdge(options, [] {});
  return done ? 0 : Fail(done.error());
}
