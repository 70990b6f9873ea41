// SPDX-License-Identifier: Apache-2.0
#include "observe/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <list>
#include <stdexcept>

#include "tests/unit/observe/http_client.h"

namespace spdld::observe {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;
using namespace std::chrono_literals;

constexpr std::size_t kLarge = 64u << 20;  // more than sockets keep

std::string who(const std::optional<Peer>& peer) {
  return peer ? "uid " + std::to_string(peer->uid) : "nobody";
}

HttpPages some_pages() {
  HttpPages pages;
  pages["/who"] = [](const auto& peer) { return http_page(who(peer)); };
  pages["/no"] = [](const auto&) { return http_page("not now", 503); };
  pages["/fails"] = [](const auto&) -> HttpPage { throw std::runtime_error("no memory"); };
  pages["/large"] = [text = std::make_shared<const std::string>(kLarge, 'x')](const auto&) {
    return HttpPage{.text = text};
  };
  return pages;
}

class HttpServerTest : public ::testing::Test {
 protected:
  void start(const HttpOptions& options) {
    UniqueFd listener = listen_tcp();
    port_ = port_of(listener.get());
    server_ = std::move(*HttpServer::start(std::move(listener), some_pages(), options));
  }
  std::string get(const std::string& path) { return HttpClient(port_).get(path); }
  void expect_still_serves() { EXPECT_EQ(body_of(get("/who")), "nobody"); }

  std::uint16_t port_ = 0;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, AnswersAndClosesTheConnection) {
  start({});
  const std::string answer = get("/who");
  EXPECT_EQ(status_line(answer), "HTTP/1.1 200 OK");
  EXPECT_THAT(answer, HasSubstr("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
  EXPECT_THAT(answer, HasSubstr("Connection: close\r\n"));
  EXPECT_EQ(body_of(answer), "nobody");
}

TEST_F(HttpServerTest, KnowsTheUserOfAUnixSocket) {
  const control::TempDir dir;
  UniqueFd listener = control::listen_at(dir.socket());
  const auto server = std::move(*HttpServer::start(std::move(listener), some_pages()));
  EXPECT_EQ(body_of(HttpClient(dir.socket()).get("/who")), "uid " + std::to_string(::getuid()));
}

TEST_F(HttpServerTest, SendsThePagesOwnStatus) {
  start({});
  const std::string answer = get("/no");
  EXPECT_EQ(status_line(answer), "HTTP/1.1 503 Service Unavailable");
  EXPECT_EQ(body_of(answer), "not now");
}

TEST_F(HttpServerTest, SaysWhichPagesThereAre) {
  start({});
  for (const std::string path : {"/", "/who/", "//who", "/../who", "/%00", "/metrics"}) {
    const std::string answer = get(path);
    EXPECT_EQ(status_line(answer), "HTTP/1.1 404 Not Found") << path;
    EXPECT_THAT(body_of(answer), HasSubstr("/who\n")) << path;
  }
  EXPECT_EQ(body_of(get("/who?a=b")), "nobody");
}

TEST_F(HttpServerTest, AnswersHeadWithoutABody) {
  start({});
  const std::string answer = HttpClient(port_).ask("HEAD /who HTTP/1.1\r\nHost: here\r\n\r\n");
  EXPECT_EQ(status_line(answer), "HTTP/1.1 200 OK");
  EXPECT_THAT(answer, HasSubstr("Content-Length: 6\r\n"));
  EXPECT_EQ(body_of(answer), "");
}

TEST_F(HttpServerTest, RefusesOtherMethodsWithoutReadingTheirBody) {
  start({});
  for (const std::string method :
       {"POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "what"}) {
    const std::string answer = HttpClient(port_).ask(
        method + " /who HTTP/1.1\r\nHost: here\r\nContent-Length: 99999999999\r\n\r\n");
    EXPECT_EQ(status_line(answer), "HTTP/1.1 405 Method Not Allowed") << method;
    EXPECT_THAT(answer, HasSubstr("Allow: GET, HEAD\r\n")) << method;
  }
  expect_still_serves();
}

TEST_F(HttpServerTest, AnswersOldClients) {
  start({});
  EXPECT_EQ(body_of(HttpClient(port_).ask("GET /who HTTP/1.0\r\n\r\n")), "nobody");
}

TEST_F(HttpServerTest, ClosesWhatIsNoHttp) {
  start({.lifetime = 200ms});  // some of it is a request that has not ended
  const std::string garbage[] = {
      {'\x16', '\x03', '\x01', '\0', '\x20', '\x01', '\0', '\n', '\r', '\n'},  // begins as TLS does
      "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
      std::string(4, '\0') + "\r\n\r\n",
      "GET\r\n\r\n",
      "GET /who\r\n\r\n",
      "GET /who HTTP/9.9\r\n\r\n",
      "GET /who HTTP/1.1\r\nno colon\r\n\r\n",
      "GET /who HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
      std::string(7000, '\xff') + "\r\n\r\n"};
  for (const std::string& bytes : garbage) {
    const std::string answer = HttpClient(port_).ask(bytes);
    EXPECT_THAT(answer.substr(0, 10),
                AnyOf(IsEmpty(), StartsWith("HTTP/1.1 4"), StartsWith("HTTP/1.1 5")))
        << bytes;
  }
  expect_still_serves();
}

TEST_F(HttpServerTest, RefusesRequestsBeyondItsBound) {
  start({.max_request_bytes = 4096});
  const std::string many(100'000, 'a');
  const std::string requests[] = {"GET /" + many + " HTTP/1.1\r\nHost: here\r\n\r\n",
                                  "GET /who HTTP/1.1\r\nHost: " + many + "\r\n\r\n", many};
  for (const std::string& request : requests) {
    const std::string answer = HttpClient(port_).ask(request);
    // What was sent beyond the bound and not read may cost the client the answer.
    EXPECT_THAT(answer.substr(0, 10), AnyOf(IsEmpty(), StartsWith("HTTP/1.1 4")));
  }
  expect_still_serves();
}

TEST_F(HttpServerTest, AnswersTheFirstOfManyRequestsAlone) {
  start({});
  HttpClient client(port_);
  std::string requests;
  for (int i = 0; i < 100; ++i) requests += "GET /who HTTP/1.1\r\nHost: here\r\n\r\n";
  client.send(requests);
  const std::string answer = client.rest();
  EXPECT_EQ(answer.find("HTTP/1.1"), answer.rfind("HTTP/1.1"));
  expect_still_serves();
}

TEST_F(HttpServerTest, ClosesTheConnectionOfAPageThatFails) {
  start({});
  EXPECT_EQ(get("/fails"), "");
  expect_still_serves();
}

TEST_F(HttpServerTest, EndsAConnectionThatDrips) {
  start({.lifetime = 200ms});
  HttpClient client(port_);
  client.send("GET /who HTTP/1.1\r\nX: ");
  while (client.send("a") && !client.ends_within(5)) {
  }
  expect_still_serves();
}

TEST_F(HttpServerTest, EndsAConnectionThatDoesNothing) {
  start({.lifetime = 200ms});
  EXPECT_EQ(HttpClient(port_).rest(), "");
}

TEST_F(HttpServerTest, EndsAConnectionThatDoesNotReadItsAnswer) {
  start({.max_connections = 2, .lifetime = 200ms});
  HttpClient client(port_);
  ASSERT_TRUE(client.send("GET /large HTTP/1.1\r\nHost: here\r\n\r\n"));
  // The server ends this one, which came later.
  EXPECT_EQ(HttpClient(port_).rest(), "");
  expect_still_serves();
  EXPECT_LT(client.rest().size(), kLarge);
}

TEST_F(HttpServerTest, SendsAPageThatIsLargerThanSocketsKeep) {
  start({});
  EXPECT_EQ(body_of(get("/large")).size(), kLarge);
}

TEST_F(HttpServerTest, AnswersBesideAHundredIdleConnections) {
  start({.max_connections = 8, .lifetime = 1h});
  std::list<HttpClient> idle;
  for (int i = 0; i < 100; ++i) {
    idle.emplace_back(port_);
    if (i % 3 == 0) idle.back().send("GET /who HTTP/1.1\r\nX: ");
    if (i % 10 == 0) expect_still_serves();
  }
  expect_still_serves();
  int open = 0;
  for (HttpClient& client : idle) open += client.ends_within(0) ? 0 : 1;
  EXPECT_LE(open, 8);
  EXPECT_GE(open, 1);
}

TEST_F(HttpServerTest, TakesThePlaceOfTheAddressThatHasMost) {
  start({.max_connections = 4, .lifetime = 1h});
  HttpClient other(port_, "127.0.0.2");
  std::list<HttpClient> flood;
  for (int i = 0; i < 50; ++i) flood.emplace_back(port_);
  expect_still_serves();
  EXPECT_EQ(body_of(other.get("/who")), "nobody");
}

TEST_F(HttpServerTest, ClosesItsConnectionsWhenItStops) {
  start({.lifetime = 1h});
  HttpClient client(port_);
  client.send("GET /who");
  expect_still_serves();
  server_->stop();
  EXPECT_EQ(client.rest(), "");
  server_->stop();
}

}  // namespace
}  // namespace spdld::observe
