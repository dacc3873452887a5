#include "cache/log_file.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>

#include "base/bytes.h"
#include "base/crc32c.h"

namespace hone {
namespace {

constexpr size_t kBlock = 32 << 10;
constexpr size_t kHeader = 7;
constexpr uint32_t kMaskDelta = 0xa282ead8;

enum Kind : uint8_t { kWhole = 1, kFirst = 2, kMiddle = 3, kLast = 4 };

uint32_t Mask(uint32_t crc) { return std::rotr(crc, 15) + kMaskDelta; }
uint32_t Unmask(uint32_t masked) { return std::rotl(masked - kMaskDelta, 15); }

size_t BlockEnd(size_t at) { return (at / kBlock + 1) * kBlock; }

bool IsZero(std::string_view bytes) { return bytes.find_first_not_of('\0') == std::string_view::npos; }

struct Fragment {
  uint8_t kind = 0;
  std::string bytes;
  size_t end = 0;  // where the next one begins
  bool mended = false;
};

class LogReader {
 public:
  explicit LogReader(std::string_view file) : file_(file) {}

  LogContents Run() {
    size_t at = 0;
    while (at < file_.size()) {
      if (BlockEnd(at) - at < kHeader) {
        at = BlockEnd(at);
        continue;
      }
      std::optional<Fragment> fragment = Sound(at);
      if (!fragment) fragment = Mended(at);
      if (fragment) {
        at = fragment->end;
        Take(*std::move(fragment));
        continue;
      }
      std::optional<size_t> next = NextSound(at + 1);
      if (!next && EndsTorn(at)) {
        contents_.torn = true;
        return std::move(contents_);
      }
      ++contents_.damaged;
      DropOpen();
      if (!next) return std::move(contents_);
      after_damage_ = true;
      at = *next;
    }
    contents_.torn |= open_;
    return std::move(contents_);
  }

 private:
  size_t RoomAt(size_t at) const { return std::min(BlockEnd(at), file_.size()) - at; }

  uint32_t MaskedAt(size_t at) const {
    uint32_t masked;
    std::memcpy(&masked, file_.data() + at, sizeof(masked));
    return masked;
  }
  size_t LengthAt(size_t at) const {
    uint16_t length;
    std::memcpy(&length, file_.data() + at + 4, sizeof(length));
    return length;
  }
  // What the checksum covers, if the fragment has this length. REQUIRES: it lies within its block.
  std::string_view CoveredAt(size_t at, size_t length) const { return file_.substr(at + 6, 1 + length); }

  std::optional<Fragment> Sound(size_t at) const {
    const size_t room = RoomAt(at);
    if (room < kHeader || file_[at + 6] == 0 || LengthAt(at) > room - kHeader) return std::nullopt;
    std::string_view covered = CoveredAt(at, LengthAt(at));
    if (Mask(Crc32c(covered)) != MaskedAt(at)) return std::nullopt;
    return Fragment{static_cast<uint8_t>(covered[0]), std::string(covered.substr(1)), at + kHeader + LengthAt(at)};
  }

  // The fragment with one bit set right: of its length, its checksum, or what that covers.
  std::optional<Fragment> Mended(size_t at) const {
    const size_t room = RoomAt(at);
    if (room < kHeader || IsZero(file_.substr(at, room))) return std::nullopt;
    auto fragment = [&](std::string covered) -> std::optional<Fragment> {
      const auto kind = static_cast<uint8_t>(covered[0]);
      if (kind < kWhole || kind > kLast) return std::nullopt;
      const size_t end = at + 6 + covered.size();
      return Fragment{kind, covered.substr(1), end, true};
    };
    for (int bit = 0; bit < 16; ++bit) {
      const size_t length = LengthAt(at) ^ size_t { 1 } << bit;
      if (length > room - kHeader) continue;
      std::string_view covered = CoveredAt(at, length);
      if (Mask(Crc32c(covered)) == MaskedAt(at)) return fragment(std::string(covered));
    }
    if (LengthAt(at) > room - kHeader) return std::nullopt;
    std::string covered(CoveredAt(at, LengthAt(at)));
    const uint32_t crc = Crc32c(covered);
    if (std::has_single_bit(Mask(crc) ^ MaskedAt(at))) return fragment(std::move(covered));
    std::optional<BitPosition> flipped = FindFlippedBit(Unmask(MaskedAt(at)), crc, covered.size());
    if (!flipped) return std::nullopt;
    covered[flipped->byte] = static_cast<char>(covered[flipped->byte] ^ flipped->mask);
    return fragment(std::move(covered));
  }

  // Lengths cannot be believed after damage, so every byte may be where a fragment begins.
  std::optional<size_t> NextSound(size_t from) const {
    for (size_t at = from; at + kHeader <= file_.size(); ++at) {
      const uint8_t kind = static_cast<uint8_t>(file_[at + 6]);
      if (kind >= kWhole && kind <= kLast && Sound(at)) return at;
    }
    return std::nullopt;
  }

  // Nothing sound follows. A fragment cut short by the file's end, or zeros to the end, were being written when writing
  // ended; anything else was whole once.
  bool EndsTorn(size_t at) const {
    if (file_.size() - at < kHeader || IsZero(file_.substr(at))) return true;
    return BlockEnd(at) >= file_.size() && kHeader + LengthAt(at) > file_.size() - at;
  }

  void Take(Fragment fragment) {
    contents_.mended += fragment.mended ? 1 : 0;
    const bool begins = fragment.kind == kWhole || fragment.kind == kFirst;
    if (fragment.kind < kWhole || fragment.kind > kLast) {
      contents_.foreign = true;
      return;
    }
    // The rest of a record whose beginning was lost is counted with that.
    if (begins == open_ && !after_damage_) ++contents_.damaged;
    if (begins) {
      DropOpen();
      after_damage_ = false;
    } else if (!open_) {
      return;
    }
    record_ += fragment.bytes;
    open_ = fragment.kind == kFirst || fragment.kind == kMiddle;
    if (!open_) contents_.records.push_back(std::exchange(record_, ""));
  }

  void DropOpen() {
    open_ = false;
    record_.clear();
  }

  const std::string_view file_;
  LogContents contents_;
  std::string record_;         // what was read of it
  bool open_ = false;          // its end is still to come
  bool after_damage_ = false;  // no record has begun since
};

}  // namespace

LogContents ReadLog(std::string_view file) { return LogReader(file).Run(); }

std::string WriteLog(const std::vector<std::string>& records) {
  ByteWriter file;
  for (const std::string& record : records) {
    std::string_view left = record;
    bool first = true;
    do {
      if (const size_t room = BlockEnd(file.size()) - file.size(); room < kHeader) file.Raw(std::string(room, '\0'));
      const size_t size = std::min(left.size(), BlockEnd(file.size()) - file.size() - kHeader);
      const bool last = size == left.size();
      const uint8_t kind = first ? (last ? kWhole : kFirst) : (last ? kLast : kMiddle);
      std::string covered(1, static_cast<char>(kind));
      covered += left.substr(0, size);
      file.U32(Mask(Crc32c(covered)));
      file.U16(static_cast<uint16_t>(size));
      file.Raw(covered);
      left.remove_prefix(size);
      first = false;
    } while (!left.empty());
  }
  return file.Take();
}

}  // namespace hone
