// Makes straight code: numbers values so that equal ones are computed once, folds constants, and puts integers into the
// outermost scope in which their arguments are known.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/check.h"
#include "codegen/gpu/straight.h"

namespace hone::straight {

class Builder {
 public:
  explicit Builder(Code& code) : code_(code) { scopes_.emplace_back(); }

  const Value& operator[](ValueId id) const { return code_.values[id]; }

  ValueId Int(int64_t number) {
    HONE_CHECK(number >= INT32_MIN && number <= INT32_MAX);
    return Make({.what = Do::kConstant, .type = DType::kI32, .number = number});
  }
  ValueId Bool(bool value) { return Make({.what = Do::kConstant, .type = DType::kBool, .number = value ? 1 : 0}); }
  ValueId Constant(DType type, int64_t number, double real);
  // Without a node of its own: threads, blocks, sizes, arguments.
  ValueId Given(Value value);
  // `varies` is found from its arguments if it is not set.
  ValueId Make(Value value);
  ValueId Make(Do what, DType type, std::vector<ValueId> args, int64_t number = 0);  // `type`: of the result
  // Arithmetic of a kernel's numbers (Value::wraps).
  ValueId MakeWrapping(Do what, DType type, std::vector<ValueId> args);
  ValueId Load(BufferId buffer, DType type, int lanes, ValueId base, int64_t offset, ValueId condition = {},
               ValueId fill = {});
  // The thread's words of so many matrices (Do::kMatrices), one of each.
  std::vector<ValueId> LoadMatrices(BufferId buffer, DType type, int matrices, bool transposes, ValueId base,
                                    int64_t offset);

  bool IsConstant(ValueId id, int64_t* number = nullptr) const;
  ValueId And(ValueId a, ValueId b);  // a none: b; b none: a
  // How many scopes enclose the value.
  size_t DepthOf(ValueId id) const { return depths_.size() > id.index() ? depths_[id.index()] : 0; }

  // `of`: the register's type, lanes and name, and of which tile it is which element.
  ValueId Declare(Value of);
  ValueId Declare(DType type, std::string name) {
    return Declare({.what = Do::kRegister, .type = type, .name = std::move(name)});
  }
  void Assign(ValueId reg, ValueId value);
  void Store(BufferId buffer, ValueId base, int64_t offset, ValueId value);
  void Barrier();
  void Append(Node node) { scopes_.back().nodes.push_back(std::move(node)); }
  void Multiply(const Instruction& instruction, std::vector<ValueId> args);
  void AppendChanging(Node node);  // which sets registers among its args

  // Scopes. What a loop writes is not what was read before it.
  ValueId OpenFor(std::string name, bool varies);
  void CloseFor(ValueId counter, ValueId begin, ValueId end);
  void OpenIf();
  // Goes on with the condition before, if it is the same and nothing came in between.
  void CloseIf(ValueId condition);
  void Forget(BufferId buffer) { ++versions_[buffer]; }

  // Ends the outermost scope.
  void Finish();

 private:
  struct Scope {
    std::vector<Node> nodes;
    std::map<std::string, ValueId> known;
  };

  ValueId Folded(const Value& value);
  std::string KeyOf(const Value& value) const;

  ValueId Add(Value value, size_t depth);

  Code& code_;
  std::vector<Scope> scopes_;
  std::vector<size_t> depths_;  // of each value's scope
  std::map<BufferId, int> versions_;
  std::map<ValueId, int> register_versions_;
};

}  // namespace hone::straight
