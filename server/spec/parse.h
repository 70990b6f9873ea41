// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "op/registry.h"
#include "spec/pipeline_spec.h"

namespace spdld::spec {

// Larger files are refused before they are read.
inline constexpr std::size_t kMaxFileBytes = 1 << 20;

// Gives the text of a file by absolute path; an error names the file.
using FileReader = std::function<Result<std::string>(const std::string& path)>;

// The value of an environment variable where the pipeline was submitted, or nothing.
using EnvLookup = std::function<std::optional<std::string>(const std::string& name)>;

// The FileReader that opens files of this machine: regular ones, up to kMaxFileBytes.
Result<std::string> read_text_file(const std::string& path);

// The EnvLookup of this process.
std::optional<std::string> process_env(const std::string& name);

// What a pipeline's text may lean on. Whatever is left empty is refused with a message that says
// so.
struct ParseOptions {
  // --var NAME=VALUE: replaces what `vars:` says of NAME, which must be there.
  std::map<std::string, std::string> vars = {};
  EnvLookup env = {};
  // Absolute; where relative paths of the text start.
  std::string directory = {};
  // For `extends`.
  FileReader read_file = {};
  // The rows of a run, in an order by length whose text does not say; none: 4 times batch.size.
  std::optional<std::uint64_t> bucket_run = std::nullopt;
};

// Text to PipelineSpec: extends merged, variables resolved, every key checked, defaults filled in.
// Total: any text gives a spec or the first error, "file:line:col: what; what to do", under
// kInvalidArgument (or what the FileReader said). `file_name` is what messages call the text.
Result<PipelineSpec> parse_pipeline(std::string_view text, const std::string& file_name,
                                    const Registry& registry, const ParseOptions& options);

// The same for a file of this machine: `path` names it in messages, and relative paths and extends
// start from its directory. options.directory and options.read_file, where given, win.
Result<PipelineSpec> parse_pipeline_file(const std::string& path, const Registry& registry,
                                         ParseOptions options);

// kInvalidArgument where batches of spec.batch.size would part rows that `repeat` keeps together. A
// spec whose batch size was changed after it was parsed is checked anew.
Status check_batch_size(const PipelineSpec& spec);

}  // namespace spdld::spec
