// SPDX-License-Identifier: Apache-2.0
#pragma once

// The classes of CLI11 that headers name. A file that includes all of it compiles most of it.
namespace CLI {  // NOLINT(readability-identifier-naming): the library's

class App;
class Validator;

}  // namespace CLI
