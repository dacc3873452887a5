#include "daemon/metrics_port.h"

#include <fmt/format.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/streambuf.hpp>
#include <boost/asio/write.hpp>
#include <charconv>
#include <list>
#include <utility>

#include "base/log.h"
#include "client/protocol/prometheus.h"

namespace hone {
namespace {

using boost::asio::ip::tcp;
using boost::system::error_code;
constexpr std::chrono::milliseconds kAfterAnError{100};

std::string Answer(std::string_view status, std::string_view type, std::string_view body) {
  return fmt::format("HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}", status,
                     type, body.size(), body);
}

std::string Refusal(std::string_view status) { return Answer(status, "text/plain", fmt::format("{}\n", status)); }

}  // namespace

std::optional<LoopbackPort> ParseLoopbackPort(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return std::nullopt;
  std::string_view host = text.substr(0, colon), digits = text.substr(colon + 1);
  const bool is_v6 = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (is_v6) host = host.substr(1, host.size() - 2);
  error_code wrong;
  const auto address = boost::asio::ip::make_address(std::string(host), wrong);
  if (wrong || !address.is_loopback() || address.is_v6() != is_v6) return std::nullopt;
  uint16_t port = 0;
  auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (code != std::errc() || end != digits.data() + digits.size() || digits.empty()) return std::nullopt;
  return LoopbackPort{std::string(host), port};
}

struct MetricsPort::Impl : std::enable_shared_from_this<Impl> {
  Impl(EventLoop& loop, Make make, const MetricsPortLimits& limits)
      : loop(loop), make(std::move(make)), limits(limits), acceptor(loop.context()) {}

  struct Connection {
    Connection(EventLoop& loop, tcp::socket socket, size_t bytes)
        : socket(std::move(socket)), timer(loop), request(bytes) {}
    tcp::socket socket;
    LoopTimer timer;
    boost::asio::streambuf request;  // what does not fit is an error
    std::string answer;
  };
  using ConnectionPtr = std::shared_ptr<Connection>;

  void AcceptNext() {
    acceptor.async_accept([self = shared_from_this()](const error_code& error, tcp::socket socket) {
      if (self->closed) return;
      if (!error) {
        self->Welcome(std::move(socket));
        return self->AcceptNext();
      }
      self->loop.After(kAfterAnError, [self] {
        if (!self->closed) self->AcceptNext();
      });
    });
  }

  void Welcome(tcp::socket socket) {
    if (connections.size() >= limits.connections) Close(ConnectionPtr(connections.front()));
    auto connection = std::make_shared<Connection>(loop, std::move(socket), limits.request_bytes);
    connections.push_back(connection);
    connection->timer.Set(std::chrono::steady_clock::now() + limits.time,
                          [self = weak_from_this(), weak = std::weak_ptr(connection)] {
                            ConnectionPtr late = weak.lock();
                            if (std::shared_ptr<Impl> impl = self.lock(); impl && late) impl->Close(late);
                          });
    boost::asio::async_read_until(connection->socket, connection->request, "\r\n\r\n",
                                  [self = shared_from_this(), connection](const error_code& error, size_t) {
                                    if (error == boost::asio::error::not_found)
                                      return self->Send(connection, Refusal("431 Request Header Fields Too Large"));
                                    if (error) return self->Close(connection);
                                    self->Read(connection);
                                  });
  }

  void Read(const ConnectionPtr& connection) {
    const auto data = connection->request.data();
    const std::string_view request(static_cast<const char*>(data.data()), data.size());
    const std::string_view line = request.substr(0, request.find("\r\n"));
    if (!line.starts_with("GET ")) return Send(connection, Refusal("405 Method Not Allowed"));
    std::string_view path = line.substr(4, line.find(' ', 4) - 4);
    if (path.substr(0, path.find('?')) != "/metrics") return Send(connection, Refusal("404 Not Found"));
    make([self = shared_from_this(), connection](Text text) {
      if (!connection->socket.is_open()) return;
      self->Send(connection, text ? Answer("200 OK", kPrometheusType, *text) : Refusal("503 Service Unavailable"));
    });
  }

  void Send(const ConnectionPtr& connection, std::string answer) {
    connection->answer = std::move(answer);
    boost::asio::async_write(connection->socket, boost::asio::buffer(connection->answer),
                             [self = shared_from_this(), connection](const error_code&, size_t) {
                               error_code ignored;
                               connection->socket.shutdown(tcp::socket::shutdown_send, ignored);
                               self->Close(connection);
                             });
  }

  void Close(const ConnectionPtr& connection) {
    error_code ignored;
    connection->socket.close(ignored);
    connections.remove(connection);
  }

  EventLoop& loop;
  const Make make;
  const MetricsPortLimits limits;
  tcp::acceptor acceptor;
  std::list<ConnectionPtr> connections;  // the oldest first
  bool closed = false;
};

Result<std::unique_ptr<MetricsPort>> MetricsPort::Open(EventLoop& loop, const LoopbackPort& where, Make make,
                                                       const MetricsPortLimits& limits) {
  auto impl = std::make_shared<Impl>(loop, std::move(make), limits);
  error_code error;
  const tcp::endpoint endpoint(boost::asio::ip::make_address(where.address, error), where.port);
  if (!error) impl->acceptor.open(endpoint.protocol(), error);
  if (!error) impl->acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) impl->acceptor.bind(endpoint, error);
  if (!error) impl->acceptor.listen(16, error);
  if (error)
    return Error{ErrorKind::kIo, "cannot listen for metrics: " + error.message(),
                 fmt::format("{}:{}", where.address, where.port)};
  impl->AcceptNext();
  return std::unique_ptr<MetricsPort>(new MetricsPort(std::move(impl)));
}

MetricsPort::~MetricsPort() {
  impl_->closed = true;
  error_code ignored;
  impl_->acceptor.close(ignored);
  while (!impl_->connections.empty()) impl_->Close(Impl::ConnectionPtr(impl_->connections.front()));
}

uint16_t MetricsPort::port() const {
  error_code ignored;
  return impl_->acceptor.local_endpoint(ignored).port();
}

size_t MetricsPort::connections() const { return impl_->connections.size(); }

}  // namespace hone
