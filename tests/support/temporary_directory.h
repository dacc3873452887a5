// A directory that lasts for a test; in memory where there is room, since tests sync a lot and need no disk.
#pragma once

#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <string>

namespace hone {

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string name = (Place() / "hone-test-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  static std::filesystem::path Place() {
    const std::filesystem::path memory = "/dev/shm";
    std::error_code failed;
    std::filesystem::space_info space = std::filesystem::space(memory, failed);
    bool room = !failed && space.available > (512u << 20) && access(memory.c_str(), W_OK) == 0;
    return room ? memory : std::filesystem::temp_directory_path();
  }

  std::string path_;
};

}  // namespace hone
