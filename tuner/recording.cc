// The text form:
//
//   file      ::= recording*
//   recording ::= "hone recording 1\n" "name " text "\n" "kernel " text "\n" "target " text "\n" "threads " number "\n"
//                 trial* "end " number-of-trials " " checksum "\n"
//   trial     ::= verdict " " time-ns " " noise-ns " " program " " choices "\n"
//
// Texts are on one line: a line feed is "\n" and a backslash "\\". The verdict is its number in tuner/measure.h; the
// program, 16 hex digits, is the hash of the lowered loops, in which hone of another version may not follow; the
// checksum is BLAKE2b-64 of all lines before it. Choices are codegen/rules/choices.h's text.
#include "tuner/recording.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "base/file.h"
#include "base/hash.h"
#include "codegen/rules/choices.h"

namespace hone {
namespace {

constexpr std::string_view kFormat = "hone recording ";
constexpr int kFormatVersion = 1;
constexpr size_t kMostBytes = size_t{1} << 30;

std::string OnOneLine(std::string_view text) {
  std::string line;
  for (char c : text) {
    if (c == '\n')
      line += "\\n";
    else if (c == '\\')
      line += "\\\\";
    else
      line += c;
  }
  return line;
}

// Reads the lines of one recording after the other.
class Reader {
 public:
  Reader(std::string_view text, const std::string& where) : left_(text), where_(where) {}

  bool AtEnd() const { return left_.empty(); }

  Result<Recording> ReadOne() {
    const std::string_view begin = left_;
    std::string_view version = HONE_TRY(Field(kFormat));
    if (version != std::to_string(kFormatVersion))
      return Error{ErrorKind::kUnsupported,
                   fmt::format("a recording of format {}, this hone reads {}", version, kFormatVersion), Place()};
    Recording recording;
    recording.name = HONE_TRY(Text("name "));
    recording.kernel = HONE_TRY(Text("kernel "));
    recording.target = HONE_TRY(Text("target "));
    recording.threads = HONE_TRY(Number<int>(HONE_TRY(Field("threads "))));
    if (recording.threads < 1) return Damaged("threads below 1");
    while (true) {
      const std::string_view trials = begin.substr(0, begin.size() - left_.size());
      std::string_view line = HONE_TRY(Line());
      if (!line.starts_with("end ")) {
        recording.trials.push_back(HONE_TRY(TrialOf(line)));
        continue;
      }
      line.remove_prefix(4);
      if (HONE_TRY(Number<size_t>(Word(line))) != recording.trials.size())
        return Damaged(fmt::format("{} trials, the last line says otherwise", recording.trials.size()));
      if (line != HexOf(Hash64(trials)))
        return Damaged("the checksum of the lines above is another: they were changed");
      return recording;
    }
  }

 private:
  std::string Place() const { return fmt::format("{}:{}", where_, line_); }
  Error Damaged(std::string_view what) const { return {ErrorKind::kCorrupt, std::string(what), Place()}; }

  Result<std::string_view> Line() {
    ++line_;
    size_t end = left_.find('\n');
    if (end == std::string_view::npos)
      return Damaged(left_.empty() ? "the recording is cut short: its last line, \"end …\", is missing"
                                   : "a line without its end: the recording is cut short");
    std::string_view line = left_.substr(0, end);
    left_.remove_prefix(end + 1);
    return line;
  }

  Result<std::string_view> Field(std::string_view name) {
    std::string_view line = HONE_TRY(Line());
    if (!line.starts_with(name))
      return Damaged(fmt::format("saw \"{}\", wanted a line that begins with \"{}\"", line.substr(0, 40), name));
    line.remove_prefix(name.size());
    return line;
  }

  Result<std::string> Text(std::string_view name) {
    std::string_view line = HONE_TRY(Field(name));
    std::string text;
    for (size_t i = 0; i < line.size(); ++i) {
      if (line[i] != '\\') {
        text += line[i];
      } else if (++i < line.size() && (line[i] == 'n' || line[i] == '\\')) {
        text += line[i] == 'n' ? '\n' : '\\';
      } else {
        return Damaged("a backslash that is followed by neither n nor another");
      }
    }
    return text;
  }

  // Up to the next space, which is taken, too.
  static std::string_view Word(std::string_view& line) {
    std::string_view word = line.substr(0, line.find(' '));
    line.remove_prefix(std::min(line.size(), word.size() + 1));
    return word;
  }

  template <typename T>
  Result<T> Number(std::string_view word, int base = 10) const {
    T number{};
    auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number, base);
    if (error != std::errc() || end != word.data() + word.size())
      return Damaged(fmt::format("saw \"{}\", wanted a number", word.substr(0, 40)));
    return number;
  }

  Result<TrialRecord> TrialOf(std::string_view line) const {
    TrialRecord trial;
    trial.verdict = HONE_TRY(Number<uint8_t>(Word(line)));
    if (VerdictName(static_cast<Verdict>(trial.verdict)).empty())
      return Damaged(fmt::format("a verdict of number {}, which there is not", trial.verdict));
    trial.time = std::chrono::nanoseconds(HONE_TRY(Number<int64_t>(Word(line))));
    trial.noise = std::chrono::nanoseconds(HONE_TRY(Number<int64_t>(Word(line))));
    const bool is_timed = trial.verdict == static_cast<uint8_t>(Verdict::kTimed);
    if (trial.noise.count() < 0 || (trial.time.count() > 0) != is_timed)
      return Damaged("a time that does not go with the verdict");
    trial.program = HONE_TRY(Number<uint64_t>(Word(line), 16));
    trial.choices = line;
    if (Result<Chooser> chooser = ParseChoices(line); !chooser) return Damaged(chooser.error().message);
    return trial;
  }

  std::string_view left_;
  const std::string& where_;
  int line_ = 0;
};

Result<std::vector<Recording>> RecordingsOfCache(const std::string& directory) {
  CacheOptions options;
  options.directory = directory;
  options.inspect = true;
  std::unique_ptr<ScheduleCache> cache = HONE_TRY(ScheduleCache::Open(std::move(options)));
  std::vector<Recording> recordings;
  HONE_TRY(cache->ForEachRecord(std::nullopt, [&](const Record& record) {
    Recording recording{record.request, record.key.canonical, record.key.target, record.key.threads, {}};
    (void)cache->ForEachTrial(record.key, [&](const TrialRecord& trial) {
      recording.trials.push_back(trial);
      return true;
    });
    if (!recording.trials.empty()) recordings.push_back(std::move(recording));
    return true;
  }));
  return recordings;
}

}  // namespace

TrialRecord RecordOf(const Trial& trial) {
  auto nanoseconds = [](double us) { return std::chrono::nanoseconds(static_cast<int64_t>(us * 1000)); };
  return {PrintChoices(trial.candidate.choices),
          trial.candidate.program,
          static_cast<uint8_t>(trial.verdict),
          nanoseconds(trial.time_us),
          nanoseconds(trial.noise_us),
          {},
          trial.why};
}

std::string PrintRecording(const Recording& recording) {
  std::string text = fmt::format("{}{}\nname {}\nkernel {}\ntarget {}\nthreads {}\n", kFormat, kFormatVersion,
                                 OnOneLine(recording.name), OnOneLine(recording.kernel), OnOneLine(recording.target),
                                 recording.threads);
  for (const TrialRecord& trial : recording.trials)
    text += fmt::format("{} {} {} {:016x} {}\n", trial.verdict, trial.time.count(), trial.noise.count(), trial.program,
                        trial.choices);
  return text + fmt::format("end {} {}\n", recording.trials.size(), HexOf(Hash64(text)));
}

Result<std::vector<Recording>> ParseRecordings(std::string_view text, const std::string& where) {
  Reader reader(text, where);
  std::vector<Recording> recordings;
  while (!reader.AtEnd()) recordings.push_back(HONE_TRY(reader.ReadOne()));
  return recordings;
}

Result<std::vector<Recording>> ReadRecordings(const std::string& path) {
  std::error_code error;
  std::vector<Recording> recordings = HONE_TRY(std::filesystem::is_directory(path, error)
                                                   ? RecordingsOfCache(path)
                                                   : ParseRecordings(HONE_TRY(ReadFile(path, kMostBytes)), path));
  // Searches of one kernel on one machine are one recording.
  for (size_t i = 0; i < recordings.size(); ++i) {
    auto continues = [&](Recording& later) {
      const Recording& first = recordings[i];
      if (later.kernel != first.kernel || later.target != first.target || later.threads != first.threads) return false;
      recordings[i].trials.insert(recordings[i].trials.end(), later.trials.begin(), later.trials.end());
      return true;
    };
    recordings.erase(std::remove_if(recordings.begin() + static_cast<ptrdiff_t>(i) + 1, recordings.end(), continues),
                     recordings.end());
  }
  if (recordings.empty()) return Error{ErrorKind::kNotFound, "there is no recorded trial in it", path};
  return recordings;
}

Result<void> AppendRecording(const std::string& path, const Recording& recording) {
  UniqueFd file(::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644));
  if (!file) return ErrnoError(errno, "open", path);
  return WriteAll(file.get(), PrintRecording(recording));
}

}  // namespace hone
