// Artifacts for a given kernel whose code is written in C by a test.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "backends/cpu/host_target.h"
#include "base/bytes.h"
#include "base/sealed_memfd.h"
#include "ir/language/canonical.h"
#include "ir/language/parse.h"
#include "ir/manifest.h"
#include "ir/target.h"
#include "tests/support/c_artifact.h"

namespace hone::testing {

// What a builder would put into the artifact of `text`, without packing and workspace.
inline Manifest ManifestOf(const std::string& text) {
  Manifest manifest;
  Result<Kernel> kernel = ParseKernel(text);
  EXPECT_TRUE(kernel) << text << ": " << kernel.error().Text();
  if (!kernel) return manifest;
  manifest.kernel = Canonicalize(*kernel).text;
  CpuTarget target = *HostTarget()->cpu();
  if (target.isa == Isa::kAvx512) target.isa = Isa::kAvx2;
  target.features.clear();
  manifest.target = PrintTarget(target);
  manifest.accuracy = kernel->options.accuracy;
  for (const Size& size : kernel->sizes)
    if (!size.is_constant()) manifest.dynamic_sizes.push_back(size.name);
  for (TensorId id : kernel->operands) {
    const Tensor& tensor = kernel->tensors[id];
    ManifestOperand operand;
    operand.name = tensor.name;
    operand.dtype = tensor.dtype;
    operand.alignment = ByteSize(tensor.dtype);
    operand.is_output = tensor.kind == TensorKind::kOutput;
    operand.is_const = tensor.is_const;
    for (const Expr& extent : tensor.shape) {
      ManifestDim dim{LowerExtent(*kernel, extent), UpperExtent(*kernel, extent), -1};
      if (dim.lo != dim.hi) dim.size_index = 0;
      operand.shape.push_back(dim);
    }
    manifest.operands.push_back(std::move(operand));
  }
  return manifest;
}

inline SealedMemfd HandMade(const Manifest& manifest, const std::string& code, const std::string& flags = "") {
  std::vector<std::byte> bytes = CompileArtifact(CPrologue() + CManifest(EncodeManifest(manifest)) + code, flags);
  Result<SealedMemfd> memfd = SealedMemfd::Create(bytes);
  EXPECT_TRUE(memfd);
  return std::move(*memfd);
}

// hone_entry with `body`, which sees the operands as b[0], b[1], …
inline std::string Entry(const std::string& body) {
  return "EXPORT int hone_entry(const hone_env *env, void *const *b, const int64_t *sizes) {\n" + body +
         "\nreturn 0; }\n";
}

}  // namespace hone::testing
