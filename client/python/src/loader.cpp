// SPDX-License-Identifier: Apache-2.0
#include "loader.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "cursor_tuple.h"
#include "py_batch.h"
#include "spdld/loader.h"
#include "text.h"
#include "turn.h"
#include "without_gil.h"

namespace nb = nanobind;

namespace spdld::python {
namespace {

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

nb::object as_python(const std::string& value) { return text_of(value); }

// A Python callable that libspdld may keep and call without the GIL. None does nothing.
template <typename... Args>
std::function<void(Args...)> callback(const nb::object& callable) {
  if (callable.is_none()) return {};
  // Dropped with the GIL held, wherever the last copy goes.
  std::shared_ptr<nb::object> held(new nb::object(callable), [](nb::object* object) {
    if (!nb::is_alive()) return;
    const nb::gil_scoped_acquire gil;
    delete object;
  });
  return [held](Args... args) {
    const nb::gil_scoped_acquire gil;
    (*held)(as_python(args)...);
  };
}

// Loader for Python's threads: each call takes its turn and gives the GIL back while libspdld
// works.
class PyLoader {
 public:
  explicit PyLoader(LoaderOptions options) : loader_(Loader::open(std::move(options))) {}
  // Closing, and freeing what is on a device, may wait for a stream, which may wait for another
  // thread of Python's.
  ~PyLoader() {
    if (getpid() != pid_) return;
    without_gil([this] { const Loader gone(std::move(loader_)); });
  }
  PyLoader(const PyLoader&) = delete;
  PyLoader& operator=(const PyLoader&) = delete;

  template <typename F>
  auto reading(F&& call) {
    return with_turn(Turn::For::kReading, std::forward<F>(call));
  }
  template <typename F>
  auto changing(F&& call) {
    return with_turn(Turn::For::kChanging, std::forward<F>(call));
  }
  // Takes no turn.
  void mapped(std::chrono::nanoseconds took) { loader_.mapped(took); }

 private:
  template <typename F>
  auto with_turn(Turn::For purpose, F&& call) {
    // In a forked child the turn may stay with a thread that was not forked; libspdld refuses
    // there.
    if (getpid() != pid_) return call(loader_);
    const Turn::Held turn(turn_, purpose);
    const nb::gil_scoped_release released;
    return call(loader_);
  }

  const pid_t pid_ = getpid();
  Turn turn_;
  Loader loader_;
};

Replace replace_of(const std::string& name) {
  if (name == "always") return Replace::kAlways;
  if (name == "unread") return Replace::kUnread;
  if (name == "never") return Replace::kNever;
  throw nb::value_error("replace is 'never', 'unread' or 'always'");
}

LoaderOptions options_from(
    std::string pipeline, std::optional<std::string> job, std::optional<std::int32_t> rank,
    std::optional<std::int32_t> world_size, std::optional<std::int32_t> shard,
    std::optional<std::int32_t> num_shards, std::optional<std::int32_t> replica,
    std::int32_t replicas, std::optional<std::int64_t> seed, std::optional<std::int64_t> batch_size,
    std::map<std::string, std::string> vars, std::string pipeline_yaml, std::string pipeline_file,
    const std::string& replace, std::map<std::string, std::string> env, bool ledger,
    std::optional<std::uint32_t> prefetch, std::string device, std::string address,
    double timeout_s, double connect_timeout_s, std::string client_name, const nb::object& on_wait,
    const nb::object& on_notice, const nb::object& on_unreachable,
    const nb::object& start_runners) {
  LoaderOptions options;
  options.pipeline = std::move(pipeline);
  options.job = std::move(job);
  options.rank = rank;
  options.world_size = world_size;
  options.shard = shard;
  options.num_shards = num_shards;
  options.replica = replica;
  options.replicas = replicas;
  options.seed = seed;
  options.batch_size = batch_size;
  options.vars = std::move(vars);
  options.pipeline_yaml = std::move(pipeline_yaml);
  options.pipeline_file = std::move(pipeline_file);
  options.replace = replace_of(replace);
  options.env = std::move(env);
  options.start = ledger ? Start::kLedger : Start::kFresh;
  options.prefetch = prefetch;
  options.device = std::move(device);
  options.address = std::move(address);
  options.timeout = milliseconds(timeout_s);
  options.connect_timeout = milliseconds(connect_timeout_s);
  options.client_name = std::move(client_name);
  options.on_notice = callback<const std::string&>(on_notice);
  options.on_unreachable = callback<const std::string&>(on_unreachable);
  options.start_runners = callback<const std::string&>(start_runners);
  // Signals first, so that Ctrl-C ends the wait even if the caller's own check never returns.
  options.on_wait = [check = callback<>(on_wait)] {
    {
      const nb::gil_scoped_acquire gil;
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
    }
    if (check) check();
  };
  return options;
}

// Steps of an epoch, items, rows of a batch, version of the pipeline.
using FactsTuple = std::tuple<std::uint64_t, std::uint64_t, std::uint64_t, std::uint32_t>;

FactsTuple facts_of(Loader& loader) {
  return {loader.steps_per_epoch(), loader.items(), loader.batch_size(), loader.pipeline_version()};
}

ApplyOptions apply_options(const std::string& at, std::uint64_t epoch, std::uint64_t step,
                           bool allow_schema_change) {
  ApplyOptions options;
  if (at == "now") {
    options.at = ApplyAt::kNow;
  } else if (at == "step") {
    options.at = ApplyAt::kStep;
  } else if (at != "next-epoch") {
    throw nb::value_error("at is 'now', 'next-epoch' or 'step'");
  }
  options.epoch = epoch;
  options.step = step;
  options.allow_schema_change = allow_schema_change;
  return options;
}

}  // namespace

void bind_loader(nb::module_& module) {
  nb::class_<PyLoader>(module, "Loader", nb::is_weak_referenceable(),
                       "libspdld's loader; spdld.Loader is its face.")
      .def(
          "__init__",
          [](PyLoader* self, std::string pipeline, std::optional<std::string> job,
             std::optional<std::int32_t> rank, std::optional<std::int32_t> world_size,
             std::optional<std::int32_t> shard, std::optional<std::int32_t> num_shards,
             std::optional<std::int32_t> replica, std::int32_t replicas,
             std::optional<std::int64_t> seed, std::optional<std::int64_t> batch_size,
             std::map<std::string, std::string> vars, std::string pipeline_yaml,
             std::string pipeline_file, const std::string& replace,
             std::map<std::string, std::string> env, bool ledger,
             std::optional<std::uint32_t> prefetch, std::string device, std::string address,
             double timeout_s, double connect_timeout_s, std::string client_name,
             nb::object on_wait, nb::object on_notice, nb::object on_unreachable,
             nb::object start_runners) {
            new (self) PyLoader(options_from(
                std::move(pipeline), std::move(job), rank, world_size, shard, num_shards, replica,
                replicas, seed, batch_size, std::move(vars), std::move(pipeline_yaml),
                std::move(pipeline_file), replace, std::move(env), ledger, prefetch,
                std::move(device), std::move(address), timeout_s, connect_timeout_s,
                std::move(client_name), on_wait, on_notice, on_unreachable, start_runners));
          },
          nb::arg("pipeline"), nb::kw_only(), nb::arg("job").none(), nb::arg("rank").none(),
          nb::arg("world_size").none(), nb::arg("shard").none(), nb::arg("num_shards").none(),
          nb::arg("replica").none(), nb::arg("replicas"), nb::arg("seed").none(),
          nb::arg("batch_size").none(), nb::arg("vars"), nb::arg("pipeline_yaml"),
          nb::arg("pipeline_file"), nb::arg("replace"), nb::arg("env"), nb::arg("ledger"),
          nb::arg("prefetch").none(), nb::arg("device"), nb::arg("address"), nb::arg("timeout_s"),
          nb::arg("connect_timeout_s"), nb::arg("client_name"), nb::arg("on_wait").none(),
          nb::arg("on_notice").none(), nb::arg("on_unreachable").none(),
          nb::arg("start_runners").none())
      .def("next",
           [](PyLoader& self) -> nb::object {
             std::optional<Batch> batch =
                 self.changing([](Loader& loader) { return loader.next(); });
             if (!batch) return nb::none();
             return nb::cast(PyBatch(*std::move(batch)));
           })
      .def("next_ahead",
           [](PyLoader& self) {
             bool asks = false;
             std::optional<Batch> batch =
                 self.changing([&](Loader& loader) { return loader.next_ahead(asks); });
             nb::object given = batch ? nb::cast(PyBatch(*std::move(batch))) : nb::none();
             return std::make_tuple(std::move(given), asks);
           })
      .def("handed",
           [](PyLoader& self, std::uint64_t turn) {
             self.changing([=](Loader& loader) { loader.handed(turn); });
           })
      .def("mapped", [](PyLoader& self,
                        std::int64_t took_ns) { self.mapped(std::chrono::nanoseconds(took_ns)); })
      .def("set_epoch",
           [](PyLoader& self, std::uint64_t epoch) {
             self.changing([=](Loader& loader) { loader.set_epoch(epoch); });
           })
      .def_prop_ro("epoch",
                   [](PyLoader& self) {
                     return self.reading([](Loader& loader) { return loader.epoch(); });
                   })
      .def_prop_ro("attached",
                   [](PyLoader& self) {
                     // It stays so: the daemon has said where it begins.
                     return self.reading([](Loader& loader) { return loader.stats().credits > 0; });
                   })
      .def("state",
           [](PyLoader& self) {
             return self.reading([](Loader& loader) { return cursor_tuple(loader.state()); });
           })
      .def("place",
           [](PyLoader& self) {
             return self.changing([](Loader& loader) {
               FactsTuple facts = facts_of(loader);  // attaches: the cursor may be known only then
               return std::make_tuple(cursor_tuple(loader.state()), facts);
             });
           })
      .def("facts",
           [](PyLoader& self) {
             return self.changing([](Loader& loader) { return facts_of(loader); });
           })
      .def("skip_steps",
           [](PyLoader& self, std::uint64_t steps) {
             self.changing([=](Loader& loader) { loader.skip_steps(steps); });
           })
      .def(
          "apply",
          [](PyLoader& self, const std::map<std::string, std::string>& vars, const std::string& at,
             std::uint64_t epoch, std::uint64_t step, bool allow_schema_change) {
            const ApplyOptions options = apply_options(at, epoch, step, allow_schema_change);
            const Applied applied =
                self.changing([&](Loader& loader) { return loader.apply(vars, options); });
            return std::make_tuple(applied.version, applied.epoch, applied.step, applied.tuned);
          },
          nb::arg("vars"), nb::kw_only(), nb::arg("at"), nb::arg("epoch"), nb::arg("step"),
          nb::arg("allow_schema_change"))
      .def("load_state",
           [](PyLoader& self, const CursorTuple& state) {
             Cursor cursor;
             std::tie(cursor.order_digest, cursor.seed, cursor.epoch, cursor.position, cursor.step,
                      cursor.run, cursor.branch, cursor.turn) = state;
             self.changing([&](Loader& loader) { loader.load_state(cursor); });
           })
      .def("classes",
           [](PyLoader& self) {
             const auto names = self.changing(
                 [](Loader& loader) { return std::vector<std::string>(loader.classes()); });
             nb::list classes;
             for (const std::string& name : names) classes.append(text_of(name));
             return classes;
           })
      .def(
          "uris",
          [](PyLoader& self, const std::vector<std::int64_t>& indices,
             const std::string& order_digest) {
            const auto names =
                self.changing([&](Loader& loader) { return loader.uris(indices, order_digest); });
            nb::list uris;
            for (const std::string& name : names) uris.append(text_of(name));
            return uris;
          },
          nb::arg("indices"), nb::arg("order_digest"))
      .def("fingerprint",
           [](PyLoader& self) {
             return self.changing([](Loader& loader) { return loader.fingerprint(); });
           })
      .def("server_stats",
           [](PyLoader& self) {
             return self.changing([](Loader& loader) { return loader.server_stats(); });
           })
      .def("stats",
           [](PyLoader& self) {
             const LoaderStats stats = self.reading([](Loader& loader) { return loader.stats(); });
             nb::dict result;
             result["batches"] = stats.batches;
             result["waits"] = stats.waits;
             result["waited_s"] = std::chrono::duration<double>(stats.waited).count();
             result["between_s"] = std::chrono::duration<double>(stats.between).count();
             result["map_s"] = std::chrono::duration<double>(stats.mapped).count();
             result["reconnects"] = stats.reconnects;
             result["held"] = stats.held;
             result["credits"] = stats.credits;
             result["delivery"] = stats.delivery;
             result["staged"] = stats.staged;
             result["staged_why"] = stats.staged_why;
             return result;
           })
      .def_prop_ro("shard",
                   [](PyLoader& self) {
                     return self.reading([](Loader& loader) { return loader.shard(); });
                   })
      .def_prop_ro("num_shards",
                   [](PyLoader& self) {
                     return self.reading([](Loader& loader) { return loader.num_shards(); });
                   })
      .def_prop_ro("job",
                   [](PyLoader& self) {
                     return self.reading([](Loader& loader) { return std::string(loader.job()); });
                   })
      .def_prop_ro(
          "placed_by",
          [](PyLoader& self) {
            return self.reading([](Loader& loader) { return std::string(loader.placed_by()); });
          })
      .def_prop_ro(
          "address",
          [](PyLoader& self) {
            return self.reading([](Loader& loader) { return std::string(loader.address()); });
          })
      .def_prop_ro("closed",
                   [](PyLoader& self) {
                     return self.reading([](Loader& loader) { return loader.closed(); });
                   })
      .def("close", [](PyLoader& self) { self.changing([](Loader& loader) { loader.close(); }); });
}

}  // namespace spdld::python
