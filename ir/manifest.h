// What a caller must know to call an artifact: operands, packing, workspace, launches. Travels inside the artifact (its
// read-only section .hone.manifest) and in the daemon's reply. Grammar: docs/record_format.md.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/graph/kernel.h"

namespace hone {

// A dimension of an operand or of the packed form: a constant (lo == hi), or dynamic: the size `size_index`
// (hone_entry's sizes) as it is, within lo … hi.
struct ManifestDim {
  int64_t lo = 0;
  int64_t hi = 0;
  int32_t size_index = -1;  // -1: constant
};

struct ManifestOperand {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<ManifestDim> shape;  // as declared by the caller
  bool is_output = false;
  bool is_const = false;
  int64_t alignment = 4;      // bytes; the element's size suffices
  int64_t packed_bytes = 0;   // > 0: hone_pack must have written this many bytes (64-byte aligned), and hone_entry gets
                              // the packed copy in `buffers` in place of the operand
  std::string packed_layout;  // id of that layout: equal ids, equal bytes. "" if not packed
};

struct Manifest {
  static constexpr uint32_t kVersion = 1;
  std::string kernel;                      // canonical text, compared by the client
  std::string target;                      // PrintTarget
  std::vector<ManifestOperand> operands;   // in the order of hone_entry's `buffers`
  std::vector<std::string> dynamic_sizes;  // names, in the order of hone_entry's `sizes`
  int64_t workspace_common = 0;            // bytes; the workspace is common + workers × per_worker, 64-byte aligned
  int64_t workspace_per_worker = 0;        // bytes per worker, a multiple of 64
  int32_t launches = 1;                    // entries of the launch plan; one on a CPU
  Accuracy accuracy = Accuracy::kStrict;
  double flops = 0;  // of one call
};

std::string EncodeManifest(const Manifest& manifest);
Result<Manifest> DecodeManifest(std::span<const std::byte> bytes);  // kCorrupt

}  // namespace hone
