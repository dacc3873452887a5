// Artifacts written in C for tests: correct ones, and the hostile ones that no code generator of ours would emit.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstddef>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "base/file.h"

#ifndef HONE_TEST_CLANG
#define HONE_TEST_CLANG "clang-19"
#endif

namespace hone::testing {

// A folder that is removed, with the files in it, when the test ends.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::string pattern = ::testing::TempDir() + "/hone-test-XXXXXX";
    path_ = ::mkdtemp(pattern.data()) != nullptr ? pattern : "";
  }
  ~ScratchFolder() { [[maybe_unused]] int ignored = ::system(("rm -rf '" + path_ + "'").c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// "" where it cannot be read: of processes that end meanwhile, too.
inline std::string ReadFile(const std::string& path) { return hone::ReadFile(path, size_t{1} << 30).value_or(""); }

inline void WriteFile(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

// The prologue that every C artifact starts with: the ABI, and EXPORT for the functions that are to be visible.
inline std::string CPrologue() {
  return "#include \"base/generated_code.h\"\n"
         "#define EXPORT __attribute__((visibility(\"default\")))\n";
}

// `manifest` as the exported constant hone_manifest.
inline std::string CManifest(const std::string& manifest) {
  std::ostringstream out;
  out << "EXPORT const unsigned char hone_manifest[" << manifest.size()
      << "] __attribute__((section(\".hone.manifest\"))) = {";
  for (unsigned char byte : manifest) out << static_cast<int>(byte) << ",";
  out << "};\n";
  return out.str();
}

// Compiles C as hone's own linker step would lay it out; `flags` are added. Empty (and a test failure) if the compiler
// refuses.
inline std::vector<std::byte> CompileArtifact(const std::string& source, const std::string& flags = "") {
  static std::map<std::string, std::vector<std::byte>> cache;
  auto [entry, is_new] = cache.try_emplace(flags + "\n" + source);
  if (!is_new) return entry->second;
  ScratchFolder folder;
  WriteFile(folder.path() + "/a.c", source);
  std::string command = std::string(HONE_TEST_CLANG) +
                        " -std=gnu99 -O2 -march=native -fPIC -shared -nostdlib -fvisibility=hidden"
                        " -fno-stack-protector -fno-asynchronous-unwind-tables -fno-unwind-tables -fno-builtin"
                        " -fuse-ld=lld -Wl,-z,now -Wl,--build-id=none -Wno-everything -I" HONE_SOURCE_DIR " " +
                        flags + " -o " + folder.path() + "/a.so " + folder.path() + "/a.c 2>" + folder.path() + "/err";
  int status = ::system(command.c_str());
  EXPECT_EQ(status, 0) << command << "\n" << ReadFile(folder.path() + "/err");
  std::string bytes = ReadFile(folder.path() + "/a.so");
  const std::byte* data = reinterpret_cast<const std::byte*>(bytes.data());
  if (status == 0) entry->second.assign(data, data + bytes.size());
  return entry->second;
}

}  // namespace hone::testing
