// Versions of one kernel that compute the same, and otherwise have as little in common as versions can: code, what they
// make of a constant, what memory they want. y[i] = x[i] + w[i] over 1,000 elements, and `tag` says who computed it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/hash.h"
#include "client/api/kernel_handle.h"
#include "tests/support/c_artifact.h"

namespace hone::testing {

enum class Layout { kPlain, kReversed, kTwice, kHalvesSwapped };
inline constexpr int kLayouts = 4;
inline constexpr int64_t kVersionSize = 1000;

// Calls and packs as a version of this layout. w is read through W(i).
inline std::string VersionCode(Layout layout, int tag) {
  const char* w = layout == Layout::kReversed        ? "w[999 - (i)]"
                  : layout == Layout::kTwice         ? "w[2 * (i) + 1]"
                  : layout == Layout::kHalvesSwapped ? "w[((i) + 500) % 1000]"
                                                     : "w[i]";
  return std::string("#define W(i) ") + w + "\n#define TAG " + std::to_string(tag) + R"(
struct ctx { const float *x, *w; float *y; };
static void body(int64_t begin, int64_t end, int32_t worker, void *p) {
  struct ctx *c = p;
  const float *w = c->w;
  for (int64_t i = begin; i < end; ++i) c->y[i] = c->x[i] + W(i);
}
EXPORT int hone_entry(const hone_env *env, void *const *buffers, const int64_t *sizes) {
  struct ctx c = {buffers[0], buffers[1], buffers[2]};
  float *own = env->workspace;
#ifdef COPIES  /* through memory of its own, so that a wrong workspace shows */
  for (int i = 0; i < 1000; ++i) own[i] = c.x[i];
  c.x = own;
#endif
  int status = env->parallel_for(env->pool, 1000, 250, body, &c);
  *(float *)buffers[3] = TAG;
  return status;
}
struct packing { const float *from; float *w; };
static void pack(int64_t begin, int64_t end, int32_t worker, void *p) {
  struct packing *c = p;
  float *w = c->w;
  for (int64_t i = begin; i < end; ++i) W(i) = c->from[i];
}
EXPORT int hone_pack(const hone_env *env, int32_t operand, const void *src, void *dst) {
  struct packing c = {src, dst};
  return operand != 1 ? 5 : env->parallel_for(env->pool, 1000, 100, pack, &c);
}
)";
}

inline Manifest VersionManifest(Layout layout, const std::string& kernel) {
  auto operand = [](const char* name, int64_t n, bool is_output) {
    ManifestOperand made;
    made.name = name;
    made.shape = {{n, n, -1}};
    made.is_output = is_output;
    return made;
  };
  Manifest manifest;
  manifest.kernel = kernel;
  manifest.target = "avx2 cpu=generic features= l1=32768 l2=524288 l3=4194304 cores=1";
  manifest.operands = {operand("x", kVersionSize, false), operand("w", kVersionSize, false),
                       operand("y", kVersionSize, true), operand("tag", 1, true)};
  manifest.operands[1].is_const = true;
  if (layout != Layout::kPlain) {
    manifest.operands[1].packed_bytes = layout == Layout::kTwice ? 8000 : 4000;
    manifest.operands[1].packed_layout = "layout " + std::to_string(static_cast<int>(layout));
  }
  if (layout == Layout::kTwice) manifest.workspace_common = 4096;
  if (layout == Layout::kHalvesSwapped) manifest.workspace_per_worker = 64;
  return manifest;
}

inline std::vector<std::byte> VersionBytes(const Manifest& manifest, const std::string& code) {
  return CompileArtifact(CPrologue() + (manifest.workspace_common > 0 ? "#define COPIES\n" : "") + code +
                         CManifest(EncodeManifest(manifest)));
}
inline std::vector<std::byte> VersionBytes(Layout layout, int tag, const std::string& kernel = "add") {
  return VersionBytes(VersionManifest(layout, kernel), VersionCode(layout, tag));
}

inline Result<std::unique_ptr<LoadedArtifact>> LoadBytes(const std::vector<std::byte>& bytes) {
  Digest256 digest = Hash256(bytes);
  SealedMemfd file = HONE_TRY(SealedMemfd::Create(bytes));
  return LoadedArtifact::Load(std::move(file), bytes.size(),
                              std::string_view(reinterpret_cast<const char*>(digest.data()), digest.size()), "");
}

// Data for calls of one thread.
struct VersionData {
  std::vector<float> x = std::vector<float>(kVersionSize), y = std::vector<float>(kVersionSize);
  float tag = -1;

  explicit VersionData(int seed) {
    for (int i = 0; i < kVersionSize; ++i) x[i] = static_cast<float>(seed * 1000 + i);
  }
  static std::vector<float> Constant() {
    std::vector<float> w(kVersionSize);
    for (int i = 0; i < kVersionSize; ++i) w[i] = static_cast<float>((i * 37) % 1009);
    return w;
  }

  // Calls once and looks at every element; the tag, or -1 if anything is wrong. `w`: unless it is bound.
  int Call(KernelHandle& handle, const std::vector<float>& constant, const float* w = nullptr) {
    std::fill(y.begin(), y.end(), -1.0f);
    tag = -1;
    void* buffers[] = {x.data(), const_cast<float*>(w), y.data(), &tag};
    if (handle.Call(buffers, nullptr) != 0) return -1;
    for (int i = 0; i < kVersionSize; ++i) {
      if (y[i] != x[i] + constant[i]) return -1;
    }
    return static_cast<int>(tag);
  }
};

}  // namespace hone::testing
