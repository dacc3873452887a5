// ONNX files on the command line: their kernels as a list, and what of them was left out.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "client/cli/context.h"
#include "network/onnx/import_network.h"
#include "network/run/kernel_calls.h"

namespace hone::cli {

struct ModelFile {
  std::string path;
  Network network;
  CallPlan plan;

  // Distinct kernels in the order of their first calls, with how often they are called.
  std::vector<NamedKernel> Kernels() const;
};

// By its name, or a file that begins as ONNX files do.
bool NamesModel(const std::string& argument);

// Errors of ImportModel.
Result<ModelFile> ReadModel(const std::string& path, const ImportOptions& options);

// A line on standard error for each node that was left out, and one for those that run when values decide their shapes.
void PrintLeftOut(const ModelFile& model);
std::vector<Json> LeftOutJson(const ModelFile& model);

// --shape, --data and --accuracy.
Result<ImportOptions> ReadImportOptions(const Arguments& arguments);
extern const Option kShapeOption;
extern const Option kDataOption;
extern const Option kAccuracyOption;

}  // namespace hone::cli
