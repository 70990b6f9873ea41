// SPDX-License-Identifier: Apache-2.0
#include "observe/http_listener.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "delivery/peer.h"
#include "tests/unit/observe/http_client.h"

namespace spdld::observe {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

spec::HttpConfig at(const std::string& address, std::uint16_t port) {
  return {.address = address, .port = port};
}

TEST(HttpListener, TakesConnectionsOverTcp) {
  UniqueFd taken = listen_tcp();
  const std::uint16_t port = port_of(taken.get());
  taken.reset();
  const auto listener = listen_http(at("127.0.0.1", port));
  ASSERT_TRUE(listener) << listener.error().message();
  const HttpClient client(port);
}

TEST(HttpListener, RefusesAPortThatAnotherProcessHas) {
  const UniqueFd taken = listen_tcp();
  const auto config = at("127.0.0.1", port_of(taken.get()));
  const auto listener = listen_http(config);
  ASSERT_FALSE(listener);
  EXPECT_EQ(listener.error().code(), Code::kAlreadyExists);
  EXPECT_THAT(listener.error().message(),
              AllOf(HasSubstr("http.listen"), HasSubstr("use another port")));
  EXPECT_TRUE(check_http(config).ok()) << "it may be the daemon that is there";
}

TEST(HttpListener, RefusesAnAddressOfAnotherMachine) {
  const auto config = at("192.0.2.1", 9464);  // of documentation, and of no machine
  EXPECT_THAT(listen_http(config).error().message(), HasSubstr("this machine has no such address"));
  EXPECT_THAT(check_http(config).message(), HasSubstr("this machine has no such address"));
}

TEST(HttpListener, TakesAUnixSocketOverFromADaemonThatHasDied) {
  const control::TempDir dir;
  const spec::HttpConfig config{.unix_path = dir.socket()};
  ASSERT_TRUE(listen_http(config));  // closed at once: stale now
  const auto listener = listen_http(config);
  ASSERT_TRUE(listener) << listener.error().message();
  EXPECT_TRUE(check_http(config).ok());

  const auto second = listen_http(config);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code(), Code::kAlreadyExists);
  EXPECT_THAT(second.error().message(), AllOf(HasSubstr("http.listen"), HasSubstr(dir.socket())));
  const HttpClient client(dir.socket());  // the first one has stayed
}

TEST(HttpListener, LeavesAloneWhatIsNoSocket) {
  const control::TempDir dir;
  const spec::HttpConfig config{.unix_path = dir.write("file", "precious")};
  EXPECT_THAT(listen_http(config).error().message(), HasSubstr("is no socket"));
  EXPECT_THAT(check_http(config).message(), HasSubstr("is no socket"));
}

TEST(HttpListener, SaysWhichDirectoryIsNotThere) {
  const spec::HttpConfig config{.unix_path = "/no/such/http.sock"};
  EXPECT_THAT(listen_http(config).error().message(), HasSubstr("/no/such/http.sock"));
  EXPECT_THAT(check_http(config).message(), HasSubstr("/no/such"));
}

TEST(HttpListener, ItsFileIsRemovedOnlyWhileItIsTheSame) {
  const control::TempDir dir;
  const spec::HttpConfig config{.unix_path = dir.socket()};
  const auto first = listen_http(config);
  ASSERT_TRUE(first);
  const delivery::SocketFile file = delivery::socket_file_at(config.unix_path);
  ASSERT_EQ(std::rename(dir.socket().c_str(), (dir.socket() + ".gone").c_str()), 0);
  const auto second = listen_http(config);
  ASSERT_TRUE(second);
  delivery::remove_socket(file);
  { const HttpClient client(dir.socket()); }
  delivery::remove_socket(delivery::socket_file_at(config.unix_path));
  EXPECT_TRUE(delivery::socket_file_at(config.unix_path).path.empty());
}

}  // namespace
}  // namespace spdld::observe
