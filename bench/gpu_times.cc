// gpu_times: schedules of kernels side by side on a GPU, checked and timed in turns.
//
//   gpu_times --save DIR [--target TARGET] FILE…    builds them; the target need not be here
//   gpu_times [--device cuda:0] [--rounds N] DIR    runs what is in DIR
//
// A line of FILE is a kernel, or choices for the kernel above it ("acc.buffers=3 acc.row_groups=1"; "default": the
// rules' own); # begins a comment. An artifact of TARGET runs on a device that has its architecture. For CUDA NVRTC is
// looked for as by honed, when building alone: the machine with the device needs this program, DIR and a driver.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "backends/drivers/gpu_context.h"
#include "backends/gpu/build_for_gpu.h"
#include "backends/gpu/compile_cuda.h"
#include "backends/gpu/find_nvrtc.h"
#include "base/bytes.h"
#include "base/file.h"
#include "codegen/rules/choices.h"
#include "codegen/rules/default_schedule.h"
#include "ir/graph/specialize.h"
#include "ir/language/parse.h"
#include "ir/reference/accuracy.h"
#include "ir/reference/check_output.h"

namespace hone {
namespace {

constexpr size_t kMostBytes = size_t{64} << 20;
constexpr double kSampleNs = 4e6;  // that calls of a round take together, about

Result<void> Save(const std::string& directory, const Target& target, const std::vector<std::string>& files) {
  std::filesystem::create_directories(directory);
  std::string kernel;
  int number = 0, refused = 0;
  for (const std::string& file : files) {
    std::ifstream in(file);
    if (!in) return Error{ErrorKind::kNotFound, file + " cannot be read", ""};
    for (std::string line; std::getline(in, line);) {
      line = line.substr(0, line.find('#'));
      line.erase(line.find_last_not_of(' ') + 1);
      if (line.empty()) continue;
      if (line.find('(') != std::string::npos) {
        kernel = line;
        continue;
      }
      const Chooser chooser = HONE_TRY(ParseChoices(line == "default" ? "" : line));
      const Plan plan = HONE_TRY(PlanSchedule(Specialize(HONE_TRY(ParseKernel(kernel))), target, chooser));
      const Result<BuildOutput> built = BuildForGpu({kernel, PrintSchedule(plan.schedule), target});
      if (!built) {
        fmt::print("{} {}: {}\n", kernel, line, built.error().Text());
        ++refused;
        continue;
      }
      const std::string name = fmt::format("{}/{:03}", directory, number++);
      HONE_TRY(WriteFileAtomically(name + ".artifact", AsText(built->object), 0644));
      HONE_TRY(WriteFileAtomically(name + ".txt", kernel + "\n" + line, 0644));
    }
  }
  fmt::print("{} built, {} refused\n", number, refused);
  return {};
}

struct Timed {
  std::string kernel, choices;
  std::unique_ptr<LoadedKernel> loaded;
  double flops = 0, error = 0;  // of what is allowed
  int calls = 1;
  std::vector<double> us;
};

// Runs it once and compares what comes out.
Result<double> Check(const std::string& text, const DeviceArtifact& artifact, LoadedKernel& loaded) {
  const Kernel kernel = Specialize(HONE_TRY(ParseKernel(text)));
  std::vector<std::vector<std::byte>> operands;
  std::vector<OperandView> inputs;
  for (size_t i = 0; i < kernel.operands.size(); ++i) {
    const Tensor& tensor = kernel.tensors[kernel.operands[i]];
    operands.emplace_back(static_cast<size_t>(ElementCount(kernel, tensor) * ByteSize(tensor.dtype)));
    if (tensor.kind == TensorKind::kInput)
      FillInput(kernel, static_cast<int>(i), InputSeed(kernel), operands.back());
    else
      FillUnwritten(tensor.dtype, operands.back());
  }
  for (size_t b = 0; b < artifact.buffers.size(); ++b)
    if (const int32_t operand = artifact.buffers[b].operand; operand >= 0)
      HONE_TRY(loaded.Write(b, operands[static_cast<size_t>(operand)]));
  HONE_TRY(loaded.Pack());
  HONE_TRY(loaded.Call(1));
  std::vector<std::span<const std::byte>> outputs;
  for (size_t i = 0; i < kernel.operands.size(); ++i) {
    if (kernel.tensors[kernel.operands[i]].kind == TensorKind::kInput) {
      inputs.push_back({operands[i].data()});
      continue;
    }
    for (size_t b = 0; b < artifact.buffers.size(); ++b)
      if (artifact.buffers[b].operand == static_cast<int32_t>(i) && artifact.buffers[b].is_written)
        HONE_TRY(loaded.Read(b, operands[i]));
    outputs.push_back(operands[i]);
  }
  Interpreter interpreter(kernel, inputs);
  const std::vector<Samples> samples = ComputeSamples(kernel, interpreter, {}, 1, inputs);
  Comparison comparison = CompareOutputs(kernel, interpreter, samples, outputs);
  if (comparison.failure) return *std::move(comparison.failure);
  return comparison.max_rel_err / Tolerance(kernel);
}

Result<void> Run(const std::string& directory, const std::string& device, int rounds) {
  const size_t colon = device.find(':');
  const std::vector<DeviceTarget> devices = HONE_TRY(FindDevices(device.substr(0, colon)));
  const size_t number = colon == std::string::npos ? 0 : static_cast<size_t>(std::atoi(device.c_str() + colon + 1));
  if (number >= devices.size()) return Error{ErrorKind::kNotFound, "there is no device " + device, ""};
  fmt::print("{}\n", PrintTarget(devices[number]));
  std::unique_ptr<GpuContext> context = HONE_TRY(OpenDevice(devices[number]));
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(directory))
    if (entry.path().extension() == ".artifact") paths.push_back(entry.path());
  std::ranges::sort(paths);
  std::vector<Timed> all;
  int wrong = 0;
  for (std::filesystem::path path : paths) {
    const std::string bytes = HONE_TRY(ReadFile(path, kMostBytes));
    const std::string text = HONE_TRY(ReadFile(path.replace_extension(".txt"), kMostBytes));
    Timed timed;
    timed.kernel = text.substr(0, text.find('\n'));
    timed.choices = text.substr(text.find('\n') + 1);
    const DeviceArtifact artifact = HONE_TRY(DecodeDeviceArtifact(AsBytes(bytes)));
    timed.flops = artifact.manifest.flops;
    timed.loaded = HONE_TRY(context->Load(artifact, Operands::kOwned));
    const Result<double> error = Check(timed.kernel, artifact, *timed.loaded);
    if (!error) {
      ++wrong;
      fmt::print("WRONG {}  {}: {}\n", timed.kernel, timed.choices, error.error().Text());
      std::fflush(stdout);
      if (error.error().kind == ErrorKind::kRunFailed) return Error{ErrorKind::kRunFailed, "the device is gone", ""};
      continue;
    }
    timed.error = *error;
    const auto once = static_cast<double>(HONE_TRY(timed.loaded->Call(2))) / 2;
    timed.calls = std::clamp(static_cast<int>(kSampleNs / std::max(1.0, once)), 1, 1000);
    all.push_back(std::move(timed));
  }
  for (int round = 0; round < rounds; ++round)
    for (Timed& timed : all)
      timed.us.push_back(static_cast<double>(HONE_TRY(timed.loaded->Call(timed.calls))) / timed.calls / 1e3);
  for (Timed& timed : all) {
    std::ranges::sort(timed.us);
    const double median = timed.us[timed.us.size() / 2];
    fmt::print("{:9.2f} us ({:.2f} … {:.2f})  {:7.1f} TFLOP/s  error {:.3f}  {}  {}\n", median, timed.us.front(),
               timed.us.back(), timed.flops / median / 1e6, timed.error, timed.kernel, timed.choices);
  }
  fmt::print("{} right, {} WRONG\n", all.size(), wrong);
  if (wrong > 0) return Error{ErrorKind::kWrongResult, "", ""};
  return {};
}

Result<void> Main(int argc, char** argv) {
  std::string save, device = "cuda:0";
  std::string target =
      "cuda arch=sm_90 block_bytes=49152 block_bytes_most=232448 block_threads=1024 l2=52428800 units=132";
  int rounds = 15;
  std::vector<std::string> places;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const auto value = [&] { return i + 1 < argc ? std::string(argv[++i]) : std::string(); };
    if (argument == "--save")
      save = value();
    else if (argument == "--target")
      target = value();
    else if (argument == "--device")
      device = value();
    else if (argument == "--rounds")
      rounds = std::max(1, std::atoi(value().c_str()));
    else
      places.push_back(argument);
  }
  if (places.empty())
    return Error{ErrorKind::kInvalid,
                 "usage: gpu_times --save DIR [--target TARGET] FILE… | gpu_times [--device cuda:0] DIR", ""};
  if (save.empty()) return Run(places[0], device, rounds);
  const Target for_whom = HONE_TRY(ParseTarget(target));
  if (LanguageOf(for_whom.kind()) == "cuda") HONE_TRY(OpenNvrtc(HONE_TRY(FindNvrtc())));
  return Save(save, for_whom, places);
}

}  // namespace
}  // namespace hone

int main(int argc, char** argv) {
  const hone::Result<void> result = hone::Main(argc, argv);
  if (!result) fmt::print(stderr, "gpu_times: {}\n", result.error().Text());
  return result ? 0 : 1;
}
