#include "cache/bundle/bundle_files.h"

#include <fcntl.h>

#include <vector>

#include "base/file.h"

namespace hone {

void ForEachBundleFile(const std::string& directory, const BundleFileVisitor& visitor) {
  Result<UniqueFd> opened = OpenPrivateDirectory(directory, Owner::kSelfOrRoot);
  if (!opened && opened.error().kind == ErrorKind::kNotFound) return;
  if (!opened) return visitor.leave_out(directory, opened.error());
  Result<std::vector<std::string>> names = ListDirectory(directory);
  if (!names) return visitor.leave_out(directory, names.error());
  for (const std::string& name : *names) {
    if (!name.ends_with(".bundle")) continue;
    if (!visitor.goes_on()) return;
    const std::string path = directory + "/" + name;
    Result<UniqueFd> file = OpenPrivateFile(opened->get(), name, O_RDONLY, Owner::kSelfOrRoot, path);
    if (!file) {
      visitor.leave_out(path, file.error());
      continue;
    }
    if (Result<void> visited = visitor.visit(*file, path); !visited) visitor.leave_out(path, visited.error());
  }
}

}  // namespace hone
