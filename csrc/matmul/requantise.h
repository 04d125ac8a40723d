// Groups of 32 floats as codes of fewer bits. Internal to the room.
#pragma once

#include "formats/blocks.h"

namespace outrider {

// n of the 32 values, 1 <= n <= 32, are given, the rest are zero. Both throw std::invalid_argument for a value that is
// not finite, or too large for a float16 scale.
// Q8_0: the scale is that of the largest magnitude.
void requantise_int8(const float* x, int n, QuantBlock& out);
// Q4_0: the scale of least squared error among those that were tried.
void requantise_int4(const float* x, int n, QuantBlock& out);

}  // namespace outrider
