// Bundles for tests: a few sample records, every other one with code.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "cache/bundle/bundle.h"
#include "tests/support/sample_records.h"

namespace hone {

inline const SigningSeed kSampleSeed = {7, 1, 2, 3};

struct BundleSample {
  BundleManifest manifest;
  std::vector<BundleEntry> entries;
  std::map<Digest256, std::vector<std::byte>> code;

  Result<std::string> Write(const std::optional<SigningSeed>& seed) const {
    auto source = [this](const Digest256& digest) -> Result<std::vector<std::byte>> { return code.at(digest); };
    return WriteBundle(manifest, entries, source, seed);
  }
};

inline BundleSample SampleBundle(int kernels, int first = 0) {
  BundleSample sample;
  sample.manifest.name = "sample";
  sample.manifest.version = 3;
  sample.manifest.issued = WallTime(std::chrono::milliseconds(1'700'000'000'000));
  sample.manifest.producer = "hone test";
  sample.manifest.by = "nobody, on paper";
  for (int i = first; i < first + kernels; ++i) {
    BundleEntry entry{SampleRecord(i), SampleCanonical(i).class_text, static_cast<uint64_t>(i)};
    if (i % 2 == 0) {
      std::vector<std::byte> code = SampleArtifact(i, 3000);
      entry.record.artifact_digest = Hash256(code);
      entry.record.artifact_bytes = code.size();
      sample.code.emplace(*entry.record.artifact_digest, std::move(code));
    }
    sample.entries.push_back(std::move(entry));
  }
  return sample;
}

// Reads all of it, as an import does.
inline Result<std::vector<BundleEntry>> ReadAllOf(std::string_view bytes) {
  const Bundle bundle = HONE_TRY(Bundle::Open(AsBytes(bytes)));
  HONE_TRY(bundle.CheckFrames());
  std::vector<BundleEntry> entries;
  HONE_TRY(bundle.ForEachEntry([&](BundleEntry&& entry) -> Result<void> {
    if (entry.record.artifact_digest) HONE_TRY(bundle.Artifact(*entry.record.artifact_digest));
    entries.push_back(std::move(entry));
    return {};
  }));
  return entries;
}

}  // namespace hone
