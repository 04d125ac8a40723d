// The shortest beginning of an order that reaches a share of the weight, without sorting: the one selection behind
// top_k, top_p and typical_p.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace outrider {

// Marks with 1 the entries, those of the lowest keys first and of equal keys the earlier ones, whose weights are the fewest to
// reach `needed`; all of them if even their sum falls short, as rounding may have it. Takes time in proportion to the
// entries, whatever they are. Keys are not NaN.
std::vector<uint8_t> select_lowest(std::span<const double> keys, std::span<const double> weights, double needed);

}  // namespace outrider
