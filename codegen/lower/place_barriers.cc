// A walk over the nest in the order of execution, with the accesses to block storage since the last barrier in mind. A
// statement that clashes with one of them gets a barrier before it, in the list of statements as far out as possible: a
// nest of loops is looked at by itself first (a loop twice, so that its second trip meets what the first one left), and
// only what still clashes then is settled in front of it. Which buffer of a pipeline an index means is compared within
// a trip; from trip to trip any of them may be meant.
//
// Loops of threads do not repeat, and barriers may stand inside of them: whoever makes code of the program applies
// their bounds to the statements between barriers, so that all threads come to each barrier.
#include "codegen/lower/place_barriers.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace hone {
namespace {

constexpr size_t kAxes = 3;  // thread.x, thread.y, thread.z

// Which thread does something, along each axis.
struct Who {
  enum class Kind : uint8_t { kFirst, kAny, kLoop };  // thread 0; any; as the variable of a bound loop says
  std::array<Kind, kAxes> kind = {Kind::kFirst, Kind::kFirst, Kind::kFirst};
  std::array<VarId, kAxes> var = {};
  std::array<bool, kAxes> has_all = {};  // the loop makes a trip for each thread of the block
  bool operator==(const Who&) const = default;
};

struct Access {
  const void* site = nullptr;  // the load or the store
  BufferId buffer;
  bool writes = false;
  std::vector<Linear> index;  // over loops
  Who who;
  bool is_before = false;   // the statement that is looked at
  bool is_earlier = false;  // of a trip before this one
  int64_t nest = 0;         // of a store that sets each element once: which run of the nest it is of
};

class BarrierPlacer {
 public:
  BarrierPlacer(const LoopProgram& program, const Stmt& nest) : program_(program) { FindThreads(nest); }

  void Place(Stmt& nest) {
    Who who;
    PlaceInside(nest, who);
  }

 private:
  using Pending = std::vector<Access>;

  void FindThreads(const Stmt& stmt) {
    if (stmt.kind == Stmt::Kind::kLoop && stmt.loop == LoopKind::kBound && IsThreadAxis(stmt.axis)) {
      int64_t& threads = threads_[DimensionOf(stmt.axis)];
      threads = std::max(threads, program_.vars.Range(stmt.extent).hi);
    }
    threads_[0] = std::max(threads_[0], ThreadsOfRuns(program_.vars, stmt));
    for (const StmtPtr& child : stmt.body) FindThreads(*child);
  }

  Who Inside(const Stmt& stmt, Who who) const {
    if (stmt.kind == Stmt::Kind::kBlock && stmt.all_threads) return {};
    if (stmt.kind != Stmt::Kind::kLoop || stmt.loop != LoopKind::kBound || IsBlockAxis(stmt.axis)) return who;
    if (IsOfSubGroup(stmt.axis)) {
      who.kind[0] = Who::Kind::kAny;
      return who;
    }
    const size_t t = DimensionOf(stmt.axis);
    who.kind[t] = Who::Kind::kLoop;
    who.var[t] = stmt.var;
    who.has_all[t] = program_.vars.Range(stmt.extent).lo >= threads_[t];
    return who;
  }

  // Whether barriers may stand between the statement's parts. Lanes of a vector are computed at once, and so is what an
  // instruction does.
  static bool IsOpen(const Stmt& stmt) {
    return stmt.kind != Stmt::Kind::kStore && stmt.kind != Stmt::Kind::kBarrier &&
           stmt.kind != Stmt::Kind::kInstruction &&
           !(stmt.kind == Stmt::Kind::kLoop && stmt.loop == LoopKind::kVectorized);
  }

  bool Repeats(const Stmt& stmt) const {
    return stmt.kind == Stmt::Kind::kLoop && stmt.loop != LoopKind::kBound && program_.vars.Range(stmt.extent).hi > 1;
  }

  void PlaceInside(Stmt& stmt, const Who& outside) {
    EnterNest(stmt);
    const Who who = Inside(stmt, outside);
    // What arrives for a trip of a pipeline is there for all threads when each of them has waited for its own part.
    if (IsPipeline(stmt) && stmt.body.front()->kind != Stmt::Kind::kBarrier) {
      stmt.body.insert(stmt.body.begin(), std::make_unique<Stmt>());
      stmt.body.front()->kind = Stmt::Kind::kBarrier;
    }
    Pending pending;
    PlaceInList(stmt.body, who, pending);
    if (!Repeats(stmt)) return;
    if (HasPipeline(stmt)) NextTrip(pending);
    PlaceInList(stmt.body, who, pending);
  }

  void PlaceInList(std::vector<StmtPtr>& list, const Who& who, Pending& pending) {
    for (size_t i = 0; i < list.size(); ++i) {
      if (IsOpen(*list[i])) PlaceInside(*list[i], who);
      for (Access& access : pending) access.is_before = true;
      Pending after = pending;
      if (Flow(*list[i], who, after)) {
        auto barrier = std::make_unique<Stmt>();
        barrier->kind = Stmt::Kind::kBarrier;
        list.insert(list.begin() + static_cast<int64_t>(i), std::move(barrier));
        ++i;
        after.clear();
        Flow(*list[i], who, after);
      }
      pending = std::move(after);
    }
  }

  // What is pending after the statement, and whether it clashes with what was there before it.
  bool Flow(const Stmt& stmt, const Who& outside, Pending& pending) const {
    if (stmt.kind == Stmt::Kind::kBarrier) {
      pending.clear();
      return false;
    }
    EnterNest(stmt);
    const Who who = Inside(stmt, outside);
    bool clashes = false;
    if (stmt.kind == Stmt::Kind::kStore) {
      for (Access& access : AccessesOf(stmt, who)) {
        clashes |= std::any_of(pending.begin(), pending.end(),
                               [&](const Access& before) { return before.is_before && Clash(before, access); });
        const bool is_known = std::any_of(pending.begin(), pending.end(), [&](const Access& before) {
          return before.site == access.site && before.writes == access.writes && before.who == access.who;
        });
        if (!is_known) pending.push_back(std::move(access));
      }
      return clashes;
    }
    for (int trip = Repeats(stmt) ? 2 : 1; trip > 0; --trip) {
      for (const StmtPtr& child : stmt.body) clashes |= Flow(*child, who, pending);
      if (Repeats(stmt) && HasPipeline(stmt)) NextTrip(pending);
    }
    return clashes;
  }

  static bool IsPipeline(const Stmt& stmt) { return stmt.kind == Stmt::Kind::kLoop && stmt.ahead > 0; }
  static bool HasPipeline(const Stmt& stmt) {
    return IsPipeline(stmt) || std::ranges::any_of(stmt.body, [](const StmtPtr& child) { return HasPipeline(*child); });
  }
  // Of a pipeline, or of a loop around one.
  static void NextTrip(Pending& pending) {
    for (Access& access : pending) access.is_earlier = true;
  }

  // Buffers of a pipeline in one trip: their numbers differ by a constant and multiples of how many there are.
  static bool AreOtherBuffers(const Access& a, const Access& b, int64_t slots) {
    if (slots <= 1 || a.is_earlier) return false;
    const Linear apart = a.index[0] - b.index[0];
    return apart.constant() % slots != 0 &&
           std::ranges::all_of(apart.terms(), [&](const Term& term) { return term.coef % slots == 0; });
  }

  bool Clash(const Access& a, const Access& b) const {
    if (a.buffer != b.buffer || (!a.writes && !b.writes)) return false;
    if (a.nest != 0 && a.site == b.site && a.nest == b.nest) return false;
    if (AreOtherBuffers(a, b, program_.buffer(a.buffer).slots)) return false;
    for (size_t d = 0; d < a.index.size(); ++d) {
      const Interval x = program_.vars.Range(a.index[d]), y = program_.vars.Range(b.index[d]);
      if (x.hi < y.lo || y.hi < x.lo) return false;
    }
    return !AreOneThread(a, b);
  }

  // Whether one element is accessed by one thread alone. An index coef·v + rest tells the variable v where the rests of
  // both accesses lie within one interval shorter than coef; then v's terms can be left out of the other indices. Terms
  // whose coefficients are multiples of coef times v's trips do not count as rest: modulo that, they are nothing.
  bool AreOneThread(const Access& a, const Access& b) const {
    // The variables of one axis of threads by one name.
    std::vector<Linear> x = a.index, y;
    for (const Linear& form : b.index) {
      Linear renamed = form;
      for (size_t t = 0; t < kAxes; ++t) {
        if (a.who.kind[t] != Who::Kind::kLoop || b.who.kind[t] != Who::Kind::kLoop) continue;
        const int64_t coef = form.CoefOf(b.who.var[t]);
        renamed = renamed.Without(b.who.var[t]) + Linear::Of(a.who.var[t], coef);
      }
      y.push_back(std::move(renamed));
    }
    std::vector<VarId> known;
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t d = 0; d < x.size(); ++d)
        for (const Term& term : std::vector<Term>(x[d].terms())) {
          if (!Tells(x[d], y[d], term, TripsOf(a, term.var))) continue;
          known.push_back(term.var);
          changed = true;
          for (size_t e = 0; e < x.size(); ++e) {
            if (x[e].CoefOf(term.var) != y[e].CoefOf(term.var)) continue;
            x[e] = x[e].Without(term.var);
            y[e] = y[e].Without(term.var);
          }
        }
    }
    for (size_t t = 0; t < kAxes; ++t) {
      if (threads_[t] <= 1 || (a.who.kind[t] == Who::Kind::kFirst && b.who.kind[t] == Who::Kind::kFirst)) continue;
      if (a.who.kind[t] != Who::Kind::kLoop || b.who.kind[t] != Who::Kind::kLoop) return false;
      if (std::find(known.begin(), known.end(), a.who.var[t]) == known.end()) return false;
    }
    return true;
  }

  // At most, whichever loop of threads along its axis a variable stands for.
  int64_t TripsOf(const Access& a, VarId var) const {
    int64_t trips = program_.vars[var].range.hi + 1;
    for (size_t t = 0; t < kAxes; ++t)
      if (a.who.kind[t] == Who::Kind::kLoop && a.who.var[t] == var) trips = std::max(trips, threads_[t]);
    return trips;
  }

  bool Tells(const Linear& x, const Linear& y, const Term& term, int64_t trips) const {
    if (program_.vars[term.var].kind != VarKind::kLoop || term.coef <= 0 || y.CoefOf(term.var) != term.coef)
      return false;
    const auto rest = [&](const Linear& form) {
      Linear left(form.constant());
      for (const Term& other : form.terms())
        if (other.var != term.var && other.coef % (term.coef * trips) != 0) left += Linear::Of(other.var, other.coef);
      return program_.vars.Range(left);
    };
    const Interval p = rest(x), q = rest(y);
    return std::max(p.hi, q.hi) - std::min(p.lo, q.lo) < term.coef;
  }

  std::vector<Access> AccessesOf(const Stmt& store, const Who& who) const {
    std::vector<Access> accesses;
    // Registers are every thread's own: where no loop says which thread writes them, all do, and those beyond a loop's
    // trips what the last trip writes. So it is with conditions.
    Who everyone = who;
    for (size_t t = 0; t < kAxes; ++t)
      if (who.kind[t] == Who::Kind::kFirst || !who.has_all[t]) everyone.kind[t] = Who::Kind::kAny;
    const bool is_own = program_.InRegisters(store.buffer) || program_.buffer(store.buffer).scope == Scope::kFragments;
    const Who& reader = is_own ? everyone : who;
    AddLoads(*store.value, reader, accesses);
    AddOpaque(store.index, reader, accesses);
    AddOpaque(store.guard, everyone, accesses);
    if (store.combine != Reduction::kNone) Add(&store, store.buffer, false, store.index, reader, accesses);
    Add(&store, store.buffer, true, store.index, who, accesses);
    if (store.combine == Reduction::kNone && !accesses.empty() && accesses.back().writes) accesses.back().nest = nest_;
    return accesses;
  }

  void Add(const void* site, BufferId buffer, bool writes, const std::vector<Linear>& index, const Who& who,
           std::vector<Access>& out) const {
    if (program_.buffer(buffer).scope != Scope::kBlock) return;
    Access access{site, buffer, writes, {}, who, false, false, 0};
    for (const Linear& form : index) access.index.push_back(program_.vars.ExpandAxes(form));
    out.push_back(std::move(access));
  }

  void AddLoads(const ValueNode& value, const Who& who, std::vector<Access>& out) const {
    if (value.kind == ValueNode::Kind::kLoad) Add(&value, value.buffer, false, value.index, who, out);
    AddOpaque(value.index, who, out);
    AddOpaque(value.guard, who, out);
    for (const ValuePtr& arg : value.args) AddLoads(*arg, who, out);
  }

  // Indices that are read from a tensor.
  void AddOpaque(const std::vector<Linear>& forms, const Who& who, std::vector<Access>& out) const {
    auto visit = [&](auto&& self, VarId id) -> void {
      const Var& var = program_.vars[id];
      if (var.kind == VarKind::kOpaque) AddLoads(program_.OpaqueValue(var), who, out);
      for (const Linear* part : {&var.a, &var.b})
        for (const Term& term : part->terms()) self(self, term.var);
    };
    for (const Linear& form : forms)
      for (const Term& term : form.terms()) visit(visit, term.var);
  }

  // What a block computes together is one nest: in it each element is set by one thread.
  void EnterNest(const Stmt& stmt) const {
    if (stmt.kind == Stmt::Kind::kBlock && stmt.all_threads) nest_ = ++nests_;
  }

  const LoopProgram& program_;
  mutable int64_t nests_ = 0, nest_ = 0;
  std::array<int64_t, kAxes> threads_ = {1, 1, 1};
};

}  // namespace

void PlaceBarriers(const LoopProgram& program, Stmt& nest) { BarrierPlacer(program, nest).Place(nest); }

}  // namespace hone
