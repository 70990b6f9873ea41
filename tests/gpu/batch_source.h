// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "delivery/data_server.h"
#include "delivery/device_layout.h"
#include "delivery/device_memory.h"
#include "delivery/memory_probe.h"
#include "delivery/slots.h"
#include "tests/gpu/stamps.h"

namespace spdld::gpu {

// Stands for the session layer where nothing but delivery can be built: an endless job of made-up
// batches for each consumer, in main memory or, for a consumer that names a GPU, there. No request
// stays without an answer: a client would wait for it until the daemon counts as silent. All on the
// dispatcher's thread but what the GPU's thread tells.
class BatchSource final : public delivery::DataService {
 public:
  struct Options {
    std::uint64_t batch_bytes = 64u << 20;
    bool to_gpus = false;
  };
  // `post` runs a task on the dispatcher's thread, while there is one.
  using Post = std::function<void(std::function<void()>)>;
  explicit BatchSource(Options options) : options_(options) {}
  void set_post(Post post) { post_ = std::move(post); }

  void attach(const delivery::ConnectionPtr& connection, delivery::AttachRequest request) override;
  void release(delivery::Connection& connection, std::uint64_t lease) override;
  void seek(delivery::Connection& connection, const delivery::SeekRequest& request) override;
  void handed(delivery::Connection&, const delivery::HandedNotice&) override {}
  void query(delivery::Connection& connection, const delivery::QueryRequest& request) override;
  void apply(delivery::Connection& connection, const delivery::ApplyWish& wish) override;
  void waited(delivery::Connection&, const delivery::WaitedNotice&) override {}
  void detach(delivery::Connection&) override {}
  void closed(delivery::Connection& connection, delivery::CloseCause cause) override;
  void exited(delivery::Connection& connection) override;

 private:
  struct Session;
  using SessionPtr = std::shared_ptr<Session>;

  Status open(Session& session, const std::string& uuid);
  void pump(const SessionPtr& session);
  void send(Session& session, std::uint32_t slot, std::uint64_t step);
  void copy(const SessionPtr& session, std::uint32_t from, std::uint32_t to, std::uint64_t step);

  const Options options_;
  Post post_;
  delivery::ArenaBudget budget_{std::uint64_t{16} << 30,
                                {.meminfo = "", .self_cgroup = "", .cgroup_root = ""}};
  const std::unique_ptr<delivery::Devices> devices_ =
      delivery::find_devices(std::uint64_t{8} << 30);
  std::map<std::uint64_t, SessionPtr> sessions_;
  std::uint32_t next_arena_ = 1;
};

}  // namespace spdld::gpu
