#include "client/cli/explain_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "client/cli/plain_text.h"
#include "client/cli/print_values.h"
#include "client/cli/roofline_bound.h"
#include "client/cli/text_layout.h"
#include "client/cli/text_plot.h"

namespace hone::cli {
namespace {

constexpr size_t kWidest = 110;  // columns that a line of prose takes
constexpr size_t kCurveRows = 8;

std::string Scaled(double value, const std::array<const char*, 5>& units) {
  size_t unit = 0;
  for (; value >= 1000 && unit + 1 < units.size(); ++unit) value /= 1000;
  return fmt::format("{:.{}f} {}", value, value < 10 ? 2 : value < 100 ? 1 : 0, units[unit]);
}

std::string ValueText(const ChoiceRow& row, int64_t value) {
  if (row.is_flag) return value != 0 ? "yes" : "no";
  return std::to_string(value);
}

// "1 to 14 (9 options)", or all of a few.
std::string OptionsText(const ChoiceRow& row) {
  if (row.is_flag) return "yes or no";
  if (row.options.size() > 6)
    return fmt::format("{} options from {} to {}", row.options.size(), row.options.front(), row.options.back());
  std::string text;
  for (int64_t option : row.options) text += (text.empty() ? "" : " ") + std::to_string(option);
  return text;
}

// What the best of the other options costs: "otherwise 1.08x alone, 1.02x among all"; "" if nobody tried.
std::string OtherwiseText(const ChoiceRow& row) {
  std::string text;
  auto add = [&](double ratio, const char* how) {
    if (ratio > 0) text += fmt::format("{} {} {}", text.empty() ? "otherwise" : ",", RatioText(ratio), how);
  };
  add(row.measured_ratio, "alone");
  add(row.trials_ratio, "among all");
  return text;
}

std::string Section(std::string_view title) { return fmt::format("\n{}\n", title); }

std::string RooflineText(const ExplainReply& reply, size_t columns) {
  const Roofline& roofline = reply.roofline;
  if (roofline.flops <= 0 && roofline.operand_bytes <= 0) return "";
  std::vector<std::pair<std::string, std::string>> facts;
  std::string work =
      fmt::format("{} over {} of operands", FlopsText(roofline.flops), BytesText(roofline.operand_bytes));
  if (roofline.operand_bytes > 0) work += fmt::format(", {:.3g} FLOP a byte", roofline.flops / roofline.operand_bytes);
  facts.emplace_back("work", work);
  std::optional<Bound> bound = BoundOf(roofline);
  if (bound) {
    if (bound->arithmetic_us > 0)
      facts.emplace_back(
          "arithmetic",
          fmt::format("{} at the {} of FMAs that {} here", TimeText(bound->arithmetic_us),
                      RateText(roofline.peak_gflops),
                      reply.threads == 1 ? "one thread reaches" : fmt::format("{} threads reach", reply.threads)));
    if (bound->memory_us > 0)
      facts.emplace_back("memory",
                         fmt::format("{} at the {:.0f} GB/s that reading from {} reaches", TimeText(bound->memory_us),
                                     roofline.read_gb_s, roofline.level == "memory" ? "main memory" : roofline.level));
    facts.emplace_back("bound by", bound->is_memory ? "memory" : "arithmetic");
  } else {
    facts.emplace_back("bound", "not known: the roofs are measured on the machine that the record is for");
  }
  if (roofline.time_us > 0) {
    std::string now = fmt::format("{} ({})", TimeText(roofline.time_us), roofline.time_from);
    if (roofline.flops > 0) now += ", " + RateText(roofline.flops / roofline.time_us / 1e3);
    facts.emplace_back("now", now);
    if (bound) {
      facts.emplace_back("reached", fmt::format("{} {:.{}f} % of the bound",
                                                Bar(bound->share, std::clamp<size_t>(columns / 3, 12, 42)),
                                                bound->share * 100, bound->share < 0.1 ? 1 : 0));
      if (bound->share > 1.02)
        facts.emplace_back(
            "",
            "more than the bound: fewer operations than the definition has (Winograd's, or padding left "
            "out), operands that are nearer than their size says, or a roof that was measured under load");
    }
  } else {
    facts.emplace_back("now", "never measured; `hone run` measures it, `hone tune` looks for faster schedules, too");
  }
  return Section("Roofline") + WrappedFacts(facts, columns, 2);
}

std::string SearchText(const ExplainReply& reply, size_t columns) {
  std::string text = Section("Search");
  if (reply.trials == 0)
    return text + "  " + Wrap("no trials yet; `hone tune` makes some now, idle time does later", columns, 2, 2) + "\n";
  std::vector<std::pair<std::string, std::string>> facts = {{"trials", VerdictsText(reply)}};
  if (!reply.history.empty()) {
    const double best = reply.history.back().best_us;
    std::string found = fmt::format("best trial {}", TimeText(best));
    if (reply.history.size() == 1 && reply.default_us > 0)
      found = fmt::format("default schedule {}; no trial was faster than the first, {}", TimeText(reply.default_us),
                          TimeText(best));
    else if (reply.default_us > 0)
      found = fmt::format("default schedule {}, best trial {}, {} of it", TimeText(reply.default_us), TimeText(best),
                          RatioText(reply.default_us / best));
    facts.emplace_back("times", found);
  }
  if (reply.won_ratio > 0) {
    std::string won =
        fmt::format("{} faster than before its first search, measured in turns", RatioText(reply.won_ratio));
    if (reply.idle_ratio > 1) won += fmt::format("; {} of it found in idle time", RatioText(reply.idle_ratio));
    facts.emplace_back("won", won);
  } else {
    facts.emplace_back("won", "nothing beyond the noise yet");
  }
  text += WrappedFacts(facts, columns, 2);
  if (reply.history.size() < 2) return text;
  std::string curve = CurveText(reply.history, reply.trials, std::min(columns, kWidest) - 2, kCurveRows);
  if (curve.empty()) return text;
  text += "\n  best time so far\n";
  while (!curve.empty()) {
    size_t end = curve.find('\n');
    text += "  " + curve.substr(0, end + 1);
    curve.erase(0, end + 1);
  }
  return text;
}

// "* by steps of 3f9c21aa conv2d(…): distance 1.2, 3 changed, expected 1.08x".
std::string GuessText(const TransferGuess& guess) {
  std::string text = guess.chosen ? "* " : "- ";
  if (guess.donor.empty()) {
    text += "the default schedule:";
  } else {
    text += fmt::format("by {} of {} {}: distance {:.1f},", guess.way, guess.donor.substr(0, 8), OneLine(guess.kernel),
                        guess.distance);
    text += guess.changed > 0 ? fmt::format(" {} changed,", guess.changed) : " nothing changed,";
  }
  text += fmt::format(" expected {:.2f}x", guess.gain);
  if (guess.measured_us > 0) text += ", measured " + TimeText(guess.measured_us);
  return text;
}

// What was considered and what became of the chosen donor's steps.
std::string TransferText(const ExplainReply& reply, size_t columns) {
  const TransferProvenance& provenance = reply.transfer;
  std::string text;
  if (!provenance.guesses.empty()) {
    text += Section("Transfer");
    text += "  " +
            Wrap(fmt::format("When it was first asked for, {} schedules were considered; confidence in the one that "
                             "was served {:.2f} of 1.",
                             provenance.guesses.size(), provenance.confidence),
                 std::min(columns, kWidest), 2, 2) +
            "\n\n";
    std::vector<const TransferGuess*> guesses;
    for (const TransferGuess& guess : provenance.guesses)
      if (guess.refused.empty() || guess.chosen) guesses.push_back(&guess);
    std::stable_sort(guesses.begin(), guesses.end(), [](const TransferGuess* a, const TransferGuess* b) {
      return std::pair(!a->chosen, -a->gain) < std::pair(!b->chosen, -b->gain);
    });
    for (const TransferGuess* guess : guesses)
      text += "  " + Wrap(GuessText(*guess), std::min(columns, kWidest), 6, 2) + "\n";
    std::map<std::string, int> refused;
    for (const TransferGuess& guess : provenance.guesses)
      if (!guess.refused.empty() && !guess.chosen) ++refused[guess.refused];
    for (const auto& [why, count] : refused)
      text += "  " + Wrap(fmt::format("{} left out: {}", count, why), std::min(columns, kWidest), 4, 2) + "\n";
    const bool is_fit = std::any_of(provenance.guesses.begin(), provenance.guesses.end(),
                                    [](const TransferGuess& g) { return g.chosen && !g.donor.empty(); });
    if (is_fit && !provenance.notes.empty()) {
      text += "\n  what became of the donor's:\n";
      for (const TransferNote& note : provenance.notes) {
        std::string line = fmt::format("{}: {}", note.fate, note.step);
        if (note.fate == "changed") line += " -> " + note.now;
        if (!note.why.empty()) line += " (" + note.why + ")";
        text += "    " + Wrap(line, std::min(columns, kWidest), 8, 4) + "\n";
      }
    }
  }
  if (!reply.recipients.empty()) {
    text += Section("Recipients");
    text += "  " + Wrap("served with fits of this kernel's schedule:", columns, 2, 2) + "\n";
    for (const std::string& recipient : reply.recipients)
      text += "    " + Wrap(OneLine(recipient), columns, 6, 4) + "\n";
  }
  return text;
}

std::string ChangesText(const ExplainReply& reply, size_t columns) {
  std::string text = Section("Changed from the default schedule");
  Table table({{"  decision"},
               {"change", Table::Align::kRight},
               {"measured", Table::Align::kRight},
               {"trials", Table::Align::kRight},
               {"model", Table::Align::kRight}});
  std::vector<std::string> meanings = {""};
  for (const ChoiceRow& row : reply.choices) {
    if (row.value == row.preferred) continue;
    table.Add({"  " + Cut(row.site, std::clamp<size_t>(columns, 50, 70) - 40), ChoiceText(row),
               RatioText(row.measured_ratio), RatioText(row.trials_ratio), RatioText(row.model_ratio)});
    meanings.push_back(row.meaning);
  }
  if (table.size() == 0) return text + "  nothing: it is what the rules prefer\n";
  std::string rows = table.Text();
  const size_t from = rows.find('\n') + 2;
  for (const std::string& meaning : meanings) {
    text += rows.substr(0, rows.find('\n'));
    rows.erase(0, rows.find('\n') + 1);
    if (meaning.empty()) {
      text += "\n";
    } else if (from + Width(meaning) <= columns) {
      text += "  " + meaning + "\n";
    } else {
      text += "\n      " + Wrap(meaning, columns, 6, 6) + "\n";
    }
  }
  return text + "\n  " +
         Wrap(
             "The time with the rules' choice over the time with this one, so more than 1 is a gain. measured: trials "
             "that differ in nothing else; trials: the best of either kind, where other choices may differ, too; "
             "model: estimates of the cost model, the other choices as they are.",
             std::min(columns, kWidest), 2, 2) +
         "\n";
}

std::string SpaceText(const ExplainReply& reply, size_t columns) {
  if (reply.space_size <= 0) return "";
  std::string text = Section("Space");
  if (reply.choices.empty()) return text + "  one schedule: there is nothing to decide\n";
  std::string size =
      reply.space_size < 1e6 ? fmt::format("{:.0f}", reply.space_size) : fmt::format("{:.1e}", reply.space_size);
  text += "  " +
          Wrap(reply.choices.size() == 1
                   ? fmt::format("{} schedules by one decision", size)
                   : fmt::format("about {} schedules by {} decisions, most of which depend on each other", size,
                                 reply.choices.size()),
               columns, 2, 2) +
          "\n";
  std::vector<std::pair<std::string, std::string>> kept;
  bool is_compared = false;
  for (const ChoiceRow& row : reply.choices) {
    if (row.value != row.preferred) continue;
    std::string fact = fmt::format("{} of {}: {}", ValueText(row, row.value), OptionsText(row), row.meaning);
    if (std::string worth = OtherwiseText(row); !worth.empty()) {
      fact += "; " + worth;
      is_compared = true;
    }
    kept.emplace_back(row.site, std::move(fact));
  }
  if (kept.empty()) return text;
  text += "  as the rules prefer:\n" + WrappedFacts(kept, columns, 4);
  if (is_compared)
    text += "\n  " +
            Wrap(
                "otherwise: the time with the best other option over the time with this one; alone: trials that differ "
                "in nothing else; among all: the best trials of either kind.",
                std::min(columns, kWidest), 2, 2) +
            "\n";
  return text;
}

std::string RulesText(const ExplainReply& reply, size_t columns) {
  if (reply.rules.empty()) return "";
  std::string text = Section("Rules");
  for (const RuleRow& row : reply.rules) {
    text += "  " +
            Wrap(fmt::format("{} {} {} {}: {}", row.applied ? "+" : "-", row.rule,
                             row.applied ? "took" : "did not take", row.stage, row.why),
                 std::min(columns, kWidest), 4, 2) +
            "\n";
  }
  return text;
}

}  // namespace

std::string FlopsText(double flops) { return Scaled(flops, {"FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP"}); }
std::string RateText(double gflops) {
  return Scaled(gflops * 1e9, {"FLOP/s", "kFLOP/s", "MFLOP/s", "GFLOP/s", "TFLOP/s"});
}
std::string RatioText(double ratio) { return ratio > 0 ? fmt::format("{:.2f}x", ratio) : "-"; }

std::string ChoiceText(const ChoiceRow& row) {
  return ValueText(row, row.preferred) + " -> " + ValueText(row, row.value);
}

std::string VerdictsText(const ExplainReply& reply) {
  std::string text = fmt::format("{}", reply.trials);
  for (size_t i = 0; i < reply.verdicts.size(); ++i)
    text += fmt::format("{}{:.0f} {}", i == 0 ? ": " : ", ", reply.verdicts[i].value, reply.verdicts[i].name);
  return text;
}

std::string ExplainText(const ExplainReply& reply, size_t columns) {
  std::string text =
      reply.row.fingerprint.substr(0, 12) + "  " + Wrap(OneLine(reply.row.kernel), columns, 14, 14) + "\n\n";
  std::vector<std::pair<std::string, std::string>> reasons;
  for (const Fact& reason : reply.reasons) reasons.emplace_back(reason.name, PlainLine(reason.value));
  text += WrappedFacts(reasons, std::min(columns, kWidest));
  text += RooflineText(reply, columns) + TransferText(reply, columns) + SearchText(reply, columns);
  text += ChangesText(reply, columns) + SpaceText(reply, columns) + RulesText(reply, columns);
  return text;
}

Json ExplainJson(const ExplainReply& reply) {
  Json reasons, verdicts, roofline;
  for (const Fact& reason : reply.reasons) reasons.Set(reason.name, reason.value);
  for (const Stat& verdict : reply.verdicts) {
    std::string name = verdict.name;
    std::replace(name.begin(), name.end(), ' ', '_');
    verdicts.Set(name, static_cast<int64_t>(verdict.value));
  }
  const Roofline& r = reply.roofline;
  roofline.Set("flops", r.flops)
      .Set("operand_bytes", r.operand_bytes)
      .Set("time_us", r.time_us)
      .Set("time_from", r.time_from)
      .Set("peak_gflops", r.peak_gflops)
      .Set("read_gb_s", r.read_gb_s)
      .Set("level", r.level);
  if (std::optional<Bound> bound = BoundOf(r))
    roofline.Set("bound_us", bound->us)
        .Set("bound_by", bound->is_memory ? "memory" : "arithmetic")
        .Set("share", bound->share);
  std::vector<Json> guesses, notes;
  for (const TransferGuess& guess : reply.transfer.guesses)
    guesses.push_back(Json()
                          .Set("way", guess.way)
                          .Set("donor", guess.donor)
                          .Set("kernel", guess.kernel)
                          .Set("same_class", guess.same_class)
                          .Set("distance", guess.distance)
                          .Set("gain", guess.gain)
                          .Set("measured_us", guess.measured_us)
                          .Set("chosen", guess.chosen)
                          .Set("changed", guess.changed)
                          .Set("refused", guess.refused));
  for (const TransferNote& note : reply.transfer.notes)
    notes.push_back(Json().Set("fate", note.fate).Set("step", note.step).Set("now", note.now).Set("why", note.why));
  Json transfer;
  transfer.Set("confidence", reply.transfer.confidence)
      .Set("guesses", std::move(guesses))
      .Set("notes", std::move(notes));
  std::vector<Json> history, choices, rules;
  for (const HistoryPoint& point : reply.history)
    history.push_back(Json().Set("trial", point.trial).Set("best_us", point.best_us).Set("at", point.at_s));
  for (const ChoiceRow& row : reply.choices) {
    Json choice;
    choice.Set("decision", row.site)
        .Set("meaning", row.meaning)
        .Set("value", row.value)
        .Set("default", row.preferred)
        .Set("changed", row.value != row.preferred);
    choice.Set("options", row.options)
        .Set("measured_ratio", row.measured_ratio)
        .Set("trials_ratio", row.trials_ratio)
        .Set("trials_with", row.trials_with)
        .Set("trials_without", row.trials_without)
        .Set("model_ratio", row.model_ratio);
    choices.push_back(std::move(choice));
  }
  for (const RuleRow& row : reply.rules)
    rules.push_back(
        Json().Set("rule", row.rule).Set("stage", row.stage).Set("applied", row.applied).Set("why", row.why));
  Json json;
  json.Set("fingerprint", reply.row.fingerprint)
      .Set("class", reply.row.class_name)
      .Set("kernel", reply.row.kernel)
      .Set("origin", reply.row.origin)
      .Set("threads", reply.threads)
      .Set("reasons", std::move(reasons))
      .Set("roofline", std::move(roofline))
      .Set("trials", reply.trials)
      .Set("verdicts", std::move(verdicts))
      .Set("default_us", reply.default_us)
      .Set("won_ratio", reply.won_ratio)
      .Set("idle_ratio", reply.idle_ratio)
      .Set("history", std::move(history))
      .Set("space_size", reply.space_size)
      .Set("choices", std::move(choices))
      .Set("rules", std::move(rules))
      .Set("transfer", std::move(transfer))
      .Set("recipients", reply.recipients);
  return json;
}

}  // namespace hone::cli
