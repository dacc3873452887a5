// The provenance of a transfer as text, kept in the cache:
//
//   provenance   ::= "transfer 2" NL "confidence " NUMBER NL guess+
//   guess   ::= "guess" (TAB field)×10 NL note*      way, donor, request, same class, distance, gain, measured,
//                                                    chosen, steps changed, refused
//   note    ::= "note" TAB fate TAB step TAB now TAB why NL            of the chosen guess only
#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "daemon/serve/transfers.h"

namespace hone {
namespace {

constexpr std::string_view kTransferNote = "transfer";
constexpr std::string_view kFirstLine = "transfer 2";
constexpr size_t kMostGuesses = 64, kMostNotes = 1000;

// Tabs and line ends part fields.
std::string Field(std::string_view text) {
  std::string field(text.substr(0, 2000));
  for (char& c : field)
    if (c == '\t' || c == '\n') c = ' ';
  return field;
}

std::string_view FateName(FitNote::Fate fate) {
  return fate == FitNote::Fate::kKept ? "kept" : fate == FitNote::Fate::kChanged ? "changed" : "dropped";
}

std::vector<std::string_view> Split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  for (size_t from = 0;;) {
    size_t to = text.find(at, from);
    parts.push_back(text.substr(from, to - from));
    if (to == std::string_view::npos) return parts;
    from = to + 1;
  }
}

bool ToNumber(std::string_view text, double& number) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && std::isfinite(number);
}

}  // namespace

TransferProvenance ProvenanceOf(const TransferPlan& plan, size_t chosen) {
  TransferProvenance provenance;
  provenance.confidence = plan.confidence;
  for (size_t i = 0; i < plan.transfers.size() && i < kMostGuesses; ++i) {
    const Transfer& transfer = plan.transfers[i];
    TransferGuess guess;
    guess.way = FitWayName(transfer.way);
    if (transfer.donor) {
      guess.donor = transfer.donor->fingerprint.Hex();
      guess.kernel = transfer.donor->request;
    }
    guess.same_class = transfer.is_same_class;
    guess.distance = transfer.distance;
    guess.gain = std::exp2(transfer.gain);
    guess.measured_us = i < plan.measured_us.size() ? plan.measured_us[i] : 0;
    guess.chosen = i == chosen;
    for (const FitNote& note : transfer.notes) guess.changed += note.fate == FitNote::Fate::kKept ? 0 : 1;
    guess.refused = transfer.same_as ? "the same program as another guess" : transfer.refused;
    provenance.guesses.push_back(std::move(guess));
    if (i != chosen) continue;
    for (const FitNote& note : transfer.notes)
      provenance.notes.push_back({std::string(FateName(note.fate)), note.step, note.now, note.why});
  }
  return provenance;
}

std::string PrintProvenance(const TransferProvenance& provenance) {
  std::string text = fmt::format("{}\nconfidence {:.4g}\n", kFirstLine, provenance.confidence);
  for (const TransferGuess& guess : provenance.guesses)
    text += fmt::format("guess\t{}\t{}\t{}\t{}\t{:.4g}\t{:.6g}\t{:.6g}\t{}\t{}\t{}\n", Field(guess.way), guess.donor,
                        Field(guess.kernel), guess.same_class ? 1 : 0, guess.distance, guess.gain, guess.measured_us,
                        guess.chosen ? 1 : 0, guess.changed, Field(guess.refused));
  for (const TransferNote& note : provenance.notes)
    text += fmt::format("note\t{}\t{}\t{}\t{}\n", note.fate, Field(note.step), Field(note.now), Field(note.why));
  return text;
}

Result<TransferProvenance> ParseProvenance(std::string_view text) {
  const Error corrupt{ErrorKind::kCorrupt, "not the provenance of a transfer", ""};
  TransferProvenance provenance;
  std::vector<std::string_view> lines = Split(text, '\n');
  if (lines.size() < 3 || lines[0] != kFirstLine || !lines.back().empty()) return corrupt;
  lines.pop_back();
  constexpr std::string_view kConfidence = "confidence ";
  if (!lines[1].starts_with(kConfidence) || !ToNumber(lines[1].substr(kConfidence.size()), provenance.confidence))
    return corrupt;
  for (size_t i = 2; i < lines.size(); ++i) {
    std::vector<std::string_view> fields = Split(lines[i], '\t');
    if (fields[0] == "guess" && fields.size() == 11 && provenance.guesses.size() < kMostGuesses) {
      TransferGuess guess;
      double changed = 0;
      guess.way = fields[1];
      guess.donor = fields[2];
      guess.kernel = fields[3];
      guess.same_class = fields[4] == "1";
      guess.chosen = fields[8] == "1";
      guess.refused = fields[10];
      if (!ToNumber(fields[5], guess.distance) || !ToNumber(fields[6], guess.gain) ||
          !ToNumber(fields[7], guess.measured_us) || !ToNumber(fields[9], changed) || changed < 0 || changed > 1e6)
        return corrupt;
      guess.changed = static_cast<uint32_t>(changed);
      provenance.guesses.push_back(std::move(guess));
    } else if (fields[0] == "note" && fields.size() == 5 && provenance.notes.size() < kMostNotes) {
      provenance.notes.push_back(
          {std::string(fields[1]), std::string(fields[2]), std::string(fields[3]), std::string(fields[4])});
    } else {
      return corrupt;
    }
  }
  return provenance;
}

void KeepProvenance(ScheduleCache& cache, const CacheKey& key, const TransferProvenance& provenance) {
  (void)cache.PutNote(key, kTransferNote, PrintProvenance(provenance), Durability::kSoon);
}

std::optional<TransferProvenance> ProvenanceOf(ScheduleCache& cache, const CacheKey& key) {
  Result<std::optional<std::string>> text = cache.GetNote(key, kTransferNote);
  if (!text || !*text) return std::nullopt;
  Result<TransferProvenance> provenance = ParseProvenance(**text);
  if (!provenance) return std::nullopt;
  return *std::move(provenance);
}

}  // namespace hone
