// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace spdld::source {

// A pattern over relative paths, compared byte by byte and with case:
//   *       any run of characters without '/'         ?      one character but '/'
//   [a-z]   one of them; [!a-z] one that is not       {a,b}  one of these patterns
//   **      as a whole part of the path: any number of directories, none included
//   \x      the character x itself
// A name that begins with '.' is matched only by a part that begins with '.' itself, as in a shell:
// so .snapshot/ and ._copies stay out. Immutable; any thread.
class Glob {
 public:
  // How far a path of directories has matched: for each alternative, a bit for each of its parts
  // that may come next. A walk carries it along, and need not enter a directory whose state is
  // dead.
  struct State {
    std::vector<std::uint64_t> next;
    bool dead() const;
  };

  // kInvalidArgument says what is wrong with the pattern.
  static Result<Glob> parse(std::string_view pattern);

  State start() const;
  // Below the directory `name`.
  State enter(const State& state, std::string_view name) const;
  // In the directory of that path; empty: where start() is.
  State at(std::string_view directory) const;
  // Whether a file `name` there matches.
  bool accepts(const State& state, std::string_view name) const;

  bool matches(std::string_view path) const;

  // Whether every file below the directory `path` matches, however deep and whatever its name, but
  // for names that begin with '.' and what lies below them.
  bool covers(std::string_view path) const;
  // Whether a file that matches may have a name that begins with '.', or lie below such a one.
  bool may_match_hidden() const;

 private:
  // The parts between slashes of one alternative, without braces. "**" stands for itself.
  using Parts = std::vector<std::string>;

  std::vector<Parts> alternatives_;
};

}  // namespace spdld::source
