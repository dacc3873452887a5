// --target best: of all devices that the daemon serves, the one where a call takes the least time, the way of its
// operands there and of its results back included.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "client/api/client.h"
#include "client/cli/context.h"
#include "client/cli/json.h"
#include "client/protocol/protocol.h"

namespace hone::cli {

inline constexpr std::string_view kBestTarget = "best";

// A device, and what a call takes there.
struct TargetOffer {
  std::string name;            // "cpu", "opencl:0"
  std::optional<Error> error;  // why it is left out; then the rest is not known
  double expected_us = 0;      // of the kernel
  double copies_us = 0;        // of a call's inputs to the device and its outputs back; 0: it computes where they are
  double constants_us = 0;     // of constants, which are copied once, and count for no call
  double total_us() const { return expected_us + copies_us; }
};

struct BestTarget {
  std::vector<TargetOffer> offers;  // the CPU's first
  size_t taken = 0;
  const std::string& name() const { return offers[taken].name; }
};

// What a call's operands take, by an artifact's manifest: `offer`'s last two.
void CountCopies(const Manifest& manifest, const CopySpeedReply& speed, TargetOffer& offer);

// Which offer is the best, the first of equal ones; nullopt: all are left out.
std::optional<size_t> LeastTotal(std::span<const TargetOffer> offers);

// Asks for the kernel on each device, by `get`, in the order of the offers; the options' target is its name, "" for the
// host. The error of the first device if all are
// left out, and those of asking which there are.
using GetOnTarget = std::function<Result<GetReply>(const GetOptions& options)>;
Result<BestTarget> FindBestTarget(Client& client, GetOptions options, const GetOnTarget& get);

// A line for each device.
std::string OffersText(const BestTarget& best);
std::vector<Json> OffersJson(const BestTarget& best);

}  // namespace hone::cli
