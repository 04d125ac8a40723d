// A test is a function that throws Failure with a message saying what was expected.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace outrider::test {

struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

template <class... Parts>
void check(bool ok, const Parts&... what) {
  if (ok) return;
  std::ostringstream message;
  message.precision(9);
  (message << ... << what);
  throw Failure(message.str());
}

// Calls f, which must throw Error with `part` in its message.
template <class Error, class Function>
void check_throws(const Function& f, const std::string& part) {
  try {
    f();
  } catch (const Error& error) {
    check(std::string(error.what()).find(part) != std::string::npos, "'", part, "' is missing in: ", error.what());
    return;
  }
  check(false, "nothing was thrown where '", part, "' was expected");
}

}  // namespace outrider::test
