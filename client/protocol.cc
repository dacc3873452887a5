// Encodes and decodes the messages with cereal, through two archives of our own: integers are little-endian whatever
// the machine, and a length that comes from outside allocates nothing before its bytes were seen.
#include "client/protocol.h"

#include <bit>
#include <cereal/cereal.hpp>
#include <cstring>
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

// The fields of each message, in order. Version 1.
template <typename A>
void serialize(A& a, ErrorReply& m) {
  a(Checked(m.kind), m.message, m.where, m.retry_after_ms);
}
template <typename A>
void serialize(A& a, HelloRequest& m) {
  a(m.min_version, m.max_version, m.client);
}
template <typename A>
void serialize(A& a, HelloReply& m) {
  a(m.version, m.server);
}
template <typename A>
void serialize(A& a, GetRequest& m) {
  a(m.kernel, m.target, m.threads, m.budget_us, m.no_compile, m.no_artifact);
}
template <typename A>
void serialize(A& a, StepTime& m) {
  a(m.step, m.us);
}
template <typename A>
void serialize(A& a, GetReply& m) {
  a(m.fingerprint, m.class_name, m.target, m.hit, m.pinned, m.origin, m.expected_us, m.digest, m.size, m.manifest,
    m.steps, m.confidence);
}
template <typename A>
void serialize(A&, StatusRequest&) {}
template <typename A>
void serialize(A& a, StatusReply& m) {
  a(m.version, m.pid, m.uptime_s, m.socket, m.cache, m.targets, m.cache_bytes, m.cache_problem, m.records, m.hits,
    m.misses, m.idle_state, m.tuning, m.builders, m.connections, m.queued);
}
template <typename A>
void serialize(A&, HealthRequest&) {}
template <typename A>
void serialize(A& a, ChildHold& m) {
  a(m.child, m.holds, m.complete);
}
template <typename A>
void serialize(A& a, HealthReply& m) {
  a(m.losses, m.quarantined, m.children);
}
template <typename A>
void serialize(A&, StatsRequest&) {}
template <typename A>
void serialize(A& a, Stat& m) {
  a(m.name, m.value);
}
template <typename A>
void serialize(A& a, StatsReply& m) {
  a(m.stats);
}
template <typename A>
void serialize(A& a, ListRequest& m) {
  a(m.class_prefix);
}
template <typename A>
void serialize(A& a, RecordRow& m) {
  a(m.fingerprint, m.class_name, m.kernel, m.target, m.origin, m.pinned, m.expected_us, m.artifact_bytes, m.requests,
    m.last_used_s);
}
template <typename A>
void serialize(A& a, ListReply& m) {
  a(m.rows, m.more);
}
template <typename A>
void serialize(A& a, ShowRequest& m) {
  a(m.fingerprint);
}
template <typename A>
void serialize(A& a, Fact& m) {
  a(m.name, m.value);
}
template <typename A>
void serialize(A& a, ShowReply& m) {
  a(m.row, m.canonical, m.schedule, m.facts, m.reasons);
}
template <typename A>
void serialize(A& a, EditRequest& m) {
  a(Checked(m.action), m.fingerprint);
}
template <typename A>
void serialize(A& a, EditReply& m) {
  a(m.fingerprint);
}
template <typename A>
void serialize(A& a, VerifyRequest& m) {
  a(m.run);
}
template <typename A>
void serialize(A& a, VerifyRow& m) {
  a(m.fingerprint, m.class_name, m.target, m.ok, m.ran, m.max_rel_err, m.problem);
}
template <typename A>
void serialize(A& a, VerifyReply& m) {
  a(m.rows, m.total, m.without_artifact, m.more);
}
template <typename A>
void serialize(A& a, KernelName& m) {
  a(m.kernel, m.is_fingerprint, m.threads);
}
template <typename A>
void serialize(A& a, TextRequest& m) {
  a(Checked(m.what), m.name);
}
template <typename A>
void serialize(A& a, TextReply& m) {
  a(m.fingerprint, m.text);
}
template <typename A>
void serialize(A& a, TuneRequest& m) {
  a(m.kernel, m.threads, m.trials, m.time_us, m.seed, m.target);
}
template <typename A>
void serialize(A& a, TuneReply& m) {
  a(m.trials, m.valid, m.wanted, m.elapsed_s, m.start_us, m.best_us, m.more, m.fingerprint, m.origin, m.stopped,
    m.served_us, m.ratio);
}

template <typename A>
void serialize(A& a, WatchRequest& m) {
  a(m.watch, m.fingerprint, m.target, m.digest);
}
template <typename A>
void serialize(A& a, WatchReply& m) {
  a(m.is_current);
}
template <typename A>
void serialize(A& a, NewerNotice& m) {
  a(m.fingerprint, m.target, m.digest);
}

template <typename A>
void serialize(A& a, CallCount& m) {
  a(m.watch, m.calls);
}
template <typename A>
void serialize(A& a, CallsRequest& m) {
  a(m.counts);
}
template <typename A>
void serialize(A&, CallsReply&) {}

template <typename A>
void serialize(A& a, PredictRequest& m) {
  a(m.kernel, m.threads);
}
template <typename A>
void serialize(A& a, Estimate& m) {
  a(m.expected_us, m.low_us, m.high_us);
}
template <typename A>
void serialize(A& a, PredictReply& m) {
  a(m.fingerprint, m.class_name, m.by_default, m.served, m.origin, m.measured_us, m.flops);
}
template <typename A>
void serialize(A&, TopRequest&) {}
template <typename A>
void serialize(A& a, TopTask& m) {
  a(m.kernel, m.calls, m.time_us, m.expected_us, m.trials, m.won, m.is_refined);
}
template <typename A>
void serialize(A& a, TopReply& m) {
  a(m.idle_state, m.kernel, m.by_request, m.trials, m.valid, m.wanted, m.elapsed_s, m.start_us, m.best_us, m.all_trials,
    m.failed_trials, m.refined, m.interrupts, m.refinable, m.waiting, m.tasks);
}

template <typename A>
void serialize(A& a, ExplainRequest& m) {
  a(m.name);
}
template <typename A>
void serialize(A& a, Roofline& m) {
  a(m.flops, m.operand_bytes, m.time_us, m.time_from, m.peak_gflops, m.read_gb_s, m.level);
}
template <typename A>
void serialize(A& a, HistoryPoint& m) {
  a(m.trial, m.best_us, m.at_s);
}
template <typename A>
void serialize(A& a, ChoiceRow& m) {
  a(m.site, m.meaning, m.is_flag, m.value, m.preferred, m.options, m.measured_ratio, m.trials_ratio, m.trials_with,
    m.trials_without, m.model_ratio);
}
template <typename A>
void serialize(A& a, RuleRow& m) {
  a(m.rule, m.stage, m.applied, m.why);
}
template <typename A>
void serialize(A& a, TransferGuess& m) {
  a(m.way, m.donor, m.kernel, m.same_class, m.distance, m.gain, m.measured_us, m.chosen, m.changed, m.refused);
}
template <typename A>
void serialize(A& a, TransferNote& m) {
  a(m.fate, m.step, m.now, m.why);
}
template <typename A>
void serialize(A& a, TransferStory& m) {
  a(m.confidence, m.guesses, m.notes);
}
template <typename A>
void serialize(A& a, ExplainReply& m) {
  a(m.row, m.threads, m.reasons, m.roofline, m.default_us, m.won_ratio, m.idle_ratio, m.trials, m.verdicts, m.history,
    m.space_size, m.choices, m.rules, m.transfer, m.heirs);
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
  FrameHeader header{kProtocolMax, Message::kType, request_id, frame.size() - kFrameHeaderBytes};
  EncodeHeader(header,
               std::span<std::byte, kFrameHeaderBytes>(reinterpret_cast<std::byte*>(frame.data()), kFrameHeaderBytes));
  return frame;
}

template <typename Message>
Result<Message> DecodeBody(std::span<const std::byte> body) {
  auto corrupt = [](std::string what) {
    return Error{ErrorKind::kCorrupt, std::move(what), "message " + std::to_string(static_cast<int>(Message::kType))};
  };
  try {
    Message message;
    BodyReader reader(body);
    reader(message);
    if (reader.left() != 0) return corrupt(std::to_string(reader.left()) + " bytes too many");
    return message;
  } catch (const cereal::Exception& exception) { return corrupt(exception.what()); }
}

#define HONE_MESSAGE(Message)                                          \
  template std::string EncodeBody<Message>(const Message&);            \
  template std::string EncodeFrame<Message>(uint64_t, const Message&); \
  template Result<Message> DecodeBody<Message>(std::span<const std::byte>);
HONE_MESSAGE(ErrorReply)
HONE_MESSAGE(HelloRequest)
HONE_MESSAGE(HelloReply)
HONE_MESSAGE(GetRequest)
HONE_MESSAGE(GetReply)
HONE_MESSAGE(StatusRequest)
HONE_MESSAGE(StatusReply)
HONE_MESSAGE(HealthRequest)
HONE_MESSAGE(HealthReply)
HONE_MESSAGE(StatsRequest)
HONE_MESSAGE(StatsReply)
HONE_MESSAGE(ListRequest)
HONE_MESSAGE(ListReply)
HONE_MESSAGE(ShowRequest)
HONE_MESSAGE(ShowReply)
HONE_MESSAGE(EditRequest)
HONE_MESSAGE(EditReply)
HONE_MESSAGE(VerifyRequest)
HONE_MESSAGE(VerifyReply)
HONE_MESSAGE(TextRequest)
HONE_MESSAGE(TextReply)
HONE_MESSAGE(TuneRequest)
HONE_MESSAGE(TuneReply)
HONE_MESSAGE(WatchRequest)
HONE_MESSAGE(WatchReply)
HONE_MESSAGE(NewerNotice)
HONE_MESSAGE(CallsRequest)
HONE_MESSAGE(CallsReply)
HONE_MESSAGE(PredictRequest)
HONE_MESSAGE(PredictReply)
HONE_MESSAGE(TopRequest)
HONE_MESSAGE(TopReply)
HONE_MESSAGE(ExplainRequest)
HONE_MESSAGE(ExplainReply)
#undef HONE_MESSAGE

ErrorReply ToReply(const Error& error, uint32_t retry_after_ms) {
  return {error.kind, error.message, error.where, retry_after_ms};
}

Error FromReply(ErrorReply reply) { return {reply.kind, std::move(reply.message), std::move(reply.where)}; }

}  // namespace hone
