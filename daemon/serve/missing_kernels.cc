#include "daemon/serve/missing_kernels.h"

#include <algorithm>
#include <utility>

namespace hone {

bool MissingKernels::Note(const Fingerprint& fingerprint, std::string kernel) {
  // White space has no meaning of its own, and a list has a kernel on each line.
  std::ranges::replace_if(kernel, [](char c) { return c >= '\t' && c <= '\r'; }, ' ');
  MutexLock lock(mutex_);
  if (auto known = rows_.find(fingerprint); known != rows_.end()) {
    ++known->second.requests;
    return false;
  }
  if (rows_.size() == kKernels || bytes_ + kernel.size() > kBytes) {
    ++forgotten_;
    return false;
  }
  bytes_ += kernel.size();
  rows_.emplace(fingerprint, MissingRow{std::move(kernel), 1});
  return true;
}

MissingReply MissingKernels::List(const std::string& target) const {
  MissingReply reply;
  reply.target = target;
  MutexLock lock(mutex_);
  for (const auto& [_, row] : rows_) reply.rows.push_back(row);
  reply.forgotten = forgotten_;
  std::ranges::stable_sort(reply.rows, std::ranges::greater(), &MissingRow::requests);
  return reply;
}

}  // namespace hone
