// Ids: positions in tables. Each kind of table has a type of its own, so that no position is taken for one elsewhere.
#pragma once

#include <compare>
#include <cstddef>
#include <initializer_list>
#include <utility>
#include <vector>

namespace hone {

// `Tag` names the table's kind: `using VarId = Id<struct VarTag>;`.
template <typename Tag>
struct Id {
  int value = -1;  // −1: none

  constexpr Id() = default;
  constexpr explicit Id(int position) : value(position) {}
  constexpr explicit Id(size_t position) : value(static_cast<int>(position)) {}

  constexpr explicit operator bool() const { return value >= 0; }
  constexpr size_t index() const { return static_cast<size_t>(value); }  // REQUIRES: not none
  auto operator<=>(const Id&) const = default;

  // The next one, and the one before; none before the first: `for (StageId s = stages.last(); s; --s)`.
  constexpr Id& operator++() {
    ++value;
    return *this;
  }
  constexpr Id& operator--() {
    --value;
    return *this;
  }
};

// Ids in ascending order: `for (BufferId id : program.buffers.ids())`.
template <typename IdType>
class IdRange {
 public:
  class Iterator {
   public:
    explicit Iterator(IdType at) : at_(at) {}
    IdType operator*() const { return at_; }
    Iterator& operator++() {
      ++at_;
      return *this;
    }
    bool operator==(const Iterator&) const = default;

   private:
    IdType at_;
  };

  explicit IdRange(size_t size) : IdRange(0, size) {}
  IdRange(size_t begin, size_t end) : begin_(begin), end_(end) {}
  Iterator begin() const { return Iterator(begin_); }
  Iterator end() const { return Iterator(end_); }
  size_t size() const { return end_.index() - begin_.index(); }

 private:
  IdType begin_, end_;
};

// A table whose elements are found by their ids. The first one added has id 0, the next one 1.
template <typename IdType, typename T>
class IdVector {
 public:
  IdVector() = default;
  explicit IdVector(size_t size, const T& value = T()) : elements_(size, value) {}

  IdType Add(T element) {
    elements_.push_back(std::move(element));
    return last();
  }

  // Before the element of that id: it and those behind it get other ids.
  void Insert(IdType before, T element) { elements_.insert(At(before), std::move(element)); }
  void Insert(IdType before, std::initializer_list<T> elements) { elements_.insert(At(before), elements); }
  // Those behind it, or behind any, get other ids.
  void Erase(IdType id) { elements_.erase(At(id)); }
  template <typename Predicate>
  size_t EraseIf(const Predicate& predicate) {
    return std::erase_if(elements_, predicate);
  }

  typename std::vector<T>::reference operator[](IdType id) { return elements_[id.index()]; }
  typename std::vector<T>::const_reference operator[](IdType id) const { return elements_[id.index()]; }
  const T& at(IdType id) const { return elements_.at(id.index()); }  // checked
  T& front() { return elements_.front(); }
  const T& front() const { return elements_.front(); }
  T& back() { return elements_.back(); }
  const T& back() const { return elements_.back(); }
  IdType last() const { return IdType(static_cast<int>(elements_.size()) - 1); }  // none: there is no element
  bool contains(IdType id) const { return id.value >= 0 && id.index() < elements_.size(); }
  size_t size() const { return elements_.size(); }
  bool empty() const { return elements_.empty(); }
  void resize(size_t size) { elements_.resize(size); }
  void clear() { elements_.clear(); }
  auto begin() { return elements_.begin(); }
  auto end() { return elements_.end(); }
  auto begin() const { return elements_.begin(); }
  auto end() const { return elements_.end(); }

  IdRange<IdType> ids() const { return IdRange<IdType>(elements_.size()); }

 private:
  auto At(IdType id) { return elements_.begin() + id.value; }

  std::vector<T> elements_;
};

}  // namespace hone
