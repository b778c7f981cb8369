// The benchmark harness: two arms of work timed against each other on the device or on the host,
// with gates that refuse a measurement instead of rounding it up.
//
// Threads: as each header says.
#pragma once

#include "kiln/bench/compare.hpp"
#include "kiln/bench/device.hpp"
#include "kiln/bench/host.hpp"
#include "kiln/bench/receipt.hpp"
