#include "network/run/compare_layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "network/graph/evaluate_network.h"
#include "network/graph/quantization.h"

namespace hone {
namespace {

struct Kept {
  Shape shape;
  std::vector<float> elements;
};

LayerError ErrorOf(const GraphValue& value, const Node& node, const Numbers& y, const Kept& r) {
  double off = 0, all = 0, most = 0, largest = 0;
  for (size_t i = 0; i < y.real.size(); ++i) {
    const double exact = r.elements[i], difference = y.real[i] == exact ? 0 : std::abs(y.real[i] - exact);
    if (!std::isfinite(exact)) continue;
    off += difference * difference;
    all += exact * exact;
    most = std::isnan(difference) ? INFINITY : std::max(most, difference);
    largest = std::max(largest, std::abs(exact));
  }
  const double error = off == 0 ? 0 : std::sqrt(off / std::max(all, 1e-30));
  return {value.name, node.origin, std::isnan(error) ? INFINITY : error,
          most == 0 ? 0 : most / std::max(largest, 1e-30)};
}

// The inputs of another network, as it takes them.
Result<std::vector<Numbers>> InputsOf(const Graph& network, const Graph& exact, const std::vector<Numbers>& data) {
  std::vector<Numbers> inputs;
  for (ValueId input : network.inputs) {
    const GraphValue& wanted = network.values[input];
    auto found = std::find_if(exact.inputs.begin(), exact.inputs.end(), [&](ValueId other) {
      const GraphValue& value = exact.values[other];
      return value.name == wanted.name && value.type.shape == wanted.type.shape &&
             IsFloat(value.type.dtype) == IsFloat(wanted.type.dtype);
    });
    if (found == exact.inputs.end())
      return Error{
          ErrorKind::kInvalid,
          fmt::format("the network that it is compared with has no such input of {}", ShapeText(wanted.type.shape)),
          "input " + wanted.name};
    inputs.push_back(data[static_cast<size_t>(found - exact.inputs.begin())]);
    inputs.back().dtype = wanted.type.dtype;
    SettleInType(inputs.back());
  }
  return inputs;
}

}  // namespace

Result<std::vector<LayerError>> CompareLayers(Graph& network, Graph& exact, const std::vector<Numbers>& data) {
  const std::vector<Numbers> inputs = HONE_TRY(InputsOf(network, exact, data));
  // Of one name, the last: the others are on the way to it.
  std::map<std::string, ValueId> wanted;
  for (const Node& node : network.nodes)
    if (IsFloat(network.dtype(node.output)) && !network.is_constant(node.output))
      wanted[network.values[node.output].name] = node.output;
  std::map<std::string, Kept> kept;
  HONE_TRY(EvaluateNetwork(exact, data, [&](const Node& node, auto, Numbers& value) -> Result<void> {
    const std::string& name = exact.values[node.output].name;
    const auto found = wanted.find(name);
    if (found != wanted.end() && value.is_real() && network.shape(found->second) == value.shape)
      kept[name] = {value.shape, std::vector<float>(value.real.begin(), value.real.end())};
    return {};
  }));
  std::vector<LayerError> layers;
  std::map<std::string, size_t> place;
  HONE_TRY(EvaluateNetwork(network, inputs, [&](const Node& node, auto, Numbers& value) -> Result<void> {
    // As it is quantised, where it is.
    const std::optional<Quantized> q = FindQuantize(network, node.output);
    const ValueId named = q ? q->value : node.output;
    const GraphValue& own = network.values[named];
    const auto found = kept.find(own.name);
    if (found == kept.end() || wanted.at(own.name) != named) return {};
    const auto [at, is_new] = place.emplace(own.name, layers.size());
    if (!q) {
      if (is_new) layers.push_back(ErrorOf(own, node, value, found->second));
      return {};
    }
    const std::optional<double> scale = network.ScalarOf(q->scale), zero = q->zero ? network.ScalarOf(q->zero) : 0;
    if (is_new || !scale || !zero) return {};
    Numbers real = MakeNumbers(DType::kF32, value.shape);
    for (size_t i = 0; i < real.real.size(); ++i) real.real[i] = (static_cast<double>(value.whole[i]) - *zero) * *scale;
    layers[at->second] = ErrorOf(own, network.nodes[own.producer], real, found->second);
    return {};
  }));
  if (layers.empty())
    return Error{ErrorKind::kInvalid,
                 "no value of it has the name and the shape of one in the network it is compared with", ""};
  return layers;
}

std::optional<LayerError> FirstAbove(const std::vector<LayerError>& layers, double threshold) {
  const auto found =
      std::find_if(layers.begin(), layers.end(), [&](const LayerError& layer) { return layer.error > threshold; });
  return found == layers.end() ? std::nullopt : std::optional(*found);
}

std::vector<LayerError> Losses(const std::vector<LayerError>& layers) {
  constexpr double kWellAbove = 1.25, kNothing = 1e-6;
  std::vector<LayerError> losses;
  double most = kNothing;
  for (const LayerError& layer : layers) {
    if (layer.error > kWellAbove * most) losses.push_back(layer);
    most = std::max(most, layer.error);
  }
  return losses;
}

}  // namespace hone
