#include "codegen/gpu/wide_function.h"

#include <fmt/format.h>

#include <map>
#include <utility>

#include "codegen/gpu/straight_builder.h"

namespace hone::straight {

int64_t WideFunction(Program& program, int64_t number, int lanes) {
  const Function narrow = program.functions[static_cast<size_t>(number)];
  for (size_t i = 0; i < program.functions.size(); ++i)
    if (const Function& known = program.functions[i];
        known.op == narrow.op && known.type == narrow.type && known.lanes == lanes)
      return static_cast<int64_t>(i);
  Function wide;
  wide.name = fmt::format("{}x{}", narrow.name, lanes);
  wide.op = narrow.op;
  wide.type = narrow.type;
  wide.lanes = lanes;
  Builder builder(wide.code);
  std::map<ValueId, ValueId> now;
  for (ValueId param : narrow.params) {
    Value value = narrow.code.values[param];
    value.lanes = lanes;
    wide.params.push_back(now[param] = builder.Given(std::move(value)));
  }
  const auto get = [&](ValueId old) {
    if (const auto found = now.find(old); found != now.end()) return found->second;
    const Value& constant = narrow.code.values[old];  // all else comes from a node
    const ValueId one = builder.Make(constant);
    return now[old] = builder.Make(Do::kPack, constant.type, std::vector<ValueId>(static_cast<size_t>(lanes), one));
  };
  for (const Node& node : narrow.code.nodes) {
    Value value = narrow.code.values[node.value];
    for (ValueId& arg : value.args) arg = get(arg);
    value.lanes = lanes;
    now[node.value] = builder.Make(std::move(value));
  }
  wide.result = get(narrow.result);
  builder.Finish();
  program.functions.push_back(std::move(wide));
  return static_cast<int64_t>(program.functions.size()) - 1;
}

}  // namespace hone::straight
