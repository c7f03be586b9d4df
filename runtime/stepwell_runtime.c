#include "stepwell_runtime.h"
