#include "client/cli/best_target.h"

#include <fmt/format.h>

#include <chrono>

#include "base/bytes.h"
#include "client/cli/print_values.h"
#include "client/cli/served_targets.h"
#include "ir/graph/type.h"
#include "ir/manifest.h"

namespace hone::cli {
namespace {

double BytesOf(const ManifestOperand& operand) {
  auto bytes = static_cast<double>(ByteSize(operand.dtype));
  for (const ManifestDim& dim : operand.shape) bytes *= static_cast<double>(dim.hi);
  return bytes;
}

// 0 GB/s: nothing is copied.
double CopyUs(double bytes, double gb_s, double each_us) { return gb_s > 0 ? each_us + bytes / gb_s / 1e3 : 0; }

// What a device takes for a call; its error says why that is not known. The host computes where operands are.
Result<void> Ask(Channel& channel, const GetOptions& options, const GetOnTarget& get, TargetOffer& offer) {
  const GetReply reply = HONE_TRY(get(options));
  if (reply.expected_us <= 0)
    return Error{ErrorKind::kUnsupported, "how long a call takes there was not measured yet", ""};
  offer.expected_us = reply.expected_us;
  if (options.target.empty()) return {};
  const CopySpeedReply speed = HONE_TRY(channel.Call(CopySpeedRequest{options.target}, Context::Patience()));
  CountCopies(HONE_TRY(DecodeManifest(AsBytes(reply.manifest))), speed, offer);
  return {};
}

}  // namespace

void CountCopies(const Manifest& manifest, const CopySpeedReply& speed, TargetOffer& offer) {
  offer.copies_us = offer.constants_us = 0;
  for (const ManifestOperand& operand : manifest.operands) {
    const double bytes = BytesOf(operand);
    (operand.is_const ? offer.constants_us : offer.copies_us) +=
        operand.is_output ? CopyUs(bytes, speed.from_gb_s, speed.from_us) : CopyUs(bytes, speed.to_gb_s, speed.to_us);
  }
}

std::optional<size_t> LeastTotal(std::span<const TargetOffer> offers) {
  std::optional<size_t> least;
  for (size_t i = 0; i < offers.size(); ++i)
    if (!offers[i].error && (!least || offers[i].total_us() < offers[*least].total_us())) least = i;
  return least;
}

Result<BestTarget> FindBestTarget(Client& client, GetOptions options, const GetOnTarget& get) {
  Channel channel = HONE_TRY(client.Connect(std::chrono::steady_clock::now() + std::chrono::seconds(30)));
  const StatusReply status = HONE_TRY(channel.Call(StatusRequest{}, Context::Patience()));
  BestTarget best;
  for (const ServedTarget& served : ServedTargets(status)) {
    if (!served.is_here) continue;
    options.target = best.offers.empty() ? "" : served.name;
    TargetOffer& offer = best.offers.emplace_back();
    offer.name = served.name;
    if (const Result<void> asked = Ask(channel, options, get, offer); !asked) offer.error = asked.error();
  }
  if (best.offers.empty()) return Error{ErrorKind::kUnsupported, "the daemon serves no device", "target"};
  const std::optional<size_t> taken = LeastTotal(best.offers);
  if (!taken) return *best.offers.front().error;
  best.taken = *taken;
  return best;
}

std::string OffersText(const BestTarget& best) {
  Table table({{"target"},
               {"expected", Table::Align::kRight},
               {"copies", Table::Align::kRight},
               {"total", Table::Align::kRight},
               {""}});
  for (size_t i = 0; i < best.offers.size(); ++i) {
    const TargetOffer& offer = best.offers[i];
    if (offer.error) {
      table.Add({offer.name, "-", "-", "-", "left out: " + offer.error->Text()});
      continue;
    }
    std::string notes = i == best.taken ? "taken" : "";
    if (offer.constants_us > 0)
      notes += fmt::format("{}constants once, {}", notes.empty() ? "" : "; ", TimeText(offer.constants_us));
    table.Add({offer.name, TimeText(offer.expected_us), offer.copies_us > 0 ? TimeText(offer.copies_us) : "none",
               TimeText(offer.total_us()), notes});
  }
  return table.Text();
}

std::vector<Json> OffersJson(const BestTarget& best) {
  std::vector<Json> offers;
  for (size_t i = 0; i < best.offers.size(); ++i) {
    const TargetOffer& offer = best.offers[i];
    Json json;
    json.Set("target", offer.name).Set("taken", i == best.taken);
    if (offer.error) {
      json.Set("error", ErrorJson(*offer.error));
    } else {
      json.Set("expected_us", offer.expected_us)
          .Set("copies_us", offer.copies_us)
          .Set("total_us", offer.total_us())
          .Set("constants_us", offer.constants_us);
    }
    offers.push_back(std::move(json));
  }
  return offers;
}

}  // namespace hone::cli
