// The reader of RocksDB's logs: whatever the bytes, something is read of them; and what is written is read again.
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/check.h"
#include "base/small_file.h"
#include "cache/log_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  const hone::LogContents contents = hone::ReadLog(bytes);
  const hone::LogContents again = hone::ReadLog(hone::WriteLog(contents.records));
  HONE_CHECK(again.sound() && !again.torn && again.records == contents.records);
  HONE_CHECK(hone::ReadLog(hone::WriteLog({bytes, "x"})).records == std::vector<std::string>({bytes, "x"}));
  if (size > 256) return 0;
  const auto file = hone::DecodeSmallFile(hone::EncodeSmallFile(bytes));
  HONE_CHECK(file && file->text == bytes && !file->mended);
  (void)hone::DecodeSmallFile(bytes);
  return 0;
}
