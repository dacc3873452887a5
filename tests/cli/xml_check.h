// Whether a text is well-formed XML, as far as our pages go: no processing instructions, comments or CDATA.
#pragma once

#include <gtest/gtest.h>

#include <cctype>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace hone {

class XmlCheck {
 public:
  explicit XmlCheck(std::string_view text) : text_(text) {}

  ::testing::AssertionResult Run() {
    if (text_.starts_with("<!DOCTYPE html>\n")) at_ = 16;
    for (; at_ < text_.size() && problem_.empty();) text_[at_] == '<' ? Tag() : Character();
    if (problem_.empty() && !open_.empty()) problem_ = "<" + open_.back() + "> is not closed";
    if (problem_.empty() && roots_ != 1) problem_ = std::to_string(roots_) + " roots";
    if (problem_.empty()) return ::testing::AssertionSuccess();
    const size_t from = at_ > 60 ? at_ - 60 : 0;
    return ::testing::AssertionFailure() << problem_ << " at " << at_ << ": …" << text_.substr(from, 100);
  }

 private:
  bool Eat(std::string_view word) {
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  std::string Name() {
    const size_t from = at_;
    while (at_ < text_.size() && (isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '-')) ++at_;
    if (from == at_) problem_ = "wanted a name";
    return std::string(text_.substr(from, at_ - from));
  }
  void Character() {
    if (text_[at_] == '&') return Entity();
    const char c = text_[at_];
    if (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t' && c != '\r') problem_ = "a control character";
    if (open_.empty() && text_[at_] != '\n') problem_ = "text outside of the root";
    ++at_;
  }
  void Entity() {
    for (const char* entity : {"&lt;", "&gt;", "&amp;", "&quot;", "&#39;"})
      if (Eat(entity)) return;
    problem_ = "an entity that XML lacks";
  }
  void Tag() {
    if (Eat("</")) {
      const std::string name = Name();
      if (open_.empty() || open_.back() != name) problem_ = "</" + name + "> closes nothing";
      if (problem_.empty()) open_.pop_back();
      if (!Eat(">")) problem_ = "wanted >";
      return;
    }
    Eat("<");
    const std::string name = Name();
    if (open_.empty()) ++roots_;
    std::set<std::string> names;
    while (problem_.empty() && Eat(" ")) {
      if (!names.insert(Name()).second) problem_ = "an attribute twice";
      if (!Eat("=\"")) problem_ = "wanted =\"";
      while (problem_.empty() && at_ < text_.size() && text_[at_] != '"') {
        if (text_[at_] == '<') problem_ = "< in an attribute";
        text_[at_] == '&' ? Entity() : void(++at_);
      }
      if (!Eat("\"")) problem_ = "wanted \"";
    }
    if (!problem_.empty() || Eat("/>")) return;
    if (!Eat(">")) problem_ = "wanted >";
    open_.push_back(name);
  }

  std::string_view text_;
  size_t at_ = 0;
  int roots_ = 0;
  std::vector<std::string> open_;
  std::string problem_;
};

inline ::testing::AssertionResult IsWellFormed(std::string_view text) { return XmlCheck(text).Run(); }

// How often a word is in a text.
inline size_t CountOf(std::string_view text, std::string_view word) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find(word, at)) != std::string_view::npos; at += word.size()) ++count;
  return count;
}

}  // namespace hone
