#include "codegen/op_length.h"

namespace hone {

double LengthOf(Op op) {
  switch (op) {
    case Op::kExp: return 16;
    case Op::kLog: return 20;
    case Op::kTanh: return 22;
    case Op::kErf: return 28;
    case Op::kPow: return 60;
    default: return 1;
  }
}

}  // namespace hone
