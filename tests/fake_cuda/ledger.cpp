// SPDX-License-Identifier: Apache-2.0
#include "tests/fake_cuda/ledger.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <random>
#include <sstream>

#include "tests/fake_cuda/errors.h"
#include "tests/fake_cuda/physical_memory.h"

namespace spdld::fake_cuda {
namespace {

constexpr std::uint64_t kMagic = 0x3272656764656c66;  // "fledger2"

// When the process was started; nothing if it is dead, unreaped or not.
std::optional<std::uint64_t> start_of(std::uint64_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  // The second field, a name in parentheses, may have spaces and parentheses of its own.
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(text.substr(name_end + 1));
  std::string state;
  fields >> state;
  if (state.empty() || state == "Z" || state == "X") return std::nullopt;
  std::string field;
  for (int number = 4; number <= 22; ++number) fields >> field;
  return std::stoull(field);
}

void clear(LedgerEntry& entry) {
  for (auto* counts : {&entry.contexts, &entry.device_bytes}) {
    for (auto& count : *counts) count = 0;
  }
  for (auto* count : {&entry.registrations, &entry.registered_bytes, &entry.host_allocations,
                      &entry.streams, &entry.events, &entry.left_behind, &entry.handles,
                      &entry.reservations, &entry.mapped_ranges, &entry.started})
    *count = 0;
  entry.pid = 0;
}

void add(FakeCudaCounts& counts, const LedgerEntry& entry) {
  ++counts.processes;
  for (const auto& contexts : entry.contexts) counts.contexts += contexts;
  for (const auto& bytes : entry.device_bytes) counts.device_bytes += bytes;
  counts.registrations += entry.registrations;
  counts.registered_bytes += entry.registered_bytes;
  counts.host_allocations += entry.host_allocations;
  counts.streams += entry.streams;
  counts.events += entry.events;
  counts.left_behind += entry.left_behind;
  counts.handles += entry.handles;
  counts.reservations += entry.reservations;
  counts.mapped_ranges += entry.mapped_ranges;
}

// Held over what several entries decide together. Does nothing where there is no file.
class FileLock {
 public:
  explicit FileLock(int fd) : fd_(fd) {
    while (fd_ >= 0 && ::flock(fd_, LOCK_EX) != 0) {
      if (errno != EINTR) abort_with("the ledger cannot be locked: %s", std::strerror(errno));
    }
  }
  ~FileLock() {
    if (fd_ >= 0) ::flock(fd_, LOCK_UN);
  }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  const int fd_;
};

}  // namespace

struct Ledger::File {
  LedgerEntry::Count magic;
  LedgerEntry::Count id;
  std::array<LedgerEntry, 256> entries;
};

Ledger::Ledger(const std::string& path) {
  int flags = MAP_SHARED | MAP_ANONYMOUS;
  if (!path.empty()) {
    fd_ = UniqueFd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (!fd_ || ::ftruncate(fd_.get(), sizeof(File)) != 0)
      abort_with("FAKE_CUDA_LEDGER: %s: %s", path.c_str(), std::strerror(errno));
    flags = MAP_SHARED;
  }
  void* const mapped = ::mmap(nullptr, sizeof(File), PROT_READ | PROT_WRITE, flags, fd_.get(), 0);
  if (mapped == MAP_FAILED) abort_with("the ledger cannot be mapped: %s", std::strerror(errno));
  file_ = static_cast<File*>(mapped);
  const FileLock lock(fd_.get());
  if (file_->magic != 0 && file_->magic != kMagic)
    abort_with("FAKE_CUDA_LEDGER: %s is another kind of file", path.c_str());
  if (file_->magic == 0) file_->id = std::random_device()() >> 4;
  file_->magic = kMagic;
}

Ledger::Ledger(const std::string& path, ReadOnly) {
  fd_ = UniqueFd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  struct stat status {};
  if (!fd_ || ::fstat(fd_.get(), &status) != 0) return;
  if (static_cast<std::size_t>(status.st_size) < sizeof(File)) return;
  // Writable, since whoever looks removes the dead.
  void* const mapped =
      ::mmap(nullptr, sizeof(File), PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
  if (mapped == MAP_FAILED) return;
  file_ = static_cast<File*>(mapped);
  if (file_->magic == kMagic) return;
  ::munmap(file_, sizeof(File));
  file_ = nullptr;
}

Ledger::~Ledger() {
  if (file_ != nullptr) ::munmap(file_, sizeof(File));
}

void Ledger::enter() {
  const auto pid = static_cast<std::uint64_t>(::getpid());
  const FileLock lock(fd_.get());
  for_each_living([](LedgerEntry&) {});
  for (LedgerEntry& entry : file_->entries) {
    if (entry.pid != 0) continue;
    entry.started = start_of(pid).value_or(0);
    entry.pid = pid;
    own_ = &entry;
    return;
  }
  abort_with("the ledger has room for %zu processes", file_->entries.size());
}

std::uint32_t Ledger::id() const { return static_cast<std::uint32_t>(file_->id); }

std::uint64_t Ledger::held(int device) const {
  const FileLock lock(fd_.get());
  return held_under_lock(device);
}

bool Ledger::take(int device, std::uint64_t bytes, std::uint64_t limit) {
  return take(device, bytes, limit, [&] {
    own_->device_bytes[device] += bytes;
    return true;
  });
}

bool Ledger::take(int device, std::uint64_t bytes, std::uint64_t limit,
                  const std::function<bool()>& create) {
  const FileLock lock(fd_.get());
  return bytes <= limit && held_under_lock(device) <= limit - bytes && create();
}

bool Ledger::add_context(int device, bool alone) {
  const FileLock lock(fd_.get());
  bool others = false;
  for_each_living([&](LedgerEntry& entry) {
    others = others || (&entry != own_ && entry.contexts[device] != 0);
  });
  if (alone && others) return false;
  ++own_->contexts[device];
  return true;
}

FakeCudaCounts Ledger::own_counts() const {
  FakeCudaCounts counts{};
  if (own_ != nullptr) add(counts, *own_);
  return counts;
}

FakeCudaCounts Ledger::all_counts() const {
  FakeCudaCounts counts{};
  const FileLock lock(fd_.get());
  for_each_living([&](LedgerEntry& entry) { add(counts, entry); });
  for (const std::uint64_t bytes : living_bytes(id())) counts.shared_bytes += bytes;
  return counts;
}

std::uint64_t Ledger::held_under_lock(int device) const {
  std::uint64_t held = living_bytes(id())[device];
  for_each_living([&](LedgerEntry& entry) { held += entry.device_bytes[device]; });
  return held;
}

void Ledger::for_each_living(const std::function<void(LedgerEntry&)>& look) const {
  for (LedgerEntry& entry : file_->entries) {
    if (entry.pid == 0) continue;
    if (&entry != own_ && start_of(entry.pid) != entry.started) {
      clear(entry);
    } else {
      look(entry);
    }
  }
}

}  // namespace spdld::fake_cuda
