#include "client/cli/run_sizes.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>

#include "client/cli/trial_run.h"
#include "ir/graph/print.h"
#include "ir/language/canonical.h"
#include "ir/language/parse.h"
#include "ir/schedule/schedule_cases.h"

namespace hone::cli {
namespace {

constexpr size_t kSpread = 17;    // sizes, evenly over the range
constexpr size_t kMostEnds = 16;  // of ranges with a schedule of their own
constexpr size_t kMostSizes = 4096;

// What one size came to.
struct AtSize {
  std::vector<int64_t> sizes;
  double time_us = 0, gflops = 0;
  double fixed_us = 0;       // of the kernel for this size alone, in turns with the other
  double loss = 0;           // time / fixed - 1: the median over turns
  std::string fixed_origin;  // "" if there is none to compare with
  Comparison comparison;
};

// The dynamic size that is varied; the others go along.
size_t FirstDynamic(const Kernel& kernel) {
  size_t s = 0;
  while (s < kernel.sizes.size() && kernel.sizes[s].is_constant()) ++s;
  return s;
}

std::string SizesText(const Kernel& kernel, const std::vector<int64_t>& sizes) {
  std::string text;
  size_t next = 0;
  for (const Size& size : kernel.sizes)
    if (!size.is_constant() && next < sizes.size())
      text += fmt::format("{}{}={}", text.empty() ? "" : " ", size.name, sizes[next++]);
  return text;
}

// Values of all dynamic sizes where those of some are given (by index into Kernel::sizes; -1: not).
std::vector<int64_t> Complete(const Kernel& kernel, const std::vector<int64_t>& given) {
  double share = 1;
  for (size_t s = 0; s < kernel.sizes.size(); ++s) {
    const Size& size = kernel.sizes[s];
    if (size.is_constant() || given[s] < 0) continue;
    share = static_cast<double>(given[s] - size.lo) / static_cast<double>(size.hi - size.lo);
    break;
  }
  std::vector<int64_t> values;
  for (size_t s = 0; s < kernel.sizes.size(); ++s) {
    const Size& size = kernel.sizes[s];
    if (size.is_constant()) continue;
    values.push_back(given[s] >= 0 ? given[s]
                                   : size.lo + static_cast<int64_t>(share * static_cast<double>(size.hi - size.lo)));
  }
  return values;
}

std::string_view Trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

// The text of the kernel at these sizes: as the user wrote it, with numbers in place of the ranges, where that is the
// same kernel.
std::string TextAt(const std::string& text, const Kernel& kernel, const std::vector<int64_t>& sizes,
                   const Kernel& alone) {
  std::string replaced = text;
  size_t next = 0;
  for (const Size& size : kernel.sizes) {
    if (size.is_constant() || next == sizes.size()) continue;
    const std::string range = fmt::format("{}={}..{}", size.name, size.lo, size.hi);
    if (size_t at = replaced.find(range); at != std::string::npos)
      replaced.replace(at, range.size(), fmt::format("{}={}", size.name, sizes[next]));
    ++next;
  }
  Result<Kernel> read = ParseKernel(replaced);
  return read && Canonicalize(*read).text == Canonicalize(alone).text ? replaced : PrintKernel(alone);
}

// A search for this kernel alone, to its end.
Result<void> Tune(Context& context, const std::string& kernel, int64_t trials, int threads) {
  TuneRequest request{kernel, static_cast<uint32_t>(threads), static_cast<uint32_t>(trials), 0, 1};
  Channel channel = HONE_TRY(context.Ask());
  auto limit = std::chrono::steady_clock::now() + std::chrono::hours(24);
  uint64_t id = HONE_TRY(channel.Ask(request, limit));
  while (HONE_TRY(channel.Await<TuneReply>(id, limit)).more) {}
  return {};
}

struct Sweep {
  Context& context;
  Client& client;
  const std::string& text;
  const Kernel& kernel;
  const GetOptions& options;
  KernelHandle& handle;
  int samples;
  int64_t tune_each;

  Result<AtSize> Run(const std::vector<int64_t>& sizes);
};

Result<AtSize> Sweep::Run(const std::vector<int64_t>& sizes) {
  AtSize result;
  result.sizes = sizes;
  const Kernel alone = HONE_TRY(AtSizes(kernel, sizes));
  TrialOperands operands = HONE_TRY(TrialOperands::Make(handle, alone, sizes));
  HONE_TRY(operands.Call());
  result.comparison = operands.Compare();
  const int64_t calls = HONE_TRY(operands.CallsInASample());

  const std::string own = TextAt(text, kernel, sizes, alone);
  if (tune_each > 0) HONE_TRY(Tune(context, own, tune_each, options.threads));
  Result<std::unique_ptr<KernelHandle>> fixed = client.Get(own, options);
  // Not there, and not to be compiled: the times are told without a loss.
  if (!fixed && fixed.error().kind != ErrorKind::kNotFound) return std::move(fixed).error();
  std::optional<TrialOperands> others;
  int64_t other_calls = 1;
  if (fixed) {
    others = HONE_TRY(TrialOperands::Make(**fixed, alone, {}));
    HONE_TRY(others->Call());
    other_calls = HONE_TRY(others->CallsInASample());
    result.fixed_origin = (*fixed)->facts().reply.origin;
  }
  std::vector<double> times, other_times, ratios;
  for (int i = 0; i < samples; ++i) {
    // Who goes first changes from turn to turn.
    for (bool dynamic : {i % 2 == 0, i % 2 != 0}) {
      if (dynamic)
        times.push_back(HONE_TRY(operands.Sample(calls)));
      else if (others)
        other_times.push_back(HONE_TRY(others->Sample(other_calls)));
    }
    if (others) ratios.push_back(times.back() / other_times.back());
  }
  result.time_us = MedianOf(std::move(times));
  result.gflops = result.time_us > 0 ? FlopCount(alone) / result.time_us / 1e3 : 0;
  if (others) {
    result.fixed_us = MedianOf(std::move(other_times));
    result.loss = MedianOf(std::move(ratios)) - 1;
  }
  return result;
}

// Every size of the range counted alike, by the sizes that were compared.
std::optional<double> MeanLoss(const Kernel& kernel, const std::vector<AtSize>& results) {
  std::vector<std::pair<int64_t, double>> losses;
  for (const AtSize& result : results)
    if (!result.fixed_origin.empty()) losses.emplace_back(result.sizes[0], result.loss);
  if (losses.empty()) return std::nullopt;
  std::sort(losses.begin(), losses.end());
  std::vector<int64_t> values;
  for (auto& [value, _] : losses) values.push_back(value);
  const Size& size = kernel.sizes[FirstDynamic(kernel)];
  const std::vector<double> shares = SharesOf(values, size.lo, size.hi);
  double mean = 0;
  for (size_t i = 0; i < losses.size(); ++i) mean += shares[i] * losses[i].second;
  return mean;
}

Json ToJson(const Kernel& kernel, const AtSize& result) {
  Json json;
  json.Set("sizes", SizesText(kernel, result.sizes)).Set("time_us", result.time_us).Set("gflops", result.gflops);
  if (!result.fixed_origin.empty())
    json.Set("fixed_us", result.fixed_us).Set("fixed_origin", result.fixed_origin).Set("loss", result.loss);
  json.Set("max_rel_err", result.comparison.max_rel_err).Set("verified", !result.comparison.failure.has_value());
  if (result.comparison.failure) json.Set("error", ErrorJson(*result.comparison.failure));
  return json;
}

void Show(const Kernel& kernel, const NamedKernel& named, const ServedFacts& facts, size_t schedules,
          const std::vector<AtSize>& results, bool json) {
  const std::optional<double> mean = MeanLoss(kernel, results);
  double worst = 0;
  bool verified = true;
  for (const AtSize& result : results) {
    worst = std::max(worst, result.comparison.max_rel_err);
    verified &= !result.comparison.failure.has_value();
  }
  if (json) {
    Json out;
    out.Append(ServedJson(facts.reply, facts.served_us));
    std::vector<Json> each;
    for (const AtSize& result : results) each.push_back(ToJson(kernel, result));
    const AtSize& largest = *std::max_element(results.begin(), results.end(),
                                              [](const AtSize& a, const AtSize& b) { return a.sizes < b.sizes; });
    out.Set("time_us", largest.time_us)
        .Set("gflops", largest.gflops)
        .Set("max_rel_err", worst)
        .Set("verified", verified)
        .Set("schedules", schedules)
        .Set("at", std::move(each));
    if (mean) out.Set("mean_loss", *mean);
    return Print(out.Dump() + "\n");
  }
  Print(fmt::format("{}: {}, {} schedule{}, served in {}\n", named.text,
                    facts.reply.hit ? facts.reply.origin + ", cache" : facts.reply.origin, schedules,
                    schedules == 1 ? "" : "s", TimeText(facts.served_us)));
  Table table({{"sizes"},
               {"time", Table::Align::kRight},
               {"GFLOP/s", Table::Align::kRight},
               {"size alone", Table::Align::kRight},
               {"loss", Table::Align::kRight},
               {"is"},
               {"error", Table::Align::kRight},
               {"verified"}});
  for (const AtSize& result : results) {
    const bool is_compared = !result.fixed_origin.empty();
    table.Add({SizesText(kernel, result.sizes), TimeText(result.time_us), fmt::format("{:.1f}", result.gflops),
               is_compared ? TimeText(result.fixed_us) : "-",
               is_compared ? fmt::format("{:.1f} %", result.loss * 100) : "-", result.fixed_origin,
               ErrorText(result.comparison.max_rel_err), result.comparison.failure ? "NO" : "yes"});
  }
  Print(table.Text());
  if (mean)
    Print(fmt::format("mean loss against each size's own kernel: {:.1f} %, all sizes counted alike\n", *mean * 100));
}

}  // namespace

const Option kSizesOption = {"--sizes", "LIST", "of a kernel with a range: where to run it, as M=1,7,64"};
const Option kTuneEachOption = {"--tune-each", "N",
                                "of a kernel with a range: search that long for each size's own kernel first"};

bool HasDynamicSizes(const std::string& kernel) {
  Result<Kernel> parsed = ParseKernel(kernel);
  return parsed && !IsStatic(*parsed);
}

Result<std::vector<std::vector<int64_t>>> ParseSizes(const Kernel& kernel, const std::string& text) {
  auto wrong = [&](std::string_view seen, std::string wanted) {
    return Error{ErrorKind::kInvalid, fmt::format("saw \"{}\", wanted {}", seen.substr(0, 60), wanted), "--sizes"};
  };
  std::vector<std::vector<int64_t>> lists;
  std::string name;  // given last
  for (std::string_view left = text; !left.empty();) {
    std::string_view item = Trim(left.substr(0, left.find(',')));
    left.remove_prefix(
        std::min(left.size(), left.find(',') == std::string_view::npos ? left.size() : left.find(',') + 1));
    std::vector<int64_t> given(kernel.sizes.size(), -1);
    if (item.empty()) return wrong(item, "sizes, as M=1,7,64");
    while (!item.empty()) {
      std::string_view word = item.substr(0, item.find(' '));
      item = Trim(item.substr(word.size()));
      if (size_t equals = word.find('='); equals != std::string_view::npos) {
        name = word.substr(0, equals);
        word.remove_prefix(equals + 1);
      }
      int64_t value = 0;
      auto [end, code] = std::from_chars(word.data(), word.data() + word.size(), value);
      if (code != std::errc() || end != word.data() + word.size()) return wrong(word, "a whole number");
      size_t s = 0;
      while (s < kernel.sizes.size() && (kernel.sizes[s].is_constant() || kernel.sizes[s].name != name)) ++s;
      if (s == kernel.sizes.size())
        return wrong(name.empty() ? word : name,
                     fmt::format("a size that is a range, such as {}", kernel.sizes[FirstDynamic(kernel)].name));
      const Size& size = kernel.sizes[s];
      if (value < size.lo || value > size.hi)
        return wrong(fmt::format("{}={}", name, value), fmt::format("{} from {} to {}", name, size.lo, size.hi));
      given[s] = value;
    }
    lists.push_back(Complete(kernel, given));
    if (lists.size() > kMostSizes) return wrong(text, fmt::format("at most {} sizes", kMostSizes));
  }
  if (lists.empty()) return wrong(text, "sizes, as M=1,7,64");
  return lists;
}

std::vector<std::vector<int64_t>> SpreadSizes(const Kernel& kernel, const ScheduleCases& cases) {
  const size_t first = FirstDynamic(kernel);
  const Size& size = kernel.sizes[first];
  std::vector<int64_t> values;
  for (size_t i = 0; i < kSpread; ++i)
    values.push_back(size.lo + static_cast<int64_t>(static_cast<double>(size.hi - size.lo) * static_cast<double>(i) /
                                                    static_cast<double>(kSpread - 1)));
  if (cases.size == size.name) {
    for (const ScheduleCase& scheduled : cases.cases) {
      for (int64_t end : {scheduled.Hull().lo, scheduled.Hull().hi})
        if (end >= size.lo && end <= size.hi && values.size() < kSpread + kMostEnds) values.push_back(end);
    }
  }
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  std::vector<std::vector<int64_t>> lists;
  for (int64_t value : values) {
    std::vector<int64_t> given(kernel.sizes.size(), -1);
    given[first] = value;
    lists.push_back(Complete(kernel, given));
  }
  return lists;
}

std::vector<double> SharesOf(const std::vector<int64_t>& values, int64_t lo, int64_t hi) {
  std::vector<double> shares;
  const double all = static_cast<double>(hi - lo) + 1;
  double from = static_cast<double>(lo) - 0.5;
  for (size_t i = 0; i < values.size(); ++i) {
    const double to = i + 1 == values.size()
                          ? static_cast<double>(hi) + 0.5
                          : (static_cast<double>(values[i]) + static_cast<double>(values[i + 1])) / 2;
    shares.push_back((to - from) / all);
    from = to;
  }
  return shares;
}

int RunAtSizes(Context& context, const NamedKernel& named, const GetOptions& asked, int samples,
               const Arguments& arguments) {
  Result<int64_t> tune_each = arguments.Number("--tune-each", 0, 1, 100'000);
  if (!tune_each) return context.WrongUsage(tune_each.error());
  Result<Kernel> parsed = ParseKernel(named.text);
  if (!parsed) return context.Fail(AtPlace(parsed.error(), named));
  Result<Client*> client = context.Daemon(asked.threads);
  if (!client) return context.Fail(client.error());
  GetOptions options = asked;
  options.frozen = true;  // nothing may change between two turns
  Result<std::unique_ptr<KernelHandle>> handle = (*client)->Get(named.text, options);
  if (!handle) return context.Fail(AtPlace(handle.error(), named));
  const ServedFacts facts = (*handle)->facts();
  // What is called is the canonical form, which has names of its own.
  Result<Kernel> kernel = ParseKernel((*handle)->manifest().kernel);
  if (!kernel) return context.Fail(AtPlace(kernel.error(), named));
  Result<TextReply> schedule = context.Call(TextRequest{TextKind::kSchedule, {facts.reply.fingerprint, true}});
  ScheduleCases cases = schedule ? ParseScheduleCases(schedule->text).value_or(ScheduleCases{}) : ScheduleCases{};
  const int size = FindCaseSize(*kernel, cases).value_or(-1);
  const std::vector<int> order = SizesByFirstUse(*parsed);
  for (size_t s = 0; s < kernel->sizes.size() && s < order.size(); ++s)
    kernel->sizes[s].name = parsed->sizes[static_cast<size_t>(order[s])].name;
  cases.size = size >= 0 ? kernel->sizes[static_cast<size_t>(size)].name : "";

  std::vector<std::vector<int64_t>> lists = SpreadSizes(*kernel, cases);
  if (arguments.Has("--sizes")) {
    Result<std::vector<std::vector<int64_t>>> chosen = ParseSizes(*kernel, arguments.Text("--sizes"));
    if (!chosen) return context.WrongUsage(chosen.error());
    lists = *std::move(chosen);
  }
  Sweep sweep{context, **client, named.text, *kernel, options, **handle, samples, *tune_each};
  std::vector<AtSize> results;
  ProgressBar bar(lists.size(), !context.json());
  for (const std::vector<int64_t>& sizes : lists) {
    bar.Show(results.size(), SizesText(*kernel, sizes));
    Result<AtSize> result = sweep.Run(sizes);
    if (!result) {
      bar.Clear();
      return context.Fail(AtPlace(std::move(result).error().Context("at " + SizesText(*kernel, sizes)), named));
    }
    results.push_back(*std::move(result));
  }
  bar.Clear();
  Show(*kernel, named, facts, std::max<size_t>(1, cases.cases.size()), results, context.json());
  int status = kDone;
  for (const AtSize& result : results) {
    if (!result.comparison.failure) continue;
    Error failure = *result.comparison.failure;
    PrintError(std::move(failure).Context("at " + SizesText(*kernel, result.sizes)), false);
    status = kFailed;
  }
  return status;
}

}  // namespace hone::cli
