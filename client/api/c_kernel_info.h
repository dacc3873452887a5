// What the C interfaces of kernels (hone.h, hone_opencl.h and its like) say of one.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "client/api/c_api.h"
#include "client/api/updatable.h"

namespace hone {

// What every version of a kernel has in common, for as long as the kernel is held.
struct KernelTexts {
  std::string fingerprint, class_name, target;
  std::vector<std::string> names;           // of the operands
  std::vector<hone_operand_info> operands;  // which point at them: not to be copied

  KernelTexts() = default;
  KernelTexts(const KernelTexts&) = delete;
  KernelTexts& operator=(const KernelTexts&) = delete;

  // kUnsupported: an operand of a rank beyond HONE_MAX_RANK.
  Result<void> Fill(const ServedFacts& facts, const Manifest& manifest) {
    fingerprint = facts.reply.fingerprint;
    class_name = facts.reply.class_name;
    target = facts.reply.target;
    names = facts.operands;
    if (names.size() != manifest.operands.size()) {
      names.clear();
      for (const ManifestOperand& operand : manifest.operands) names.push_back(operand.name);
    }
    for (size_t i = 0; i < manifest.operands.size(); ++i) {
      const ManifestOperand& from = manifest.operands[i];
      if (from.shape.size() > HONE_MAX_RANK)
        return Error{ErrorKind::kUnsupported, "an operand of rank " + std::to_string(from.shape.size()), names[i]};
      hone_operand_info info{};
      info.name = names[i].c_str();
      info.dtype = static_cast<int32_t>(from.dtype);
      info.rank = static_cast<int32_t>(from.shape.size());
      info.bytes = ByteSize(from.dtype);
      for (size_t d = 0; d < from.shape.size(); ++d) info.bytes *= info.shape[d] = from.shape[d].hi;
      info.is_output = from.is_output;
      info.is_const = from.is_const;
      info.needs_bind = from.packed_bytes > 0;
      operands.push_back(info);
    }
    return {};
  }
};

// A word that is given out, as text that outlives the version it was said of.
inline const char* LastingWord(const std::string& word) {
  for (const char* known : {"default", "tuned", "transferred", "imported", "daemon", "disk"}) {
    if (word == known) return known;
  }
  return "unknown";
}

// As much of `info` as its struct_size says; what is no fact of these is 0.
inline void WriteKernelInfo(const KernelTexts& texts, const ServedFacts& facts, hone_kernel_info full,
                            hone_kernel_info* info) {
  full.struct_size = info->struct_size;
  full.operand_count = static_cast<int32_t>(texts.operands.size());
  full.operands = texts.operands.data();
  full.fingerprint = texts.fingerprint.c_str();
  full.class_name = texts.class_name.c_str();
  full.target = texts.target.c_str();
  full.origin = LastingWord(facts.reply.origin);
  full.source = LastingWord(facts.source);
  full.hit = facts.reply.hit;
  full.pinned = facts.reply.pinned;
  full.expected_us = facts.reply.expected_us;
  full.served_us = facts.served_us;
  std::memcpy(info, &full, std::min<size_t>(info->struct_size, sizeof full));
}

}  // namespace hone
