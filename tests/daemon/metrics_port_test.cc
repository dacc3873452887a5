// The port that Prometheus fetches from: whom it serves, and what those cost who stall.
#include "daemon/metrics_port.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include "tests/daemon/test_server.h"

namespace hone {
namespace {

using namespace std::chrono_literals;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using testing::LoopThread;
using ::testing::StartsWith;
using testing::TestServer;

TEST(ParseLoopbackPort, TakesTheLoopbackAlone) {
  for (const char* text : {"127.0.0.1:9464", "127.8.9.10:1", "[::1]:65535", "127.0.0.1:0"})
    EXPECT_TRUE(ParseLoopbackPort(text)) << text;
  EXPECT_EQ(ParseLoopbackPort("[::1]:80")->address, "::1");
  for (const char* text : {"", "9464", ":9464", "0.0.0.0:9464", "[::]:9464", "192.168.1.1:9464", "localhost:9464",
                           "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:-1", "127.0.0.1:80x", "::1:80",
                           "[127.0.0.1]:80", "[::ffff:8.8.8.8]:80", "1:9464"})
    EXPECT_FALSE(ParseLoopbackPort(text)) << text;
}

class MetricsPortTest : public ::testing::Test {
 protected:
  MetricsPortTest() {
    loop_.Do([&] {
      Result<std::unique_ptr<MetricsPort>> opened = MetricsPort::Open(
          loop_.loop, {"127.0.0.1", 0}, [this](std::function<void(MetricsPort::Text)> made) { made(text_); },
          {.connections = 4, .request_bytes = 1024, .time = 300ms});
      ASSERT_TRUE(opened) << opened.error().Text();
      port_ = *std::move(opened);
    });
  }
  ~MetricsPortTest() override {
    loop_.Do([&] { port_.reset(); });
    loop_.Stop();
  }

  UniqueFd Dial() {
    UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int small = 4096;
    setsockopt(socket.get(), SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    timeval limit{5, 0};
    setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port_->port());
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    return socket;
  }
  static void Send(const UniqueFd& socket, std::string_view bytes) {
    EXPECT_EQ(send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }
  // Until the other side ends.
  static std::string Receive(const UniqueFd& socket) {
    std::string all;
    char part[4096];
    for (ssize_t got; (got = recv(socket.get(), part, sizeof part, 0)) > 0;) all.append(part, static_cast<size_t>(got));
    return all;
  }
  std::string Get(std::string_view request) {
    UniqueFd socket = Dial();
    Send(socket, request);
    return Receive(socket);
  }
  size_t connections() {
    size_t count = 0;
    loop_.Do([&] { count = port_->connections(); });
    return count;
  }

  LoopThread loop_;
  MetricsPort::Text text_ = "hone_misses_total 3\n";
  std::unique_ptr<MetricsPort> port_;
};

TEST_F(MetricsPortTest, AnswersWhatPrometheusAsks) {
  const std::string answer = Get("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4"));
  EXPECT_THAT(answer, HasSubstr("\r\nContent-Length: 20\r\n"));
  EXPECT_THAT(answer, EndsWith("\r\n\r\nhone_misses_total 3\n"));
  EXPECT_THAT(Get("GET /metrics?name=x HTTP/1.0\r\n\r\n"), StartsWith("HTTP/1.1 200"));
}

TEST_F(MetricsPortTest, RefusesEverythingElse) {
  EXPECT_THAT(Get("GET / HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(Get("GET /metricsandmore HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(Get("GET \r\n\r\n"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(Get("POST /metrics HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 405"));
  EXPECT_THAT(Get("\r\n\r\n"), StartsWith("HTTP/1.1 405"));
  EXPECT_THAT(Get(std::string(1024, 'x')), StartsWith("HTTP/1.1 431"));
  loop_.Do([&] { text_ = std::nullopt; });
  EXPECT_THAT(Get("GET /metrics HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 503"));
}

TEST_F(MetricsPortTest, WhoStallsIsClosed) {
  UniqueFd silent = Dial(), slow = Dial();
  loop_.Do([&] { text_ = std::string(64 << 20, 'x'); });
  Send(silent, "GET /met");
  Send(slow, "GET /metrics HTTP/1.1\r\n\r\n");
  EXPECT_TRUE(TestServer::Eventually([&] { return connections() == 2; }));
  const auto begun = std::chrono::steady_clock::now();
  EXPECT_TRUE(TestServer::Eventually([&] { return connections() == 0; }));
  EXPECT_LT(std::chrono::steady_clock::now() - begun, 3s);
  EXPECT_EQ(Receive(silent), "");
  EXPECT_LT(Receive(slow).size(), 64u << 20);
}

TEST_F(MetricsPortTest, ThoseWhoStallMakeRoom) {
  std::vector<UniqueFd> stalled;
  for (int i = 0; i < 20; ++i) stalled.push_back(Dial());
  EXPECT_THAT(Get("GET /metrics HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 200"));
  EXPECT_LE(connections(), 4u);
}

TEST_F(MetricsPortTest, APortThatIsTakenIsSaid) {
  loop_.Do([&] {
    auto second = MetricsPort::Open(loop_.loop, {"127.0.0.1", port_->port()}, {});
    ASSERT_FALSE(second);
    EXPECT_THAT(second.error().Text(), HasSubstr("cannot listen for metrics"));
  });
}

}  // namespace
}  // namespace hone
