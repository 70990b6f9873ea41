// SPDX-License-Identifier: Apache-2.0
#include "pipeline/phase.h"

namespace spdld::pipeline {

std::string Phase::order_text() const {
  if (pipeline == nullptr) return {};
  const source::Order order = pipeline->order();
  return order.digest() + "-" + std::to_string(order.items);
}

}  // namespace spdld::pipeline
