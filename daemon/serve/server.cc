#include "daemon/serve/server.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <functional>
#include <unordered_map>
#include <utility>

#include "base/log.h"
#include "daemon/serve/connection.h"

namespace hone {
namespace {

using boost::asio::local::stream_protocol;
constexpr std::chrono::milliseconds kSweepEvery{500};

}  // namespace

struct Server::Impl : std::enable_shared_from_this<Server::Impl> {
  Impl(EventLoop& loop, FrameHandler& handler, Metrics& metrics)
      : loop(loop),
        metrics(metrics),
        context(std::make_shared<ConnectionContext>(loop, handler, metrics)),
        acceptor(loop.context()) {}

  bool IsWelcome(uid_t uid) const {
    return limits.any_user || uid == geteuid() ||
           std::find(limits.users.begin(), limits.users.end(), uid) != limits.users.end();
  }

  // Sees to it that the next client is accepted and the next sweep comes. Either is lost when it finds no memory; then
  // the other one, or the end of a connection, brings it back.
  void GoOn() {
    try {
      if (swept && sweeping.expired()) {
        auto alive = std::make_shared<char>();
        sweeping = alive;
        loop.After(kSweepEvery, [self = shared_from_this(), alive = std::move(alive)]() mutable {
          alive.reset();
          self->Sweep();
        });
      }
      if (acceptor.is_open() && !stopped && accepting.expired()) AcceptNext();
    } catch (const std::bad_alloc&) {}
  }

  // REQUIRES: nothing is being accepted.
  void AcceptNext() {
    auto alive = std::make_shared<char>();
    accepting = alive;
    acceptor.async_accept([self = shared_from_this(), alive = std::move(alive)](
                              const boost::system::error_code& error, stream_protocol::socket socket) mutable {
      alive.reset();
      self->OnAccepted(error, std::move(socket));
    });
  }

  void OnAccepted(const boost::system::error_code& error, stream_protocol::socket socket) {
    if (stopped) return;
    if (std::function<void(bool)> done = std::exchange(if_alone, nullptr)) {
      if (!error) Welcome(std::move(socket));
      return StopIfAlone(done);
    }
    if (error == boost::asio::error::operation_aborted) return;
    if (!error) {
      GoOn();
      return Welcome(std::move(socket));
    }
    // Out of descriptors, most likely: those who are here may leave.
    LogWarn("accept_failed", {{"why", error.message()}});
    MakeRoom([](const ClientId&) { return true; });
    loop.After(std::chrono::milliseconds(50), [self = shared_from_this()] { self->GoOn(); });
  }

  // REQUIRES: nothing is being accepted.
  void StopIfAlone(const std::function<void(bool)>& done) {
    if (!connections.empty()) {
      GoOn();
      return done(false);
    }
    stopped = true;
    boost::system::error_code ignored;
    acceptor.close(ignored);
    done(true);
  }

  void Welcome(stream_protocol::socket socket) {
    ucred peer{};
    socklen_t size = sizeof peer;
    if (getsockopt(socket.native_handle(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || !IsWelcome(peer.uid)) {
      ++metrics.connections_refused;
      LogWarn("connection_refused", {{"uid", peer.uid}, {"pid", peer.pid}});
      return;
    }
    Add(std::move(socket), {peer.uid, peer.pid});
  }

  void Add(stream_protocol::socket socket, const ClientId& client) {
    Shares::Part part = context->connections.Of(client);
    bool has_room = part.TryTake(1);
    if (!has_room) {
      MakeRoom([&](const ClientId& other) {
        return part.holds_nothing() || (part.process_held() > 0 ? other == client : other.uid == client.uid);
      });
      has_room = part.TryTake(1);
    }
    auto connection =
        std::make_shared<Connection>(std::move(socket), client, std::move(part), context, [this](Connection& closed) {
          connections.erase(&closed);
          metrics.connections = static_cast<uint32_t>(connections.size());
          GoOn();
        });
    connections.emplace(connection.get(), connection);
    metrics.connections = static_cast<uint32_t>(connections.size());
    ++metrics.connections_accepted;
    if (has_room) return connection->Start();
    ++metrics.busy;
    connection->Refuse({ErrorKind::kBusy, "too many connections, retry in 1000 ms", "honed"}, 1000);
  }

  // Closes the one that was idle longest of the connections of some clients, if one is idle and waits for nothing.
  void MakeRoom(const std::function<bool(const ClientId&)>& is_of_them) {
    std::shared_ptr<Connection> oldest;
    for (auto& [_, connection] : connections) {
      if (!is_of_them(connection->client())) continue;
      if (!connection->is_idle() || connection->is_kept()) continue;
      if (oldest && oldest->last_active() <= connection->last_active()) continue;
      if (!connection->HasUnread()) oldest = connection;
    }
    if (!oldest) return;
    ++metrics.connections_dropped;
    oldest->Close();
  }

  void Sweep() {
    GoOn();
    context->Sweep();
    auto now = Connection::Clock::now();
    std::vector<std::shared_ptr<Connection>> all;
    for (auto& [_, connection] : connections) all.push_back(connection);
    for (auto& connection : all) {
      const char* overdue = connection->closed() ? nullptr : connection->Overdue(now);
      if (overdue == nullptr) {
        connection->GiveUpHeldBack(now);
        continue;
      }
      LogInfo("connection_dropped", {{"why", overdue}});
      ++metrics.connections_dropped;
      connection->Close();
    }
    GoOn();  // there may be memory now
  }

  // Those of users who were welcome before.
  void CloseUnwelcome() {
    std::vector<std::shared_ptr<Connection>> unwelcome;
    for (auto& [_, connection] : connections)
      if (!IsWelcome(connection->client().uid)) unwelcome.push_back(connection);
    for (auto& connection : unwelcome) {
      LogInfo("connection_dropped", {{"why", "its user is no longer served"}, {"uid", connection->client().uid}});
      ++metrics.connections_dropped;
      connection->Close();
    }
  }

  void CloseAll() {
    while (!connections.empty()) {
      std::shared_ptr<Connection> connection = connections.begin()->second;
      connection->Close();
    }
  }

  void DrainUntil(Connection::Clock::time_point limit, std::function<void()> done) {
    bool idle =
        std::all_of(connections.begin(), connections.end(), [](auto& entry) { return entry.second->is_idle(); });
    if (!idle && Connection::Clock::now() < limit) {
      loop.After(std::chrono::milliseconds(10), [self = shared_from_this(), limit, done = std::move(done)]() mutable {
        self->DrainUntil(limit, std::move(done));
      });
      return;
    }
    swept = false;
    CloseAll();
    done();
  }

  EventLoop& loop;
  Metrics& metrics;
  std::shared_ptr<ConnectionContext> context;  // connections may outlive the server until the loop is gone
  ServerLimits limits;
  stream_protocol::acceptor acceptor;
  std::unordered_map<Connection*, std::shared_ptr<Connection>> connections;
  std::weak_ptr<char> accepting, sweeping;  // expired: no client is being accepted, no sweep will come
  std::function<void(bool)> if_alone;  // what StopAcceptingIfAlone is to call once what is being accepted has ended
  bool stopped = false;
  bool swept = true;
};

Server::Server(EventLoop& loop, FrameHandler& handler, Metrics& metrics, const ServerLimits& limits)
    : impl_(std::make_shared<Impl>(loop, handler, metrics)) {
  SetLimits(limits);
  impl_->GoOn();
}

Server::~Server() {
  StopAccepting();
  impl_->swept = false;
  impl_->CloseAll();
}

void Server::Accept(UniqueFd listening_socket) {
  impl_->acceptor.assign(stream_protocol(), listening_socket.Release());
  impl_->acceptor.native_non_blocking(true);
  impl_->AcceptNext();
}

void Server::Adopt(UniqueFd connected_socket, const ClientId& client) {
  stream_protocol::socket socket(impl_->loop.context());
  socket.assign(stream_protocol(), connected_socket.Release());
  impl_->Add(std::move(socket), client);
}

void Server::SetLimits(const ServerLimits& limits) {
  impl_->limits = limits;
  impl_->CloseUnwelcome();
  ConnectionContext& context = *impl_->context;
  context.limits = {limits.requests, limits.frame_time, limits.stall_time};
  context.connections.SetWhole(limits.connections, limits.several_users());
  context.descriptors.SetWhole(limits.descriptors, limits.several_users());
  context.frame_bytes.SetWhole(limits.frame_bytes, limits.several_users());
}

void Server::StopAccepting() {
  impl_->stopped = true;
  boost::system::error_code ignored;
  impl_->acceptor.close(ignored);
}

void Server::StopAcceptingIfAlone(std::function<void(bool)> done) {
  if (impl_->stopped || impl_->if_alone) return done(false);
  impl_->if_alone = std::move(done);
  // A connection that was accepted and whose handler has not run yet ends the accept as well as this does.
  boost::system::error_code ignored;
  impl_->acceptor.cancel(ignored);
}

void Server::Drain(std::chrono::milliseconds limit, std::function<void()> done) {
  impl_->DrainUntil(Connection::Clock::now() + limit, std::move(done));
}

size_t Server::connections() const { return impl_->connections.size(); }

}  // namespace hone
