// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "ctl/cli_fwd.h"

namespace spdld::ctl {

// One word that may stand at the cursor, and what it means.
struct Candidate {
  std::string word;
  std::string means = {};
  bool goes_on = false;  // the word does, with what the user is to fill in: no blank follows it

  friend bool operator==(const Candidate&, const Candidate&) = default;
};

// What may stand at the cursor of a command line.
struct Completion {
  std::vector<Candidate> candidates;
  bool files = false;  // or the name of a file
  bool directories = false;
};

// What a command line says so far: the values of each option and positional, by the name that
// --help has for it ("--address", "JOB"); those of a flag are empty texts.
using Typed = std::map<std::string, std::vector<std::string>>;

// The names that a daemon has of a kind (PIPELINE, JOB, SESSION; VALUES and KEY are what 'tune'
// changes), those of other kinds being none.
using AskNames = std::function<std::vector<Candidate>(const std::string& kind, const Typed& typed)>;

// Completes the last of `words`, which follow the program's name on a command line of `app`; it may
// be empty. All is taken from the tree of `app`, and what a value may be from what --help calls it:
// the choices of an IsMember check, forms such as "now|step:EPOCH/STEP", FILE, DIR, and else a kind
// of names. Words that the tree has no place for complete to nothing.
Completion complete(const CLI::App& app, const std::vector<std::string>& words,
                    const AskNames& ask_names);

}  // namespace spdld::ctl
