// SPDX-License-Identifier: Apache-2.0
#include "delivery/runners/call_cells.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/text/utf8.h"
#include "delivery/memfd.h"

namespace spdld::delivery {
namespace {

using runner::AnswerKind;

constexpr std::uint64_t kCellPage = 4096;
constexpr std::uint64_t kMaxTextBytes = 16384;
constexpr std::uint64_t kMaxDescriptionBytes = std::uint64_t{256} << 20;
constexpr std::uint64_t kReadAhead = 65536;

std::uint64_t to_multiple(std::uint64_t bytes, std::uint64_t of = runner::kDataAlignment) {
  return (bytes + of - 1) / of * of;
}

Status bad_answer(const std::string& what) {
  return Status(Code::kInvalidArgument, "a runner's answer: " + what);
}

bool is_number(CallField::Kind kind) {
  return kind == CallField::Kind::kInt64 || kind == CallField::Kind::kFloat64;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

// Of an array of this shape; none if no row of the field has it.
std::optional<std::uint64_t> array_bytes(const CallField& field, const std::int64_t* shape) {
  std::uint64_t bytes = wire::dtype_bytes(field.dtype);
  bool fixed = true;
  for (std::size_t i = 0; i < field.shape.size(); ++i) {
    const std::int64_t extent = shape[i];
    if (extent < 0 || (field.shape[i] >= 0 && field.shape[i] != extent)) return {};
    fixed = fixed && field.shape[i] >= 0;
    if (__builtin_mul_overflow(bytes, static_cast<std::uint64_t>(extent), &bytes)) return {};
  }
  if (!fixed && bytes > field.max_bytes) return {};
  return bytes;
}

// The most that a row of the field takes; `fixed`: and every row does.
std::pair<std::uint64_t, bool> field_bytes(const CallField& field) {
  if (field.kind == CallField::Kind::kBool) return {1, true};
  if (is_number(field.kind)) return {8, true};
  if (field.kind == CallField::Kind::kArray &&
      std::find_if(field.shape.begin(), field.shape.end(), [](auto e) { return e < 0; }) ==
          field.shape.end())
    return {array_bytes(field, field.shape.data()).value_or(0), true};
  return {field.max_bytes, false};
}

Result<UniqueFd> open_sized(const char* name, std::uint64_t bytes) {
  SPDLD_ASSIGN(UniqueFd fd, open_memfd(name));
  const auto size = static_cast<off_t>(bytes);
  int failed = 0;
  do {
    // Pages that could not be had later would be a SIGBUS for whoever writes.
    failed = ::ftruncate(fd.get(), size) == 0 && ::fallocate(fd.get(), 0, 0, size) == 0 ? 0 : errno;
  } while (failed == EINTR);
  if (failed != 0)
    return tl::unexpected(errno_status(
        failed, "memory of " + format_bytes(bytes) + " for a process that runs users' functions"));
  return fd;
}

Status take_field(const CallField& field, const runner::FieldEntry& entry, CellReader& cell,
                  std::span<std::byte> into, PackedRow& row) {
  std::optional<std::uint64_t> bytes;
  row.shape = {};
  switch (field.kind) {
    case CallField::Kind::kArray:
      bytes = array_bytes(field, entry.shape);
      std::copy_n(entry.shape, field.shape.size(), row.shape.begin());
      break;
    case CallField::Kind::kBytes:
    case CallField::Kind::kText:
      if (entry.bytes <= field.max_bytes) bytes = entry.bytes;
      row.shape[0] = static_cast<std::int64_t>(entry.bytes);
      break;
    default: bytes = field_bytes(field).first; break;
  }
  if (bytes != entry.bytes)
    return bad_answer("'" + field.name + "' has another shape than declared");
  row.view = {};
  if (into.size() != *bytes || into.empty()) into = {row.bytes.resize(*bytes), *bytes};
  SPDLD_TRY(cell.read_data(entry.offset, into));
  row.view = into;
  const std::string_view text(reinterpret_cast<const char*>(row.view.data()), row.view.size());
  if (field.kind == CallField::Kind::kText && !is_utf8(text))
    return bad_answer("the text '" + field.name + "' is not UTF-8");
  const bool is_bool = field.kind == CallField::Kind::kBool ||
                       (field.kind == CallField::Kind::kArray && field.dtype == DType::kBool);
  if (is_bool && std::any_of(text.begin(), text.end(), [](char c) { return (c & ~1) != 0; }))
    return bad_answer("'" + field.name + "' holds bools that are neither 0 nor 1");
  return {};
}

}  // namespace

std::uint64_t argument_bytes(const CallRow& row) {
  std::uint64_t bytes = 0;
  for (const CallArgument& argument : row.arguments) bytes += to_multiple(argument.bytes.size());
  return bytes;
}

std::uint64_t row_table_bytes(std::size_t rows, std::size_t arguments) {
  return to_multiple(rows * (sizeof(runner::RowEntry) + arguments * sizeof(runner::ArgumentEntry)));
}

std::uint64_t answer_table_bytes(const CallSpec& spec) {
  return to_multiple(runner::kMaxCallRows *
                     (sizeof(runner::AnswerEntry) + spec.out.size() * sizeof(runner::FieldEntry)));
}

std::uint64_t most_answer_bytes(const CallSpec& spec, bool describes) {
  if (describes) return kMaxDescriptionBytes;
  std::uint64_t bytes = to_multiple(kMaxTextBytes);
  for (const CallField& field : spec.out) bytes += to_multiple(field_bytes(field).first);
  return bytes;
}

std::uint64_t least_answer_bytes(const CallSpec& spec) {
  std::uint64_t bytes = 0;
  for (const CallField& field : spec.out)
    if (const auto [most, fixed] = field_bytes(field); fixed) bytes += to_multiple(most);
  return bytes;
}

Result<std::unique_ptr<CallCells>> CallCells::create(CellSizes sizes, ArenaBudget& budget,
                                                     uid_t uid) {
  std::unique_ptr<CallCells> cells(new CallCells);
  cells->sizes_ = {.input = to_multiple(sizes.input, kCellPage),
                   .answers = to_multiple(sizes.answers, kCellPage)};
  const std::uint64_t input = cells->sizes_.input * runner::kCells;
  const std::uint64_t answers = cells->sizes_.answers * runner::kCells;
  SPDLD_ASSIGN(cells->reservation_,
               budget.reserve(input + answers, uid, "rows at a process that runs a function"));
  SPDLD_ASSIGN(cells->input_, open_sized("spdld-rows", input));
  SPDLD_ASSIGN(cells->answers_, open_sized("spdld-answers", answers));
  void* base = ::mmap(nullptr, input, PROT_READ | PROT_WRITE, MAP_SHARED, cells->input_.get(), 0);
  if (base == MAP_FAILED) return tl::unexpected(errno_status(errno, "mapping rows for a runner"));
  cells->base_ = static_cast<std::byte*>(base);
  (void)::madvise(base, input, MADV_DONTDUMP);  // an optimisation of core files, no more
  // The mapping above keeps writing; whoever gets the fd from here on can only read.
  constexpr int kSized = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  if (::fcntl(cells->input_.get(), F_ADD_SEALS, kSized | F_SEAL_FUTURE_WRITE) != 0 ||
      ::fcntl(cells->answers_.get(), F_ADD_SEALS, kSized) != 0) {
    return tl::unexpected(
        errno_status(errno, "sealing rows for a runner (Linux 5.1 or newer is needed)"));
  }
  return cells;
}

CallCells::~CallCells() {
  if (base_ != nullptr) ::munmap(base_, sizes_.input * runner::kCells);
}

Status CallCells::read(std::uint32_t cell, std::uint64_t offset, std::span<std::byte> to) const {
  if (offset > sizes_.answers || to.size() > sizes_.answers - offset)
    return bad_answer("it lies outside of its cell");
  std::uint64_t from = cell * sizes_.answers + offset;
  while (!to.empty()) {
    const ssize_t got = ::pread(answers_.get(), to.data(), to.size(), static_cast<off_t>(from));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return errno_status(got < 0 ? errno : EIO, "reading a runner's answer");
    from += static_cast<std::uint64_t>(got);
    to = to.subspan(static_cast<std::size_t>(got));
  }
  return {};
}

Status CellReader::read(Window& window, std::uint64_t offset, std::span<std::byte> to) const {
  const auto ahead = [&] {
    const std::uint64_t most = std::min<std::uint64_t>(rows_ * to_multiple(to.size()), kReadAhead);
    return offset < cells_.sizes().answers ? std::min(most, cells_.sizes().answers - offset) : 0;
  };
  const auto holds = [&] {
    const std::uint64_t from = offset - window.offset;
    return offset >= window.offset && from <= window.memory.size() &&
           to.size() <= window.memory.size() - from;
  };
  if (!holds()) {
    const std::uint64_t bytes = ahead();
    if (bytes < 2 * to.size()) return cells_.read(cell_, offset, to);
    window.offset = offset;
    SPDLD_TRY(cells_.read(cell_, offset, {window.memory.resize(bytes), bytes}));
  }
  if (!to.empty())
    std::memcpy(to.data(), window.memory.bytes().data() + (offset - window.offset), to.size());
  return {};
}

void write_rows(std::span<const CallRow* const> rows, std::span<std::byte> cell) {
  const std::size_t arguments = rows.front()->arguments.size();
  std::byte* entry = cell.data();
  std::uint64_t at = row_table_bytes(rows.size(), arguments);
  for (const CallRow* row : rows) {
    SPDLD_CHECK(row->arguments.size() == arguments);
    const runner::RowEntry head{row->seed, row->epoch, row->position,
                                row->describes ? runner::kDescribe : row->item};
    std::memcpy(std::exchange(entry, entry + sizeof head), &head, sizeof head);
    for (const CallArgument& argument : row->arguments) {
      const std::size_t bytes = argument.bytes.size();
      SPDLD_CHECK(at <= cell.size() && bytes <= cell.size() - at);
      runner::ArgumentEntry told{.offset = argument.absent ? 0 : at, .bytes = bytes, .shape = {}};
      std::copy(argument.shape.begin(), argument.shape.end(), told.shape);
      std::memcpy(std::exchange(entry, entry + sizeof told), &told, sizeof told);
      if (bytes != 0) std::memcpy(cell.data() + at, argument.bytes.data(), bytes);
      at += to_multiple(bytes);
    }
  }
}

Result<RowAnswer> read_answer(const CallSpec& spec, CellReader& cell, std::uint64_t call,
                              std::size_t index, CallRow* row) {
  const std::size_t fields = spec.out.size();
  const std::size_t entry_bytes = sizeof(runner::AnswerEntry) + fields * sizeof(runner::FieldEntry);
  std::array<std::byte, 2048> small{};
  ByteBuffer large;
  const std::span<std::byte> entry(
      entry_bytes <= small.size() ? small.data() : large.resize(entry_bytes), entry_bytes);
  SPDLD_TRY(cell.read_entry(index * entry_bytes, entry));
  runner::AnswerEntry head{};
  std::memcpy(&head, entry.data(), sizeof head);
  if (head.call != static_cast<std::uint32_t>(call)) return RowAnswer{};
  RowAnswer answer{.kind = head.kind, .text = {}, .bytes = 0};
  switch (head.kind) {
    case AnswerKind::kFields: break;
    case AnswerKind::kRejected: return answer;
    case AnswerKind::kNoRoom: answer.bytes = head.text_bytes; return answer;
    case AnswerKind::kRaised:
    case AnswerKind::kBadSample:
    case AnswerKind::kUnavailable: {
      if (head.text_bytes > kMaxTextBytes)
        return tl::unexpected(bad_answer("its text is too long"));
      std::string text(head.text_bytes, '\0');
      SPDLD_TRY(cell.read_data(head.text_offset, std::as_writable_bytes(std::span(text))));
      answer.text = utf8(text);
      return answer;
    }
    case AnswerKind::kDescription: {
      if (row == nullptr) return answer;
      if (!row->describes || head.text_bytes > cell.cell_bytes())
        return tl::unexpected(bad_answer("no description of such a size was asked for"));
      row->description.resize(head.text_bytes);
      SPDLD_TRY(
          cell.read_data(head.text_offset, std::as_writable_bytes(std::span(row->description))));
      return answer;
    }
    default: return tl::unexpected(bad_answer("it is of no kind"));
  }
  if (row == nullptr) return answer;
  row->answers.resize(fields);
  for (std::size_t i = 0; i < fields; ++i) {
    runner::FieldEntry told{};
    std::memcpy(&told, entry.data() + sizeof head + i * sizeof told, sizeof told);
    SPDLD_TRY(take_field(spec.out[i], told, cell,
                         i < row->into.size() ? row->into[i] : std::span<std::byte>(),
                         row->answers[i]));
    answer.bytes += to_multiple(told.bytes);
  }
  return answer;
}

}  // namespace spdld::delivery
