// SPDX-License-Identifier: Apache-2.0
#include "source/source_options.h"

#include "source/disk.h"

namespace spdld::source {

SourceOptions::SourceOptions(IoPool& pool) : io(pool), reader(Access::trusted()) {}
SourceOptions::SourceOptions(SourceOptions&&) noexcept = default;
SourceOptions::~SourceOptions() = default;

}  // namespace spdld::source
