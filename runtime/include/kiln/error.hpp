// Error, Result<T>, Status and KILN_TRY, under the name that users of the runtime look for.
#pragma once

#include "kiln/cache/result.hpp"
