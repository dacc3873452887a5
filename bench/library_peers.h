// The libraries that hone's kernels are measured beside: a kernel as OpenBLAS and oneDNN compute it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace hone {

// A library operation of hone's, taken apart, with the operands that hone computes from.
struct Problem {
  std::string name;                          // "conv2d"
  std::map<std::string, double> attributes;  // numbers alone
  std::vector<std::string> epilogues;        // "bias", "add", "relu" …
  std::vector<std::vector<int64_t>> shapes;  // of the operands, in hone's order, the output last
  std::vector<const float*> inputs;          // all but the output

  int64_t At(const std::string& attribute, int64_t otherwise) const {
    auto found = attributes.find(attribute);
    return found == attributes.end() ? otherwise : static_cast<int64_t>(found->second);
  }
};

enum class PeerKind : uint8_t {
  kSame,     // from hone's operands to hone's result; constants may have been reordered ahead of time, as hone's are
  kBlocked,  // input and result stay in the library's own layout: what a whole network in that layout would see
  kRelaxed,  // as kSame, with fewer multiplications and larger errors (Winograd)
};

struct Peer {
  std::string name;
  std::string library;  // whose call overhead it has
  PeerKind kind = PeerKind::kSame;
  std::function<void()> call;
  std::function<void()> finish;  // after calls: brings the result into the plain layout; may be empty
  const float* result = nullptr;
};

// Of both libraries, before the first call.
void SetLibraryThreads(int threads);

// Every way in which the libraries compute it; empty if none does. What a peer does not support is left out. The
// problem's operands must outlive the peers.
std::vector<Peer> MakePeers(const Problem& problem);

// Per library, a call that has nothing to do.
std::map<std::string, std::function<void()>> EmptyCalls();

}  // namespace hone
