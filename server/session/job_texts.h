// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "session/job.h"

// Texts about a job that several commands use in their messages.
namespace spdld::session {

// "shard 1 of 4"
std::string shard_text(std::uint32_t shard, std::uint32_t num_shards);
// "shard 1", "replica 0 of shard 1"
std::string member_text(const Job& job, job::Member member);
// Tells why a shard that enters the job is not read before another one comes, and gives advice.
std::string waits_text(const Job& job, std::uint32_t shard);
// Names the other replica of the shard that is waited for, with advice; empty if there is none.
std::string away_text(const Job& job, job::Member member);
// kInvalidArgument: the name begins as an option or a hidden directory does. Empty is a private
// job's.
Status check_job_name(const std::string& name);
Status beyond_its_end(const Job& job);

}  // namespace spdld::session
