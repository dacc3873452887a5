// What all clients share, such as connections or bytes of memory, and how much of it one of them may hold: as much as
// is left free, and no more. Who is alone gets half, two get a third each, and nobody ever all. By process; where
// several users are welcome, a user may hold as much as is left free of the whole, and its processes share that
// likewise. The last quarter of the whole is for those who hold nothing yet: many who take what they can leave
// something to start with.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "daemon/serve/clients.h"

namespace hone {

// Not thread-safe. Outlives what is held of it.
class Shares {
  struct Holder {
    uint64_t held = 0;
    uint32_t parts = 0;  // that there are of it; it is forgotten with the last one
  };
  using Users = std::map<uid_t, Holder>;
  using Processes = std::map<ClientId, Holder>;

 public:
  // One part of what a client holds; given back when it ends.
  class Part {
   public:
    Part() = default;
    Part(Part&& other) noexcept { *this = std::move(other); }
    Part& operator=(Part&& other) noexcept;
    ~Part();

    // Whether the client may hold so much more. REQUIRES: amount is little beside the whole.
    bool MayTake(uint64_t amount) const;
    void Take(uint64_t amount);
    // Takes it if it may.
    bool TryTake(uint64_t amount);
    // REQUIRES: amount <= held()
    void Give(uint64_t amount);
    uint64_t held() const { return held_; }
    uint64_t process_held() const { return process_->second.held; }
    // Where several users are welcome: nothing by any process of the user.
    bool holds_nothing() const { return (shares_->several_users_ ? user_->second.held : process_->second.held) == 0; }

   private:
    friend class Shares;
    Shares* shares_ = nullptr;
    Users::iterator user_;
    Processes::iterator process_;
    uint64_t held_ = 0;
  };

  explicit Shares(uint64_t whole, bool several_users = false) { SetWhole(whole, several_users); }
  // What is held beyond stays held.
  void SetWhole(uint64_t whole, bool several_users);
  // A part of `client`, nothing yet.
  Part Of(const ClientId& client);
  uint64_t held() const { return held_; }  // by all
  uint64_t whole() const { return whole_; }

 private:
  uint64_t whole_ = 0;
  bool several_users_ = false;
  uint64_t held_ = 0;
  Users users_;
  Processes processes_;
};

}  // namespace hone
