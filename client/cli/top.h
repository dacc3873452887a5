// What `hone top` shows, as text: apart from the terminal, so that it can be looked at in tests.
#pragma once

#include <cstddef>
#include <string>

#include "client/protocol/protocol.h"

namespace hone::cli {

// No line is longer than `columns` (at least 40), nor are there more than `rows`. `trials_per_s`: 0 if it is not known.
std::string TopText(const TopReply& reply, double trials_per_s, size_t columns, size_t rows);

}  // namespace hone::cli
