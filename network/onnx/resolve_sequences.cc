#include "network/onnx/resolve_sequences.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "network/onnx/captured.h"
#include "network/onnx/collect_lists.h"
#include "network/onnx/node_sizes.h"
#include "network/onnx/unroll_loop.h"

namespace hone {
namespace {

constexpr int64_t kAxesAreInputs = 13;             // the opset from which Unsqueeze has its axes as an input
constexpr size_t kMostElements = size_t{1} << 20;  // of all sequences of a model or body together
constexpr int64_t kMostLetters = 24;               // of an axis, counted in an equation's letters
constexpr int64_t kMostUnrolled = 100'000;         // nodes of all loops' steps together

// The parts of a tensor along an axis, as many as there will be: each of `size`, the last one of what is left.
struct Parts {
  std::string tensor;
  int64_t axis = 0;
  int64_t size = 1;
  bool keeps_axis = true;
};

// What all loops' steps together may still be.
struct Room {
  int64_t nodes = kMostUnrolled;
  int64_t bytes = static_cast<int64_t>(kMostCopiedBytes);
};

// Its elements, and behind them the parts, where there are such.
struct Sequence {
  std::vector<std::string> elements;
  std::optional<Parts> parts;
};

class Resolver {
 public:
  Resolver(int64_t opset, std::string prefix, const Resolver* outer)
      : opset_(opset),
        prefix_(std::move(prefix)),
        outer_(outer),
        room_(outer == nullptr ? std::make_shared<Room>() : outer->room_) {}

  // `outputs`: read from outside.
  void Run(std::vector<OnnxNode>& nodes, std::vector<OnnxTensor>& initializers,
           const std::vector<std::string>& outputs) {
    for (const OnnxTensor& tensor : initializers) Know(tensor.name, *tensor.tensor);
    for (OnnxNode& node : nodes) Add(std::move(node));
    std::set<std::string> read(outputs.begin(), outputs.end());
    for (const OnnxNode& node : made_) {
      read.insert(node.inputs.begin(), node.inputs.end());
      read.insert(node.captured.begin(), node.captured.end());
    }
    for (size_t i = taken_.size(); i-- > 0;) {
      if (read.count(taken_[i].outputs[0]) == 0) continue;
      read.insert(taken_[i].inputs.begin(), taken_[i].inputs.end());
      made_.push_back(std::move(taken_[i]));
    }
    nodes = std::move(made_);
    initializers.insert(initializers.end(), constants_.begin(), constants_.end());
  }

 private:
  enum class Took : uint8_t {
    kNothing,
    kSequence,  // what is in its result is known, so nothing need compute it
    kMade,      // other nodes make its result
  };

  void Add(OnnxNode node) {
    if (node.domain.empty() && node.op == "Constant" && node.outputs.size() == 1)
      for (const OnnxAttribute& attribute : node.attributes) Know(node.outputs[0], attribute);
    if (node.domain.empty() && node.op == "Loop" && Unroll(node)) return;
    ResolveBodies(node);
    std::vector<OnnxNode> behind;
    if (node.domain.empty() && node.op == "If") behind = AppendBehind(node);
    if (node.domain.empty() && node.op == "Loop") CollectLists(node);
    const Took took = Take(node);
    if (took != Took::kMade) (took == Took::kSequence ? taken_ : made_).push_back(std::move(node));
    for (OnnxNode& insertion : behind) Add(std::move(insertion));
  }

  void Know(const std::string& name, const HostTensor& tensor) {
    if (tensor.dtype != DType::kI64 && tensor.dtype != DType::kI32 && tensor.dtype != DType::kBool) return;
    if (tensor.shape.size() > 1 || CountOf(tensor.shape) > 1024) return;
    known_[name] = ToNumbers(tensor);
  }
  void Know(const std::string& name, const OnnxAttribute& attribute) {
    if (attribute.tensor != nullptr) Know(name, *attribute.tensor);
    if (attribute.kind == OnnxAttribute::Kind::kInt) known_[name] = WholeNumbers({attribute.whole}, {});
  }

  static int64_t Whole(const OnnxNode& node, std::string_view name, int64_t otherwise) {
    for (const OnnxAttribute& attribute : node.attributes)
      if (attribute.name == name && attribute.kind == OnnxAttribute::Kind::kInt) return attribute.whole;
    return otherwise;
  }

  const Numbers* Known(const std::string& name) const {
    for (const Resolver* at = this; at != nullptr; at = at->outer_)
      if (const auto found = at->known_.find(name); found != at->known_.end()) return &found->second;
    return nullptr;
  }

  const Sequence* SequenceNamed(const std::string& name) const {
    for (const Resolver* at = this; at != nullptr; at = at->outer_)
      if (const auto found = at->sequences_.find(name); found != at->sequences_.end()) return &found->second;
    return nullptr;
  }
  const Sequence* SequenceAt(const OnnxNode& node, size_t input) const {
    return input < node.inputs.size() ? SequenceNamed(node.inputs[input]) : nullptr;
  }

  // The place that an input names, of `count`; nullopt: it is computed, or is none.
  std::optional<int64_t> Place(const OnnxNode& node, size_t input, int64_t count, int64_t otherwise) const {
    if (input >= node.inputs.size() || node.inputs[input].empty()) return otherwise;
    const Numbers* known = Known(node.inputs[input]);
    if (known == nullptr || known->whole.size() != 1) return std::nullopt;
    const int64_t place = known->whole[0] + (known->whole[0] < 0 ? count : 0);
    return place < 0 || place >= count ? std::nullopt : std::optional(place);
  }

  std::string Fresh() { return fmt::format("{}sequence element {}", prefix_, ++fresh_); }

  std::string Constant(const std::vector<int64_t>& values, Shape shape) {
    constants_.push_back(
        {Fresh(), std::make_shared<HostTensor>(ToHost(WholeNumbers(values, std::move(shape)), DType::kI64))});
    return constants_.back().name;
  }

  void Make(const OnnxNode& of, const std::string& op, std::vector<std::string> inputs,
            std::vector<std::string> outputs, std::map<std::string, int64_t> attributes = {}) {
    OnnxNode node;
    node.name = of.name;
    node.op = op;
    node.inputs = std::move(inputs);
    node.outputs = std::move(outputs);
    for (const auto& [name, value] : attributes) {
      OnnxAttribute attribute;
      attribute.name = name;
      attribute.kind = OnnxAttribute::Kind::kInt;
      attribute.whole = value;
      node.attributes.push_back(std::move(attribute));
    }
    made_.push_back(std::move(node));
  }

  // Whether a truth value is known to be true: of the body's nodes, of its own inputs the condition, or from around it.
  bool IsTrue(const OnnxBody& body, std::string name) const {
    for (size_t i = body.nodes.size(); i-- > 0;) {
      const OnnxNode& node = body.nodes[i];
      if (node.outputs.size() != 1 || node.outputs[0] != name) continue;
      if (node.op == "Identity" && node.inputs.size() == 1) {
        name = node.inputs[0];
        continue;
      }
      for (const OnnxAttribute& attribute : node.attributes)
        if (node.op == "Constant" && attribute.tensor != nullptr) return IsTrue(*attribute.tensor);
      return false;
    }
    if (name == body.inputs[1]) return true;
    for (const OnnxTensor& tensor : body.initializers)
      if (tensor.name == name) return IsTrue(*tensor.tensor);
    return IsTrue(Known(name));
  }
  static bool IsTrue(const HostTensor& tensor) { return tensor.data.size() == 1 && tensor.data.view()[0] != 0; }
  static bool IsTrue(const Numbers* known) {
    return known != nullptr && known->whole.size() == 1 && known->whole[0] != 0;
  }

  // At most, with each name in it as long as the longest of the loop's.
  static int64_t BytesOfStep(const OnnxNode& loop, const OnnxBody& body, const std::string& prefix) {
    size_t longest = prefix.size();
    for (const std::string& name : loop.inputs) longest = std::max(longest, name.size());
    const NodeSizes sizes = SizesOf(body.nodes);
    return static_cast<int64_t>(sizes.bytes + (sizes.names + body.outputs.size()) * longest);
  }

  // A loop that carries a sequence, with as many steps as the file says, becomes these steps.
  bool Unroll(const OnnxNode& loop) {
    const OnnxBody* body = nullptr;
    for (const OnnxAttribute& attribute : loop.attributes)
      if (attribute.name == "body") body = attribute.body.get();
    if (body == nullptr || !FitsLoop(loop, *body)) return false;
    bool carries = false;
    for (size_t i = 2; i < loop.inputs.size(); ++i) carries = carries || SequenceAt(loop, i) != nullptr;
    const Numbers* steps = Known(loop.inputs[0]);
    if (!carries || steps == nullptr || steps->whole.size() != 1) return false;
    const int64_t count = std::max<int64_t>(steps->whole[0], 0);
    const std::string prefix = Fresh() + ".";
    const auto nodes = static_cast<int64_t>(body->nodes.size() + 1), bytes = BytesOfStep(loop, *body, prefix);
    if (count > room_->nodes / nodes || count > room_->bytes / bytes) return false;
    if (!(loop.inputs[1].empty() || IsTrue(Known(loop.inputs[1]))) || !IsTrue(*body, body->outputs[0])) return false;
    room_->nodes -= count * nodes;
    room_->bytes -= count * bytes;
    UnrolledLoop unrolled = UnrollLoop(loop, *body, count, prefix);
    for (OnnxTensor& tensor : unrolled.initializers) {
      Know(tensor.name, *tensor.tensor);
      constants_.push_back(std::move(tensor));
    }
    for (OnnxNode& node : unrolled.nodes) Add(std::move(node));
    return true;
  }

  void ResolveBodies(OnnxNode& node) {
    bool has_bodies = false;
    for (OnnxAttribute& attribute : node.attributes) {
      if (attribute.body == nullptr) continue;
      has_bodies = true;
      auto body = std::make_shared<OnnxBody>(*attribute.body);
      Resolver inside(opset_, Fresh() + ".", this);
      inside.Run(body->nodes, body->initializers, body->outputs);
      attribute.body = std::move(body);
    }
    if (has_bodies) node.captured = CapturedBy(node);
  }

  // Lists that a loop appends to become tensors that it collects.
  void CollectLists(OnnxNode& loop) {
    auto is_list = [&](const std::string& name) {
      const Sequence* found = SequenceNamed(name);
      return found != nullptr && !found->parts;
    };
    for (const CollectedList& each : TakeListsOut(loop, is_list)) {
      Sequence list = *SequenceNamed(each.begin);
      if (!each.collected.empty()) list.parts = Parts{each.collected, 0, 1, false};
      if (!each.list.empty()) sequences_[each.list] = std::move(list);
    }
  }

  Took Take(const OnnxNode& node) {
    if (!node.domain.empty() || node.outputs.size() != 1) return Took::kNothing;
    std::optional<Sequence> made;
    if (node.op == "SequenceEmpty" || node.op == "SequenceConstruct") {
      made = Sequence{node.inputs, {}};
    } else if (node.op == "Identity" && SequenceAt(node, 0) != nullptr) {
      made = *SequenceAt(node, 0);
    } else if (node.op == "SequenceInsert") {
      made = Inserted(node);
    } else if (node.op == "SequenceErase") {
      made = Erased(node);
    } else if (node.op == "SplitToSequence") {
      made = Split(node);
    } else {
      const bool is_made = node.op == "SequenceAt"           ? TakeElement(node)
                           : node.op == "SequenceLength"     ? TakeLength(node)
                           : node.op == "ConcatFromSequence" ? TakeJoined(node)
                                                             : false;
      return is_made ? Took::kMade : Took::kNothing;
    }
    if (!made) return Took::kNothing;
    elements_ += made->elements.size();
    if (elements_ > kMostElements) return Took::kNothing;
    sequences_[node.outputs[0]] = *std::move(made);
    return Took::kSequence;
  }

  std::optional<Sequence> Inserted(const OnnxNode& node) const {
    const Sequence* from = SequenceAt(node, 0);
    if (from == nullptr || from->parts || node.inputs.size() < 2) return std::nullopt;
    const auto count = static_cast<int64_t>(from->elements.size());
    // One place more than there are elements: behind them all. From the end it counts without that one.
    std::optional<int64_t> place = Place(node, 2, count, count);
    if (!place && Place(node, 2, count + 1, count) == count) place = count;
    if (!place) return std::nullopt;
    Sequence made = *from;
    made.elements.insert(made.elements.begin() + *place, node.inputs[1]);
    return made;
  }

  std::optional<Sequence> Erased(const OnnxNode& node) const {
    const Sequence* from = SequenceAt(node, 0);
    if (from == nullptr || from->parts || from->elements.empty()) return std::nullopt;
    const auto count = static_cast<int64_t>(from->elements.size());
    const std::optional<int64_t> place = Place(node, 1, count, count - 1);
    if (!place) return std::nullopt;
    Sequence made = *from;
    made.elements.erase(made.elements.begin() + *place);
    return made;
  }

  std::optional<Sequence> Split(const OnnxNode& node) {
    if (node.inputs.empty()) return std::nullopt;
    const int64_t axis = Whole(node, "axis", 0);
    if (node.inputs.size() < 2 || node.inputs[1].empty())
      return Sequence{{}, Parts{node.inputs[0], axis, 1, Whole(node, "keepdims", 1) != 0}};
    const Numbers* known = Known(node.inputs[1]);
    if (known == nullptr || known->whole.empty()) return std::nullopt;
    if (known->shape.empty()) {
      if (known->whole[0] <= 0) return std::nullopt;
      return Sequence{{}, Parts{node.inputs[0], axis, known->whole[0], true}};
    }
    Sequence made;
    for (size_t i = 0; i < known->whole.size(); ++i) made.elements.push_back(Fresh());
    Make(node, "Split", node.inputs, made.elements, {{"axis", axis}});
    return made;
  }

  bool TakeElement(const OnnxNode& node) {
    const Sequence* from = SequenceAt(node, 0);
    if (from == nullptr) return false;
    if (!from->parts) {
      const std::optional<int64_t> place = Place(node, 1, static_cast<int64_t>(from->elements.size()), 0);
      if (!place) return false;
      Make(node, "Identity", {from->elements[static_cast<size_t>(*place)]}, node.outputs);
      return true;
    }
    const Parts& parts = *from->parts;
    if (!from->elements.empty() || node.inputs.size() < 2) return false;
    if (!parts.keeps_axis && parts.size == 1) {  // a place that is computed as well
      Make(node, "Gather", {parts.tensor, node.inputs[1]}, node.outputs, {{"axis", parts.axis}});
      return true;
    }
    const Numbers* known = Known(node.inputs[1]);
    if (known == nullptr || known->whole.size() != 1) return false;
    const int64_t place = known->whole[0];
    // From the end only parts of one are where the count does not matter.
    int64_t begin = 0, end = INT64_MAX;
    if (place < 0 && parts.size != 1) return false;
    if (__builtin_mul_overflow(place, parts.size, &begin)) return false;
    if (place != -1 && __builtin_add_overflow(begin, parts.size, &end)) return false;
    Make(node, "Slice", {parts.tensor, Constant({begin}, {1}), Constant({end}, {1}), Constant({parts.axis}, {1})},
         node.outputs);
    return true;
  }

  bool TakeLength(const OnnxNode& node) {
    const Sequence* from = SequenceAt(node, 0);
    if (from == nullptr) return false;
    const auto count = static_cast<int64_t>(from->elements.size());
    if (!from->parts) {
      Make(node, "Identity", {Constant({count}, {})}, node.outputs);
      known_[node.outputs[0]] = WholeNumbers({count}, {});
      return true;
    }
    if (from->parts->size != 1) return false;
    const std::string shape = Fresh(), length = Fresh();
    Make(node, "Shape", {from->parts->tensor}, {shape});
    Make(node, "Gather", {shape, Constant({from->parts->axis}, {})}, {length}, {{"axis", 0}});
    Make(node, "Add", {length, Constant({count}, {})}, node.outputs);
    return true;
  }

  // The rows of a tensor beside each other along `axis`, a new one or one that they have. How many dimensions the
  // tensor has is not known here, so an equation says how they change places.
  std::string JoinedRows(const OnnxNode& node, const std::string& rows, int64_t axis, bool is_new) {
    std::string moved = rows;
    if (axis != 0) {
      std::string letters;
      for (int64_t i = 0; i < (axis > 0 ? axis : -axis - (is_new ? 1 : 0)); ++i) letters += static_cast<char>('b' + i);
      moved = Fresh();
      Make(node, "Einsum", {rows}, {moved});
      OnnxAttribute equation;
      equation.name = "equation";
      equation.kind = OnnxAttribute::Kind::kText;
      equation.text = axis > 0 ? fmt::format("a{0}...->{0}a...", letters) : fmt::format("a...{0}->...a{0}", letters);
      made_.back().attributes.push_back(std::move(equation));
    }
    if (is_new) return moved;
    // The axis of rows lies before the one that they are joined along: both become one.
    const std::string shape = Fresh(), front = Fresh(), back = Fresh(), wanted = Fresh(), joined = Fresh();
    const int64_t at = axis < 0 ? axis - 1 : axis;
    const int64_t behind = at + 2 == 0 ? INT64_MAX : at + 2;
    Make(node, "Shape", {moved}, {shape});
    Make(node, "Slice", {shape, Constant({0}, {1}), Constant({at}, {1}), Constant({0}, {1})}, {front});
    Make(node, "Slice", {shape, Constant({behind}, {1}), Constant({INT64_MAX}, {1}), Constant({0}, {1})}, {back});
    Make(node, "Concat", {front, Constant({-1}, {1}), back}, {wanted}, {{"axis", 0}});
    Make(node, "Reshape", {moved, wanted}, {joined});
    return joined;
  }

  bool TakeJoined(const OnnxNode& node) {
    const Sequence* from = SequenceAt(node, 0);
    if (from == nullptr || (from->elements.empty() && !from->parts)) return false;
    const int64_t axis = Whole(node, "axis", 0);
    std::string rows;  // of the parts
    if (from->parts) {
      const Parts& parts = *from->parts;
      if (parts.keeps_axis || parts.size != 1 || parts.axis != 0) return false;
      if (axis >= kMostLetters || axis <= -kMostLetters) return false;
      rows = JoinedRows(node, parts.tensor, axis, Whole(node, "new_axis", 0) != 0);
    }
    std::vector<std::string> elements = from->elements;
    if (Whole(node, "new_axis", 0) != 0) {
      for (std::string& element : elements) {
        const std::string raised = Fresh();
        if (opset_ >= kAxesAreInputs) {
          Make(node, "Unsqueeze", {element, Constant({axis}, {1})}, {raised});
        } else {
          Make(node, "Unsqueeze", {element}, {raised});
          OnnxAttribute axes;
          axes.name = "axes";
          axes.kind = OnnxAttribute::Kind::kInts;
          axes.wholes = {axis};
          made_.back().attributes.push_back(std::move(axes));
        }
        element = raised;
      }
    }
    if (!rows.empty()) elements.push_back(rows);
    Make(node, "Concat", std::move(elements), node.outputs, {{"axis", axis}});
    return true;
  }

  const int64_t opset_;
  const std::string prefix_;
  const Resolver* outer_;
  const std::shared_ptr<Room> room_;
  std::map<std::string, Numbers> known_;  // whole numbers that may be places, lengths of parts
  std::map<std::string, Sequence> sequences_;
  std::vector<OnnxNode> made_;
  std::vector<OnnxNode> taken_;  // that a sequence comes of: in vain, unless something still reads it
  std::vector<OnnxTensor> constants_;
  int fresh_ = 0;
  size_t elements_ = 0;
};

bool HasSequences(const std::vector<OnnxNode>& nodes) {
  for (const OnnxNode& node : nodes) {
    if (node.op.find("Sequence") != std::string::npos) return true;
    for (const OnnxAttribute& attribute : node.attributes)
      if (attribute.body != nullptr && HasSequences(attribute.body->nodes)) return true;
  }
  return false;
}

}  // namespace

void ResolveSequences(OnnxModel& model) {
  if (!HasSequences(model.nodes)) return;
  std::vector<std::string> outputs;
  for (const OnnxValue& output : model.outputs) outputs.push_back(output.name);
  Resolver(model.opset, "", nullptr).Run(model.nodes, model.initializers, outputs);
}

}  // namespace hone
