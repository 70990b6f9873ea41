// SPDX-License-Identifier: Apache-2.0
#include "ctl/listing.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text/counted.h"

namespace spdld::ctl {
namespace {

template <typename T>
std::string number(T value) {
  return std::to_string(value);
}

// The ROWS/S column, of any message that has a rate.
template <typename Message>
std::string rows_per_s(const Message& message) {
  return message.has_rows_per_s() ? show_rate(message.rows_per_s()) : "-";
}

// The OUTCOME column: what the job did about the failure.
std::string show_outcome(const v1::Failure& failure) {
  if (failure.ended_stream()) return "shard ended";
  return failure.has_replaced_by() ? fmt::format("replaced by {}", failure.replaced_by()) : "-";
}

std::string show_state(const v1::Pipeline& pipeline) {
  if (pipeline.state() == "indexing")
    return fmt::format("indexing ({} so far)", pipeline.indexed());
  if (pipeline.error().empty()) return pipeline.state();
  return pipeline.state() + ": " + pipeline.error();
}

// Connections and slots, in two lines.
void print_data_plane(const v1::DataPlane& data, std::ostream& out) {
  out << fmt::format(
      "consumers  {} open, {} taken since the start, {} refused, {} dropped for what they sent or "
      "did not read\n",
      counted(data.connections(), "connection"), data.accepted(), data.refused(),
      data.protocol_errors() + data.overflows() + data.hello_timeouts());
  out << fmt::format("slots      {} free, {} being made, {} ready, {} being read, {} retired\n",
                     data.slots_free(), data.slots_loaned(), data.slots_ready(),
                     data.slots_leased(), data.slots_retired());
}

}  // namespace

std::string show_tensor(const v1::Tensor& tensor) {
  if (tensor.kind() == "bytes") return tensor.text() ? "text" : "bytes";
  std::string shape;
  for (const std::int64_t extent : tensor.shape()) {
    if (!shape.empty()) shape += ", ";
    shape += extent < 0 ? "?" : std::to_string(extent);
  }
  return tensor.dtype() + "[" + shape + "]";
}

Table pipelines_table(const google::protobuf::RepeatedPtrField<v1::Pipeline>& pipelines) {
  Table table({"NAME", ">VERSION", ">ITEMS", ">CLASSES", ">BATCH", ">JOBS", "TENSORS", "STATE"});
  for (const v1::Pipeline& pipeline : pipelines) {
    std::string tensors;
    for (const v1::Tensor& tensor : pipeline.tensors()) {
      if (!tensors.empty()) tensors += ", ";
      tensors += tensor.name() + " " + show_tensor(tensor);
    }
    table.add({pipeline.name(), number(pipeline.version()), number(pipeline.items()),
               number(pipeline.classes()), number(pipeline.batch_size()), number(pipeline.jobs()),
               tensors, show_state(pipeline)});
  }
  return table;
}

std::string show_process(const v1::Session& session) {
  if (session.pid() > 0) return number(session.pid());
  if (session.host_pid() == 0) return "?";
  return fmt::format("{}@{}", session.host_pid(), session.host());
}

// "GPU-8f2a1b3c" tells those of a node apart.
constexpr std::size_t kShownOfUuid = 12;

Table sessions_table(const google::protobuf::RepeatedPtrField<v1::Session>& sessions) {
  const bool replicas =
      std::any_of(sessions.begin(), sessions.end(),
                  [](const v1::Session& session) { return session.replica() != 0; });
  std::vector<std::string> headings = {
      ">SESSION", "JOB",    "PIPELINE", ">VERSION", ">SHARD",  "PID",     ">UID",   ">AT",
      ">HELD",    ">READY", ">ROWS/S",  ">BATCHES", ">WAITED", ">MEMORY", "DEVICE", "COMMAND"};
  if (replicas) headings.insert(headings.begin() + 5, ">REPLICA");
  Table table(headings);
  for (const v1::Session& session : sessions) {
    std::vector<std::string> row = {
        number(session.id()),
        session.job(),
        session.pipeline(),
        number(session.pipeline_version()),
        fmt::format("{}/{}", session.shard(), session.num_shards()),
        show_process(session),
        number(session.uid()),
        fmt::format("{}/{}", session.epoch(), session.step()),
        fmt::format("{}/{}", session.leases(), session.credits()),
        number(session.ready()),
        rows_per_s(session),
        number(session.batches()),
        session.waits() == 0 && session.waited_s() == 0 ? "-" : show_seconds(session.waited_s()),
        show_bytes(session.arena_bytes()),
        session.gpu().empty() ? "host" : session.gpu().substr(0, kShownOfUuid),
        session.command().empty() ? session.client() : session.command()};
    if (replicas) row.insert(row.begin() + 5, number(session.replica()));
    table.add(std::move(row));
  }
  return table;
}

Table users_table(const google::protobuf::RepeatedPtrField<v1::User>& users) {
  Table table({">UID", ">CONNECTIONS", ">WAITING", ">CONTROL", ">CALLS", ">LISTINGS", ">PIPELINES",
               ">LISTED", ">JOBS", ">ARENAS", ">FILES", ">UNATTACHED", ">UNREAD", ">CPU"});
  const auto show = [](const v1::Use& use, std::string (*text)(std::uint64_t)) {
    return use.has_limit() ? text(use.used()) + "/" + text(use.limit()) : text(use.used());
  };
  const auto count = [&](const v1::Use& use) { return show(use, number<std::uint64_t>); };
  const auto bytes = [&](const v1::Use& use) { return show(use, show_bytes); };
  for (const v1::User& user : users) {
    table.add({number(user.uid()), count(user.connections()), count(user.attaches()),
               count(user.control_connections()), count(user.long_calls()), count(user.listings()),
               count(user.pipelines()), bytes(user.listing_bytes()), count(user.jobs()),
               bytes(user.arena_bytes()), bytes(user.file_bytes()), bytes(user.unattached_bytes()),
               bytes(user.unread_bytes()), show_seconds(user.cpu_s())});
  }
  return table;
}

Table runners_table(const google::protobuf::RepeatedPtrField<v1::Runner>& runners) {
  Table table({">UID", ">PID", ">STARTED BY", ">CALLS", ">ROWS", ">P50", ">P99", ">RESTARTS",
               ">MEMORY", "CALL", "WHY"});
  const auto pid = [](std::int32_t number) {
    return number > 0 ? std::to_string(number) : std::string("-");
  };
  for (const v1::Runner& runner : runners) {
    table.add({number(runner.owner()), pid(runner.pid()), pid(runner.supervisor()),
               number(runner.calls()), number(runner.rows()),
               runner.has_p50_us() ? show_microseconds(runner.p50_us()) : "-",
               runner.has_p99_us() ? show_microseconds(runner.p99_us()) : "-",
               number(runner.restarts()),
               runner.has_pss_bytes() ? show_bytes(runner.pss_bytes()) : "-", cell(runner.call()),
               cell(runner.why())});
  }
  return table;
}

Table storage_table(const google::protobuf::RepeatedPtrField<v1::Storage>& storage) {
  Table table({"DEVICE", "MOUNT", ">READING", ">STUCK", ">LONGEST", ">WAITING", ">READS", ">QUEUED",
               ">SERVED"});
  const auto time = [](double seconds) {
    return show_microseconds(static_cast<std::uint64_t>(seconds * 1e6));
  };
  for (const v1::Storage& of : storage) {
    table.add({of.device(), of.mount(), fmt::format("{}/{}", of.reading(), of.most()),
               number(of.stuck()), time(of.longest_s()), number(of.waiting()), number(of.reads()),
               time(of.queued_s()), time(of.served_s())});
  }
  return table;
}

// How many JPEG images were read in which way.
std::string jpeg_cell(const v1::JpegImages& images) {
  std::vector<std::string> parts;
  const auto add = [&](std::uint64_t count, std::string_view how) {
    if (count > 0) parts.push_back(fmt::format("{} {}", count, how));
  };
  add(images.indexed(), "by index");
  add(images.from_begin(), "from begin");
  add(images.by_libjpeg(), "by libjpeg");
  add(images.by_coefficients(), "by coefficients");
  add(images.recoded(), "recoded");
  return cell(fmt::format("{}", fmt::join(parts, ", ")));
}

// The mean time of a row in each field's ops.
std::string ops_cell(const v1::Stage& stage) {
  std::vector<std::string> parts;
  for (const v1::OpTime& of : stage.ops()) {
    const double mean_us = of.spent_s() * 1e6 / static_cast<double>(of.rows());
    parts.push_back(fmt::format("{}: {} {}", of.field(), of.ops(),
                                show_microseconds(static_cast<std::uint64_t>(mean_us))));
  }
  return cell(fmt::format("{}", fmt::join(parts, ", ")));
}

// The last columns are there if any stage has filters, timed ops, or decoded JPEG.
Table stages_table(const google::protobuf::RepeatedPtrField<v1::Stage>& stages) {
  std::vector<std::string> headings{"JOB",      "PIPELINE", "STAGE",   ">ROWS/S", ">SERVED",
                                    ">BUSY%",   ">TASKS",   ">FAILED", ">BUSY",   ">WAITED",
                                    ">RUNNING", ">P50",     ">P99",    ">READ/S"};
  const bool has_filters = std::any_of(stages.begin(), stages.end(),
                                       [](const v1::Stage& stage) { return stage.has_rejected(); });
  if (has_filters) headings.push_back(">REJECTED");
  const bool has_ops = std::any_of(stages.begin(), stages.end(),
                                   [](const v1::Stage& stage) { return stage.ops_size() > 0; });
  if (has_ops) headings.push_back("A ROW TAKES");
  const bool has_jpeg = std::any_of(stages.begin(), stages.end(),
                                    [](const v1::Stage& stage) { return stage.has_jpeg(); });
  if (has_jpeg) headings.push_back("JPEG");
  Table table(std::move(headings));
  for (const v1::Stage& stage : stages) {
    std::vector<std::string> row{
        stage.job(),
        stage.pipeline(),
        stage.stage(),
        rows_per_s(stage),
        stage.has_served() ? fmt::format("{:.1f}", stage.served()) : "-",
        stage.has_busy_share() ? fmt::format("{:.0f}", 100 * stage.busy_share()) : "-",
        number(stage.tasks()),
        number(stage.failures()),
        show_seconds(stage.busy_s()),
        show_seconds(stage.wait_s()),
        fmt::format("{}/{}", stage.in_flight(), stage.concurrency()),
        show_microseconds(stage.has_p50_lately_us() ? stage.p50_lately_us() : stage.p50_us()),
        show_microseconds(stage.has_p99_lately_us() ? stage.p99_lately_us() : stage.p99_us()),
        stage.has_bytes_per_s() ? show_bytes(static_cast<std::uint64_t>(stage.bytes_per_s()))
                                : "-"};
    if (has_filters) row.push_back(stage.has_rejected() ? number(stage.rejected()) : "-");
    if (has_ops) row.push_back(ops_cell(stage));
    if (has_jpeg) row.push_back(jpeg_cell(stage.jpeg()));
    table.add(std::move(row));
  }
  return table;
}

Table failures_table(const google::protobuf::RepeatedPtrField<v1::Failure>& failures) {
  Table table({"TIME", "JOB", "PIPELINE", ">EPOCH", ">POSITION", ">ITEM", "OUTCOME", "CODE", "URI",
               "MESSAGE"});
  for (const v1::Failure& failure : failures) {
    const bool item = failure.has_item();
    table.add({show_time(failure.unix_ms()), failure.job(), failure.pipeline(),
               item ? number(failure.epoch()) : "-", item ? number(failure.position()) : "-",
               item ? number(failure.item()) : "-", show_outcome(failure), failure.code(),
               failure.uri(), failure.message()});
  }
  return table;
}

Table history_table(const google::protobuf::RepeatedPtrField<v1::Revision>& revisions) {
  Table table({">VERSION", "APPLIED", ">BY", ">JOBS", "CURRENT", "CONTENT", "NOTE"});
  for (const v1::Revision& revision : revisions) {
    // Enough of the digest to see which versions are the same; JSON has it whole.
    table.add({number(revision.version()), show_time(revision.applied_unix_ms()),
               number(revision.applied_by()), number(revision.jobs()),
               revision.current() ? "yes" : "", revision.content_digest().substr(0, 12),
               revision.note()});
  }
  return table;
}

Table classes_table(const v1::ClassesResponse& classes) {
  const bool has_ids = classes.category_ids_size() == classes.classes_size();
  if (classes.classes_size() == 0 || !has_ids) {
    Table table({">LABEL", "CLASS"});
    for (int i = 0; i < classes.classes_size(); ++i) table.add({number(i), classes.classes(i)});
    return table;
  }
  Table table({">LABEL", ">CATEGORY", "CLASS"});
  for (int i = 0; i < classes.classes_size(); ++i)
    table.add({number(i), std::to_string(classes.category_ids(i)), classes.classes(i)});
  return table;
}

nlohmann::ordered_json classes_json(const v1::ClassesResponse& classes) {
  auto json = nlohmann::ordered_json::array();
  const bool has_ids = classes.category_ids_size() == classes.classes_size();
  for (int i = 0; i < classes.classes_size(); ++i) {
    if (has_ids) {
      json.push_back(
          {{"label", i}, {"category_id", classes.category_ids(i)}, {"class", classes.classes(i)}});
    } else {
      json.push_back(classes.classes(i));
    }
  }
  return json;
}

namespace {

// Memory of this GPU that batches may take in all.
std::uint64_t most_for_batches(const v1::Gpu& gpu) {
  return std::min<std::uint64_t>(gpu.arena_budget(), gpu.memory_bytes());
}

void print_gpus(const v1::Daemon& daemon, std::ostream& out) {
  for (const v1::Gpu& gpu : daemon.gpus()) {
    out << fmt::format("gpu        {}", cell(gpu.name()));
    if (!gpu.uuid().empty())
      out << fmt::format(", {}{}, {}, {}", gpu.mig() ? "a MIG instance, " : "", cell(gpu.uuid()),
                         show_bytes(gpu.memory_bytes()), cell(daemon.gpu_driver()));
    if (!gpu.compute_mode().empty())
      out << fmt::format(", compute mode {}", cell(gpu.compute_mode()));
    out << '\n';
    if (!gpu.deliverable()) {
      out << fmt::format("           no batches there: {}\n", cell(gpu.why_not()));
    } else if (gpu.context() || gpu.arena_used() > 0) {
      out << fmt::format("           batches: {} of {}{}\n", show_bytes(gpu.arena_used()),
                         show_bytes(most_for_batches(gpu)),
                         gpu.context() ? ", and the daemon's context" : "");
    } else {
      out << fmt::format("           batches can be delivered there, up to {}\n",
                         show_bytes(most_for_batches(gpu)));
    }
    if (!gpu.why_no_pinning().empty())
      out << fmt::format("           loaders there copy by a buffer: {}\n",
                         cell(gpu.why_no_pinning()));
  }
  if (!daemon.no_gpu().empty()) out << fmt::format("gpu        none: {}\n", cell(daemon.no_gpu()));
}

// Nothing of a daemon that has decoded no JPEG.
void print_jpeg(const v1::JpegIndex& jpeg, std::ostream& out) {
  const v1::JpegImages& images = jpeg.images();
  if (images.indexed() + images.from_begin() + images.by_libjpeg() + images.recoded() == 0) return;
  const std::string index =
      jpeg.limit_bytes() == 0
          ? "off"
          : fmt::format("{} of {}, {}", show_bytes(jpeg.bytes()), show_bytes(jpeg.limit_bytes()),
                        counted(jpeg.files(), "file"));
  out << fmt::format("jpeg       index: {}; images: {} by index, {} from begin, {} by libjpeg\n",
                     index, images.indexed(), images.from_begin(), images.by_libjpeg());
  if (images.recoded() > 0)
    out << fmt::format("           in caches: coefficients made of {}; {} made of coefficients\n",
                       counted(images.recoded(), "file"),
                       counted(images.by_coefficients(), "image"));
  if (jpeg.contradicted() > 0)
    out << fmt::format("           {} contradicted the index\n",
                       counted(jpeg.contradicted(), "file"));
  if (jpeg.compared() + jpeg.different() > 0)
    out << fmt::format("           verify: {} compared, {}\n", counted(jpeg.compared(), "image"),
                       jpeg.different() == 0
                           ? "all with libjpeg's pixels"
                           : fmt::format("{} with other pixels than libjpeg's, which were taken: "
                                         "report it",
                                         jpeg.different()));
}

}  // namespace

std::string show_drain(const v1::Drain& drain) {
  std::string text =
      fmt::format("since {} by uid {}: ", show_time(drain.since_unix_ms()), drain.by());
  if (drain.ranks() == 0) {
    text += "no rank is attached";
  } else {
    text += counted(drain.ranks(), "rank") + (drain.ranks() == 1 ? " is" : " are") + " attached";
  }
  if (drain.awaited_jobs() > 0)
    text += ", and ranks of " + counted(drain.awaited_jobs(), "job") + " may come back";
  return text;
}

// "1.4 of 2 at work; idle: 0.5 for bytes", of the last seconds; empty: not known.
std::string show_workers(const v1::Daemon& daemon) {
  if (!daemon.has_workers_lately()) return "";
  const v1::Workers& spent = daemon.workers_lately();
  std::string text =
      fmt::format("{:.1f} of {} at work", spent.rows_s() + spent.batches_s(), daemon.cpu_threads());
  std::vector<std::string> idle;
  const auto add = [&](double workers, std::string_view why) {
    if (workers >= 0.05) idle.push_back(fmt::format("{:.1f} {}", workers, why));
  };
  add(spent.bytes_s(), "for bytes");
  add(spent.memory_s(), "for memory to decode");
  add(spent.calls_s(), "for users' functions");
  add(spent.stage_bound_s(), "by a stage's concurrency");
  add(spent.job_bound_s(), "by a job's limit");
  add(spent.slot_s(), "as ranks have all they may");
  add(spent.yield_s(), "to leave the training a core");
  add(spent.left_s(), "left to jobs of short rows");
  add(spent.work_s(), "as nobody reads");
  if (!idle.empty()) text += fmt::format("; idle: {}", fmt::join(idle, ", "));
  if (spent.core_s() >= 0.05) text += fmt::format("; {:.1f} waited for a core", spent.core_s());
  return text;
}

// What the daemon takes, and how far it gives way.
std::string show_own_process(const v1::Daemon& daemon) {
  const auto known = [](bool is_known, const std::string& text) {
    return is_known ? text : "not known";
  };
  const v1::Priority& priority = daemon.priority();
  std::string by;
  if (priority.by() == "cpu_weight") {
    by = fmt::format("by CPU weight {} of cgroup {}, and in it by niceness {}", priority.value(),
                     cell(priority.cgroup()), priority.niceness());
  } else {
    by = fmt::format("by niceness {}{}", priority.value(),
                     priority.by() == "autogroup" ? " of its session (autogroup)" : "");
  }
  return fmt::format(
      "PSS {}, CPU pressure {}, priority {}",
      known(daemon.has_pss_bytes(), show_bytes(daemon.pss_bytes())),
      known(daemon.has_cpu_pressure(), fmt::format("{:.0f} %", 100 * daemon.cpu_pressure())),
      known(daemon.has_priority(), by));
}

void print_status(const v1::Daemon& daemon, const std::string& address, std::ostream& out) {
  const double share = daemon.arena_budget() == 0
                           ? 0
                           : 100.0 * static_cast<double>(daemon.arena_used()) /
                                 static_cast<double>(daemon.arena_budget());
  out << fmt::format("spdld {} at {}, pid {}, up {}\n", cell(daemon.version()), address,
                     daemon.pid(), show_seconds(daemon.uptime_s()));
  out << fmt::format("threads    {} cpu, {} io\n", daemon.cpu_threads(), daemon.io_threads());
  if (const std::string workers = show_workers(daemon); !workers.empty())
    out << fmt::format("workers    {}\n", workers);
  out << fmt::format("process    {}\n", show_own_process(daemon));
  out << fmt::format("arenas     {} of {} ({:.0f} %), {}{}\n", show_bytes(daemon.arena_used()),
                     show_bytes(daemon.arena_budget()), share, cell(daemon.arena_kind()),
                     daemon.arena_idle() == 0
                         ? ""
                         : fmt::format("; {} of it idle", show_bytes(daemon.arena_idle())));
  if (!daemon.arena_note().empty())
    out << fmt::format("           {}\n", cell(daemon.arena_note()));
  out << fmt::format("serving    {}, {}, {}\n", counted(daemon.pipelines(), "pipeline"),
                     counted(daemon.jobs(), "job"), counted(daemon.sessions(), "session"));
  if (daemon.has_drain())
    out << fmt::format("drained    {}; no new jobs are taken\n", show_drain(daemon.drain()));
  out << fmt::format("delivered  {}, {}{}\n", counted(daemon.batches(), "batch", "batches"),
                     counted(daemon.rows(), "row"),
                     daemon.has_rows_per_s() ? fmt::format("; {} batches/s, {} rows/s of late",
                                                           show_rate(daemon.batches_per_s()),
                                                           show_rate(daemon.rows_per_s()))
                                             : "");
  if (daemon.has_data()) print_data_plane(daemon.data(), out);
  for (const v1::SampleCache& cache : daemon.caches()) {
    out << fmt::format("cache      {}, in {}: {} of {}, {}, {}, {}\n", cell(cache.name()),
                       cell(cache.where()), show_bytes(cache.bytes()),
                       show_bytes(cache.limit_bytes()), counted(cache.items(), "item"),
                       counted(cache.hits(), "hit"), counted(cache.misses(), "miss", "misses"));
    if (!cache.why().empty()) out << fmt::format("           {}\n", cell(cache.why()));
  }
  if (daemon.has_jpeg()) print_jpeg(daemon.jpeg(), out);
  print_gpus(daemon, out);
  for (const std::string& warning : daemon.warnings())
    out << fmt::format("warning    {}\n", cell(warning));
}

}  // namespace spdld::ctl
