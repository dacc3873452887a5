#include "backends/gpu/driver_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <ranges>

#include "base/file.h"
#include "ir/target.h"

namespace hone {
namespace {

constexpr const char* kOpenClFiles = "HONE_OPENCL_DRIVERS";

std::vector<std::string> FilesOf(const std::string& directory, std::string_view ending) {
  std::vector<std::string> files;
  for (const std::string& name : ListDirectory(directory).value_or(std::vector<std::string>()))
    if (name.ends_with(ending) && name.find(':') == std::string::npos) files.push_back(directory + "/" + name);
  return files;
}

// The first that is set; "": none.
std::string Variable(std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const char* value = std::getenv(name); value != nullptr && *value != '\0') return value;
  return "";
}

std::vector<std::string> Split(std::string_view list) {
  std::vector<std::string> parts;
  for (const auto part : std::views::split(list, ':'))
    if (!part.empty()) parts.emplace_back(part.begin(), part.end());
  return parts;
}

}  // namespace

std::vector<std::string> FindDriverFiles(std::string_view kind) {
  if (kind == kOpenClKind) {
    const std::string steered = Variable({"OCL_ICD_VENDORS", "OPENCL_VENDOR_PATH"});
    std::error_code ignored;
    if (std::filesystem::is_regular_file(steered, ignored)) return {steered};
    return FilesOf(steered.empty() ? "/etc/OpenCL/vendors" : steered, ".icd");
  }
  if (kind != kVulkanKind) return {};
  std::vector<std::string> files = Split(Variable({"VK_DRIVER_FILES", "VK_ICD_FILENAMES"}));
  if (!files.empty()) return files;
  for (const char* directory : {"/etc/vulkan/icd.d", "/usr/local/share/vulkan/icd.d", "/usr/share/vulkan/icd.d"})
    std::ranges::move(FilesOf(directory, ".json"), std::back_inserter(files));
  return files;
}

std::vector<std::string> UseDriverFiles(std::string_view kind, std::span<const std::string> files) {
  const std::string list = fmt::format("{}", fmt::join(files, ":"));
  if (kind == kOpenClKind) return {fmt::format("{}={}", kOpenClFiles, list)};
  return {"VK_DRIVER_FILES=" + list, "VK_ICD_FILENAMES=" + list};
}

void PointLoaderToDriverFiles(const std::string& directory) {
  const char* list = std::getenv(kOpenClFiles);
  if (list == nullptr) return;
  const std::string links = fmt::format("{}/drivers-{}", directory, ::getpid());
  std::error_code ignored;
  std::filesystem::remove_all(links, ignored);  // of a process that was killed
  std::filesystem::create_directory(links, ignored);
  for (const std::string& file : Split(list)) {
    const std::filesystem::path path = std::filesystem::absolute(file, ignored);
    std::filesystem::create_symlink(path, links + "/" + path.filename().string(), ignored);
  }
  ::setenv("OCL_ICD_VENDORS", links.c_str(), 1);
}

}  // namespace hone
