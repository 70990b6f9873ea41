// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "op/order_spec.h"

// The model that job/schedule.h is compared with, written step by step and without any of its code:
// it forgets nothing, and counts each turn from the first one on.
namespace spdld::job::slow {

struct Version {
  std::uint64_t items = 0;
  Tail tail = Tail::kDrop;
  std::uint64_t batch = 0;
  int order = 0;
};

struct Step {
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;
  std::uint64_t position = 0;
  std::uint32_t shards = 1;
  std::uint32_t version = 0;
  std::uint32_t waiting = 0;  // `version`: none waits
};

enum class Kind { kSeek, kPlace, kOwnSkip, kSkip, kResize, kSwap };

struct Change {
  std::uint64_t turn = 0;
  Kind kind = Kind::kSeek;
  std::uint64_t epoch = 0;     // of kSeek, kPlace; of kSkip the one that it is in
  std::uint64_t step = 0;      // of kSeek, kPlace
  std::uint64_t position = 0;  // of kPlace
  int order = 0;               // of kPlace; of no matter at position 0
  std::uint64_t count = 0;     // steps; of kResize the shards
  std::uint32_t version = 0;   // of kSwap
};
using Changes = std::vector<Change>;

struct Plan {
  std::uint64_t from = 0;
  bool any_epoch = false;
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;
  std::uint32_t version = 0;
};

inline bool moves_place(Kind kind) { return kind == Kind::kSeek || kind == Kind::kSkip; }

struct Log {
  Step first;
  std::vector<Version> versions;
  Changes edits;  // by turn
  std::optional<Plan> plan;

  bool has_step(const Step& at) const {
    const Version& version = versions[at.version];
    const std::uint64_t left = version.items - at.position;
    return version.tail == Tail::kDrop ? left >= version.batch * at.shards : left > 0;
  }
  Step settle(Step at) const {
    if (at.position == 0) {
      at.version = at.waiting;
    } else if (!has_step(at)) {
      at = {at.epoch + 1, 0, 0, at.shards, at.waiting, at.waiting};
    }
    return at;
  }
  Step next(Step at) const {
    const Version& version = versions[at.version];
    ++at.step;
    at.position += version.batch * at.shards;
    if (at.position > version.items) at.position = version.items;
    return settle(at);
  }
  Step apply(Step at, const Change& change, const std::vector<std::uint32_t>& swapped) const {
    switch (change.kind) {
      case Kind::kSeek: {
        Step to{change.epoch, 0, 0, at.shards, at.waiting, at.waiting};
        while (to.step < change.step && has_step(to)) {
          const Version& version = versions[to.version];
          ++to.step;
          to.position += version.batch * to.shards;
          if (to.position > version.items) to.position = version.items;
        }
        return settle(to);
      }
      case Kind::kPlace: {
        std::uint32_t runs = swapped.back();
        for (const std::uint32_t version : swapped) {
          if (change.position > 0 && versions[version].order == change.order) runs = version;
        }
        return settle(
            {change.epoch, change.step, change.position, at.shards, runs, swapped.back()});
      }
      case Kind::kSkip:
        if (at.epoch != change.epoch) return at;
        [[fallthrough]];
      case Kind::kOwnSkip:
        for (std::uint64_t i = 0; i < change.count; ++i) {
          const std::uint64_t epoch = at.epoch;
          at = next(at);
          if (at.epoch != epoch) break;
        }
        return at;
      case Kind::kResize: at.shards = static_cast<std::uint32_t>(change.count); return settle(at);
      case Kind::kSwap:
        at.waiting = change.version;
        if (versions[change.version].order == versions[at.version].order)
          at.version = change.version;
        return settle(at);
    }
    return at;
  }
  // `own` and the edits, by turn, own ones first; `behind`: without the edits of that very turn.
  Step locate(std::uint64_t turn, const Changes& own, bool behind = false) const {
    Step at = settle(first);
    std::vector<std::uint32_t> swapped{first.version};
    std::size_t mine = 0;
    std::size_t jobs = 0;
    for (std::uint64_t now = 0;; ++now) {
      for (; mine < own.size() && own[mine].turn == now; ++mine) at = apply(at, own[mine], swapped);
      for (; jobs < edits.size() && edits[jobs].turn == now && !(behind && now == turn); ++jobs) {
        at = apply(at, edits[jobs], swapped);
        if (edits[jobs].kind == Kind::kSwap) swapped.push_back(edits[jobs].version);
      }
      if (now == turn) return at;
      at = next(at);
    }
  }
  std::uint32_t shards(std::uint64_t turn) const {
    std::uint32_t shards = first.shards;
    for (const Change& edit : edits) {
      if (edit.turn <= turn && edit.kind == Kind::kResize)
        shards = static_cast<std::uint32_t>(edit.count);
    }
    return shards;
  }
  void add(const Change& edit) {
    if (edit.kind == Kind::kSwap) plan.reset();
    Changes kept;
    Changes later;
    for (const Change& known : edits) {
      const bool alike =
          known.kind == edit.kind || (moves_place(known.kind) && moves_place(edit.kind));
      if (known.turn <= edit.turn) {
        kept.push_back(known);
      } else if (!alike) {
        later.push_back(known);
      }
    }
    kept.push_back(edit);
    kept.insert(kept.end(), later.begin(), later.end());
    edits = std::move(kept);
  }
  // Whether the swap that is planned takes effect at this turn.
  bool is_due(std::uint64_t turn, const Changes& own) const {
    if (!plan || turn < plan->from) return false;
    const Step at = locate(turn, own);
    if (plan->any_epoch) return at.position == 0;
    return at.epoch > plan->epoch || (at.epoch == plan->epoch && at.step >= plan->step);
  }
};

}  // namespace spdld::job::slow
