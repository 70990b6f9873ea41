// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "session/job.h"

// What several commands say of a job.
namespace spdld::session {

// "shard 1 of 4"
std::string shard_text(std::uint32_t shard, std::uint32_t num_shards);
// "shard 1", "replica 0 of shard 1"
std::string member_text(const Job& job, job::Member member);
// Why a shard that enters the job is not read before another one comes, and what to do.
std::string waits_text(const Job& job, std::uint32_t shard);
// Which other replica of the shard is waited for, and what to do; empty if none is.
std::string away_text(const Job& job, job::Member member);
// kInvalidArgument: the name begins as an option or a hidden directory does. Empty is a private
// job's.
Status check_job_name(const std::string& name);
// A loader that is told so comes again by itself.
Status about_to_change(const Job& job);
Status beyond_its_end(const Job& job);

}  // namespace spdld::session
