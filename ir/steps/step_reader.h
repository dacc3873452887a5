// Reads one line of a schedule's text: words separated by blanks; "[…]" is one word.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "ir/schedule/schedule.h"

namespace hone {

// Every error is kInvalid with where = "schedule:LINE:COLUMN", the place of the current word.
class StepReader {
 public:
  // `line` outlives the reader; `number`: of the line.
  StepReader(std::string_view line, int number) : line_(line), number_(number) {}

  // Goes to the next word; false: there is none.
  bool Next();
  std::string_view word() const { return word_; }
  Error Wrong(std::string_view wanted) const;

  // Each of these goes to the next word and reads it.
  Result<std::string> Name(std::string_view wanted);  // without a dot
  Result<void> Keyword(std::string_view keyword);
  Result<int64_t> Number();
  Result<Scope> StorageScope();
  Result<Tail> TailChoice();
  Result<LaunchAxis> AxisOfLaunch();
  // "stage.path" becomes the path. Sets `stage`, or demands that stage if it is set.
  Result<std::string> Loop(std::string& stage);
  // The layout, if there is another word; empty otherwise.
  Result<std::vector<LayoutDim>> OptionalLayout();
  // Loops to the end of the line.
  Result<std::vector<std::string>> Loops(std::string& stage);

  // These read a word that Next has gone to, or a part of it.
  Result<std::string> AnyName(std::string_view wanted) const;
  Result<int64_t> NumberIn(std::string_view text) const;

 private:
  Result<std::string> LoopHere(std::string& stage) const;
  Result<LayoutDim> LayoutPart(std::string_view part) const;

  std::string_view line_;
  int number_;
  size_t at_ = 0;
  int column_ = 1;
  std::string_view word_;
};

// As the reader reads them.
std::string_view ScopeName(Scope scope);
std::string_view TailName(Tail tail);
std::string_view LaunchAxisName(LaunchAxis axis);
std::string LayoutText(const std::vector<LayoutDim>& layout);                            // " [o/32, c]", or ""
std::string LoopsText(const std::string& stage, const std::vector<std::string>& loops);  // " y.n y.m"

}  // namespace hone
