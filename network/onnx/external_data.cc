#include "network/onnx/external_data.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <string_view>

#include "base/file.h"

namespace hone {

Result<UniqueFd> OpenExternalData(const std::string& folder, const std::string& location, const std::string& where) {
  auto refused = [&](std::string_view why) {
    return Error{ErrorKind::kInvalid,
                 fmt::format("its data is in \"{}\", {}; external data is read from the model's own folder only: move "
                             "it there",
                             location, why),
                 where};
  };
  if (folder.empty()) return refused("and no folder is known");
  if (location.empty() || location.find('\0') != std::string::npos) return refused("which is no path");
  if (location[0] == '/') return refused("an absolute path");
  UniqueFd at(open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!at) return ErrnoError(errno, "cannot open the model's folder", folder);
  for (size_t begin = 0; begin <= location.size();) {
    size_t end = std::min(location.find('/', begin), location.size());
    std::string part = location.substr(begin, end - begin);
    bool is_last = end == location.size();
    begin = end + 1;
    if (part == "..") return refused("outside its folder");
    if (part.empty() || part == ".") {
      if (is_last) return refused("which is no file");
      continue;
    }
    int flags = O_NOFOLLOW | O_CLOEXEC | (is_last ? O_RDONLY | O_NONBLOCK : O_PATH | O_DIRECTORY);
    UniqueFd next(openat(at.get(), part.c_str(), flags));
    if (!next) {
      if (errno == ELOOP || errno == ENOTDIR) return refused("which goes through a link");
      return ErrnoError(errno, "cannot open its external data", folder + "/" + location);
    }
    at = std::move(next);
  }
  struct stat status{};
  if (fstat(at.get(), &status) != 0 || !S_ISREG(status.st_mode)) return refused("which is no file");
  return at;
}

}  // namespace hone
