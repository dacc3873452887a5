// Random kernels in the kernel language that parse and stay in bounds: several stages, reductions of every kind, odd
// sizes, broadcast, permuted, reversed, strided, windowed, padded and gathered reads, mixed types.
#pragma once

#include <string>
#include <vector>

#include "base/rng.h"

namespace hone {

struct RandomKernelOptions {
  int max_stages = 4;
  int max_rank = 3;
  int depth = 3;         // of expressions
  bool integers = true;  // i32, i8 and bool operands besides floats
  bool f64 = true;
  bool jumps = true;  // floor, comparisons and conversions of computed floats: legal results are not unique there
};

class RandomKernel {
 public:
  explicit RandomKernel(Rng& rng, const RandomKernelOptions& options = {}) : rng_(rng), options_(options) {}

  std::string Text() {
    type_ = options_.f64 && rng_.Chance(0.15) ? "f64" : "f32";
    int sizes = static_cast<int>(rng_.Between(1, 4));
    for (int i = 0; i < sizes; ++i) {
      static constexpr int kExtents[] = {1, 2, 3, 4, 5, 7, 8, 13, 16, 17, 31};
      sizes_.push_back({std::string(1, static_cast<char>('A' + i)), kExtents[rng_.Below(std::size(kExtents))]});
    }
    std::string inputs;
    int count = static_cast<int>(rng_.Between(1, 4));
    for (int i = 0; i < count; ++i) {
      std::string type = type_;
      if (options_.integers && i > 0 && rng_.Chance(0.3)) type = Pick({"i32", "i8", "bool"});
      Tensor tensor = MakeTensor("x" + std::to_string(i), type, 0);
      if (i) inputs += ", ";
      if (rng_.Chance(0.2)) inputs += "const ";
      inputs += Declaration(tensor);
      readable_.push_back(tensor);
    }
    int stages = static_cast<int>(rng_.Between(1, options_.max_stages));
    std::string body, outputs;
    for (int s = 0; s < stages; ++s) {
      bool is_output = s + 1 == stages || rng_.Chance(0.2);
      Tensor tensor = MakeTensor((is_output ? "y" : "t") + std::to_string(s), type_, is_output ? 1 : 0);
      if (is_output)
        outputs += (outputs.empty() ? "" : ", ") + Declaration(tensor);
      else
        body += "  " + Declaration(tensor) + "\n";
      body += "  " + Statement(tensor) + "\n";
      readable_.push_back(tensor);
    }
    std::string where;
    for (const Size& size : sizes_)
      if (body.find(size.name) != std::string::npos || inputs.find(size.name) != std::string::npos ||
          outputs.find(size.name) != std::string::npos)
        where += (where.empty() ? " where " : ", ") + size.name + "=" + std::to_string(size.value);
    return "kernel random(" + inputs + ") -> " + outputs + where + " {\n" + body + "}\n";
  }

 private:
  struct Size {
    std::string name;
    int value;
  };
  struct Tensor {
    std::string name;
    std::string type;
    std::vector<Size> dims;
  };
  struct Variable {
    std::string name;
    Size extent;
  };

  std::string Pick(std::initializer_list<const char*> choices) {
    return *(choices.begin() + rng_.Below(choices.size()));
  }

  Tensor MakeTensor(const std::string& name, const std::string& type, int64_t least_rank) {
    Tensor tensor{name, type, {}};
    int64_t rank = rng_.Between(least_rank, options_.max_rank), elements = 1;
    for (int64_t d = 0; d < rank; ++d) {
      Size size = rng_.Chance(0.85) ? sizes_[rng_.Below(sizes_.size())] : Size{"3", 3};
      if (elements * size.value > 4000) size = {"2", 2};
      elements *= size.value;
      tensor.dims.push_back(size);
    }
    return tensor;
  }

  std::string Declaration(const Tensor& tensor) {
    std::string text = tensor.name + ": " + tensor.type + "[";
    for (size_t d = 0; d < tensor.dims.size(); ++d) text += (d ? ", " : "") + tensor.dims[d].name;
    return text + "]";
  }

  std::string Statement(const Tensor& tensor) {
    variables_.clear();
    std::string left = tensor.name + "[";
    for (size_t d = 0; d < tensor.dims.size(); ++d) {
      variables_.push_back({"i" + std::to_string(d), tensor.dims[d]});
      left += (d ? ", " : "") + variables_.back().name;
    }
    left += "] = ";
    if (rng_.Chance(0.35)) return left + Element(options_.depth);
    return left + Reduction(rng_.Chance(0.5) ? 1 : 2) + (rng_.Chance(0.3) ? " * " + Element(1) : "");
  }

  // sum(k < K, …) product, where the reduction's variables are in scope.
  std::string Reduction(int variables) {
    std::string text = Pick({"sum", "sum", "sum", "max", "min", "prod"}) + "(";
    size_t outer = variables_.size();
    int points = 1;
    for (int v = 0; v < variables; ++v) {
      Size extent = rng_.Chance(0.6) ? sizes_[rng_.Below(sizes_.size())] : Size{"3", 3};
      if (points * extent.value > 200) extent = {"2", 2};
      points *= extent.value;
      std::string name = "k" + std::to_string(next_variable_++);
      text += (v ? ", " : "") + name + " < " + extent.name;
      variables_.push_back({name, extent});
    }
    std::string body =
        text.starts_with("prod") ? "(1 + " + Bounded(1) + " / 16)" : Load() + (rng_.Chance(0.7) ? " * " + Load() : "");
    if (rng_.Chance(0.2) && !text.starts_with("prod")) body = "(" + Element(1) + ")";
    variables_.resize(outer);
    return text + ") " + body;
  }

  // A float expression; every function gets arguments where it is tame.
  std::string Element(int depth) {
    if (depth == 0 || rng_.Chance(0.15)) return Load();
    std::string a = Element(depth - 1);
    switch (rng_.Below(options_.jumps ? 17 : 14)) {
      case 0: return "(" + a + " + " + Element(depth - 1) + ")";
      case 1: return "(" + a + " - " + Element(depth - 1) + ")";
      case 2:
      case 3: return a + " * " + Load();
      case 4: return a + " / (2 + abs(" + Load() + "))";
      case 5: return "max(" + a + ", " + Element(depth - 1) + ")";
      case 6:
        return Pick({"relu", "relu6", "tanh", "erf", "sigmoid", "silu", "gelu", "hardswish", "gelu_tanh"}) + "(" + a +
               ")";
      case 7: return "exp(" + Bounded(depth - 1) + ")";
      case 8: return Pick({"sqrt", "log", "rsqrt"}) + "(abs(" + a + ") + 0.25)";
      case 9: return "if(" + IndexCondition() + ", " + a + ", " + Element(depth - 1) + ")";
      case 10: return "(" + a + " + " + Cast("float", Index()) + " / 8)";
      case 11: return "-" + Load() + " * " + Pick({"0.5", "3", "1e-3", "-2.25"});
      case 12: return "clamp(" + a + ", -0.75, 1.5)";
      case 13: return "pow(abs(" + Bounded(depth - 1) + ") + 0.5, 1.5)";
      case 14: return "if(" + a + " < " + Load() + ", " + Load() + ", " + a + ")";
      case 15: return "floor(" + a + " * 4)";
      default: return Cast(type_, "i32(" + a + " * 10)");
    }
  }

  std::string Cast(const std::string& type, const std::string& value) { return type + "(" + value + ")"; }
  std::string Bounded(int depth) { return "tanh(" + Element(depth) + ")"; }
  std::string Index() { return variables_.empty() ? "1" : variables_[rng_.Below(variables_.size())].name; }
  std::string IndexCondition() {
    std::string a = Index(), b = rng_.Chance(0.5) ? Index() : std::to_string(rng_.Between(0, 4));
    std::string text = "(" + a + " + 0)" + Pick({" < ", " <= ", " == ", " != ", " > "}) + b;
    return rng_.Chance(0.2) ? "not (" + text + " and " + Index() + " != 1)" : text;
  }

  // One element of a tensor that was written before, as a float.
  std::string Load() {
    const Tensor& tensor = readable_[rng_.Below(readable_.size())];
    std::string text = tensor.name + "[";
    bool padded = rng_.Chance(0.2);
    for (size_t d = 0; d < tensor.dims.size(); ++d) text += (d ? ", " : "") + LoadIndex(tensor.dims[d], padded);
    text += "]";
    if (padded) text = "pad(" + text + ", " + (tensor.type == "bool" ? "true" : Pick({"0", "-1", "2"})) + ")";
    return tensor.type == type_ ? text : Cast(type_, text);
  }

  std::string LoadIndex(const Size& dim, bool padded) {
    int n = dim.value;
    if (variables_.empty()) return std::to_string(rng_.Below(static_cast<uint64_t>(n)));
    const Variable& v = variables_[rng_.Below(variables_.size())];
    const Variable& w = variables_[rng_.Below(variables_.size())];
    int e = v.extent.value, f = w.extent.value;
    if (padded && rng_.Chance(0.6)) return Pick({"2*", ""}) + v.name + Pick({" - 1", " + 2", " - 3", ""});
    if (e == n && rng_.Chance(0.7)) return v.name;
    switch (rng_.Below(7)) {
      case 0:
        if (e <= n) return v.name;
        break;
      case 1:
        if (e <= n) return std::to_string(n - 1) + " - " + v.name;
        break;
      case 2:
        if (v.name != w.name && e + f - 1 <= n) return v.name + " + " + w.name;
        break;
      case 3:
        if (2 * (e - 1) < n) return "2*" + v.name;
        break;
      case 4: return v.name + " % " + dim.name;
      case 5:
        if ((e - 1) / 2 < n) return v.name + " / 2";
        break;
      default:
        for (const Tensor& tensor : readable_)
          if (tensor.type == "i32" && tensor.dims.empty())
            return "clamp(" + tensor.name + "[], 0, " + dim.name + " - 1)";
        break;
    }
    return "min(" + v.name + ", " + dim.name + " - 1)";
  }

  Rng& rng_;
  RandomKernelOptions options_;
  std::string type_;
  std::vector<Size> sizes_;
  std::vector<Tensor> readable_;
  std::vector<Variable> variables_;
  int next_variable_ = 0;
};

}  // namespace hone
