// What RNN, GRU and LSTM have in common.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "network/onnx/translate.h"

namespace hone {

struct Activation {
  std::string name;
  double alpha = 0, beta = 0;

  double operator()(double x) const {
    if (name == "sigmoid") return 1 / (1 + std::exp(-x));
    if (name == "tanh") return std::tanh(x);
    if (name == "relu") return std::max(x, 0.0);
    if (name == "affine") return alpha * x + beta;
    if (name == "leakyrelu") return x < 0 ? alpha * x : x;
    if (name == "thresholdedrelu") return x > alpha ? x : 0;
    if (name == "scaledtanh") return alpha * std::tanh(beta * x);
    if (name == "hardsigmoid") return std::clamp(alpha * x + beta, 0.0, 1.0);
    if (name == "elu") return x < 0 ? alpha * (std::exp(x) - 1) : x;
    if (name == "softsign") return x / (1 + std::abs(x));
    return std::log1p(std::exp(-std::abs(x))) + std::max(x, 0.0);  // softplus
  }
};

enum class Cell : uint8_t { kRnn, kGru, kLstm };

struct Recurrence {
  Cell cell = Cell::kRnn;
  int64_t gates = 1;
  int64_t steps = 0, batch = 0, inputs = 0, hidden = 0, directions = 1;
  std::vector<bool> is_reverse;
  std::vector<Activation> activations;  // of the first direction, then of the second
  double clip = 0;                      // 0: none
  bool batch_first = false, linear_before_reset = false, input_forget = false;
};

// Whether the steps are few and usual enough to be nodes of the graph: then they run in kernels.
bool IsUnrolled(const OperatorCall& call, const Recurrence& of);
// Y, the last hidden state and that of the cell. REQUIRES: IsUnrolled, operands of the right shapes.
Result<Outputs> Unrolled(OperatorCall& call, const Recurrence& of);

}  // namespace hone
