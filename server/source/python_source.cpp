// SPDX-License-Identifier: Apache-2.0
#include "source/python_source.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/text/printable.h"
#include "base/text/utf8.h"
#include "source/bytes/binary.h"
#include "source/bytes/digest_text.h"
#include "source/item/columns.h"
#include "source/kept/dataset_id.h"
#include "source/kept/kept_datasets.h"
#include "source/listing/classes.h"

namespace spdld::source {
namespace {

constexpr std::chrono::milliseconds kPoll{100};
// The values in front of the columns.
enum : std::size_t { kIndex, kItems, kFirstColumn };

std::string spec_text(const DatasetSpec& spec) {
  return "python " + spec.call.call + "\n" + spec.call.args + "\n" +
         std::to_string(spec.call.version);
}

class PythonSource final : public Source {
 public:
  PythonSource(const DatasetSpec& spec, TableDatasetPtr dataset)
      : dataset_(std::move(dataset)),
        columns_(dataset_->table.columns),
        name_(spec.call.call.substr(spec.call.call.rfind('/') + 1)),
        origin_(spec_text(spec)),
        digest_(digest_text(origin_ + "\n" + std::to_string(columns_.rows()))) {
    for (const CallField& given : spec.call.in)
      fields_.push_back(
          {.name = given.name, .kind = SourceField::Kind::kValue, .index = fields_.size()});
    for (std::size_t column = 0; column < columns_.size(); ++column) {
      const Columns::Info& info = columns_.info(column);
      fields_.push_back({.name = info.name,
                         .kind = SourceField::Kind::kValue,
                         .index = fields_.size(),
                         .type = info.type,
                         .classes = info.name == "label" && !dataset_->classes.empty(),
                         .max_bytes = info.max_bytes});
    }
  }

  std::uint64_t size() const override { return columns_.rows(); }
  const std::string& listing_digest() const override { return digest_; }
  std::string values_digest() const override { return columns_.digest(); }
  const std::vector<SourceField>& fields() const override { return fields_; }
  const std::vector<std::string>& classes() const override { return dataset_->classes; }
  std::string dataset() const override { return dataset_->id; }
  std::string origin() const override { return origin_; }
  std::string uri(std::uint64_t item) const override {
    return name_ + "[" + std::to_string(item) + "]";
  }
  Value value(std::uint64_t item, std::size_t value) const override {
    if (value == kIndex) return static_cast<std::int64_t>(item);
    if (value == kItems) return static_cast<std::int64_t>(size());
    return columns_.value(item, value - kFirstColumn);
  }
  Result<FetchState> fetch(std::uint64_t, std::span<const PartRequest>, FetchedItem& out,
                           FetchSink&, std::uint64_t) override {
    out.begin();
    out.bring_nothing();
    return FetchState::kReady;
  }

 private:
  const TableDatasetPtr dataset_;
  const Columns& columns_;  // the dataset's
  const std::string name_;
  const std::string origin_;
  const std::string digest_;
  std::vector<SourceField> fields_;
};

// Told of the one answer.
class Answer final : public CallSink {
 public:
  void called(std::uint64_t, Status status) override {
    MutexLock lock(mutex_);
    status_ = std::move(status);
    changed_.notify_all();
  }
  std::optional<Status> wait_a_while() {
    MutexLock lock(mutex_);
    if (!status_) changed_.wait_for(mutex_, kPoll);
    return status_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::optional<Status> status_ SPDLD_GUARDED_BY(mutex_);
};

class PythonOpener {
 public:
  PythonOpener(const DatasetSpec& spec, SourceOptions& options) : spec_(spec), options_(options) {}

  Result<std::unique_ptr<Source>> open() {
    const bool again = options_.kept != nullptr && !options_.dataset.empty();
    SPDLD_ASSIGN(TableDatasetPtr dataset, again ? reopen() : ask());
    return std::make_unique<PythonSource>(spec_, std::move(dataset));
  }

 private:
  Result<TableDatasetPtr> reopen() {
    auto kept = options_.kept->tables().open(options_.dataset, options_.share());
    if (kept || options_.from_kept_alone || kept.error().code() == Code::kResourceExhausted)
      return kept;
    const std::string why = "what was applied cannot be opened: " + kept.error().message();
    const std::string way_out = "; apply the pipeline again and start its jobs anew";
    const auto now = ask();
    if (!now && now.error().code() == Code::kCancelled) return now;
    if (!now)
      return error(Code::kDataLoss,
                   why + ", nor asked for again: " + now.error().message() + way_out);
    if (!is_same_data((*now)->id, options_.dataset))
      return error(Code::kDataLoss,
                   why + ", and " + spec_.call.call + " has other items by now" + way_out);
    return now;
  }

  Result<TableDatasetPtr> ask() {
    SPDLD_ASSIGN(const std::string told, description());
    const auto bad = [&](const std::string& what) {
      return error(Code::kInvalidArgument, spec_.call.call + ": " + what);
    };
    BinaryReader in(told);
    std::optional<Columns> columns = Columns::read(in);
    std::vector<std::string> classes(columns ? in.count(sizeof(std::uint32_t)) : 0);
    for (std::string& name : classes) name = in.string();
    if (!columns || !in.ok() || in.left() > 0)
      return bad("its process says nothing of its items that can be read");
    if (columns->rows() == 0) return bad("it has no items: see that its arguments are right");
    if (columns->rows() > options_.max_items)
      return bad("it has " + std::to_string(columns->rows()) + " items, more than the " +
                 std::to_string(options_.max_items) + " that a dataset may have");
    SPDLD_TRY(check_columns(*columns));
    for (const std::string& name : classes)
      if (name.empty() || utf8(name) != name) return bad("a class has no name that is UTF-8");
    const ListingMemory::SharePtr memory = options_.share();
    SPDLD_TRY(memory->resize(columns->memory_bytes() + memory_bytes(classes))
                  .with_context(spec_.call.call));
    KeptColumns table{.columns = *std::move(columns)};
    if (options_.kept == nullptr)
      return std::make_shared<const TableDataset>(
          TableDataset{.table = std::move(table), .classes = std::move(classes), .memory = memory});
    Status saved;
    TableDatasetPtr dataset = options_.kept->tables().add(
        digest_text(spec_text(spec_)), std::move(table), std::move(classes), memory, saved);
    if (!saved.ok() && options_.warnings != nullptr)
      options_.warnings->push_back("what " + spec_.call.call +
                                   " says of its items was not kept, and will be asked for again "
                                   "after a restart: " +
                                   saved.message());
    return dataset;
  }

  // As its own processes have them; others may say anything.
  Status check_columns(const Columns& columns) const {
    std::vector<std::string> names;
    for (const CallField& given : spec_.call.in) names.push_back(given.name);
    for (std::size_t column = 0; column < columns.size(); ++column) {
      const auto& [name, type, most] = columns.info(column);
      const bool is_list = type == ValueType::kInt64List || type == ValueType::kFloat64List;
      if (is_list || name.empty() || printable(name) != name)
        return {Code::kInvalidArgument, spec_.call.call + ": columns(): '" + printable(name) +
                                            "' is no column of integers, floats, bools or texts"};
      if (std::find(names.begin(), names.end(), name) != names.end())
        return {Code::kInvalidArgument, spec_.call.call + ": columns(): there is a column '" +
                                            printable(name) +
                                            "' already: call this one something else"};
      names.push_back(name);
    }
    return {};
  }

  Result<std::string> description() const {
    if (!options_.open_call)
      return error(Code::kUnimplemented, spec_.call.call + ": no processes can be asked here");
    SPDLD_ASSIGN(std::shared_ptr<RowCaller> caller, options_.open_call(spec_.call));
    CallRow row;
    row.describes = true;
    const std::array<std::byte, sizeof(std::int64_t)> nothing{};
    row.arguments.assign(spec_.call.in.size(), {.bytes = nothing});
    Answer answer;
    caller->call(row, answer, 0);
    Status given_up;
    std::optional<Status> status;
    while (!(status = answer.wait_a_while())) {
      if (caller == nullptr) continue;
      const std::string waits = caller->waits_for();
      const std::string wanted = caller->wanted();
      if (!wanted.empty() && !options_.may_wait_for_runners)
        given_up = {Code::kFailedPrecondition,
                    waits + ", or have them started: '--python .venv/bin/python'"};
      std::vector<std::string> pools;
      if (!wanted.empty()) pools.push_back(wanted);
      options_.wait_for_runners(
          waits.empty() ? "asking " + spec_.call.call + " for its items" : waits, pools);
      if (given_up.ok() && options_.stop.stop_requested())
        given_up = {Code::kCancelled, "nobody waits for the source any more"};
      if (!given_up.ok()) caller.reset();  // which brings the row back
    }
    if (!given_up.ok()) return tl::unexpected<Status>(std::move(given_up));
    if (!status->ok()) return tl::unexpected<Status>(*std::move(status));
    return std::move(row.description);
  }

  const DatasetSpec& spec_;
  SourceOptions& options_;
};

}  // namespace

Result<std::unique_ptr<Source>> open_python(const DatasetSpec& spec, SourceOptions options) {
  return PythonOpener(spec, options).open();
}

}  // namespace spdld::source
