#include "daemon/serve/failures.h"

#include <algorithm>

namespace hone {

void Failures::Note(const std::string& kernel, const Error& error, Clock::time_point now) {
  auto known = failures_.find(kernel);
  std::chrono::seconds time = kFirst;
  if (known != failures_.end()) time = std::min<std::chrono::seconds>(known->second.time * 2, kLongest);
  if (known == failures_.end() && failures_.size() >= kMost) {
    failures_.erase(std::min_element(failures_.begin(), failures_.end(),
                                     [](const auto& a, const auto& b) { return a.second.until < b.second.until; }));
  }
  failures_.insert_or_assign(kernel, Failure{error, time, now + time});
}

const Error* Failures::Find(const std::string& kernel, Clock::time_point now) const {
  auto known = failures_.find(kernel);
  return known != failures_.end() && now < known->second.until ? &known->second.error : nullptr;
}

}  // namespace hone
