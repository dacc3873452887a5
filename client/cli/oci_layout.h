// A bundle as registries of container images take it: an OCI image layout (image-spec 1.1) of one artifact, whose only
// layer is the bundle.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "cache/bundle/bundle.h"

namespace hone::cli {

inline constexpr std::string_view kBundleMediaType = "application/vnd.hone.bundle.v1";

// Writes it to a directory that is not there yet, or is empty; as a whole or not at all. Its tag is the bundle's
// version. Equal bundles give equal files. kInvalid: something is there; kIo.
Result<void> WriteOciLayout(const std::string& directory, const BundleManifest& manifest, std::string_view bundle);

}  // namespace hone::cli
