// What commands print: tables and units for people, JSON lines for programs, a progress bar on a terminal.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "client/cli/json.h"

namespace hone::cli {

std::string TimeText(double us);         // "5.20 ns", "0.84 us", "12.3 us", "4.56 ms", "1.20 s"; "-" for 0
std::string BytesText(double bytes);     // "512 B", "4.2 MiB"; "-" for 0
std::string AgeText(int64_t unix_time);  // "3 min ago"; "never" for 0
std::string ErrorText(double error);     // "1.2e-07"

// Columns that line up. Prints a header only if there are rows.
class Table {
 public:
  enum class Align { kLeft, kRight };
  struct Column {
    std::string title;
    Align align = Align::kLeft;
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  void Add(std::vector<std::string> row);
  size_t size() const { return rows_.size(); }
  std::string Text() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// "name   value" lines.
std::string FactsText(const std::vector<std::pair<std::string, std::string>>& facts);

// One line on standard error that is drawn over and over, if that is a terminal; nothing otherwise.
class ProgressBar {
 public:
  explicit ProgressBar(uint64_t total, bool enabled = true);
  ~ProgressBar();
  void Show(uint64_t done, std::string_view what);
  void Clear();

 private:
  const uint64_t total_;
  const bool enabled_;
};

// From here on an interrupt clears a progress bar before it ends the process.
void CleanUpOnInterrupt();

// "hone: where: message" on standard error; with `json` also {"error":…} on standard output.
void PrintError(const Error& error, bool json);
Json ErrorJson(const Error& error);

// "hone: warning: text" on standard error.
void PrintWarning(std::string_view text);

// To standard output, at once; what a terminal would take for a command is shown as it stands (plain_text.h).
void Print(std::string_view text);
// The same with commands for a terminal in it.
void PrintCommands(std::string_view text);
// kIo, kLimit where the disk is full: not all that was printed has arrived.
Result<void> FinishPrinting();

}  // namespace hone::cli
