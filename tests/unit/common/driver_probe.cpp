// SPDX-License-Identifier: Apache-2.0
// Prints the version and the number of devices of the driver that it finds, or why there is none.
#include <cstdio>

#include "cuda/driver.h"

int main() {
  const spdld::cuda::Driver& driver = spdld::cuda::driver();
  if (driver) {
    std::printf("version %d, %d devices", driver.version, driver.devices);
  } else {
    std::printf("%s", driver.why_not.c_str());
  }
  return 0;
}
