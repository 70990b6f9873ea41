// SPDX-License-Identifier: Apache-2.0
#pragma once

// What of CLI11 is named in headers: who includes all of it compiles most of it.
namespace CLI {  // NOLINT(readability-identifier-naming): the library's

class App;
class Validator;

}  // namespace CLI
