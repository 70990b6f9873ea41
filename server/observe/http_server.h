// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/status.h"
#include "base/users/credentials.h"
#include "posix/unique_fd.h"

namespace spdld::observe {

struct HttpPage {
  unsigned status = 200;
  std::shared_ptr<const std::string> text;  // shared: many may be sent one
};

inline HttpPage http_page(std::string text, unsigned status = 200) {
  return {.status = status, .text = std::make_shared<const std::string>(std::move(text))};
}

// By path: makes the page for a peer, which over TCP is not known. The server's thread calls them.
using HttpPages = std::map<std::string, std::function<HttpPage(const std::optional<Peer>& peer)>>;

struct HttpOptions {
  std::size_t max_connections = 64;
  std::size_t max_request_bytes = 8192;
  std::chrono::milliseconds lifetime{10'000};  // of a connection, until its answer has been read
};

// Answers GET and HEAD for some pages. One thread, "spdld-http", accepts, reads and answers; it
// waits for no peer. A connection has one answer and is closed. What peers can take is bounded: by
// the options, and by a page's text for each connection. Where all connections are taken, a new
// one takes the place of the oldest of the user or address that has most. So a peer that hangs or
// floods costs others nothing.
//
// States: serving, then stopped for good. start, stop and the destructor are for one thread.
class HttpServer {
 public:
  // `listener` is a stream socket of Unix or of TCP. What `pages` use outlives the server.
  static Result<std::unique_ptr<HttpServer>> start(UniqueFd listener, HttpPages pages,
                                                   const HttpOptions& options = {});
  ~HttpServer();

  // Closes all connections. Idempotent.
  void stop();

 private:
  struct Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace spdld::observe
