#pragma once

#include <nanobind/nanobind.h>

namespace outrider {

void bind_sampling(nanobind::module_& module);

}  // namespace outrider
