// Instruction sets the kernels are built for, chosen at run time.
//
// Every set computes the same bits: integer products are exact, and every floating-point operation of a row (each an
// explicit multiply, add or fused multiply-add on 16 lanes) happens in the same order in all of them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace outrider {

enum class Isa { kPortable, kAvx2, kAvx512Vnni, kAmx };

// Sets this binary holds and this processor and operating system run, the best last.
std::vector<Isa> available_isas();
std::string_view isa_name(Isa isa);  // "portable", "avx2", "avx512vnni", "amx"
// For an empty name the set that the environment variable OUTRIDER_ISA names, or else the best available one. Throws std::invalid_argument for an unknown or unavailable one,
// naming what is available. On success AMX has its permission from the operating system.
Isa choose_isa(std::string_view name);

}  // namespace outrider
