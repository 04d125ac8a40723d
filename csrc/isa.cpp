#include "isa.h"

#include <algorithm>
#include <cstdlib>
#include <stdexcept>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace outrider {
namespace {

#if defined(__x86_64__)

// arch/x86/include/uapi/asm/prctl.h
constexpr int kArchReqXcompPerm = 0x1023;
constexpr int kXfeatureTileData = 18;

// Not every compiler's __builtin_cpu_supports knows the name; what it says of AVX2 covers the system's part.
bool has_f16c() {
  unsigned a, b, c, d;
  return __get_cpuid(1, &a, &b, &c, &d) && (c >> 29 & 1) != 0;
}

bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c(); }

bool has_avx512vnni() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vnni");
}

// CPUID.(7,0):EDX says what the processor has, XCR0 what the system saves, and Linux lends the 8 KiB of tile state to a
// process on request only. The request is harmless to repeat and holds for every thread of the process.
bool acquire_amx() {
  unsigned a, b, c, d;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d >> 24 & 1) == 0 || (d >> 25 & 1) == 0) return false;
  if (!__get_cpuid(1, &a, &b, &c, &d) || (c >> 27 & 1) == 0) return false;  // OSXSAVE
  unsigned xcr0_low, xcr0_high;
  asm volatile("xgetbv" : "=a"(xcr0_low), "=d"(xcr0_high) : "c"(0));
  if ((xcr0_low >> 17 & 3) != 3) return false;  // tile configuration and tile data
  return syscall(SYS_arch_prctl, kArchReqXcompPerm, kXfeatureTileData) == 0;
}

#endif

}  // namespace

std::vector<Isa> available_isas() {
  std::vector<Isa> isas{Isa::kPortable};
#if defined(__x86_64__)
  if (has_avx2()) isas.push_back(Isa::kAvx2);
  if (has_avx512vnni()) {
    isas.push_back(Isa::kAvx512Vnni);
    if (acquire_amx()) isas.push_back(Isa::kAmx);
  }
#endif
  return isas;
}

std::string_view isa_name(Isa isa) {
  switch (isa) {
    case Isa::kPortable: return "portable";
    case Isa::kAvx2: return "avx2";
    case Isa::kAvx512Vnni: return "avx512vnni";
    case Isa::kAmx: return "amx";
  }
  throw std::invalid_argument("not an instruction set: " + std::to_string(static_cast<int>(isa)));
}

Isa choose_isa(std::string_view name) {
  const char* const variable = name.empty() ? std::getenv("OUTRIDER_ISA") : nullptr;
  if (variable != nullptr) name = variable;
  const std::vector<Isa> isas = available_isas();
  if (name.empty()) return isas.back();
  const auto found = std::find_if(isas.begin(), isas.end(), [&](Isa isa) { return isa_name(isa) == name; });
  if (found != isas.end()) return *found;
  std::string names;
  for (const Isa isa : isas) names += (names.empty() ? "" : ", ") + std::string(isa_name(isa));
  throw std::invalid_argument((variable != nullptr ? "OUTRIDER_ISA names instruction set '" : "instruction set '") +
                              std::string(name) + "', which is not available; this machine runs: " + names);
}

}  // namespace outrider
