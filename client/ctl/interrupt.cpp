// SPDX-License-Identifier: Apache-2.0
#include "ctl/interrupt.h"

#include <csignal>

namespace spdld::ctl {
namespace {

// What a signal handler may write is an object of static storage.
volatile std::sig_atomic_t g_requested = 0;

void request(int) { g_requested = 1; }

}  // namespace

Interrupt::Interrupt() {
  g_requested = 0;
  std::signal(SIGINT, request);
  std::signal(SIGTERM, request);
}

Interrupt::~Interrupt() {
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
}

bool Interrupt::requested() const { return g_requested != 0; }

}  // namespace spdld::ctl
