#pragma once

#include <nanobind/nanobind.h>

namespace outrider {

void bind_gguf(nanobind::module_& module);

}  // namespace outrider
