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
  auto begin() { return elements_.begin(); }
  auto end() { return elements_.end(); }
  auto begin() const { return elements_.begin(); }
  auto end() const { return elements_.end(); }

  // All ids, ascending: `for (BufferId id : program.buffers.ids())`.
  class Ids {
   public:
    class Iterator {
     public:
      explicit Iterator(int at) : at_(at) {}
      IdType operator*() const { return IdType(at_); }
      Iterator& operator++() {
        ++at_;
        return *this;
      }
      bool operator==(const Iterator&) const = default;

     private:
      int at_;
    };
    explicit Ids(size_t size) : size_(static_cast<int>(size)) {}
    Iterator begin() const { return Iterator(0); }
    Iterator end() const { return Iterator(size_); }

   private:
    int size_;
  };
  Ids ids() const { return Ids(elements_.size()); }

 private:
  auto At(IdType id) { return elements_.begin() + id.value; }

  std::vector<T> elements_;
};

}  // namespace hone
