// The drivers of a kind of device, as the files by which a machine names them to the kind's loader. A loader loads all
// of them at once, and one that crashes or hangs takes the others with it; whoever is told to use some of them has
// those alone.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hone {

// As the loaders find them, by the variables that users steer them with first, in the order of names. Empty: none, or
// the kind has no such files.
std::vector<std::string> FindDriverFiles(std::string_view kind);

// NAME=value that make hone-device-runner use these alone.
std::vector<std::string> UseDriverFiles(std::string_view kind, std::span<const std::string> files);

// OpenCL's loader takes a directory. Where UseDriverFiles said which, puts links to them into a new one of
// `directory`'s and points the loader there. REQUIRES: no driver is loaded yet, and the process has one thread.
void PointLoaderToDriverFiles(const std::string& directory);

}  // namespace hone
