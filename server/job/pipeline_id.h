// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

// How pipelines are told apart. Every user has pipeline names of its own; admins apply into one set
// of names that all users share. Inside the daemon and in its records a pipeline is called by its
// id: "NAME" for a shared one, "UID/NAME" for a user's. No name has a slash.
namespace spdld::job {

// The user that a pipeline belongs to, and whether all users share its name.
struct PipelineOwner {
  uid_t uid = 0;
  bool shared = true;

  friend bool operator==(const PipelineOwner&, const PipelineOwner&) = default;
};

inline std::string pipeline_id(const PipelineOwner& owner, const std::string& name) {
  return owner.shared ? name : std::to_string(owner.uid) + "/" + name;
}

inline bool is_shared(std::string_view id) { return id.find('/') == std::string_view::npos; }

// As a record has it.
inline PipelineOwner owner_of(std::string_view id, uid_t uid) {
  return {.uid = uid, .shared = is_shared(id)};
}

}  // namespace spdld::job
