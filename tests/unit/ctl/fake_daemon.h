// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "control/control_server.h"
#include "ctl/spdlctl.h"
#include "tests/unit/control/fake_service.h"
#include "tests/unit/control/temp_socket.h"

namespace spdld::ctl {

// What one run of spdlctl came to.
struct Outcome {
  int exit_code = -1;
  std::string out;
  std::string err;
};

inline Outcome spdlctl(const std::vector<std::string>& arguments) {
  std::ostringstream out;
  std::ostringstream err;
  const int exit_code = run(arguments, out, err);
  return {exit_code, out.str(), err.str()};
}

// The real gRPC server over a fake service, in a runtime directory of its own.
struct FakeDaemon {
  control::TempDir dir;
  control::FakeService service;
  std::unique_ptr<control::ControlServer> server;

  const std::string& path() const { return dir.path(); }

  void start() {
    auto started = control::ControlServer::start(control::listen_at(dir.socket()), service);
    ASSERT_TRUE(started) << started.error().message();
    server = std::move(*started);
  }

  // As a crash looks from outside: nobody listens any more. Not from within a call of its own.
  void die() {
    server.reset();
    std::error_code ignored;
    std::filesystem::remove(dir.socket(), ignored);
  }

  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(dir.path() + "/" + name) << text;
    return dir.path() + "/" + name;
  }
};

}  // namespace spdld::ctl
