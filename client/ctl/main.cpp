// SPDX-License-Identifier: Apache-2.0
#include <iostream>
#include <string>
#include <vector>

#include "ctl/spdlctl.h"

int main(int argc, char** argv) {
  std::ios::sync_with_stdio(false);
  return spdld::ctl::run(std::vector<std::string>(argv + 1, argv + argc), std::cout, std::cerr);
}
