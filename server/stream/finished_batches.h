// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "engine/stream_port.h"
#include "stream/slot_pool.h"
#include "stream/span.h"
#include "stream/stream_reader.h"

namespace spdld::stream {

// A batch that a reader was given a lease of.
struct TakenBatch {
  std::uint64_t lease = 0;
  std::shared_ptr<SlotPool> pool;
  std::uint32_t slot = 0;  // of that pool
  engine::BatchOrder order;
  bool shared = false;  // another job has made it
  // Samples of it that were replaced before the reader's job could be asked.
  std::vector<engine::SampleFailure> replaced = {};
};

// The batches that a reader could take now, one after the other.
struct ReadableBatches {
  std::uint32_t batches = 0;
  bool to_its_end = false;  // it reads nothing behind them
};

// The finished batches of one stream: the slot that each lies in, its copies on GPUs, and the
// readers that have not taken it. A reader takes a batch in main memory, or on its GPU once the
// copy is complete. A slot is free again when no reader is expected to take the batch there and no
// copy from it is under way.
//
// A replica that is away keeps its place among the readers, and the batches that it wants are kept
// for it. Until it has joined for the first time it may read anywhere: it is expected in main
// memory, and in each copy.
//
// Owned by its stream and guarded by the stream's lock. Calls no reader.
class FinishedBatches {
 public:
  struct Reader : ReaderTerms {
    std::weak_ptr<StreamReader> consumer = {};
    bool hungry = false;    // asked for a batch that was not there
    bool unplaced = false;  // a replica that has not joined this stream yet

    bool is_away() const { return holder == 0; }
    bool wants(Index at) const { return next <= at && at < until; }
  };

  // A copy of a batch to a GPU that is under way.
  struct Copy {
    Index at = 0;
    engine::BatchOrder order;
    std::shared_ptr<SlotPool> on_gpu;
    std::uint32_t to = 0;     // the slot there
    std::uint64_t lease = 0;  // of the slot in main memory
  };

  explicit FinishedBatches(std::shared_ptr<SlotPool> pool) : pool_(std::move(pool)) {}

  // Readers.
  const std::vector<Reader>& readers() const { return readers_; }
  Reader* find(delivery::HolderId holder);
  const Reader* find(delivery::HolderId holder) const;
  // The place of a replica that is away.
  const Reader* find_away(std::uint32_t replica) const;
  // The consumers of those readers for which choose(reader) is true.
  template <typename Choose>
  ReaderRefs live(const Choose& choose) const {
    ReaderRefs refs;
    for (const Reader& reader : readers_) {
      if (!choose(reader)) continue;
      if (auto ref = reader.consumer.lock()) refs.push_back(std::move(ref));
    }
    return refs;
  }
  // The first batch that any reader needs.
  Index lowest() const;
  // Adds a replica that is away and has not joined yet.
  void expect(JobTag job, std::uint32_t replica, Index next, job::Turn turn);
  // The first batch, `first` or a later one, from which on such a reader could take all.
  Index joinable(const ReaderTerms& terms, Index first) const;
  // Adds a reader of the batches [terms.next, terms.until), in its place if it was away.
  void join(const ReaderTerms& terms, const std::shared_ptr<StreamReader>& reader);
  // The reader takes no batch before `to`.
  void skip_to(Reader& reader, Index to);
  // False, and nothing is done, if batches that it would read then are gone.
  bool set_until(Reader& reader, Index until);
  static void set_away(Reader& reader);
  void remove(const Reader& reader);
  // Readers in these slots take no further batch.
  void stop(const std::shared_ptr<SlotPool>& on_gpu);

  // Batches. The reader's job is told once of each sample that was replaced.
  std::optional<TakenBatch> take(Reader& reader, Index at);
  // Whether the batch lies where the reader takes it.
  bool has(const Reader& reader, Index at) const;
  ReadableBatches readable(const Reader& reader) const;
  // Others have all slots on the reader's GPU, and its next batch is in none of them.
  bool lacks_room(const Reader& reader) const;
  // The batch is being made in the slot.
  void begin(Index at, std::uint32_t slot) { making_[slot] = at; }
  // Keeps the batch made in the slot for the readers that want it. Returns those that wait for it.
  ReaderRefs add(std::uint32_t slot, const engine::BatchOrder& order);
  // The batch was given up while it was made; its slot is free again.
  void skip(std::uint32_t slot);
  // Behind the last batch that was made and is not kept any more. A new reader begins there at the
  // earliest, however far back the slowest reader is.
  Index gone() const { return gone_; }
  void note_replaced(Index at, const engine::SampleFailure& failure, std::vector<JobTag> told) {
    replaced_[at].push_back({failure, std::move(told)});
  }
  void clear();

  // Copies. Takes the slots for the next copy; none: nothing is to be copied, or no slot is free.
  // The slots of a GPU are filled in the order of steps: if later steps took them all, no reader
  // there could go on.
  std::optional<Copy> begin_copy();
  // Whether a reader there still wants the batch.
  bool wants(const Copy& copy) const;
  // Gives the slots of a copy to the readers there, or frees those of one that failed. Returns the
  // readers that wait for the batch.
  ReaderRefs end_copy(const Copy& copy, bool complete);

 private:
  // A slot that a batch lies in, or is copied to.
  struct Place {
    std::shared_ptr<SlotPool> pool;
    std::uint32_t slot = 0;
    std::uint32_t expected = 0;  // readers that are to take it here
    bool there = false;
    bool taken = false;  // by some reader

    void expect();
    void forgo();
    void discard();
  };
  struct Batch {
    engine::BatchOrder order;
    Place host;
    std::vector<Place> copies = {};

    const Place* copy_in(const std::shared_ptr<SlotPool>& on_gpu) const;
    // Where readers in these slots (null: in main memory) take it; null: it is not there.
    const Place* place_in(const std::shared_ptr<SlotPool>& on_gpu) const;
    Place* place_in(const std::shared_ptr<SlotPool>& on_gpu);
    // Whether it is there or can be copied there.
    bool reaches(const std::shared_ptr<SlotPool>& on_gpu) const {
      return host.expected > 0 || place_in(on_gpu) != nullptr;
    }
    // One reader more is to take it.
    void expect(const std::shared_ptr<SlotPool>& on_gpu);
  };
  using BatchAt = std::map<Index, Batch>::iterator;
  struct Replaced {
    engine::SampleFailure failure;
    std::vector<JobTag> told;
  };

  // Expects the reader to take the finished batches of [from, to).
  void expect(const Reader& reader, Index from, Index to);
  // The reader does not take the batches of [from, to).
  void forgo(const Reader& reader, Index from, Index to);
  void forgo(BatchAt batch, const Reader& reader);
  // How many replicas that have not joined yet want the batch.
  std::uint32_t unplaced(Index at) const;
  // Drops the copies in these slots that are kept for no reader there.
  void drop_unread(const std::shared_ptr<SlotPool>& on_gpu);
  // Drops the batch and its copies where all readers have taken them.
  void settle(BatchAt batch);
  void forget(Index at);
  // The first batch in the order of steps that a reader in these slots needs a copy of.
  BatchAt to_copy(const std::shared_ptr<SlotPool>& on_gpu);

  const std::shared_ptr<SlotPool> pool_;
  std::vector<Reader> readers_;
  std::map<std::uint32_t, Index> making_;  // by the slot that it is made in
  std::map<Index, Batch> batches_;
  std::map<Index, std::vector<Replaced>> replaced_;  // of batches in the making, too
  Index gone_ = 0;
};

}  // namespace spdld::stream
