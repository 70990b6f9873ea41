// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

// Formats, tables, transforms and arguments of other tools, and what to write here in their place:
// for messages of apply, of items and of `spdlctl init`.
namespace spdld {

struct ForeignFormat {
  std::string_view name;  // "Parquet"
  std::string_view what;  // what to do with it here
};

// The format of the small text file that a repository holds in place of a large file.
inline constexpr std::string_view kLfsPointer = "a pointer of Git LFS";
// So many first bytes of a file tell what it is.
inline constexpr std::size_t kForeignHead = 352;
// By what the file begins with. Null: it is nothing that the table knows.
const ForeignFormat* foreign_content(std::string_view head);
// By its name alone.
const ForeignFormat* foreign_file(std::string_view path);
// A table of another library, by the names of its columns. Null: it is none that is known.
const ForeignFormat* foreign_table(const std::vector<std::string>& columns);
// "Parquet, which ...": to be read behind "it is".
std::string described(const ForeignFormat& format);

// A transform's name as ops are called here: "RandomResizedCrop(224)" is random_resized_crop.
std::string op_name_of(std::string_view transform);
// The way out for a transform that is no op here, by its name in the form of ops' names; empty: the
// table does not have it.
std::string_view instead_of_transform(std::string_view op_name);
// The way out for a key or a value that is none here. `in`: for a key, the op or section that it
// stands in; for a value, the key that has it. Empty: the table does not have it.
std::string_view instead_of_argument(std::string_view in, std::string_view name);

}  // namespace spdld
