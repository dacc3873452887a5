// Encodes and decodes the messages with cereal, through two archives of our own: integers are little-endian whatever
// the machine, and a length that comes from outside allocates nothing before its bytes were seen.
#include "client/protocol/protocol.h"

#include <bit>
#include <cereal/cereal.hpp>
#include <cstring>
#include <tuple>
#include <type_traits>

namespace hone {

constexpr char kMagic[4] = {'H', 'O', 'N', 'E'};

template <typename T>
void StoreLittle(T value, std::byte* out) {
  for (size_t i = 0; i < sizeof(T); ++i) out[i] = static_cast<std::byte>(static_cast<uint64_t>(value) >> (8 * i));
}

template <typename T>
T LoadLittle(const std::byte* in) {
  uint64_t value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) value |= static_cast<uint64_t>(in[i]) << (8 * i);
  return static_cast<T>(value);
}

template <typename T>
struct IsVector : std::false_type {};
template <typename T>
struct IsVector<std::vector<T>> : std::true_type {};

// body ::= the message's fields in order
// integer, enum ::= little-endian, its own width     bool ::= u8, 0 or 1     double ::= IEEE bits:u64
// string ::= count:u32 bytes                         vector ::= count:u32 elements
class BodyWriter : public cereal::OutputArchive<BodyWriter, cereal::AllowEmptyClassElision> {
 public:
  explicit BodyWriter(std::string& out) : OutputArchive(this), out_(out) {}

  template <typename T>
  void Put(T value) {
    std::byte bytes[sizeof(T)];
    StoreLittle(value, bytes);
    out_.append(reinterpret_cast<const char*>(bytes), sizeof bytes);
  }
  void PutBytes(std::string_view bytes) { out_.append(bytes); }

 private:
  std::string& out_;
};

class BodyReader : public cereal::InputArchive<BodyReader, cereal::AllowEmptyClassElision> {
 public:
  explicit BodyReader(std::span<const std::byte> body) : InputArchive(this), rest_(body) {}

  template <typename T>
  T Take() {
    Need(sizeof(T));
    T value = LoadLittle<T>(rest_.data());
    rest_ = rest_.subspan(sizeof(T));
    return value;
  }
  std::string_view TakeBytes(size_t count) {
    Need(count);
    std::string_view bytes(reinterpret_cast<const char*>(rest_.data()), count);
    rest_ = rest_.subspan(count);
    return bytes;
  }
  size_t left() const { return rest_.size(); }

 private:
  void Need(size_t count) const {
    if (rest_.size() < count) throw cereal::Exception("the body ends early");
  }
  std::span<const std::byte> rest_;
};

}  // namespace hone

CEREAL_SETUP_ARCHIVE_TRAITS(hone::BodyReader, hone::BodyWriter)

namespace hone {

template <typename T>
  requires std::is_integral_v<T>
void CEREAL_SAVE_FUNCTION_NAME(BodyWriter& writer, const T& value) {
  writer.Put(value);
}
template <typename T>
  requires std::is_integral_v<T>
void CEREAL_LOAD_FUNCTION_NAME(BodyReader& reader, T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    uint8_t byte = reader.Take<uint8_t>();
    if (byte > 1) throw cereal::Exception("a flag is neither 0 nor 1");
    value = byte == 1;
  } else {
    value = reader.Take<T>();
  }
}

void CEREAL_SAVE_FUNCTION_NAME(BodyWriter& writer, const double& value) { writer.Put(std::bit_cast<uint64_t>(value)); }
void CEREAL_LOAD_FUNCTION_NAME(BodyReader& reader, double& value) {
  value = std::bit_cast<double>(reader.Take<uint64_t>());
}

// The last legal value of each enum; the first is 1.
constexpr auto Last(ErrorKind) { return ErrorKind::kInternal; }
constexpr auto Last(EditAction) { return EditAction::kUnpin; }
constexpr auto Last(TextKind) { return TextKind::kCode; }

// Wraps an enumerator on its way through an archive: cereal's own treatment of enums checks no range.
template <typename T>
struct Checked {
  explicit Checked(T& value) : value(value) {}
  T& value;
};

template <typename T>
void CEREAL_SAVE_FUNCTION_NAME(BodyWriter& writer, const Checked<T>& field) {
  writer.Put(static_cast<std::underlying_type_t<T>>(field.value));
}
template <typename T>
void CEREAL_LOAD_FUNCTION_NAME(BodyReader& reader, Checked<T>& field) {
  auto number = reader.Take<std::underlying_type_t<T>>();
  if (number < 1 || number > static_cast<std::underlying_type_t<T>>(Last(T{}))) {
    throw cereal::Exception("an enumerator is out of range");
  }
  field.value = static_cast<T>(number);
}

void CEREAL_SAVE_FUNCTION_NAME(BodyWriter& writer, const std::string& text) {
  writer.Put(static_cast<uint32_t>(text.size()));
  writer.PutBytes(text);
}
void CEREAL_LOAD_FUNCTION_NAME(BodyReader& reader, std::string& text) {
  text = reader.TakeBytes(reader.Take<uint32_t>());
}

template <typename T>
  requires IsVector<T>::value
void CEREAL_SAVE_FUNCTION_NAME(BodyWriter& writer, const T& elements) {
  writer.Put(static_cast<uint32_t>(elements.size()));
  for (const auto& element : elements) writer(element);
}
// Elements are read one by one, so that a false count ends with the bytes and not with the memory: an element takes at
// least four bytes here and at most a few dozen times that in memory.
template <typename T>
  requires IsVector<T>::value
void CEREAL_LOAD_FUNCTION_NAME(BodyReader& reader, T& elements) {
  uint32_t count = reader.Take<uint32_t>();
  if (count > reader.left()) throw cereal::Exception("more elements than bytes");
  elements.clear();
  for (uint32_t i = 0; i < count; ++i) reader(elements.emplace_back());
}

// Enumerators travel checked, everything else as it is.
template <typename T>
decltype(auto) Travelling(T& field) {
  if constexpr (std::is_enum_v<T>) {
    return Checked<T>(field);
  } else {
    return (field);
  }
}

template <typename A, typename T>
  requires requires(T& message) { message.Fields(); }
void serialize([[maybe_unused]] A& archive, T& message) {
  std::apply([&](auto&... fields) { (archive(Travelling(fields)), ...); }, message.Fields());
}

void EncodeHeader(const FrameHeader& header, std::span<std::byte, kFrameHeaderBytes> out) {
  std::memcpy(out.data(), kMagic, sizeof kMagic);
  StoreLittle(header.version, out.data() + 4);
  StoreLittle(static_cast<uint16_t>(header.type), out.data() + 6);
  StoreLittle(header.request_id, out.data() + 8);
  StoreLittle(header.length, out.data() + 16);
}

Result<FrameHeader> DecodeHeader(std::span<const std::byte, kFrameHeaderBytes> bytes, uint64_t limit) {
  if (std::memcmp(bytes.data(), kMagic, sizeof kMagic) != 0) {
    return Error{ErrorKind::kCorrupt, "not a hone frame: it does not start with \"HONE\"", "frame"};
  }
  FrameHeader header;
  header.version = LoadLittle<uint16_t>(bytes.data() + 4);
  header.type = static_cast<MessageType>(LoadLittle<uint16_t>(bytes.data() + 6));
  header.request_id = LoadLittle<uint64_t>(bytes.data() + 8);
  header.length = LoadLittle<uint64_t>(bytes.data() + 16);
  if (header.version < kProtocolMin || header.version > kProtocolMax) {
    return Error{ErrorKind::kUnsupported,
                 "protocol version " + std::to_string(header.version) + "; this side speaks " +
                     std::to_string(kProtocolMin) + " to " + std::to_string(kProtocolMax) + "; update the older one",
                 "frame"};
  }
  if (header.length > limit) {
    return Error{
        ErrorKind::kLimit,
        "a body of " + std::to_string(header.length) + " bytes; at most " + std::to_string(limit) + " are accepted",
        "frame"};
  }
  return header;
}

template <typename Message>
std::string EncodeBody(const Message& message) {
  std::string body;
  BodyWriter writer(body);
  writer(message);
  return body;
}

template <typename Message>
std::string EncodeFrame(uint64_t request_id, const Message& message) {
  std::string frame(kFrameHeaderBytes, '\0');
  BodyWriter writer(frame);
  writer(message);
  FrameHeader header{kProtocolMax, kTypeOf<Message>, request_id, frame.size() - kFrameHeaderBytes};
  EncodeHeader(header,
               std::span<std::byte, kFrameHeaderBytes>(reinterpret_cast<std::byte*>(frame.data()), kFrameHeaderBytes));
  return frame;
}

template <typename Message>
Result<Message> DecodeBody(std::span<const std::byte> body) {
  auto corrupt = [](std::string what) {
    return Error{ErrorKind::kCorrupt, std::move(what), "message " + std::to_string(static_cast<int>(kTypeOf<Message>))};
  };
  try {
    Message message;
    BodyReader reader(body);
    reader(message);
    if (reader.left() != 0) return corrupt(std::to_string(reader.left()) + " bytes too many");
    return message;
  } catch (const cereal::Exception& exception) { return corrupt(exception.what()); }
}

#define HONE_CODEC(Message)                                            \
  template std::string EncodeBody<Message>(const Message&);            \
  template std::string EncodeFrame<Message>(uint64_t, const Message&); \
  template Result<Message> DecodeBody<Message>(std::span<const std::byte>);
#define HONE_CODECS(name, number, replies) HONE_CODEC(name##Request) HONE_CODEC(name##Reply)
HONE_CODEC(ErrorReply)
HONE_CODEC(NewerNotice)
HONE_REQUESTS(HONE_CODECS)
#undef HONE_CODECS
#undef HONE_CODEC

ErrorReply ToReply(const Error& error, uint32_t retry_after_ms) {
  return {error.kind, error.message, error.where, retry_after_ms};
}

Error FromReply(ErrorReply reply) { return {reply.kind, std::move(reply.message), std::move(reply.where)}; }

}  // namespace hone
