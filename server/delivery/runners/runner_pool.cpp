// SPDX-License-Identifier: Apache-2.0
#include "delivery/runners/runner_pool.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "base/check.h"
#include "base/log.h"
#include "base/random_bytes.h"
#include "base/text/counted.h"
#include "base/text/printable.h"
#include "delivery/memfd.h"
#include "delivery/runners/call_text.h"

namespace spdld::delivery {
namespace {

using runner::AnswerKind;
using runner::RunnerFrameType;
using Clock = std::chrono::steady_clock;

constexpr int kMostUnborn = 3;
// The rows of a call take about so long: less, and frames cost more than they carry; more, and
// other children lack rows while one has many.
constexpr std::chrono::nanoseconds kCallTime = std::chrono::milliseconds(2);
static_assert(runner::kCells == 2);

Status garbage(const std::string& what) { return Status(Code::kInvalidArgument, what); }

Status cancelled() { return Status(Code::kCancelled, "nobody wants it any more"); }

bool unwanted(const CalledRow& row) {
  return row.row->dropped != nullptr && row.row->dropped->load(std::memory_order_relaxed);
}

std::string how_ended(const runner::ChildEnded& ended, const CallSpec& spec) {
  if (ended.reason == runner::EndReason::kGrew)
    return fmt::format("it grew beyond max_rss ({})", format_bytes(spec.max_rss));
  if (WIFSIGNALED(ended.status))
    return fmt::format("signal {} ({})", WTERMSIG(ended.status),
                       ::strsignal(WTERMSIG(ended.status)));
  return fmt::format("exit status {}", WEXITSTATUS(ended.status));
}

Result<UniqueFd> text_file(const std::string& text) {
  SPDLD_ASSIGN(UniqueFd fd, open_memfd("spdld-pool"));
  if (::pwrite(fd.get(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()))
    return tl::unexpected(errno_status(errno, "writing what a runner is told"));
  return fd;
}

}  // namespace

// What open() gives.
class RunnerPool::Holder final : public RowCaller {
 public:
  Holder(std::shared_ptr<RunnerPool> pool, std::uint64_t id) : pool_(std::move(pool)), id_(id) {}
  ~Holder() override { pool_->let_go(id_); }
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;

  void call(CallRow& row, CallSink& sink, std::uint64_t token) override {
    SPDLD_CHECK(row.arguments.size() == pool_->spec_.in.size());
    pool_->call(
        {.row = &row, .sink = &sink, .token = token, .holder = id_, .describes = row.describes});
  }
  void look_for_dropped() override {
    pool_->loop_->post([pool = pool_] { pool->drop_unwanted(); });
  }
  std::string waits_for() const override { return pool_->waits_for(); }
  std::string wanted() const override { return pool_->wanted(); }

 private:
  const std::shared_ptr<RunnerPool> pool_;
  const std::uint64_t id_;
};

RunnerPool::RunnerPool(uid_t uid, CallSpec spec, std::string key, Options options,
                       ArenaBudget& budget, std::shared_ptr<EventLoop> loop)
    : uid_(uid),
      spec_(std::move(spec)),
      key_(std::move(key)),
      options_(std::move(options)),
      answer_table_bytes_(answer_table_bytes(spec_)),
      budget_(budget),
      loop_(std::move(loop)),
      answer_bytes_(least_answer_bytes(spec_)) {
  publish();
}

// --- Holders, of any thread ---

std::shared_ptr<RowCaller> RunnerPool::hold() {
  MutexLock lock(mutex_);
  if (ended_) return nullptr;
  ++holders_;
  if (users_++ == 0 && next_holder_ > 1) {
    look_due_ = true;
    loop_->post([pool = shared_from_this()] { pool->take_up(); });
  }
  return std::make_shared<Holder>(shared_from_this(), next_holder_++);
}

void RunnerPool::call(CalledRow row) {
  bool wake = false;
  bool stopped = false;
  {
    MutexLock lock(mutex_);
    stopped = stopped_;
    if (!stopped) {
      incoming_.push_back(row);
      wake = !is_full_ && !std::exchange(posted_, true);
    }
  }
  if (stopped) row.sink->called(row.token, cancelled());
  if (wake) loop_->post([pool = shared_from_this()] { pool->take_up(); });
}

void RunnerPool::let_go(std::uint64_t holder) {
  {
    MutexLock lock(mutex_);
    --users_;
  }
  loop_->post([pool = shared_from_this(), holder] { pool->forget(holder); });
}

std::string RunnerPool::waits_for() const {
  MutexLock lock(mutex_);
  return waits_for_;
}

std::string RunnerPool::wanted() const {
  MutexLock lock(mutex_);
  return is_wanted_ ? key_ : std::string();
}

void RunnerPool::add_views(std::vector<RunnerView>& views) const {
  MutexLock lock(mutex_);
  for (const auto& [place, view] : views_) views.push_back(view);
  if (views_.empty())
    views.push_back({.uid = uid_, .call = spec_.call, .key = key_, .why = waits_for_});
}

// --- Rows, on the loop's thread ---

// Between two jobs a user may have changed the function.
void RunnerPool::look_again() {
  code_.reset();
  for (const auto& supervisor : supervisors_) {
    if (!supervisor->channel->send(runner::Look{}, RunnerFrameType::kLook)) continue;
    loop_->run_after(options_.patience,
                     [pool = weak_from_this(), supervisor, answered = ++supervisor->asked] {
                       const auto alive = pool.lock();
                       if (alive != nullptr && supervisor->looked < answered)
                         alive->gone(supervisor);
                     });
  }
}

void RunnerPool::take_up() {
  dispatch();
  flush();
}

void RunnerPool::take_incoming() {
  std::vector<CalledRow> incoming;
  bool look = false;
  {
    MutexLock lock(mutex_);
    posted_ = false;
    incoming.swap(incoming_);
    look = std::exchange(look_due_, false);
  }
  if (look) look_again();  // before any of the rows is given to a child
  for (CalledRow& row : incoming) {
    if (row.row->pause.count() > 0 && !unwanted(row)) {
      hold_back(row);
    } else {
      queue_.push_back(row);
    }
  }
}

void RunnerPool::hold_back(CalledRow row) {
  const auto pause = row.row->pause;
  row.due = Clock::now() + pause;
  paused_.push_back(row);
  loop_->run_after(std::chrono::ceil<std::chrono::milliseconds>(pause), [pool = weak_from_this()] {
    if (const auto alive = pool.lock()) alive->end_pauses();
  });
}

void RunnerPool::end_pauses() {
  const auto now = Clock::now();
  std::erase_if(paused_, [&](const CalledRow& row) {
    if (row.due <= now) queue_.push_back(row);
    return row.due <= now;
  });
  dispatch();
  flush();
}

void RunnerPool::cancel(const std::function<bool(const CalledRow&)>& which) {
  for (std::deque<CalledRow>* const rows : {&queue_, &paused_}) {
    std::erase_if(*rows, [&](CalledRow& row) {
      if (which(row)) tell(row, cancelled());
      return row.row == nullptr;
    });
  }
}

void RunnerPool::drop_unwanted() {
  take_incoming();
  cancel(unwanted);
  flush();
}

void RunnerPool::forget(std::uint64_t holder) {
  take_incoming();
  cancel([&](const CalledRow& row) { return row.holder == holder; });
  for (const auto& supervisor : supervisors_)
    for (const auto& [number, child] : supervisor->children)
      for (RunnerChild::Call& call : child->calls)
        for (CalledRow& row : call.rows)
          if (row.holder == holder && !row.answered) tell(row, cancelled());
  dispatch();
  flush();
  bool last = false;
  {
    MutexLock lock(mutex_);
    last = --holders_ == 0;
  }
  if (last) options_.let_go();
}

bool RunnerPool::end_unheld() {
  {
    MutexLock lock(mutex_);
    if (holders_ != 0 || ended_) return false;
    ended_ = true;
  }
  for (const auto& supervisor : supervisors_)
    (void)supervisor->channel->send(runner::End{}, RunnerFrameType::kEnd);
  stop();
  return true;
}

void RunnerPool::stop() {
  {
    MutexLock lock(mutex_);
    stopped_ = true;
  }
  take_incoming();
  cancel([](const CalledRow&) { return true; });
  for (const auto& supervisor : std::exchange(supervisors_, {})) {
    supervisor->channel->close();
    for (const auto& [number, child] : supervisor->children) {
      for (RunnerChild::Call& call : child->calls)
        for (CalledRow& row : call.rows)
          if (!row.answered) tell(row, cancelled());
      child->calls.clear();
      end_child(*child, {});
    }
  }
  flush();
}

void RunnerPool::tell(CalledRow& row, Status status) {
  if (row.row == nullptr) return;
  told_.push_back({row, std::move(status)});
  row.row = nullptr;
}

void RunnerPool::flush() {
  while (!told_.empty()) {
    std::vector<Told> all = std::exchange(told_, {});
    std::vector<CallSink::Back> rows;
    rows.reserve(all.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
      CallSink* const sink = all[i].row.sink;
      rows.push_back({all[i].row.token, std::move(all[i].status)});
      if (i + 1 < all.size() && all[i + 1].row.sink == sink) continue;
      sink->all_called(rows);
      rows.clear();
    }
  }
}

void RunnerPool::requeue(std::vector<CalledRow> rows) {
  for (CalledRow& row : rows) row.answered = false;
  queue_.insert(queue_.begin(), rows.begin(), rows.end());
}

std::size_t RunnerPool::serving() const {
  std::size_t count = 0;
  for (const auto& supervisor : supervisors_)
    for (const auto& [number, child] : supervisor->children) count += child->serves ? 1 : 0;
  return count;
}

std::shared_ptr<RunnerChild> RunnerPool::idlest() const {
  const std::shared_ptr<RunnerChild>* found = nullptr;
  for (const auto& supervisor : supervisors_)
    for (const auto& [number, child] : supervisor->children)
      if (child->serves && !supervisor->is_looking() && child->calls.size() < runner::kCells &&
          (found == nullptr || child->calls.size() < (*found)->calls.size()))
        found = &child;
  return found == nullptr ? nullptr : *found;
}

void RunnerPool::dispatch() {
  for (bool more = true; more;) {
    take_incoming();
    if (serving() == 0) cancel(unwanted);  // those that were dropped before they came
    give_all();
    const bool full = !queue_.empty() && serving() != 0;
    MutexLock lock(mutex_);
    is_full_ = full;
    more = !full && !incoming_.empty();
  }
}

void RunnerPool::give_all() {
  while (!queue_.empty()) {
    const std::shared_ptr<RunnerChild> child = idlest();
    if (child == nullptr || !are_enough(*child) || !give(child)) return;
  }
}

bool RunnerPool::are_enough(const RunnerChild& child) const {
  if (child.calls.empty() || child.awaits || row_time_.count() == 0) return true;
  const auto rows = static_cast<std::size_t>(kCallTime / 8 / row_time_);
  return queue_.size() >= std::min<std::size_t>(rows, runner::kMaxCallRows / 4);
}

Status RunnerPool::open_cells(RunnerChild& child, CellSizes needed) {
  const bool afresh = child.cells == nullptr || std::exchange(child.described, false);
  CellSizes sizes = afresh ? options_.cells : child.cells->sizes();
  while (sizes.input < needed.input) sizes.input *= 2;
  while (sizes.answers < needed.answers) sizes.answers *= 2;
  SPDLD_ASSIGN(child.cells, CallCells::create(sizes, budget_, uid_));
  runner::CellsOpen frame{};
  frame.input_cell_bytes = child.cells->sizes().input;
  frame.answer_cell_bytes = child.cells->sizes().answers;
  (void)child.channel->send(frame, RunnerFrameType::kCellsOpen,
                            {child.cells->input_fd(), child.cells->answers_fd()});
  child.cells->sent();
  return {};
}

// At least the first of the queue, which has room.
std::vector<CalledRow> RunnerPool::next_rows(const RunnerChild& child) {
  const CellSizes& room = child.cells->sizes();
  // Each child has its part of those that wait, and none so many that it has them for long.
  std::size_t most = (queue_.size() + serving() - 1) / serving();
  if (!child.awaits && row_time_.count() > 0)
    most = std::min<std::size_t>(most, static_cast<std::size_t>(kCallTime / row_time_));
  most = std::clamp<std::size_t>(most, 1, runner::kMaxCallRows);
  std::vector<CalledRow> rows;
  std::uint64_t input = 0;
  std::uint64_t answers = answer_table_bytes_;
  while (!queue_.empty() && rows.size() < most) {
    CalledRow& next = queue_.front();
    // The first was looked at, and has room: nobody wanting it since changes nothing.
    if (!rows.empty() && unwanted(next)) {
      tell(next, cancelled());
      queue_.pop_front();
      continue;
    }
    input += argument_bytes(*next.row);
    answers += std::max(answer_bytes_, next.answer_bytes);
    const bool fits = row_table_bytes(rows.size() + 1, spec_.in.size()) + input <= room.input &&
                      answers <= room.answers;
    if (!fits && !rows.empty()) break;
    rows.push_back(next);
    queue_.pop_front();
  }
  return rows;
}

bool RunnerPool::give(const std::shared_ptr<RunnerChild>& child) {
  CalledRow& first = queue_.front();
  if (unwanted(first)) {
    tell(first, cancelled());
    queue_.pop_front();
    return true;
  }
  const CellSizes needed{
      .input = row_table_bytes(1, spec_.in.size()) + argument_bytes(*first.row),
      .answers = answer_table_bytes_ + std::max(least_answer_bytes(spec_), first.answer_bytes)};
  const CellSizes& sizes = child->cells->sizes();
  const bool too_large = child->calls.empty() && child->described;
  if (too_large || needed.input > sizes.input || needed.answers > sizes.answers) {
    if (!child->calls.empty()) return false;  // what it has lies in the old cells
    if (const Status opened = open_cells(*child, needed); !opened.ok()) {
      tell(first, Status(Code::kUnavailable, opened.message()));
      queue_.pop_front();
      return true;
    }
  }
  RunnerChild::Call call{.id = next_call_++,
                         .cell = child->calls.empty() ? 0 : 1 - child->calls.front().cell,
                         .rows = next_rows(*child)};
  call.left = call.rows.size();
  std::vector<const CallRow*> rows;
  for (const CalledRow& row : call.rows) rows.push_back(row.row);
  write_rows(rows, child->cells->input(call.cell));
  runner::Call frame{};
  frame.call = call.id;
  frame.cell = call.cell;
  frame.rows = static_cast<std::uint32_t>(rows.size());
  // Where it cannot be sent the connection's end is heard of next.
  (void)child->channel->send(frame, RunnerFrameType::kCall);
  if (child->calls.empty()) child->since = child->begun = Clock::now();
  child->calls.push_back(std::move(call));
  watch_timeout(child);
  return true;
}

void RunnerPool::watch_timeout(const std::shared_ptr<RunnerChild>& child) {
  if (std::exchange(child->timed, true)) return;
  const auto left = child->since + spec_.timeout - Clock::now();
  loop_->run_after(std::chrono::ceil<std::chrono::milliseconds>(left),
                   [pool = weak_from_this(), child] {
                     if (const auto alive = pool.lock()) alive->look_at(child);
                   });
}

void RunnerPool::look_at(const std::shared_ptr<RunnerChild>& child) {
  child->timed = false;
  if (!child->serves || child->calls.empty()) return;
  if (Clock::now() - child->since < spec_.timeout) {
    watch_timeout(child);
    return;
  }
  kill(child, fmt::format("it took longer than timeout ({} s)",
                          std::chrono::duration<double>(spec_.timeout).count()));
}

// --- Answers ---

Status RunnerPool::take(const std::shared_ptr<RunnerChild>& child, Channel::Frame frame) {
  const auto header = frame_as<runner::RunnerHeader>(frame);
  const auto answer = frame_as<runner::Answer>(frame);
  if (!header || header->type != RunnerFrameType::kAnswer || !answer ||
      frame.size() != sizeof *answer)
    return garbage("a child says nothing but Answer");
  const Status taken = child->ended ? Status() : take_answer(*child, *answer);
  dispatch();
  flush();
  return taken;
}

Status RunnerPool::take_answer(RunnerChild& child, const runner::Answer& answer) {
  const auto call = std::find_if(child.calls.begin(), child.calls.end(),
                                 [&](const auto& each) { return each.id == answer.call; });
  if (call == child.calls.end()) return garbage("an answer to a call that it does not have");
  const std::size_t end = std::size_t{answer.first} + answer.count;
  if (answer.count == 0 || end > call->rows.size())
    return garbage("an answer to no row of its call");
  for (std::size_t i = answer.first; i < end; ++i)
    if (call->rows[i].answered) return garbage("two answers to a row");
  std::vector<CalledRow> again;
  bool described = false;  // which takes another time than rows do
  Status taken;
  CellReader cell(*child.cells, call->cell, answer.count);
  for (std::size_t i = answer.first; i < end && taken.ok(); ++i) {
    taken = take_row(child, *call, cell, i, again);
    if (taken.ok() && !call->rows[i].answered) taken = garbage("an answer that is not there");
    described = described || call->rows[i].describes;
  }
  child.described = child.described || described;
  requeue(std::move(again));
  SPDLD_TRY(std::move(taken));
  const auto now = Clock::now();
  const std::chrono::nanoseconds took = (now - child.since) / answer.count;
  if (!described) row_time_ += (took - row_time_) / 8;
  child.since = now;
  {
    MutexLock lock(mutex_);
    RunnerView& view = views_[{child.supervisor.lock()->channel->id(), child.number}];
    view.rows += answer.count;
    if (!described) view.times.add(child.awaits ? now - child.begun : took, answer.count);
    if (call->left == 0) ++view.calls;
  }
  if (call->left == 0) {
    child.calls.erase(call);
    child.begun = now;
  }
  return {};
}

// Does nothing if there is no answer to the row yet.
Status RunnerPool::take_row(const RunnerChild& child, RunnerChild::Call& call, CellReader& cell,
                            std::size_t index, std::vector<CalledRow>& again) {
  CalledRow& row = call.rows[index];
  SPDLD_ASSIGN(RowAnswer answer, read_answer(spec_, cell, call.id, index, row.row));
  if (!answer.kind) return {};
  const auto fails = [&](Code code) { tell(row, Status(code, std::move(answer.text))); };
  switch (*answer.kind) {
    case AnswerKind::kFields:
      // Up at once, and down slowly.
      answer_bytes_ = answer.bytes > answer_bytes_
                          ? answer.bytes
                          : answer_bytes_ - (answer_bytes_ - answer.bytes) / 64;
      if (row.row != nullptr) row.row->rejected = false;
      tell(row, {});
      break;
    case AnswerKind::kDescription: tell(row, {}); break;
    case AnswerKind::kRejected:
      if (row.row != nullptr) row.row->rejected = true;
      tell(row, {});
      break;
    case AnswerKind::kRaised: fails(Code::kFailedPrecondition); break;
    case AnswerKind::kBadSample: fails(Code::kDataLoss); break;
    case AnswerKind::kUnavailable: fails(Code::kUnavailable); break;
    case AnswerKind::kNoRoom: {
      const std::uint64_t room = child.cells->sizes().answers - answer_table_bytes_;
      // The first of a call has all the room there is.
      if (answer.bytes > most_answer_bytes(spec_, row.describes) ||
          (index == 0 && !child.awaits && answer.bytes <= room))
        return garbage("it lacks no room");
      if (row.row != nullptr) {
        again.push_back(row);
        again.back().answer_bytes = answer.bytes;
      }
      break;
    }
  }
  row.answered = true;
  --call.left;
  return {};
}

// --- Supervisors and children ---

std::shared_ptr<RunnerSupervisor> RunnerPool::add_supervisor(std::shared_ptr<Channel> channel,
                                                             const runner::SupervisorHello& hello) {
  auto supervisor = std::make_shared<RunnerSupervisor>();
  supervisor->channel = std::move(channel);
  supervisor->pid = hello.pid;
  supervisor->python = printable({hello.python, ::strnlen(hello.python, sizeof hello.python)});
  random_bytes(std::as_writable_bytes(std::span(supervisor->token)));
  const std::string json = pool_json(spec_);
  const auto file = text_file(json);
  if (!file) {
    supervisor->channel->turn_away(Status(Code::kUnavailable, file.error().message()));
    return supervisor;
  }
  runner::PoolOpen frame{};
  std::copy(supervisor->token.begin(), supervisor->token.end(), frame.token);
  frame.json_bytes = json.size();
  (void)supervisor->channel->send(frame, RunnerFrameType::kPoolOpen, {file->get()});
  supervisors_.push_back(supervisor);
  publish();
  return supervisor;
}

std::shared_ptr<RunnerSupervisor> RunnerPool::supervisor_of(const runner::ChildHello& hello) const {
  for (const auto& supervisor : supervisors_)
    if (std::equal(supervisor->token.begin(), supervisor->token.end(), hello.token))
      return supervisor;
  return nullptr;
}

Result<std::shared_ptr<RunnerChild>> RunnerPool::add_child(
    const std::shared_ptr<RunnerSupervisor>& supervisor, std::shared_ptr<Channel> channel,
    const runner::ChildHello& hello) {
  if (supervisor->children.count(hello.number) != 0)
    return error(Code::kAlreadyExists, fmt::format("child {} is there already", hello.number));
  const auto code = std::to_array(hello.code);
  const bool is_known = code != decltype(code){};
  // A supervisor that is looking may end with its children, whose code does not count then.
  const bool counts = is_known && !supervisor->is_looking();
  if (counts && code_.value_or(code) != code) {
    const std::string changed = fmt::format(
        "the file of {} has changed since rows were first made with it, and others would come of "
        "it "
        "now: raise 'version' of its stage and apply the pipeline, or begin the job anew",
        spec_.call);
    fail_waiting(changed);
    flush();
    return error(Code::kFailedPrecondition, changed);
  }
  if (is_known) supervisor->code = code;
  if (counts) code_ = code;
  auto child = std::make_shared<RunnerChild>();
  child->channel = std::move(channel);
  child->supervisor = supervisor;
  child->number = hello.number;
  child->pid = hello.pid;
  child->awaits = hello.awaits != 0;
  const Status opened =
      open_cells(*child, {.answers = answer_table_bytes_ + 2 * runner::kMaxRunnerFrameBytes});
  if (!opened.ok()) {
    --unborn_;  // it is about to end, and there may be room for the next one
    trouble_ = opened.message();
    publish();
    return tl::unexpected(opened);
  }
  trouble_.clear();
  unborn_ = 0;
  supervisor->children[hello.number] = child;
  {
    MutexLock lock(mutex_);
    RunnerView& view = views_[{supervisor->channel->id(), hello.number}];
    view.uid = uid_;
    view.call = spec_.call;
    view.key = key_;
    view.supervisor = supervisor->pid;
    view.number = hello.number;
    view.pid = hello.pid;
    view.own_pid = child->channel->peer().pid;
  }
  publish();
  dispatch();
  flush();
  return child;
}

Status RunnerPool::take(RunnerSupervisor& supervisor, Channel::Frame frame) {
  const auto header = frame_as<runner::RunnerHeader>(frame);
  if (header && header->type == RunnerFrameType::kChildEnded) {
    const auto ended = frame_as<runner::ChildEnded>(frame);
    const auto text = ended ? frame_text(frame, *ended) : std::nullopt;
    if (!text) return garbage("a ChildEnded of another size");
    take_ended(supervisor, *ended, *text);
  } else if (header && header->type == RunnerFrameType::kImportFailed) {
    const auto failed = frame_as<runner::ImportFailed>(frame);
    const auto text = failed ? frame_text(frame, *failed) : std::nullopt;
    if (!text) return garbage("an ImportFailed of another size");
    fail_waiting(*text);
  } else if (header && header->type == RunnerFrameType::kLooked && supervisor.is_looking()) {
    ++supervisor.looked;
    if (!supervisor.is_looking() && !code_) code_ = supervisor.code;
  } else {
    return garbage("a supervisor says nothing but ChildEnded, ImportFailed and Looked");
  }
  dispatch();
  flush();
  return {};
}

void RunnerPool::take_ended(RunnerSupervisor& supervisor, const runner::ChildEnded& frame,
                            std::string text) {
  const auto found = supervisor.children.find(frame.number);
  std::shared_ptr<RunnerChild> child;
  if (found != supervisor.children.end() && found->second->pid == frame.pid) child = found->second;
  std::string why =
      child != nullptr && !child->killed_for.empty() ? child->killed_for : how_ended(frame, spec_);
  log::info({.uid = uid_, .has_quota = true}, "runners: child {} of {} (pid {}) ended: {}",
            frame.number, spec_.call, frame.pid, why);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  if (!text.empty()) why += "; its last lines: " + text;
  {
    MutexLock lock(mutex_);
    const auto view = views_.find({supervisor.channel->id(), frame.number});
    if (view != views_.end()) {
      view->second.pid = view->second.own_pid = 0;
      ++view->second.restarts;
      view->second.why = why;
    }
  }
  if (child == nullptr) {  // it ended before it could serve
    trouble_ = why;
    // A kill may come from anywhere.
    const bool itself = !WIFSIGNALED(frame.status) || WTERMSIG(frame.status) != SIGKILL;
    if (itself && ++unborn_ >= kMostUnborn) fail_waiting(spec_.call + ": " + why);
    return publish();
  }
  supervisor.children.erase(found);
  end_child(*child, why);
  publish();
}

void RunnerPool::fail_waiting(const std::string& text) {
  log::info({.uid = uid_, .has_quota = true}, "runners: {} cannot be run: {}", spec_.call, text);
  trouble_ = text;
  if (serving() == 0) {
    take_incoming();
    for (CalledRow& row : queue_) tell(row, Status(Code::kFailedPrecondition, text));
    queue_.clear();
  }
  publish();
}

void RunnerPool::kill(const std::shared_ptr<RunnerChild>& child, std::string why) {
  if (child->ended || !child->killed_for.empty()) return;
  child->killed_for = std::move(why);
  child->channel->close();  // what it says from now on counts as far as it lies in its cells
  runner::Kill frame{};
  frame.number = child->number;
  frame.pid = child->pid;
  if (const auto supervisor = child->supervisor.lock())
    (void)supervisor->channel->send(frame, RunnerFrameType::kKill);
  await_end(child);
}

void RunnerPool::await_end(const std::shared_ptr<RunnerChild>& child) {
  child->serves = false;
  publish();
  loop_->run_after(options_.patience, [pool = weak_from_this(), child] {
    const auto alive = pool.lock();
    const auto supervisor = child->supervisor.lock();
    if (alive != nullptr && supervisor != nullptr && !child->ended) alive->gone(supervisor);
  });
}

void RunnerPool::gone(const std::shared_ptr<RunnerChild>& child) {
  child->channel->close();
  if (!child->ended && child->serves) await_end(child);
}

void RunnerPool::gone(const std::shared_ptr<RunnerSupervisor>& supervisor) {
  supervisor->channel->close();
  if (std::erase(supervisors_, supervisor) == 0) return;
  // Most often it is nobody's fault, and all its children end with it.
  for (const auto& [number, child] : std::exchange(supervisor->children, {}))
    end_child(*child, child->killed_for.empty() ? "with its supervisor" : child->killed_for,
              child->killed_for.empty() ? kMostSupervisorEnds : kMostEnds);
  {
    MutexLock lock(mutex_);
    std::erase_if(views_,
                  [&](const auto& view) { return view.first.first == supervisor->channel->id(); });
  }
  publish();
  dispatch();
  flush();
}

void RunnerPool::end_child(RunnerChild& child, const std::string& why, int most) {
  if (std::exchange(child.ended, true)) return;
  child.serves = false;
  child.channel->close();
  bool blamed = why.empty();
  std::vector<CalledRow> again;
  for (RunnerChild::Call& call : child.calls) {
    CellReader cell(*child.cells, call.cell, 1);
    for (std::size_t i = 0; i < call.rows.size(); ++i) {
      CalledRow& row = call.rows[i];
      // It may have answered without a word of it.
      if (!row.answered) (void)take_row(child, call, cell, i, again);
      if (row.answered) continue;
      const bool to_blame = !std::exchange(blamed, true);
      if (row.row == nullptr) continue;
      if (to_blame && ++row.ends >= most) {
        tell(row, Status(Code::kDataLoss, fmt::format("{}: its function ended {} processes: {}",
                                                      spec_.call, row.ends, why)));
      } else {
        again.push_back(row);
      }
    }
  }
  child.calls.clear();
  child.cells.reset();
  requeue(std::move(again));
}

void RunnerPool::publish() {
  std::string text;
  if (serving() == 0) {
    if (supervisors_.empty()) {
      text = fmt::format("no process runs {} for uid {}: start them by '{}'", spec_.call, uid_,
                         options_.command);
    } else {
      text = fmt::format("the processes that run {} are being started (by pid {})", spec_.call,
                         supervisors_.front()->pid);
    }
    if (!trouble_.empty()) text += "; the last ones could not: " + trouble_;
  }
  MutexLock lock(mutex_);
  waits_for_ = std::move(text);
  is_wanted_ = supervisors_.empty();
}

}  // namespace spdld::delivery
