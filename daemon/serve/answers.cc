#include "daemon/serve/answers.h"

#include <fmt/format.h>
#include <unistd.h>

#include <new>
#include <optional>

namespace hone {
namespace {

constexpr uint32_t kRetryMs = 200;
constexpr FairQueue::Limits kQueueLimits{.jobs = 4096, .bytes = size_t{64} << 20};
// Of requests that wait, decoded. Small ones always find room: they are counted by each connection's own limit.
constexpr size_t kSmall = 256;
constexpr size_t kMostBytes = size_t{64} << 20;
constexpr size_t kMostBytesOfClient = size_t{4} << 20;

ErrorReply Busy() {
  return ToReply({ErrorKind::kBusy, fmt::format("too many commands at once, retry in {} ms", kRetryMs), "honed"},
                 kRetryMs);
}

ErrorReply NoMemory() { return ToReply({ErrorKind::kBusy, "out of memory", "honed"}, kRetryMs); }

// A request that takes more memory than there is costs its answer.
AnswerPart MakeWithin(const MakePart& make, const std::stop_token& stop) {
  try {
    return make(stop);
  } catch (const std::bad_alloc&) {
    return AnswerPart::Failed({ErrorKind::kLimit, "the answer takes more memory than there is", "honed"});
  }
}

}  // namespace

Answers::Answers(EventLoop& loop, Metrics& metrics) : loop_(loop), metrics_(metrics) {
  struct {
    const char* name;
    int threads;
  } constexpr kThreads[kLanes] = {{"hone-admin", 1}, {"hone-list", 1}, {"hone-work", 2}};
  for (size_t i = 0; i < kLanes; ++i)
    queues_[i] = std::make_unique<FairQueue>(kThreads[i].threads, kThreads[i].name, kQueueLimits);
}

Answers::~Answers() { Close(); }

void Answers::Push(Lane lane, const PeerPtr& peer, uint64_t request_id, size_t bytes, MakePart make) {
  auto held = bytes_of_.find(peer->client());
  const size_t of_client = held == bytes_of_.end() ? 0 : held->second;
  if (bytes > kSmall && (of_client + bytes > kMostBytesOfClient || bytes_ + bytes > kMostBytes)) {
    ++metrics_.busy;
    return peer->Reply(request_id, Busy());
  }
  bytes += kSmall;  // what it takes beside its text
  Work work{++last_number_, peer, request_id, bytes, std::make_shared<const MakePart>(std::move(make))};
  const Key key(peer.get(), lane);
  Take(key, std::move(work));
  if (talks_.find(key)->second.works.size() == 1) Begin(key);
}

// All of it, or, if there is no memory for that, nothing.
void Answers::Take(const Key& key, Work work) {
  const ClientId client = work.peer->client();
  const size_t bytes = work.bytes;
  try {
    size_t& held = bytes_of_[client];
    talks_[key].works.push_back(std::move(work));
    held += bytes;
    bytes_ += bytes;
  } catch (const std::bad_alloc&) {
    if (auto talk = talks_.find(key); talk != talks_.end() && talk->second.works.empty()) talks_.erase(talk);
    if (auto held = bytes_of_.find(client); held != bytes_of_.end() && held->second == 0) bytes_of_.erase(held);
    throw;
  }
}

void Answers::Run(Lane lane, std::function<void()> work, std::function<void(bool)> done) {
  FairQueue::Job job;
  job.client = {geteuid(), getpid()};
  job.run = [this, work = std::move(work), done](const std::stop_token&) {
    try {
      work();
    } catch (const std::bad_alloc&) {
      return loop_.Post([done] { done(false); });
    }
    loop_.Post([done] { done(true); });
  };
  job.drop = [this, done] { loop_.Post([done] { done(false); }); };
  if (!queues_[static_cast<size_t>(lane)]->Push(std::move(job))) loop_.Post([done] { done(false); });
}

// Does it; if there is no memory for that, the first of the talk is refused, if it still has that number.
template <typename Step>
void Answers::OrRefuse(const Key& key, uint64_t number, const Step& step) {
  try {
    step();
  } catch (const std::bad_alloc&) { Refuse(key, number, NoMemory()); }
}

// Has the first of a talk made, once the client has taken what was sent before.
void Answers::Begin(const Key& key) {
  auto talk = talks_.find(key);
  if (talk == talks_.end() || talk->second.ticket) return;
  const Work& work = talk->second.works.front();
  talk->second.is_unread = work.peer->unsent() > 0;
  if (talk->second.is_unread) return;
  OrRefuse(key, work.number, [&, number = work.number] {
    talk->second.ticket = QueueOf(key).Push(JobOf(key, work));
    if (!talk->second.ticket) Refuse(key, number, Busy());
  });
}

FairQueue::Job Answers::JobOf(const Key& key, const Work& work) {
  const uint64_t number = work.number;
  FairQueue::Job job;
  job.client = work.peer->client();
  job.bytes = work.bytes;
  job.run = [this, key, number, make = work.make](const std::stop_token& stop) {
    AnswerPart part = MakeWithin(*make, stop);
    loop_.Post([this, key, number, part = std::move(part)]() mutable {
      OrRefuse(key, number, [&] { OnMade(key, number, std::move(part)); });
    });
  };
  job.drop = [this, key, number] {
    loop_.Post([this, key, number] { OrRefuse(key, number, [&] { Refuse(key, number, Busy()); }); });
  };
  return job;
}

// The talk whose first has that number; nullptr: its client has gone.
Answers::Talk* Answers::TurnOf(const Key& key, uint64_t number) {
  auto talk = talks_.find(key);
  return talk != talks_.end() && talk->second.works.front().number == number ? &talk->second : nullptr;
}

// Whatever is sent may find that the client is gone, or take its next request.
void Answers::OnMade(const Key& key, uint64_t number, AnswerPart part) {
  Talk* talk = TurnOf(key, number);
  if (talk == nullptr) return;
  talk->ticket.reset();
  if (part.more) {
    talk->works.push_back(std::move(talk->works.front()));
    talk->works.pop_front();
    const PeerPtr peer = talk->works.back().peer;
    peer->ReplyPart(talk->works.back().request_id, part.type, std::move(part.body));
  } else {
    const Work work = TakeFirst(key);
    work.peer->Reply(work.request_id, part.type, std::move(part.body));
  }
  Begin(key);
}

void Answers::Refuse(const Key& key, uint64_t number, const ErrorReply& why) {
  Talk* talk = TurnOf(key, number);
  if (talk == nullptr) return;
  std::string body = EncodeBody(why);  // first: if there is no memory for that, it is not refused yet
  talk->ticket.reset();
  const Work work = TakeFirst(key);
  ++metrics_.busy;
  work.peer->Reply(work.request_id, kTypeOf<ErrorReply>, std::move(body));
  Begin(key);
}

Answers::Work Answers::TakeFirst(const Key& key) {
  auto talk = talks_.find(key);
  Work work = std::move(talk->second.works.front());
  talk->second.works.pop_front();
  if (talk->second.works.empty()) talks_.erase(talk);
  bytes_ -= work.bytes;
  auto held = bytes_of_.find(work.peer->client());
  held->second -= work.bytes;
  if (held->second == 0) bytes_of_.erase(held);
  return work;
}

void Answers::GoOn(const Peer& peer) {
  for (size_t i = 0; i < kLanes; ++i) {
    const Key key(&peer, static_cast<Lane>(i));
    if (auto talk = talks_.find(key); talk != talks_.end() && talk->second.is_unread) Begin(key);
  }
}

void Answers::Forget(const Peer& peer) {
  for (size_t i = 0; i < kLanes; ++i) {
    const Key key(&peer, static_cast<Lane>(i));
    auto talk = talks_.find(key);
    if (talk == talks_.end()) continue;
    if (talk->second.ticket && !queues_[i]->Withdraw(*talk->second.ticket)) queues_[i]->Stop(*talk->second.ticket);
    while (talks_.contains(key)) TakeFirst(key);
  }
}

void Answers::Close() {
  for (const std::unique_ptr<FairQueue>& queue : queues_) queue->Close();
  talks_.clear();
}

}  // namespace hone
