// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <ostream>
#include <string>

#include "ctl/table.h"
#include "spdld/v1/control.pb.h"

// What `status` and `get` print, as a table for people and as JSON for programs.
namespace spdld::ctl {

// A message under its fields' own names, every field there; numbers are numbers, an optional field
// that is not set is null, an enum its name without the prefix in lower case, a map (all have text
// as keys) an object.
nlohmann::ordered_json to_json(const google::protobuf::Message& message);
// Several, as a list.
template <typename Messages>
void print_json(const Messages& messages, std::ostream& out) {
  auto list = nlohmann::ordered_json::array();
  for (const auto& message : messages) list.push_back(to_json(message));
  out << list.dump(2) << '\n';
}

Table pipelines_table(const google::protobuf::RepeatedPtrField<v1::Pipeline>& pipelines);
Table history_table(const google::protobuf::RepeatedPtrField<v1::Revision>& revisions);
Table jobs_table(const google::protobuf::RepeatedPtrField<v1::Job>& jobs);
// Jobs that have ended, and how.
Table ended_jobs_table(const google::protobuf::RepeatedPtrField<v1::Job>& jobs);
Table sessions_table(const google::protobuf::RepeatedPtrField<v1::Session>& sessions);
Table users_table(const google::protobuf::RepeatedPtrField<v1::User>& users);
Table runners_table(const google::protobuf::RepeatedPtrField<v1::Runner>& runners);
Table storage_table(const google::protobuf::RepeatedPtrField<v1::Storage>& storage);
Table stages_table(const google::protobuf::RepeatedPtrField<v1::Stage>& stages);
Table failures_table(const google::protobuf::RepeatedPtrField<v1::Failure>& failures);
Table classes_table(const v1::ClassesResponse& classes);
// An array of names, or of objects where the data have other numbers for them.
nlohmann::ordered_json classes_json(const v1::ClassesResponse& classes);
// One job with all that is known of it.
void print_job(const v1::Job& job, std::ostream& out);
// "since 2026-05-01 12:30:05Z by uid 0: 2 ranks are attached"
std::string show_drain(const v1::Drain& drain);
void print_status(const v1::Daemon& daemon, const std::string& address, std::ostream& out);

// Its pid; where the daemon does not see that, "17@pod-7": as the process itself does, and where.
std::string show_process(const v1::Session& session);
// "uint8[3, 224, 224]"
std::string show_tensor(const v1::Tensor& tensor);

}  // namespace spdld::ctl
